"""The second moment of users by SOLD, whatever the estimator: one interface for few features and for many actions.

Coverage, the spectrum, the test of the rank and the terms of the paper's radii are needed of every fit. `DenseSold` has
them from d x d sums that one pass adds up; `SparseSold` from a few passes more, where one-hot actions are too many for
a d x d matrix. `find` takes the one that suits the logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol
from warnings import warn

from newcomer.arrays import Floats
from newcomer.errors import FitWarning, LogsError
from newcomer.evidence import CoverageFacts, RankTest
from newcomer.logs.logs import BATCH_BYTES, Logs
from newcomer.logs.reduce import CODED, PassOver, reduce
from newcomer.population import Estimate
from newcomer.radius import Ingredients
from newcomer.sold.dense import DenseSold
from newcomer.sold.moments import Moments, merge, moments_of, share_near_square
from newcomer.sold.sparse import SparseSold

NEAR_SQUARE = 0.01  # share of users with nearly square halves from which pseudo-inverses are warned of


class SecondMoment(Protocol):
    """What a fit asks of E[beta beta^T]."""

    @property
    def tests(self) -> tuple[RankTest, ...]:
        """The tests of the rank of the second moment and of the covariance, where they were asked for."""

    @property
    def spectrum(self) -> Floats:
        """Its leading eigenvalues, largest first."""

    def facts(self, rank: int) -> CoverageFacts:
        """How well actions cover the features, for a basis of this rank."""

    def radius(self, rank: int) -> Ingredients | None:
        """What the paper's radii of a basis of this rank follow from."""

    def estimate(self, *, calibrate: bool) -> Estimate:
        """SOLD's basis and population."""


@dataclass(frozen=True)
class SoldSettings:
    """What is asked of SOLD; `ridge` None is the pseudo-inverse version."""

    rank: int | Literal["auto"]
    ridge: float | None
    literal: bool = False
    null: bool = True
    spectrum_only: bool = False  # for em, which finds its own basis


def find(
    logs: Logs,
    asked: SoldSettings,
    *,
    before: Moments | None = None,
    keep: Callable[[Moments], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SecondMoment:
    """The second moment of the users of logs; of few features with the moments of users `before` added, and kept."""
    if logs.wide:
        if logs.intercept:
            todo = "leave it out: the mean of one-hot features has the level of every action already"
            raise LogsError(f"a constant beside {logs.dim - 1:,} one-hot actions", where="intercept", todo=todo)
        run = PassOver(logs, CODED, progress)
        how: dict[str, Any] = {"rank": asked.rank, "literal": asked.literal, "null": asked.null}
        return SparseSold.of(logs, run, asked.ridge, spectrum_only=asked.spectrum_only, **how)
    add_up = partial(moments_of, ridge=asked.ridge, one_hot=logs.one_hot and not logs.intercept)
    moments = reduce(logs, add_up, merge, rows=batch_rows(logs.dim), progress=progress)
    moments = moments if before is None else merge(before, moments)
    if keep is not None:
        keep(moments)
    return DenseSold.of(logs, moments, rank=asked.rank, literal=asked.literal, null=asked.null)


def batch_rows(dim: int) -> int:
    """Rows of a batch: enough that adding up its d x d sums costs little beside computing them."""
    return max(BATCH_BYTES // (8 * dim), 16 * dim)


def ridge_for(logs: Logs, estimator: str, ridge: float | None) -> tuple[float | None, str]:
    """The ridge of the half estimates, None for the pseudo-inverse, and where it came from."""
    if estimator == "sold-pinv":
        return None, "pseudo-inverse: no ridge"
    if ridge is not None:
        return float(ridge), "given"
    norm = logs.summary.mean_squared_norm
    if norm == 0:
        raise LogsError("all features are zero", todo="log features that tell actions apart")
    return norm, "mean squared norm of the features"


def warn_near_square(found: SecondMoment, ridge: float | None, dim: int, *, stacklevel: int) -> str:
    """Warn where pseudo-inverses fail on these logs; the same in a few words, for the evidence, or nothing."""
    share = share_near_square(found.moments) if ridge is None and isinstance(found, DenseSold) else 0.0
    if share < NEAR_SQUARE:
        return ""
    users = f"{share:.0%} of the users have halves of about {dim} rows, as many as there are features"
    warn(
        f"sold-pinv is not to be trusted here: {users}, and a pseudo-inverse of such a half multiplies the noise; use "
        "estimator='sold'",
        FitWarning,
        stacklevel=stacklevel + 1,
    )
    return f"; not to be trusted: {users}"
