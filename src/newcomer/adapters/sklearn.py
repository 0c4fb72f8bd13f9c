"""A scikit-learn transformer: from a table of users x actions, NaN where unseen, to latent coordinates.

A row is a user, a column an action, an entry the reward of their one meeting. `fit` is `newcomer.fit` of the entries
that are there, `transform` is `Model.transform`: a posterior mean, so that a user with few entries is near 0 and one
with none is at 0. There is no imputation: what is not there says nothing. Needs the extra `[sklearn]`.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from newcomer._fit import fit
from newcomer._transform import Coordinates
from newcomer.arrays import Floats
from newcomer.errors import MissingExtra
from newcomer.logs.logs import Logs
from newcomer.users import mix_user_hashes

try:
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtra.of("sklearn", purpose="the scikit-learn transformer") from error


class TasteTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Users of a table (n, actions) as their coordinates (n, k) along the directions that users share.

    `rank` and `estimator` are those of `newcomer.fit`. After `fit`, `model_` is the fitted model, and `located(X)`
    gives the coordinates with their covariances.

    >>> rng = np.random.default_rng(0)
    >>> table = rng.normal(size=(200, 1)) * np.array([1.0, -1.0, 1.0, -1.0]) + 0.1 * rng.normal(size=(200, 4))
    >>> table[0, 2:] = np.nan
    >>> TasteTransformer(rank=1).fit(table).transform(table).shape
    (200, 1)
    """

    def __init__(self, rank: int | Literal["auto"] = "auto", *, estimator: str = "em") -> None:
        self.rank = rank
        self.estimator = estimator

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Fit the entries of `X` that are not NaN; `y` is ignored."""
        table = self._checked(X, reset=True)
        rank = self.rank if isinstance(self.rank, str) else min(int(self.rank), table.shape[1])
        self.model_ = fit(_logs(table), rank=rank, estimator=self.estimator, calibrate=False)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Posterior means (n, k)."""
        return self.located(X).mean

    def located(self, X: ArrayLike) -> Coordinates:
        """Coordinates with their uncertainty, one entry for each row of `X`."""
        check_is_fitted(self)
        table = self._checked(X, reset=False)
        seen = ~np.isnan(table).all(axis=1)
        rank = self.model_.factor.shape[1]
        mean = np.zeros((len(table), rank))
        covariance = np.tile(np.eye(rank), (len(table), 1, 1))
        rows = np.zeros(len(table), dtype=np.int64)
        if seen.any():
            where = self.model_.transform(_logs(table))
            mean[seen], covariance[seen], rows[seen] = where.mean, where.covariance, where.rows
        return Coordinates(np.arange(len(table)), rows, mean, covariance)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Names of the coordinates: taste1, taste2, ..."""
        check_is_fitted(self)
        return np.array([f"taste{j + 1}" for j in range(self.model_.factor.shape[1])], dtype=object)

    def _checked(self, X: ArrayLike, *, reset: bool) -> Floats:
        """The table as float64; NaN is a value that is not there, and infinity none at all."""
        least = 2 if reset else 1  # of what can be fitted: preferences are shared by two users, and by two actions
        table: Floats = validate_data(
            *(self, X),
            reset=reset,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            ensure_min_samples=least,
            ensure_min_features=least,
        )
        return table

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _logs(table: Floats) -> Logs:
    """A row for each entry that is there; users are numbers of rows, actions numbers of columns.

    A table has no time. Each user's entries come in an order drawn by hash: in that of the columns every action would
    always meet the same others in its half of a history, and the halves could not be compared.
    """
    user, action = np.nonzero(~np.isnan(table))
    order = np.lexsort((mix_user_hashes(mix_user_hashes(user.astype(np.uint64)) + action.astype(np.uint64)), user))
    return Logs.from_arrays(user=user[order], action=action[order], reward=table[user, action][order])
