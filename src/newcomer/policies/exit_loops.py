"""The compiled loops of the literal exit with tau' > 0; see exits.py for the rule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from newcomer.array_loops import compiled
from newcomer.arrays import Bools, Floats, Ints


class Lean(NamedTuple):
    """How far features have leant out of the subspace, and what the rule makes of it."""

    cross: Floats  # (n, k, d), C = U^T sum phi phi^T
    kappa: Floats  # (n,)
    squares: Floats  # (n,), the sum of kappa^2
    pull: float  # Delta tau
    bend: float  # Delta tau'


@compiled
def _kappa(factor: Floats, cross: Floats) -> float:
    """The norm of C (k, d) with respect to V_U^-1 = W^T W, for the packed triangle W of a user's small system.

    It is the root of the largest eigenvalue of C^T V_U^-1 C (d x d), which is that of (W C) (W C)^T (k x k).
    """
    image = np.zeros(cross.shape)
    offset = 0
    for i in range(cross.shape[0]):
        for p in range(i + 1):
            for j in range(cross.shape[1]):
                image[i, j] += factor[offset + p] * cross[p, j]
        offset += i + 1
    return float(np.sqrt(max(np.linalg.eigvalsh(image @ image.T)[-1], 0.0)))


@compiled
def ask_exit_rule_loop(
    lean: Lean, basis: Floats, factor: Floats, seen: Ints, in_subspace: Bools, users: Ints, features: Floats
) -> None:
    """Take one row of features (m, d) of each of `users` into C and kappa, and set who is in the subspace next round.

    `factor` (n, p) and `seen` (n,) are of the small systems, which have learnt these rows already; basis is U^T (k, d).
    """
    rank, dim = basis.shape
    for i in range(users.size):
        u, x = users[i], features[i]
        for c in range(rank):
            low = 0.0
            for j in range(dim):
                low += basis[c, j] * x[j]
            for j in range(dim):
                lean.cross[u, c, j] += low * x[j]
        lean.kappa[u] = _kappa(factor[u], lean.cross[u])
        lean.squares[u] += lean.kappa[u] ** 2
        t = seen[u] + 1
        # An infinite radius times no lean at all is zero.
        leans = lean.bend * np.sqrt(rank * lean.squares[u] / t) if lean.squares[u] > 0.0 else 0.0
        in_subspace[u] = lean.pull * np.sqrt(t) + leans <= dim


def warm_exit_loops() -> None:
    """Call the loops once, with arrays of the types they meet."""
    lean = Lean(np.zeros((1, 1, 1)), np.zeros(1), np.zeros(1), 1.0, 1.0)
    row, who = np.ones((1, 1)), np.zeros(1, dtype=np.int64)
    ask_exit_rule_loop(lean, row, row, who.copy(), np.ones(1, dtype=np.bool_), who, row)
