"""The two phases of ProBALL: a small system in the shared subspace, and the full one that is built when it is needed.

In the subspace phase nothing of size d x d exists: a user has the k x k system of U^T phi and the rows seen. The full
system is assembled from the rows in the round after which the subspace is left, and both are kept up from then on,
because with tau' > 0 the phase may flip back. A policy that can never leave keeps no rows. Once d rows have gathered they
are added to V, so that memory stays below 2.5 d^2 numbers a user however long the subspace phase lasts. The data-driven
exit (savings.py) keeps both systems from the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from newcomer.array_loops import compiled
from newcomer.linear import learning_loops, ridge, scoring_loops
from newcomer.linear.ridge import Ridge
from newcomer.linear.state import GROWS, State

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FIRST_ROWS = 16
STAY: Floats = np.zeros(4)  # a rule that nobody leaves by


@dataclass
class Phases(State):
    """What ProBALL remembers of n users in d dimensions and a subspace of rank k.

    The triangles of `full` are (n, 0) until a user needs them; `cross` is (n, 0, 0) unless tau' > 0, and `saved`
    (n, 0) unless the exit is the data-driven one.
    """

    small: Ridge
    full: Ridge = field(metadata=GROWS)
    rows: Floats = field(metadata=GROWS)  # (n, c, d), the rows not yet in the V of `full`
    kept: Ints  # (n,), how many they are; -1 once the full system is in use; -2 if the policy can never leave
    cross: Floats  # (n, k, d), C = U^T sum phi phi^T
    kappa: Floats  # (n,), |C| in the norm of the small system's inverse, for the coming round
    squares: Floats  # (n,), the sum of kappa^2 over rounds; infinite once the data-driven exit was taken
    saved: Floats  # (n, 1), the sum of width savings

    def __len__(self) -> int:
        return len(self.kept)

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Rank, dimension, the rank again if C is kept, else 0, and 1 if savings are, else 0."""
        return self.small.mean.shape[1], self.full.mean.shape[1], self.cross.shape[1], self.saved.shape[1]

    def place(self, rule: Floats) -> scoring_loops.Place:
        """Where users are, for the compiled loops."""
        return self.small.count, self.squares, self.kept, rule

    def check(self) -> None:
        """Refuse arrays that do not fit together."""
        super().check()
        n, k, d = len(self.small), self.small.dim, self.full.dim
        self.refuse_unless(self.small.complete and self.rows.ndim == 3 and self.rows.shape[2] == d)
        self.refuse_unless(self.cross.shape in ((n, 0, 0), (n, k, d)))
        self.refuse_unless(self.saved.shape == (n, 0) or (self.saved.shape == (n, 1) and self.full.complete))
        self.refuse_unless(all(part.shape == (n,) for part in (self.kept, self.kappa, self.squares)))
        floats = (self.rows, self.cross, self.kappa, self.squares, self.saved)
        self.refuse_unless(all(part.dtype == np.float64 for part in floats))
        self.refuse_unless(self.kept.dtype == np.int64 and bool(np.all(self.kept >= -2)))
        self.refuse_unless(bool(np.all(self.kept <= self.rows.shape[1])))
        self.refuse_unless(self.full.complete or not bool(np.any(self.kept == -1)))


def start(n: int, dim: int, rank: int, rule: Floats, *, bends: bool) -> Phases:
    """n newcomers under a rule; `bends` if tau' > 0."""
    empty = np.zeros((n, 0))
    mean, moment = np.zeros((2, n, dim))
    full = Ridge(mean, moment, empty, empty, empty, np.zeros((n, 4)), np.zeros(n, dtype=np.int64))
    cross = np.zeros((n, rank, dim) if bends else (n, 0, 0))
    kept, (kappa, squares) = np.zeros(n, dtype=np.int64), np.zeros((2, n))
    state = Phases(ridge.start(n, rank), full, np.zeros((n, 0, dim)), kept, cross, kappa, squares, empty)
    if rule[0] == rule[1] == 0:  # it never leaves, so the rows are of no use
        state.kept[:] = -2
    elif rule[0] > dim:  # it leaves before the first round
        state.full, state.kept[:] = ridge.start(n, dim), -1
    return state


def inside(state: Phases, rule: Floats) -> Bools:
    """Whether each user (n,) is served in the subspace; `rule` holds Delta tau, Delta tau', k and d."""
    return _inside(state, rule, slice(None))


