"""The problem of one user and round of LOCAL-UCB (the paper's Algorithm 2, step 4).

    maximise phi^T beta  over beta and orthonormal U (d, k)  subject to
      beta in span(U),   |beta - beta_1(U)|_V <= a1,   |beta - beta_2|_V <= a2,   |beta| <= R,
      |U_hat^T U|_F^2 >= k - Delta^2 / 2,

with beta_2 = V^-1 b and beta_1(U) its V-orthogonal projection to span(U), i.e. U (U^T V U)^-1 U^T b. Norms are V-norms
(the text prints V^-1). Since |beta - beta_2|_V^2 = |beta - beta_1(U)|_V^2 + gap(U), two replacements change nothing:
a1 by min(a1, a2), and a2^2 by min(a2^2, a1^2 + |beta_2|_V^2). They leave every radius finite.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Problem(NamedTuple):
    """What the rounds of one user share over actions; compiled loops take it as it is."""

    gram: Floats  # (d, d), V
    factor: Floats  # (d, d), lower triangular, V^-1 = factor^T factor
    moment: Floats  # (d,), b
    mean: Floats  # (d,), beta_2 = V^-1 b
    basis: Floats  # (d, k), U_hat
    gram_basis: Floats  # (d, k), V U_hat
    gram_inside: Floats  # (k, k), U_hat^T V U_hat
    moment_inside: Floats  # (k,), U_hat^T b
    energy: float  # |beta_2|_V^2
    tilt: float  # Delta^2 / 2: the largest sum of squared sines of the angles to U_hat; 1 or more allows every subspace
    inner: float  # a1^2
    outer: float  # a2^2
    bound: float  # R

    @property
    def dim(self) -> int:
        """Ambient dimension d."""
        return int(self.basis.shape[0])

    @property
    def rank(self) -> int:
        """Dimension k of the subspaces."""
        return int(self.basis.shape[1])


def pose(
    gram: Floats,
    moment: Floats,
    basis: Floats,
    *,
    radius: float,
    inner: float,
    outer: float,
    bound: float = np.inf,
    factor: Floats | None = None,
) -> Problem:
    """The problem for V = `gram`, b = `moment`, U_hat = `basis`, Delta = `radius` (Frobenius), a1 = `inner`, a2 = `outer`.

    At most two of `inner`, `outer` and `bound` may be infinite. `factor`, if known, is the inverse Cholesky factor of V.
    """
    if factor is None:
        factor = np.linalg.inv(np.linalg.cholesky(gram))
    white = factor @ moment
    energy = float(white @ white)
    mean = factor.T @ white
    reach = _reach(gram, mean, bound)
    low = min(inner, outer, reach)
    parts = (plain(gram), plain(factor), plain(moment), mean)
    edges = (min(radius**2 / 2.0, 1.0), low**2, min(min(outer, reach) ** 2, low**2 + energy), float(bound))
    frame = plain(basis)
    gram_basis = gram @ frame
    return Problem(*parts, frame, gram_basis, frame.T @ gram_basis, frame.T @ moment, energy, *edges)


def plain(array: Floats) -> Floats:
    """The array as compiled loops expect it: contiguous and writeable; another kind would be compiled for again."""
    return array if array.flags.carray else np.array(array, order="C")


def _reach(gram: Floats, mean: Floats, bound: float) -> float:
    """A V-distance from beta_2 that no point of the ball exceeds (infinite without a ball)."""
    if bound == np.inf:
        return float(np.inf)
    return float(np.sqrt(np.trace(gram)) * (bound + np.linalg.norm(mean)))


def widths(problem: Problem, actions: Floats) -> Floats:
    """|phi|_{V^-1} (K,)."""
    return np.array([np.linalg.norm(problem.factor @ action) for action in actions])
