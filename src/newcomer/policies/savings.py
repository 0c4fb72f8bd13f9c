"""ProBALL's data-driven exit: leave the subspace once it has cost more than it has saved.

Staying in the subspace in round s saves bonus and risks bias. With phi_s the action taken, V and V_U = U^T V U as they were
before its reward,

    saving_s = alpha_2 |phi_s|_{V^-1} - alpha_1 |U^T phi_s|_{V_U^-1},        cost = R Delta a round,

and a user leaves for good after the first round t with R Delta t > saving_1 + ... + saving_t. Savings are never negative if
alpha_1 <= alpha_2, because |U^T phi|_{V_U^-1} <= |phi|_{V^-1}: a radius of 0 never leaves.

Guarantee: let |phi| <= 1, |beta| <= R, Delta bound the spectral distance of U from the truth, and both ellipsoids hold their
targets. Then |phi^T beta - phi^T U U^T beta| <= R Delta for every action, so a round in the subspace has regret of at most
2 alpha_1 |U^T phi|_{V_U^-1} + 2 R Delta, and t of them, as long as it stays, at most

    2 sum_s alpha_1 |U^T phi_s|_{V_U^-1} + 2 R Delta t  <=  2 sum_s alpha_2 |phi_s|_{V^-1},

which is LinUCB's own bound on these actions, and what follows is LinUCB with nothing forgotten: regret is at most LinUCB's
bound, 2 alpha_2 sqrt(2 d T log(1 + T / d)), plus one round, for every T and without a tau to tune. The literal rule has no such
bound before t = d^2. The small ellipsoid holds as it is if actions lie in the span of U; if not, their bias needs R Delta kappa
on top of alpha_1 (proball.py), which we do not charge. With practical widths or a plug-in R there is no guarantee.

R Delta is the worst case over actions, and the plug-in R lies three standard deviations out, so the exit is cautious: with unit
features in d = 20, k = 2 and T = 200 it was never taken at R Delta = 1.2, after 75 rounds on average at 1.9, and after the first at
2.9. |phi|_{V^-1} needs the full system from the first round on, so this exit costs LinUCB's memory, and more than its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from newcomer.array_loops import compiled
from newcomer.linear import learning_loops, ridge
from newcomer.policies import phases
from newcomer.policies.phases import Floats, Ints, Phases

# What a user who has left has in `Phases.squares`; with `rule` the compiled loops then take the full system.
GONE = np.inf
EVERY = (slice(None),)


@dataclass(frozen=True)
class Terms:
    """What is weighed: the widths alpha_1 and alpha_2, and the cost R Delta of a round."""

    low: float
    high: float
    cost: float


def rule(rank: int, dim: int) -> Floats:
    """The switch of the compiled loops by which a user is inside until `squares` is infinite."""
    return np.array([0.0, 1.0, rank, dim])


def start(n: int, dim: int, rank: int) -> Phases:
    """n newcomers, both systems kept up from the start."""
    state = phases.start(n, dim, rank, phases.STAY, bends=False)
    state.full, state.saved = ridge.start(n, dim), np.zeros((n, 1))
    state.kept[:] = -1
    return state


def learn(state: Phases, basis: Floats, terms: Terms, features: Floats, reward: Floats, users: Ints) -> bool:
    """Take rewards (m,) for features (m, d) into the state, in this order; `basis` is U^T (k, d).

    False, and nothing changed, if one of the numbers is missing or too large.
    """
    if learning_loops.fault(features, reward):
        return False
    for rows in _rounds(users):
        x, who = features[rows], users[rows]
        book(state.saved, state.squares, state.small.factor, state.full.factor, basis, terms.low, terms.high, who, x)
        phases.learn(state, basis, phases.STAY, x, reward[rows], who)
        settle(state.saved, state.squares, state.small.count, terms.cost, who)
    return True


def _rounds(users: Ints) -> Sequence[Ints | slice]:
    """The rows in groups that hold each user at most once: a user's rewards count in their order."""
    if len(users) == 1:
        return EVERY
    order = np.argsort(users, kind="stable")
    begin = np.searchsorted(users[order], users[order])
    turn = np.empty_like(order)
    turn[order] = np.arange(len(users)) - begin
    return [np.flatnonzero(turn == t) for t in range(turn.max(initial=-1) + 1)]


@compiled
def book(
    saved: Floats,
    squares: Floats,
    small: Floats,
    full: Floats,
    basis: Floats,
    low: float,
    high: float,
    users: Ints,
    features: Floats,
) -> None:
    """Add each row's saving to that of its user, if inside; `small` and `full` are the packed factors W."""
    inner = np.empty(basis.shape[0])
    for i in range(users.size):
        u, x = users[i], features[i]
        if squares[u] > 0.0:
            continue
        for c in range(inner.size):
            inner[c] = np.sum(basis[c] * x)
        saved[u, 0] += high * _norm(full[u], x) - low * _norm(small[u], inner)


@compiled
def settle(saved: Floats, squares: Floats, count: Ints, cost: float, users: Ints) -> None:
    """Let those users go whose rounds so far have cost more than they saved."""
    for u in users:
        if cost * count[u] > saved[u, 0]:
            squares[u] = GONE


@compiled
def _norm(factor: Floats, x: Floats) -> float:
    """|W x|."""
    total, offset = 0.0, 0
    for i in range(x.size):
        total += np.sum(factor[offset : offset + i + 1] * x[: i + 1]) ** 2
        offset += i + 1
    return float(np.sqrt(total))
