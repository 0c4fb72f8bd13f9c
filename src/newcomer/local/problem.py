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

from newcomer.array_loops import plain
from newcomer.arrays import Floats


class Problem(NamedTuple):
    """What the actions of one user's round share; compiled loops take it as it is."""

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
    """The problem for V = `gram`, b = `moment`, U_hat = `basis`, Delta = `radius`, a1 = `inner` and a2 = `outer`.

    `radius` is a Frobenius distance. At most two of `inner`, `outer` and `bound` may be infinite: a ball |beta| <= R
    lies within a V-distance of sqrt(tr V) (R + |beta_2|) of beta_2, which then stands in for them. `factor`, if known,
    is the inverse Cholesky factor of V.
    """
    if factor is None:
        factor = np.linalg.inv(np.linalg.cholesky(gram))
    white = factor @ moment
    energy, mean = float(white @ white), factor.T @ white
    reach = np.inf if bound == np.inf else float(np.sqrt(np.trace(gram)) * (bound + np.linalg.norm(mean)))
    low, high = min(inner, outer, reach), min(outer, reach)
    frame = plain(basis)
    gram_basis = gram @ frame
    return Problem(
        gram=plain(gram),
        factor=plain(factor),
        moment=plain(moment),
        mean=mean,
        basis=frame,
        gram_basis=gram_basis,
        gram_inside=frame.T @ gram_basis,
        moment_inside=frame.T @ moment,
        energy=energy,
        tilt=min(radius**2 / 2.0, 1.0),
        inner=low**2,
        outer=min(high**2, low**2 + energy),
        bound=float(bound),
    )


def widths(problem: Problem, actions: Floats) -> Floats:
    """|phi|_{V^-1} (K,) = |factor phi|, action by action, so that an action's does not depend on the others."""
    return np.array([np.linalg.norm(problem.factor @ action) for action in actions])
