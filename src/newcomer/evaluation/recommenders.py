"""Two recommenders that teams already have, folded in for a newcomer: explicit ALS and EASE.

Both are learned from the table of logged answers X less the mean of each action, (users, actions), of which only the
cells that were logged are kept:

    ALS    X ~ P V^T on the logged cells, ridge on both sides; a newcomer's p is ridge least squares on own answers
    EASE   B = argmin |X - X B|^2 + ridge |B|^2 with a zero diagonal: B = I - G^-1 / diag(G^-1), G = X^T X + ridge I

A newcomer's table has the mean of own answers in each cell met. Neither says anything new of an action once met (ALS
blurs the answer, EASE is blind to it), so both are also played with the user's own mean answer wherever there is one.
The ridge is the one of a grid with which a hidden fifth of the logged answers is predicted best; which are hidden
depends on the user and the action alone. EASE inverts a matrix of all actions, and is left out beyond 2,000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from newcomer.arrays import Bools, Floats, Hashes, Ints
from newcomer.evaluation.settings import EVALUATION
from newcomer.linear.als import AlsRegression, fit_als, observed_als_cells
from newcomer.linear.state import State
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import reduce
from newcomer.logs.workers import Engine
from newcomer.model import Model
from newcomer.policies.base import Contract
from newcomer.policies.calls import Ids, Query, Rewards
from newcomer.users import mix_user_hashes, user_lots
from newcomer.worlds.world import world_stream

Fold = Callable[[Floats, Bools], Floats]  # centred answers (n, A) and where they are -> what is expected of all cells


@dataclass
class Answers(State):
    """Sums and counts (n, A) of a user's centred answers."""

    total: Floats
    count: Floats


@dataclass(frozen=True, eq=False)
class FoldIn(Contract[Answers]):
    """Greedy by a recommender; with `own`, the user's own mean answer counts wherever there is one."""

    model: Model  # which actions there are
    mean: Floats
    fold: Fold
    own: bool = False

    def init(self, n: int) -> Answers:
        """Nothing answered."""
        return Answers(np.zeros((n, len(self.mean))), np.zeros((n, len(self.mean))))

    def score(self, state: Answers, query: Query) -> Floats:
        """What the recommender expects (m, K)."""
        met = state.count[query.users] > 0
        answers = state.total[query.users] / np.maximum(state.count[query.users], 1.0)
        expected = self.fold(answers, met)
        expected = self.mean + (np.where(met, answers, expected) if self.own else expected)
        return np.take_along_axis(expected, self._places(query.ids, (len(query.users), -1)), axis=1)

    def learn(self, state: Answers, observed: Rewards) -> None:
        """Add the answers up."""
        places = self._places(observed.ids, (-1,))
        np.add.at(state.total, (observed.users, places), observed.reward - self.mean[places])
        np.add.at(state.count, (observed.users, places), 1.0)

    def _places(self, ids: Ids | None, shape: tuple[int, ...]) -> Ints:
        assert ids is not None
        return self.model.codes(ids.ravel()).reshape(shape)


def recommenders(logs: Logs, model: Model) -> dict[str, FoldIn]:
    """ALS and, unless there are too many actions, EASE, each as it is and with a user's own answers if any."""
    cells, hashes = recommender_cells(logs)
    met = observed_als_cells(cells)
    total, count = (np.asarray(one.sum(axis=0)).ravel() for one in (cells, met))
    mean = (total + EVALUATION.mean_prior * cells.sum() / met.sum()) / (count + EVALUATION.mean_prior)
    centred = cells.copy()
    centred.data = centred.data - mean[centred.indices]
    names = [name for name in EVALUATION.ridges if name != "EASE" or len(mean) <= EVALUATION.largest_ease]
    made = {name: _recommender_with_best_ridge(name, centred, hashes, logs.engine) for name in names}
    return {
        f"{name} fold-in{', own answers' if own else ''}": FoldIn(model, mean, fold, own)
        for name, fold in made.items()
        for own in (False, True)
    }


@dataclass(frozen=True)
class _Cells:
    """Rows of some users: their hashes (n,) and lengths (n,), actions and rewards of all rows."""

    hashes: Hashes
    lengths: Ints
    actions: Ints
    rewards: Floats

    @classmethod
    def of(cls, batch: Batch) -> _Cells:
        assert batch.actions is not None
        return cls(batch.hashes, batch.lengths, batch.actions, batch.rewards)

    def __add__(self, other: _Cells) -> _Cells:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Cells(*(np.concatenate(pair) for pair in pairs))


def _join(one: _Cells, other: _Cells) -> _Cells:
    return one + other


