"""The problem of one user and round of LOCAL-UCB (the paper's Algorithm 2, step 4).

    maximise phi^T beta  over beta and orthonormal U (d, k)  subject to
      beta in span(U),   |beta - beta_1(U)|_V <= a1,   |beta - beta_2|_V <= a2,   |beta| <= R,
      |U_hat^T U|_F^2 >= k - Delta^2 / 2,

with beta_2 = V^-1 b and beta_1(U) its V-orthogonal projection to span(U), i.e. U (U^T V U)^-1 U^T b. Norms are V-norms
(the text prints V^-1). Since |beta - beta_2|_V^2 = |beta - beta_1(U)|_V^2 + gap(U), two replacements change nothing:
a1 by min(a1, a2), and a2^2 by min(a2^2, a1^2 + |beta_2|_V^2). They leave every radius finite.

What LOCAL-UCB can prove about a round: feasible points, checked again from the definitions, and upper bounds.

The check below shares no code with the solver: it takes V, b, U_hat and the radii as they were given, and forms every
constraint of Algorithm 2 literally.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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


def pose_problem(
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


def problem_widths(problem: Problem, actions: Floats) -> Floats:
    """|phi|_{V^-1} (K,) = |factor phi|, action by action, so that an action's does not depend on the others."""
    return np.array([np.linalg.norm(problem.factor @ action) for action in actions])


TOLERANCE = 1e-8  # relative, for every constraint


@dataclass(frozen=True)
class Certificate:
    """Lower and upper bounds of the optimistic values of m users and K actions, with what attains the lower ones.

    `values <= truth <= upper` wherever `violation` is at most 1e-8 (relative). Rows that are not feasible play LinUCB:
    their values are LinUCB's and their bounds infinite.
    """

    values: Floats  # (m, K), attained at beta in span(subspace)
    upper: Floats  # (m, K), the least of the pair, cone and ball duals
    cone: Floats  # (m, K), the two-multiplier dual of the cone relaxation alone
    linucb: Floats  # (m, K)
    scale: Floats  # (m, K), a2 |phi|_{V^-1}, LinUCB's width
    beta: Floats  # (m, K, d)
    subspace: Floats  # (m, K, d, k)
    violation: Floats  # (m, K), the largest relative violation of a constraint
    feasible: NDArray[np.bool_]  # (m,)
    impossible: NDArray[np.bool_]  # (m,), proved infeasible
    evaluations: NDArray[np.int64]  # (m, K), of the objective

    @property
    def gaps(self) -> Floats:
        """(upper - values) / scale (m, K): how far the values may be from the truth, in LinUCB's widths."""
        gaps: Floats = (self.upper - self.values) / self.scale
        return gaps


def problem_violations(
    gram: Floats,
    moment: Floats,
    basis: Floats,
    beta: Floats,
    subspace: Floats,
    *,
    radius: float,
    inner: float,
    outer: float,
    bound: float,
) -> Floats:
    """How much (beta, U) violates each of the six constraints, relative; zero or rounding where it is feasible.

    V = `gram` (d, d), b = `moment` (d,), U_hat = `basis` (d, k), and a point beta (d,), U = `subspace` (d, k). In their
    order: the entries of U^T U - I, the part of beta outside span(U) relative to |beta|, |beta - beta_1(U)|_V over a1,
    |beta - beta_2|_V over a2, |beta| over R, and what |U_hat^T U|_F^2 lacks to k - Delta^2 / 2, relative to k.
    """
    k = subspace.shape[1]
    seen = subspace.T @ gram @ subspace
    first = subspace @ np.linalg.solve(seen, subspace.T @ moment)
    second = np.linalg.solve(gram, moment)
    shift = subspace.T @ (beta - first)
    overlap = float(np.linalg.norm(basis.T @ subspace)) ** 2
    size = max(float(np.linalg.norm(beta)), 1e-12)
    found = (
        float(np.abs(subspace.T @ subspace - np.eye(k)).max()),
        float(np.linalg.norm(subspace @ (subspace.T @ beta) - beta)) / size,
        _over(float(np.sqrt(shift @ seen @ shift)), inner),
        _over(float(np.sqrt((beta - second) @ gram @ (beta - second))), outer),
        _over(float(np.linalg.norm(beta)), bound),
        max(0.0, k - radius**2 / 2.0 - overlap) / k,
    )
    return np.array(found)


def _over(norm: float, limit: float) -> float:
    """By what share a norm exceeds its limit; the norm itself where the limit is zero."""
    return max(0.0, norm / limit - 1.0) if limit > 0.0 else norm


def largest_problem_violation(
    problem: Problem, beta: Floats, subspace: Floats, *, radius: float, inner: float, outer: float
) -> Floats:
    """The largest entry of `problem_violations` (K,) for points beta (K, d), subspaces (K, d, k) of one user.

    Of the problem only V, b, U_hat and R are read, which are as they were given; the radii come from the caller,
    because the problem has sharpened its own.
    """
    gram, moment, basis, bound = problem.gram, problem.moment, problem.basis, problem.bound
    checks = (
        problem_violations(gram, moment, basis, point, frame, radius=radius, inner=inner, outer=outer, bound=bound)
        for point, frame in zip(beta, subspace, strict=True)
    )
    return np.array([check.max() for check in checks])
