"""What LOCAL-UCB can prove about a round: feasible points, checked again from the definitions, and upper bounds.

The check below shares no code with the solver: it takes V, b, U_hat and the radii as they were given, and forms every
constraint of Algorithm 2 literally.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from newcomer.arrays import Floats
from newcomer.local.problem import Problem

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


def violations(
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


def largest_violation(
    problem: Problem, beta: Floats, subspace: Floats, *, radius: float, inner: float, outer: float
) -> Floats:
    """The largest entry of `violations` (K,) for points beta (K, d), subspaces (K, d, k) of one user.

    Of the problem only V, b, U_hat and R are read, which are as they were given; the radii come from the caller,
    because the problem has sharpened its own.
    """
    gram, moment, basis, bound = problem.gram, problem.moment, problem.basis, problem.bound
    checks = (
        violations(gram, moment, basis, point, frame, radius=radius, inner=inner, outer=outer, bound=bound)
        for point, frame in zip(beta, subspace, strict=True)
    )
    return np.array([check.max() for check in checks])
