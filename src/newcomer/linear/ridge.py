"""The one linear system: ridge regression of rewards on features, one system per user.

After rewards r_s for features x_s the system is V = I + sum x_s x_s^T, b = sum r_s x_s, with mean V^-1 b and ellipsoid
{beta : |beta - mean|_V <= width}. Instead of V^-1 we keep the triangular W = L^-1 of the Cholesky factor V = L L^T, so
that V^-1 = W^T W is positive definite whatever rounding does:

    x^T V^-1 x = |W x|^2,      mean + width W^T e ~ N(mean, width^2 V^-1)  for standard normal e.

A reward turns W by M^-1, where I + z z^T = M M^T and z = W x, in one pass over the triangle (N. A. Carlson, "Fast
triangular formulation of the square root filter", AIAA Journal 11, 1973). With s_i = 1 + z_1^2 + ... + z_i^2, row i
becomes sqrt(s_{i-1} / s_i) (w_i - (z_i / s_{i-1}) sum_{j<i} z_j w_j), and the last sum is V^-1 x, which moves the mean.

Rank-one steps drift away from V by about eps cond(V) each. V itself is kept as a compensated sum (plain sums of 100,000
equal terms are off by 1e-12, which cond(V) = 1e5 turns into 1e-7), so W is computed afresh from it before the drift can
reach 1e-8; `guard` keeps the schedule. Where V is so ill-conditioned that
it cannot be factorised (beyond about 1e16), the turned W, still positive definite, is kept.

Triangles are packed: row i of V or W takes places i (i + 1) / 2 and the i after it.

The posterior of a user: what rewards say of latent coordinates z, a priori N(0, I).

Rewards r_s = x_s^T z + noise of variance v_s make z Gaussian with

    precision   P = I + sum x_s x_s^T / v_s,      mean   P^-1 sum x_s r_s / v_s,

which is the ridge system (linear/ridge.py) of the rows x_s / sqrt(v_s) and rewards r_s / sqrt(v_s): the posterior of z
is the system's mean and V^-1. Policies keep it up to date reward by reward. The same posterior of whole histories at
once, as a fit and `Model.transform` need it, is `likelihood_user_posterior` (em/likelihood_loops.py); tests/linear
holds both to each other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from newcomer.array_loops import plain
from newcomer.arrays import Bools, Floats, Ints, read_only_array
from newcomer.errors import ModelError
from newcomer.linear import learning_loops, scoring_loops
from newcomer.linear.learning_loops import System
from newcomer.linear.state import NOBODY, Record, State
from newcomer.linear.state_file import FREE


@dataclass
class Ridge(State):
    """Systems of n users in d dimensions, p = d (d + 1) / 2; factor and gram may be (n, 0) until they are needed.

    `guard` (n, 4) says when W is computed afresh: trace of V, the trace at which to do so, steps since then, steps
    allowed.
    """

    mean: Floats  # (n, d)
    moment: Floats  # (n, d), b
    factor: Floats  # (n, p), W
    gram: Floats  # (n, p), V
    carry: Floats  # (n, p), what rounding has kept out of V so far
    guard: Floats  # (n, 4)
    count: Ints  # (n,), rewards seen

    @property
    def dim(self) -> int:
        """Dimension d of the systems."""
        return int(self.mean.shape[1])

    @property
    def complete(self) -> bool:
        """Whether the triangles are there."""
        return bool(self.factor.shape[1] == self.gram.shape[1] == self.carry.shape[1] > 0)

    @cached_property
    def parts(self) -> System:
        """The arrays as the compiled loops take them. They change in place; who replaces one forgets this."""
        return System(self.factor, self.gram, self.carry, self.moment, self.mean, self.guard, self.count)

    def untouched(self) -> Bools:
        """Of each system (n,) whether it has seen no reward."""
        return np.asarray(self.count == 0)

    def derived(self) -> Collection[str]:
        """What V and b say, of systems with few dimensions; V itself where it is the identity."""
        if not self.complete or self.dim > learning_loops.ALWAYS or not len(self.mean):
            return ()
        found = learning_loops.learned_parts_to_save(
            self.factor, self.gram, self.carry, self.moment, self.mean, self.guard
        )
        if found == learning_loops.B_ALONE and self.gram.size <= FREE:
            return ("mean", "factor", "guard", "gram", "carry")
        return ("mean", "factor", "guard") if found != learning_loops.EVERYTHING else ()

    @classmethod
    def rebuild(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "", record: Record = NOBODY) -> Self:
        """As of any state, with what was not written because it is `derived`."""
        moment = arrays.get(f"{prefix}moment")
        if moment is not None and f"{prefix}mean" not in arrays:
            arrays = {**arrays, **_completed(arrays, prefix, moment)}
        return super().rebuild(arrays, prefix, record)

    @classmethod
    def assemble(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Self:
        """The same, unchecked."""
        if f"{prefix}mean" not in arrays:
            moment = arrays[f"{prefix}moment"]
            own = _completed(arrays, prefix, moment)
            own[f"{prefix}moment"], own[f"{prefix}count"] = moment, arrays[f"{prefix}count"]
            arrays = own
        return super().assemble(arrays, prefix)

    def check_values(self) -> None:
        """Any numbers do."""

    def check(self) -> None:
        """Refuse arrays that do not fit together."""
        super().check()
        n, d = len(self.mean), self.mean.shape[-1]
        self.refuse_unless(self.mean.ndim == 2 and self.moment.shape == (n, d) and self.guard.shape == (n, 4))
        triangles, sizes = [self.factor, self.gram, self.carry], ((n, 0), (n, ridge_packed_size(d)))
        self.refuse_unless(all(part.shape in sizes for part in triangles))
        floats = [self.mean, self.moment, self.guard, *triangles]
        self.refuse_unless(all(array.dtype == np.float64 for array in floats))
        self.refuse_unless(self.count.dtype == np.int64 and self.count.ndim == 1)


def _completed(arrays: Mapping[str, NDArray[Any]], prefix: str, moment: Floats) -> dict[str, NDArray[Any]]:
    """The arrays that `Ridge.derived` left out of a file, which is not trusted."""
    gram, carry = arrays.get(f"{prefix}gram"), arrays.get(f"{prefix}carry")
    shape = moment.shape[0], ridge_packed_size(moment.shape[-1])
    few = moment.ndim == 2 and moment.shape[1] <= learning_loops.ALWAYS
    if not few or (gram is None and shape[0] * shape[1] > FREE):
        raise ModelError("the state lacks the factors of its systems")
    if gram is None:
        identity = _identity(moment.shape[1])[None]
        gram = identity.copy() if len(moment) == 1 else np.repeat(identity, len(moment), axis=0)
    carry = np.zeros(shape) if carry is None else carry
    if gram.shape != shape or gram.dtype != np.float64 or moment.dtype != np.float64:
        raise ModelError("the systems of this state are of different sizes")
    factor, mean, guard = np.empty(shape), np.empty_like(moment), np.empty((len(moment), 4))
    if not learning_loops.derive_learned_parts(plain(gram), plain(moment), factor, mean, guard):
        raise ModelError("a system of this state is singular")
    found = {"gram": gram, "carry": carry, "factor": factor, "mean": mean, "guard": guard}
    return {prefix + name: array for name, array in found.items()}


def ridge_packed_size(dim: int) -> int:
    """Entries of a packed triangle of a (dim, dim) matrix.

    >>> ridge_packed_size(3)
    6
    """
    return dim * (dim + 1) // 2


def pack_ridge(matrix: Floats) -> Floats:
    """The lower triangle of (..., d, d), row by row.

    >>> pack_ridge(np.array([[1.0, 9.0], [2.0, 3.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    rows, columns = np.tril_indices(matrix.shape[-1])
    return np.ascontiguousarray(matrix[..., rows, columns])


@lru_cache(maxsize=16)
def _identity(dim: int) -> Floats:
    """The packed triangle of the identity."""
    return read_only_array(pack_ridge(np.eye(dim)))


def unpack_ridge(triangle: Floats, dim: int) -> Floats:
    """The lower triangular (..., d, d) with this packed triangle."""
    out = np.zeros((*triangle.shape[:-1], dim, dim))
    rows, columns = np.tril_indices(dim)
    out[..., rows, columns] = triangle
    return out


def start_ridge(n: int, dim: int) -> Ridge:
    """n systems before any reward: V = I, b = 0, so W = I and the mean is zero."""
    identity = np.repeat(_identity(dim)[None], n, axis=0)
    guard = np.tile([float(dim), 4.0 * dim, 0.0, learning_loops.LONGEST], (n, 1))
    mean, moment, count = np.zeros((n, dim)), np.zeros((n, dim)), np.zeros(n, dtype=np.int64)
    return Ridge(mean, moment, identity, identity.copy(), np.zeros_like(identity), guard, count)


def start_empty_ridge(n: int, dim: int) -> Ridge:
    """n systems without triangles, for users who may never need theirs: means and moments only."""
    mean, moment, none = np.zeros((n, dim)), np.zeros((n, dim)), np.zeros((n, 0))
    return Ridge(mean, moment, none, none, none, np.zeros((n, 4)), np.zeros(n, dtype=np.int64))


def learn_ridge(system: Ridge, features: Floats, reward: Floats, users: Ints) -> bool:
    """Take rewards (m,) for features (m, d) into the systems of `users` (m,), in this order.

    False, and nothing changed, if one of the numbers is missing or too large.

    >>> system = start_ridge(1, 2)
    >>> learn_ridge(system, np.array([[1.0, 0.0]]), np.array([3.0]), np.array([0]))
    True
    >>> system.mean.round(12).tolist()
    [[1.5, 0.0]]
    """
    return learning_loops.learn_rows(*system.parts, users, features, reward)


def inform_ridge(system: Ridge, users: Ints, precision: Floats, moment: Floats) -> None:
    """Add to V (m, d, d) and b (m, d) of `users` (m,), each of them once: what is known from elsewhere than rewards.

    >>> system = start_ridge(1, 1)
    >>> inform_ridge(system, np.array([0]), np.array([[[1.0]]]), np.array([[3.0]]))
    >>> system.mean.round(9).tolist()
    [[1.5]]
    """
    system.gram[users] += pack_ridge(precision)
    system.moment[users] += moment
    for user in users:
        learning_loops.refresh_learned_system(
            system.gram[user], system.factor[user], system.moment[user], system.mean[user], system.guard[user]
        )


def ridge_precision(system: Ridge) -> Floats:
    """V (n, d, d), both halves, from the packed lower triangle.

    >>> ridge_precision(start_ridge(1, 2)).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    return symmetric_ridge(system.gram, system.dim)


def symmetric_ridge(triangle: Floats, dim: int) -> Floats:
    """The symmetric (..., d, d) with this packed lower triangle.

    >>> symmetric_ridge(np.array([1.0, 2.0, 3.0]), 2).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    lower = unpack_ridge(triangle, dim)
    full: Floats = lower + np.swapaxes(lower, -1, -2)
    np.einsum("...ii->...i", full)[:] = np.einsum("...ii->...i", lower)
    return full


def condition_ridge_posterior(system: Ridge, users: Ints, rows: Floats, rewards: Floats, variance: Floats) -> None:
    """Take rewards (m,) = rows (m, k) . z + noise of this variance (m,) into the posteriors of `users` (m,).

    >>> system = start_ridge(1, 1)
    >>> condition_ridge_posterior(system, np.array([0]), np.array([[1.0]]), np.array([3.0]), np.array([0.5]))
    >>> system.mean.round(6).tolist()
    [[2.0]]
    """
    root = np.sqrt(variance)
    learn_ridge(system, np.ascontiguousarray(rows / root[:, None]), rewards / root, users)


def predict_by_ridge_posterior(system: Ridge, users: Ints, rows: Floats) -> tuple[Floats, Floats]:
    """What the posteriors of `users` (m,) expect of rows (m, k): mean (m,) and variance (m,) of rows . z."""
    x, length = np.ascontiguousarray(rows), np.empty(len(users))
    scoring_loops.score_lengths(system.factor, users, x, length)
    return np.einsum("mq,mq->m", x, system.mean[users]), length**2
