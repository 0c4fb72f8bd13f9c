"""What moments of all users show: directions of preference that stand out from the edge of chance, and their strengths.

The sums over pairs of rows (`all_pairs`), scaled so that chance alone makes every entry vary alike, are

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
it is completed by what the directions make of it. With other features v is one for all, and with more than `WIDE`
one-hot actions M is multiplied by passes (`wide_start`) and never written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh

from newcomer.arrays import Bools, Floats, symmetric_part
from newcomer.em.pairs import FIRM, AnyPairs, Pairs, pair_action_variances
from newcomer.em.shrinkage import FitStart
from newcomer.population import Population
from newcomer.users import user_bucket_signs

DENSE = 256  # features up to which all eigenvectors are as quick as the leading ones
FILLS = 10  # rounds of the completion of the diagonal
FLIPPED = 3  # flips by which passes tell the edge among many actions: one pass serves all of them
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


class PairMoments:
    """Finds up to `most` directions of all users, and of parts of them, and keeps what it has found.

    The edge of a part is that of all users, times the square root of how many times more they are.
    """

    def __init__(self, origin: FitStart, most: int) -> None:
        self.origin, self.most = origin, min(most, origin.pairs.cross.shape[1])
        self.every = np.ones(len(origin.pairs.users), dtype=np.bool_)
        self._found: dict[bytes, Spikes] = {}
        self._edge: float | None = None

    def of(self, parts: Sequence[Bools]) -> list[Spikes]:
        """The directions of parts (B,) of the buckets of users; among many actions, all in the same passes."""
        missing = {part.tobytes(): part for part in parts if part.tobytes() not in self._found}
        if missing:
            look = self._wide if self.origin.directions is not None else self._narrow
            for name, (part, values, directions) in zip(missing, look(list(missing.values())), strict=True):
                self._found[name] = Spikes(values, directions, self._edge_of(part))
        return [self._found[part.tobytes()] for part in parts]

    def _edge_of(self, part: Bools) -> float:
        """The largest eigenvalue that chance gives to a part of the users."""
        users, edge = self.origin.pairs.users, self._edge
        assert edge is not None
        return edge * float(np.sqrt(users.sum() / max(float(users[part].sum()), 1.0)))

    def _narrow(self, parts: list[Bools]) -> list[tuple[Bools, Floats, Floats]]:
        """Eigenvalues and directions of parts of the users, from sums that are there."""
        pairs, (inward, outward) = self.origin.pairs, _scales(self.origin)
        assert isinstance(pairs, Pairs)
        dim, users = pairs.cross.shape[1], float(pairs.users.sum())
        common = np.zeros(dim) if self.origin.centred else pairs.means.sum(axis=0) / users

        def moment(weights: Floats) -> Floats:
            """M of the buckets, each with its weight (B,)."""
            mass = max(float(np.abs(weights) @ pairs.pairable), 1.0)
            level = float(weights @ pairs.pairable) * np.outer(common, common)
            return symmetric_part(inward.T @ (np.tensordot(weights, pairs.products, 1) - level) @ inward) / mass

        if self._edge is None:
            flips = user_bucket_signs(len(pairs.users))
            self._edge = float(np.mean([_largest(moment(signs)) for signs in flips]))
        found, hollow = [], self.origin.one_hot and dim == pairs.met.shape[1]
        for part in parts:
            whole = moment(part.astype(np.float64))
            values, vectors = _leading(whole, self.most, self._edge_of(part), hollow=hollow)
            found.append((part, values, outward @ vectors))
        return found

    def _wide(self, parts: list[Bools]) -> list[tuple[Bools, Floats, Floats]]:
        """The same among many one-hot actions, by passes that serve all parts and flips."""
        pairs, directions = self.origin.pairs, self.origin.directions
        assert directions is not None
        inward, outward = one_hot_spike_scales(pairs.take(self.every))
        flips = [] if self._edge is not None else list(user_bucket_signs(len(pairs.users))[:FLIPPED])
        asked = [part.astype(np.float64) for part in parts] + flips
        counts = [self.most] * len(parts) + [1] * len(flips)
        spectra = directions.spectra(asked, [inward] * len(asked), counts)
        if flips:
            self._edge = float(np.mean([np.abs(values).max() for values, _ in spectra[len(parts) :]]))
        top = slice(self.most)
        return [
            (part, values[top], outward[:, None] * vectors[:, top])
            for part, (values, vectors) in zip(parts, spectra[: len(parts)], strict=True)
        ]


def _scales(origin: FitStart) -> tuple[Floats, Floats]:
    """A and B (d, d): from sums over pairs to M, and from its directions to reward vectors."""
    every = origin.pairs.take(np.ones(len(origin.pairs.users), dtype=np.bool_))
    dim = every.cross.shape[1]
    if origin.one_hot and dim == every.met.shape[1]:
        inward, outward = one_hot_spike_scales(every)
        return np.diag(inward), np.diag(outward)
    assert isinstance(every, Pairs)
    rows, noise = max(float(every.rows[0]), 1.0), origin.start(np.ones(len(origin.pairs.users), dtype=np.bool_), 0)
    gram = every.gram[0] / rows
    values, vectors = np.linalg.eigh(gram + np.eye(dim) * (np.trace(gram) / dim) * dim / (dim + rows))
    white = vectors / np.sqrt(np.where(values > 0, values, 1.0))
    deviation = float(np.sqrt(noise.noise_variance))
    return white / deviation, white * deviation


def one_hot_spike_scales(every: AnyPairs) -> tuple[Floats, Floats]:
    """The diagonals (A,) of A = (v C)^-1/2 and of B = v^1/2 C^-1/2, the latter less for actions hardly met."""
    met, variances = every.met[0], pair_action_variances(every)
    assert variances is not None
    often = (met + 1.0) / max(float(every.rows[0]), 1.0)  # as if each had been met once more
    return 1.0 / np.sqrt(variances * often), met / (met + FIRM) * np.sqrt(variances / often)


def _leading(moment: Floats, most: int, edge: float, *, hollow: bool) -> tuple[Floats, Floats]:
    """The leading eigenvalues, largest first, and eigenvectors; a diagonal that is missing is completed on the way."""
    count = min(most, len(moment))
    values, vectors = _top(moment, count)
    for _ in range(FILLS if hollow else 0):
        strengths = Spikes(values, vectors, edge).strengths
        np.fill_diagonal(moment, (vectors**2) @ strengths)
        values, vectors = _top(moment, count)
    return values, vectors


def _top(moment: Floats, count: int) -> tuple[Floats, Floats]:
    """`count` eigenvalues, largest first, and their eigenvectors."""
    size = len(moment)
    if size <= DENSE or count >= size - 1:
        values, vectors = eigh(moment, subset_by_index=[size - count, size - 1])
    else:
        values, vectors = eigsh(moment, k=count, which="LA", v0=np.ones(size))
        order = np.argsort(values, kind="stable")
        values, vectors = values[order], vectors[:, order]
    return values[::-1].copy(), vectors[:, ::-1].copy()


def _largest(moment: Floats) -> float:
    """The largest absolute eigenvalue."""
    if len(moment) <= DENSE:
        return float(np.abs(np.linalg.eigvalsh(moment)).max())
    (value,) = eigsh(moment, k=1, which="LM", v0=np.ones(len(moment)), tol=1e-3, return_eigenvectors=False)
    return abs(float(value))
