"""What moments of all users show: directions of preference that stand out from the edge of chance, and their strengths.

The sums over pairs of rows (`newcomer.em.pairs`), scaled so that chance alone makes every entry vary alike, are

    M = A^T P A / users = V diag(theta) V^T + chance,        A = (v C)^-1/2,

with C = E[phi phi^T] and v the variance of each action's rewards, so that theta is the share of that variance which a
direction explains. Chance by itself has eigenvalues up to an *edge*, which flips of the signs of buckets of users tell
(flipped, whatever is shared cancels). An eigenvalue lambda above it belongs to a direction whose strength is

    theta = (lambda + sqrt(lambda^2 - edge^2)) / 2,

and what is below it shows nothing (the spiked model of random matrices: Benaych-Georges and Nadakuditi 2011). Its
eigenvector errs, the more the nearer it is to the edge; with the length sqrt(lambda^2 - edge^2), theta times the
squared cosine of its angle to the truth, it predicts best as it is (Gavish and Donoho 2017). An ascent, which mends it,
starts with theta. The edge falls like one over the square root of the users: six times as many show directions of less
than half the strength.

A direction of M becomes one of reward vectors by B V, B = v^1/2 C^-1/2, where the entries of an action that was met n
times count by n / (n + `FIRM`). With one-hot features M has no diagonal, since a user's rows of one action are no pair;
it is completed by what the directions make of it. With other features v is one for all, and with more than 1,000
one-hot actions M is multiplied by passes and never written out (`newcomer.em.pair_moment`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from newcomer.arrays import Bools, Floats, Ints
from newcomer.population import Population

if TYPE_CHECKING:
    from newcomer.em.shrinkage import FitStart

WHOLE = 0.95  # share of the variance of rewards that directions explain at most
SLIGHT = 1e-3  # share of the variance that a direction gets which is asked for and does not stand out


@dataclass(frozen=True)
class Spikes:
    """Directions of some users: eigenvalues (K,) of M, largest first, and eigenvectors as reward vectors (d, K)."""

    values: Floats
    directions: Floats
    edge: float

    @property
    def strengths(self) -> Floats:
        """The share (K,) of the variance of rewards that each direction explains; 0 for those that chance makes.

        >>> Spikes(np.array([5.0, 2.0]), np.eye(2), 4.0).strengths.tolist()
        [4.0, 0.0]
        """
        return np.where(self.values > self.edge, (self.values + self.shrunk) / 2, 0.0)

    @property
    def shrunk(self) -> Floats:
        """The lengths (K,) with which the directions predict best as they are.

        >>> Spikes(np.array([5.0, 2.0]), np.eye(2), 4.0).shrunk.tolist()
        [3.0, 0.0]
        """
        return np.sqrt(np.maximum(np.maximum(self.values, 0.0) ** 2 - self.edge**2, 0.0))

    def population(self, mean: Population, rank: int, *, shrunk: bool = False) -> Population:
        """A population of this rank, with everything but its directions from one that has none."""
        size = np.maximum((self.shrunk if shrunk else self.strengths)[:rank], SLIGHT / len(self.directions))
        left = 1.0 - min(float(size.sum()), WHOLE)
        by_action = None if mean.by_action is None else left * mean.by_action
        factor = self.directions[:, :rank] * np.sqrt(size)
        return replace(mean, factor=factor, noise_variance=left * mean.noise_variance, by_action=by_action)


class SpikeSearch:
    """Finds up to `most` directions of all users, and of parts of them, and keeps what it has found."""

    def __init__(self, origin: FitStart, most: int) -> None:
        self.origin, self.most = origin, min(most, origin.pairs.cross.shape[1])
        self.every = np.ones(len(origin.pairs.users), dtype=np.bool_)
        self._found: dict[bytes, Spikes] = {}
        self._edge: float | None = None

    def of(self, parts: Sequence[Bools]) -> list[Spikes]:
        """The directions of parts (B,) of the buckets of users; among many actions, all in the same passes."""
        missing = {part.tobytes(): part for part in parts if part.tobytes() not in self._found}
        if missing:
            found, self._edge = self.origin.moment.spikes(list(missing.values()), self.most, self._edge)
            self._found.update(zip(missing, found, strict=True))
        return [self._found[part.tobytes()] for part in parts]


def spike_edge_of_part(users: Ints, part: Bools, edge: float) -> float:
    """The largest eigenvalue that chance gives to a part (B,) of the buckets with so many `users` (B,).

    It is the edge of all users, times the square root of how many times more they are.

    >>> spike_edge_of_part(np.array([10, 30]), np.array([True, False]), 0.5)
    1.0
    """
    return edge * float(np.sqrt(users.sum() / max(float(users[part].sum()), 1.0)))