def recommender_cells(logs: Logs) -> tuple[Any, Hashes]:
    """Mean answers of the logs as a sparse table (users, actions), and the hashes (users,) by which rows are sorted."""
    found = reduce(logs, _Cells.of, _join)
    order = np.argsort(found.hashes)
    row = np.repeat(np.argsort(order), found.lengths)
    shape = len(order), len(logs.action_ids or ())
    total = sparse.csr_array((found.rewards, (row, found.actions)), shape=shape)
    count = sparse.csr_array((np.ones(len(row)), (row, found.actions)), shape=shape)
    for one in (total, count):  # cells of the same user and action add up, and cells of zero stay
        one.sum_duplicates()
    total.data = total.data / count.data
    return total, found.hashes[order]


def recommender_table(logs: Logs) -> tuple[Floats, Bools]:
    """Mean answers (users, actions) of the logs, zero where there are none, and where there are some."""
    cells, _ = recommender_cells(logs)
    return cells.toarray(), observed_als_cells(cells).toarray() > 0


@dataclass(frozen=True, eq=False)
class _HiddenAnswers:
    """A table without a part of its answers, and these: values (c,) of rows (c,) and actions (c,)."""

    name: str  # of the recommender
    seen: Any
    rows: Ints
    actions: Ints
    values: Floats

    @classmethod
    def of(cls, name: str, centred: Any, hashes: Hashes) -> _HiddenAnswers:
        """Answers are hidden by a hash of user and action."""
        row = np.repeat(np.arange(len(hashes)), np.diff(centred.indptr))
        lots = user_lots(mix_user_hashes(hashes[row] ^ mix_user_hashes(centred.indices.astype(np.uint64))))
        hidden = lots < EVALUATION.hidden
        seen = _cells_where(centred, row, ~hidden)
        return cls(name, seen, row[hidden], centred.indices[hidden], centred.data[hidden])

    def error(self, ridge: float) -> float:
        """The mean squared error of what the recommender with a ridge expects of them."""
        if not len(self.values):
            return 0.0
        expected = _recommender(self.name, self.seen, ridge).at(self.seen, self.rows, self.actions)
        return float(((expected - self.values) ** 2).mean())


def _recommender_with_best_ridge(name: str, centred: Any, hashes: Hashes, engine: Engine | None) -> Fold:
    """The recommender of this name with the ridge that predicts a hidden part of the answers best.

    Workers, where there are any, share the ridges.
    """
    ridges, hidden = EVALUATION.ridges[name], _HiddenAnswers.of(name, centred, hashes)
    if engine is None:
        errors = [hidden.error(ridge) for ridge in ridges]
    else:
        errors = list(engine.each(_HiddenAnswers.error, ridges, given=hidden))
    return _recommender(name, centred, ridges[int(np.argmin(errors))])


def _recommender(name: str, cells: Any, ridge: float) -> Als | Ease:
    return Als.of(cells, ridge) if name == "ALS" else Ease.of(cells, ridge)


def _cells_where(cells: Any, row: Ints, kept: Bools) -> Any:
    """The same table with some of its cells."""
    return sparse.csr_array((cells.data[kept], (row[kept], cells.indices[kept])), shape=cells.shape)


@dataclass(frozen=True, eq=False)
class Als:
    """Factors (A, k) of the actions, by explicit alternating least squares (linear/als.py)."""

    items: Floats
    ridge: float

    @classmethod
    def of(cls, centred: Any, ridge: float) -> Als:
        """Some sweeps from a small random start."""
        start = 0.1 * world_stream(0, "als").standard_normal((centred.shape[1], EVALUATION.factors))
        return cls(fit_als(centred, start, ridge=ridge, sweeps=EVALUATION.sweeps)[1], ridge)

    @cached_property
    def regression(self) -> AlsRegression:
        """The regression of a newcomer's answers on the factors."""
        return AlsRegression(self.items, self.ridge)

    def __call__(self, answers: Floats, where: Bools) -> Floats:
        row, column = np.nonzero(where)
        cells = sparse.csr_array((answers[row, column], (row, column)), shape=answers.shape)
        return np.asarray(self.regression.solve(cells) @ self.items.T)

    def at(self, cells: Any, rows: Ints, actions: Ints) -> Floats:
        """What is expected of some cells of a sparse table."""
        users = self.regression.solve(cells)
        return np.asarray(np.einsum("ck,ck->c", users[rows], self.items[actions]))


@dataclass(frozen=True, eq=False)
class Ease:
    """Weights (A, A) of the linear autoencoder with a zero diagonal, in closed form."""

    weights: Floats

    @classmethod
    def of(cls, centred: Any, ridge: float) -> Ease:
        """One inverse."""
        inverse = np.linalg.inv((centred.T @ centred).toarray() + ridge * np.eye(centred.shape[1]))
        weights = -inverse / np.diag(inverse)
        np.fill_diagonal(weights, 0.0)
        return cls(weights)

    def __call__(self, answers: Floats, where: Bools) -> Floats:
        return np.asarray(answers @ self.weights)

    def at(self, cells: Any, rows: Ints, actions: Ints) -> Floats:
        """What is expected of some cells of a sparse table."""
        return np.asarray((cells @ self.weights)[rows, actions])
