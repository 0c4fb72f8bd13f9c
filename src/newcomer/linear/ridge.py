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
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from newcomer.errors import PolicyError
from newcomer.linear import learning_loops as kernels
from newcomer.linear.state import State

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass
class Ridge(State):
    """Systems of n users in d dimensions, p = d (d + 1) / 2; factor and gram may be (n, 0) until they are needed.

    `guard` (n, 4): trace of V, the trace at which W is computed afresh, steps since then, steps allowed.
    """

    mean: Floats  # (n, d)
    moment: Floats  # (n, d), b
    factor: Floats  # (n, p), W
    gram: Floats  # (n, p), V
    carry: Floats  # (n, p), what rounding has kept out of V so far
    guard: Floats  # (n, 4)
    count: Ints  # (n,), rewards seen

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def dim(self) -> int:
        """Dimension d of the systems."""
        return int(self.mean.shape[1])

    @property
    def complete(self) -> bool:
        """Whether the triangles are there."""
        return bool(self.factor.shape[1] == self.gram.shape[1] == self.carry.shape[1] > 0)

    @property
    def parts(self) -> kernels.System:
        """The arrays in the order of the compiled loops."""
        return self.factor, self.gram, self.carry, self.moment, self.mean, self.guard, self.count

    def check(self) -> None:
        """Refuse arrays that do not fit together."""
        super().check()
        n, d = len(self.mean), self.mean.shape[-1]
        self.refuse_unless(self.mean.ndim == 2 and self.moment.shape == (n, d) and self.guard.shape == (n, 4))
        self.refuse_unless(
            all(part.shape in ((n, 0), (n, packed_size(d))) for part in (self.factor, self.gram, self.carry))
        )
        self.refuse_unless(all(part.dtype == np.float64 for part in vars(self).values() if part is not self.count))
        self.refuse_unless(self.count.dtype == np.int64 and self.count.ndim == 1)


def packed_size(dim: int) -> int:
    """Entries of a triangle."""
    return dim * (dim + 1) // 2


def pack(matrix: Floats) -> Floats:
    """The lower triangle of (..., d, d), row by row."""
    rows, columns = np.tril_indices(matrix.shape[-1])
    return np.ascontiguousarray(matrix[..., rows, columns])


def unpack(triangle: Floats, dim: int) -> Floats:
    """The lower triangular (..., d, d) with this packed triangle."""
    out = np.zeros((*triangle.shape[:-1], dim, dim))
    rows, columns = np.tril_indices(dim)
    out[..., rows, columns] = triangle
    return out


def start(n: int, dim: int) -> Ridge:
    """n systems before any reward: V = I, b = 0."""
    identity = np.tile(pack(np.eye(dim)), (n, 1))
    guard = np.tile([float(dim), 4.0 * dim, 0.0, kernels.LONGEST], (n, 1))
    count = np.zeros(n, dtype=np.int64)
    return Ridge(
        np.zeros((n, dim)), np.zeros((n, dim)), identity, identity.copy(), np.zeros_like(identity), guard, count
    )


def start_from(n: int, mean: Floats, precision: Floats) -> Ridge:
    """n systems before any reward with prior mean (d,) and precision (d, d): V = precision, b = precision mean."""
    system = start(n, len(mean))
    system.gram[:] = pack(precision)
    system.moment[:] = precision @ mean
    one = system.take([0]) if n else start(1, len(mean))
    if not np.isfinite(precision).all() or np.linalg.eigvalsh(precision)[0] <= 0:
        raise PolicyError("the precision of a prior must be positive definite")
    kernels.refresh(one.gram[0], one.factor[0], one.moment[0], one.mean[0], one.guard[0])
    system.factor[:], system.mean[:], system.guard[:] = one.factor[0], mean, one.guard[0]
    return system


def learn(system: Ridge, features: Floats, reward: Floats, users: Ints) -> bool:
    """Take rewards (m,) for features (m, d) into the systems of `users` (m,), in this order.

    False, and nothing changed, if one of the numbers is missing or too large.
    """
    return kernels.learn(*system.parts, users, features, reward)


def precision(system: Ridge) -> Floats:
    """V (n, d, d)."""
    lower = unpack(system.gram, system.dim)
    diagonal = np.einsum("nii->ni", lower)
    full: Floats = lower + np.swapaxes(lower, 1, 2)
    np.einsum("nii->ni", full)[:] = diagonal
    return full


def covariance(system: Ridge) -> Floats:
    """V^-1 (n, d, d)."""
    w = unpack(system.factor, system.dim)
    inverse: Floats = np.swapaxes(w, 1, 2) @ w
    return inverse


def log_determinant(system: Ridge) -> Floats:
    """log det V (n,)."""
    steps = np.arange(1, system.dim + 1)
    total: Floats = -2.0 * np.log(system.factor[:, steps * (steps + 1) // 2 - 1]).sum(axis=1)
    return total


def self_normalised_width(system: Ridge, *, noise: float, bound: float, delta: float) -> Floats:
    """Width (n,) of the ellipsoid that holds beta at all times with probability 1 - delta, if |beta| <= bound.

    Abbasi-Yadkori, Pal and Szepesvari (2011), Theorem 2, for `noise`-subgaussian noise and V that starts at I:
    noise sqrt(log det V + 2 log(1 / delta)) + bound.
    """
    width: Floats = noise * np.sqrt(log_determinant(system) + 2.0 * np.log(1.0 / delta)) + bound
    return width
