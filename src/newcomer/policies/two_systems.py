"""A pair of systems of a user: a small one in the subspace that users share, and the full one, built when it is needed.

With a basis B (k, d), B = U^T or any other linear map to k dimensions, the small system regresses rewards on B phi (k x
k numbers), the full system on phi itself (d x d). A user is served by the small one as long as it is `in_subspace`;
who leaves, and when, is decided by an exit (policies/exits.py), which sets `in_subspace` as rewards come.

While a user is in the subspace nothing of size d x d need exist. The rows phi seen so far are kept, and the full system
is built from them in the round after which the user first leaves; both systems are kept up from then on, because some
exits lead back. Once d rows have gathered they are added to V, so that memory stays below 2.5 d^2 numbers a user
however long they stay. Nothing is kept for users who can never leave. An exit that weighs one system against the other
has both built from the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from newcomer.arrays import Bools, Floats, Ints
from newcomer.linear import learning_loops, ridge, scoring_loops
from newcomer.linear.learning_loops import Diary
from newcomer.linear.ridge import Ridge
from newcomer.linear.scoring_loops import Ellipsoid
from newcomer.linear.state import GROWS, State
from newcomer.policies.calls import Rewards

FIRST_ROWS = 16


@dataclass
class TwoSystems(State):
    """The systems of n users in d dimensions and in k; the triangles of `full` are (n, 0) until a user needs them."""

    small: Ridge
    full: Ridge = field(metadata=GROWS)
    rows: Floats = field(metadata=GROWS)  # (n, c, d), the rows that are not yet in the V of `full`
    kept: Ints  # (n,), how many of them are in use
    built: Bools  # (n,), whether the full system has been built and is kept up
    in_subspace: Bools = field(
        metadata={"saved_as": "inside"}
    )  # (n,), whether the coming round is served by the small system

    def __len__(self) -> int:
        return len(self.kept)

    def check(self) -> None:
        """Refuse arrays that do not fit together."""
        super().check()
        n, d = len(self.small), self.full.dim
        self.refuse_unless(self.small.complete and self.rows.ndim == 3 and self.rows.shape[2] == d)
        self.refuse_unless(all(part.shape == (n,) for part in (self.kept, self.built, self.in_subspace)))
        self.refuse_unless(self.rows.dtype == np.float64 and self.kept.dtype == np.int64)
        self.refuse_unless(self.built.dtype == self.in_subspace.dtype == np.bool_)
        self.refuse_unless(bool(((self.kept >= 0) & (self.kept <= self.rows.shape[1])).all()))
        self.refuse_unless(bool((self.built | self.in_subspace).all()) and (self.full.complete or not self.built.any()))


def start_two_systems(n: int, dim: int, rank: int, *, built: bool = False, in_subspace: bool = True) -> TwoSystems:
    """n newcomers; `built` if the full systems are there from the start, as users outside the subspace need them."""
    full = ridge.start_ridge(n, dim) if built else ridge.start_empty_ridge(n, dim)
    flags = np.full(n, built), np.full(n, in_subspace)
    return TwoSystems(ridge.start_ridge(n, rank), full, np.zeros((n, 0, dim)), np.zeros(n, dtype=np.int64), *flags)


def learn_two_systems(systems: TwoSystems, basis: Floats, observed: Rewards, *, keep: bool) -> None:
    """Take rewards into the systems; `keep` the rows of users who may yet leave."""
    features, reward, users = observed[:3]
    begin = 0
    while begin < len(users):
        diary = Diary(systems.rows, systems.kept, systems.built, keep)
        small, full = systems.small.parts, systems.full.parts
        begin = learning_loops.learn_pair(basis, small, full, diary, users, features, reward, begin)
        if begin < len(users):
            _make_room(systems, int(users[begin]))


def learn_ordinary_in_two_systems(
    systems: TwoSystems, basis: Floats, patience: int, features: Floats, reward: Floats, users: Ints, begin: int = 0
) -> int:
    """Take rewards from row `begin` on, up to the first that makes its user leave; returns that row, or m.

    A user leaves with the `patience`-th reward. Users may repeat, and nobody has a full system yet. This is the common
    case, and all of it is one compiled loop, unless a user needs room for the row. The loop looks at the numbers, and
    if one is missing or too large nothing changes: learning_loops.REFUSED.
    """
    small, owed = systems.small.parts, systems.full.moment
    while True:
        begin = learning_loops.learn_in_subspace(
            basis, *small, systems.rows, systems.kept, owed, patience, users, features, reward, begin
        )
        if not 0 <= begin < len(users) or systems.kept[users[begin]] < systems.rows.shape[1]:
            return begin
        _make_room(systems, int(users[begin]))


def leave_two_systems(systems: TwoSystems, user: int, *, extra: Floats | None = None) -> None:
    """Serve a user by the full system from now on, built from the rows seen; V starts at I + `extra` (d, d)."""
    systems.in_subspace[user] = False
    if systems.built[user]:
        return
    _fold(systems, user)
    full = systems.full
    if extra is not None:
        learning_loops.learn_square(full.gram[user], full.carry[user], extra)
    if not full.factor.shape[1]:
        systems.full = full = replace(full, factor=np.zeros(full.gram.shape))
    learning_loops.refresh_learned_system(
        full.gram[user], full.factor[user], full.moment[user], full.mean[user], full.guard[user]
    )
    systems.built[user] = True


def two_systems_scores(
    systems: TwoSystems, basis: Floats, widths: tuple[Floats, Floats], users: Ints, actions: Floats, out: Floats
) -> None:
    """Write optimistic scores (m, K) to `out`; the widths of the small and of the full system are (m,), or (1,)."""
    scoring_loops.pair_scores(basis, *_ellipsoids(systems, widths), systems.in_subspace, users, actions, out)


def two_systems_samples(
    systems: TwoSystems, basis: Floats, widths: tuple[Floats, Floats], users: Ints, noise: Floats
) -> Floats:
    """Reward vectors (m, d), one for each row of standard normal noise (m, d), by the system that serves the user."""
    out = np.empty_like(noise)
    scoring_loops.pair_score_samples(basis, *_ellipsoids(systems, widths), systems.in_subspace, users, noise, out)
    return out


def two_systems_means(systems: TwoSystems, basis: Floats, users: Ints) -> Floats:
    """The estimated reward vectors (m, d), by the system that serves the user: `two_systems_samples` without noise."""
    return two_systems_samples(
        systems, basis, (np.zeros(1), np.zeros(1)), users, np.zeros((len(users), basis.shape[1]))
    )


def _ellipsoids(systems: TwoSystems, widths: tuple[Floats, Floats]) -> tuple[Ellipsoid, Ellipsoid]:
    """Both systems as the compiled loops take them."""
    small, full = systems.small, systems.full
    return Ellipsoid(small.factor, small.mean, widths[0]), Ellipsoid(full.factor, full.mean, widths[1])


def _make_room(systems: TwoSystems, user: int) -> None:
    """Room for one more row: a longer buffer for all users, or, once it holds d rows, an empty one for this user."""
    _, length, dim = systems.rows.shape
    if length < max(dim, FIRST_ROWS):
        longer = np.zeros((len(systems), min(max(2 * length, FIRST_ROWS), max(dim, FIRST_ROWS)), dim))
        longer[:, :length] = systems.rows
        systems.rows = longer
    else:
        _fold(systems, user)


def _fold(systems: TwoSystems, user: int) -> None:
    """Add the rows of a user to V, and forget them."""
    full = systems.full
    if not full.gram.shape[1]:  # zeros that no user touches take no memory
        shape = len(full), ridge.ridge_packed_size(full.dim)
        systems.full = full = replace(full, gram=np.zeros(shape), carry=np.zeros(shape))
    rows = systems.rows[user, : systems.kept[user]]
    square = rows.T @ rows
    if full.gram[user, 0] == 0:  # V starts at I, and its first entry stays above 0
        np.einsum("ii->i", square)[:] += 1.0
    learning_loops.learn_square(full.gram[user], full.carry[user], square)
    systems.kept[user] = 0