def _inside(state: Phases, rule: Floats, users: slice) -> Bools:
    count, squares = state.small.count[users], state.squares[users]
    out = np.empty(len(count), dtype=np.bool_)
    scoring_loops.inside(count, squares, rule, out)
    return out


def learn(state: Phases, basis: Floats, rule: Floats, features: Floats, reward: Floats, users: Ints) -> bool:
    """Take rewards (m,) for features (m, d) into the state, in this order; `basis` is U^T (k, d).

    False, and nothing changed, if one of the numbers is missing or too large.
    """
    if state.cross.shape[1] == 0:
        return _take(state, basis, rule, features, reward, users)
    if learning_loops.fault(features, reward):
        return False
    for i in range(len(users)):  # kappa changes with each row, and with it who leaves
        _take(state, basis, STAY, features[i : i + 1], reward[i : i + 1], users[i : i + 1])
        _bend(state, basis @ features[i], features[i], int(users[i]), rule)
    return True


def _take(state: Phases, basis: Floats, rule: Floats, features: Floats, reward: Floats, users: Ints) -> bool:
    """The same where kappa plays no part, or has yet to be seen to."""
    row, small, full = 0, state.small.parts, state.full
    while row < len(users):
        left = full.parts if full.factor.shape[1] else None
        diary = (state.rows, full.moment, rule) if left or state.rows.shape[1] else None
        row, leaver = learning_loops.phase_learn(basis, *small, state.kept, diary, left, users, features, reward, row)
        if leaver >= 0:
            leave(state, leaver)
        elif row < 0:
            return False
        elif row < len(users):
            _make_room(state, int(users[row]))
    return True


def _bend(state: Phases, low: Floats, x: Floats, user: int, rule: Floats) -> None:
    """Take a row into C and kappa, and the user out of the subspace if it bends too far."""
    state.kappa[user] = grow_cross(state.small.factor[user], state.cross[user], low, x)
    state.squares[user] += state.kappa[user] ** 2
    if state.kept[user] >= 0 and not _inside(state, rule, slice(user, user + 1))[0]:
        leave(state, user)


@compiled
def grow_cross(factor: Floats, cross: Floats, low: Floats, x: Floats) -> float:
    """C += low x^T; returns kappa, the root of the largest eigenvalue of C^T V^-1 C, which is that of (W C) (W C)^T."""
    for c in range(low.size):
        for j in range(x.size):
            cross[c, j] += low[c] * x[j]
    image = np.zeros(cross.shape)
    offset = 0
    for i in range(cross.shape[0]):
        for p in range(i + 1):
            for j in range(cross.shape[1]):
                image[i, j] += factor[offset + p] * cross[p, j]
        offset += i + 1
    return float(np.sqrt(max(np.linalg.eigvalsh(image @ image.T)[-1], 0.0)))


def leave(state: Phases, user: int, *, extra: Floats | None = None) -> None:
    """Build the full system of a user from the rows seen; `extra` (d, d) is added to V, if it is not to start at I."""
    _fold(state, user)
    full = state.full
    if extra is not None:
        learning_loops.add_square(full.gram[user], full.carry[user], extra)
    full.factor = _widen(full.factor, full.gram.shape[1])
    learning_loops.refresh(full.gram[user], full.factor[user], full.moment[user], full.mean[user], full.guard[user])
    state.kept[user] = -1


def _make_room(state: Phases, user: int) -> None:
    """Room for one more row: a longer buffer, or, once it holds d rows, an empty one."""
    _, length, dim = state.rows.shape
    if length < max(dim, FIRST_ROWS):
        longer = np.zeros((len(state), min(max(2 * length, FIRST_ROWS), max(dim, FIRST_ROWS)), dim))
        longer[:, :length] = state.rows
        state.rows = longer
    else:
        _fold(state, user)


def _fold(state: Phases, user: int) -> None:
    """Add the rows of a user to V."""
    full, size = state.full, ridge.packed_size(state.full.dim)
    full.gram, full.carry = _widen(full.gram, size), _widen(full.carry, size)
    rows = state.rows[user, : state.kept[user]]
    begin = np.eye(full.dim) if full.gram[user, 0] == 0 else 0.0  # V starts at I, and its first entry stays above 0
    learning_loops.add_square(full.gram[user], full.carry[user], begin + rows.T @ rows)
    state.kept[user] = 0


def _widen(triangles: Floats, size: int) -> Floats:
    # Zeros of users who do not need theirs are never touched, so they take no memory.
    return triangles if triangles.shape[1] == size else np.zeros((len(triangles), size))
