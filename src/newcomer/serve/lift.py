"""What deciding is worth: the treated arm against the others, by user, as numbers that may be watched.

A user's value is the mean reward of the first `FIRST` interactions, and that of the n-th interaction for each n. An
interaction is a decide whose decisions are not all void (several slots: their mean); it counts when it has a reward or
a default. Users are the unit, versions of the shares are compared apart, and intervals hold at every look
(newcomer/confidence_sequence.py).

Events are not read again for each look. `lift_users` has the rewards of each user, `lift_sums` number, sum and sum of
squares by version and arm; `advance` reads what changed since, user by user, takes the user's old values out of the
sums and puts the new ones in, so that late and corrected rewards and voids count. Erasing, merging and retention count
their users again at once. A user leaves who was put together from two that both had an arm, alike or not (if those of
one arm alone stayed, more would stay of the large arm), or of whose history a part is gone by retention.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from newcomer.arrays import Floats
from newcomer.confidence_sequence import (
    ALPHA,
    FEWEST,
    TUNED,
    confidence_sequence_difference,
    confidence_sequence_mean,
    confidence_sequence_sample_ratio,
)
from newcomer.serve.arms import Shares
from newcomer.serve.service import Service
from newcomer.serve.shapes import Arm, ArmCount, ArmLift, ArmMean, Interaction, Lift, SampleRatio
from newcomer.serve.store import Tx

FIRST = 50  # interactions of a user that count
AT_ONCE = 100  # changes read in one transaction
SECONDS = 1.0  # that a look waits for what is new
ARMS: tuple[Arm, ...] = ("treated", "control", "incumbent", "random")
MISMATCH = 0.01  # p-value of the shares from which on there is a warning
LOST = 1e-6  # of a sum of squares that is left when something large is taken out: it is added up afresh
CHANGED = (
    "SELECT e.user_id FROM events e LEFT JOIN lift_users l ON l.user_id = e.user_id"
    " WHERE e.change > $1 AND e.change <= $2 AND (l.reached IS NULL OR l.reached < e.change)"
)
NAMED = "SELECT CAST($1 AS TEXT)"


# What one user is worth.


@dataclass(frozen=True)
class Counted:
    """A user in the lift: where, rewards by interaction (n,) with NaN for those to come, and the last change read."""

    version: int
    arm: str
    rewards: Floats
    reached: int


def lift_parts(users: Sequence[Counted], shift: float) -> Floats:
    """What users add to the sums (m, FIRST + 1, 3): number, value and square; row 0 is the mean of what is there."""
    values = np.full((len(users), FIRST + 1), np.nan)
    for row, one in zip(values, users, strict=True):
        row[1 : 1 + len(one.rewards)] = one.rewards
    there = np.isfinite(values)
    count = there.sum(1)
    values[:, 0] = np.where(there, values, 0.0).sum(1) / np.maximum(count, 1)
    there[:, 0] = count > 0
    values = np.where(there, values - shift, 0.0)
    return np.stack([there.astype(np.float64), values, values**2], axis=2)


def lift_interactions(events: Sequence[Sequence[Any]]) -> Floats:
    """Rewards by interaction, from rows (id, slate, reward) of a user's decisions that are not void.

    >>> lift_interactions([("a-0", None, 4.0), ("3-0", "3-0", 1.0), ("4-0", "3-0", None), ("5-0", None, None)])
    array([ 1., nan,  4.])
    """
    groups: dict[str, list[float]] = {}
    for name, slate, reward in sorted(events, key=lambda one: int(one[0].partition("-")[0], 16)):
        values = groups.setdefault(slate or name, [])
        if reward is not None:
            values.append(reward)
    kept = list(groups.values())[:FIRST]
    return np.array([np.mean(values) if values else np.nan for values in kept], dtype=np.float64)


# Sums in the store.


@dataclass
class Sums:
    """Of an arm under a version of the shares: users, interactions, those with a reward, and sums (FIRST + 1, 3)."""

    users: int
    interactions: int
    rewarded: int
    values: Floats

    @classmethod
    def none(cls) -> Sums:
        """Of nobody."""
        return cls(0, 0, 0, np.zeros((FIRST + 1, 3)))

    def add(self, users: Sequence[Counted], sign: int, shift: float) -> bool:
        """Users come or go; whether so much went that what is left is worth nothing."""
        before = self.values[:, 2].copy()
        self.users += sign * len(users)
        self.interactions += sign * sum(len(one.rewards) for one in users)
        self.rewarded += sign * sum(int(np.isfinite(one.rewards).sum()) for one in users)
        self.values += sign * lift_parts(users, shift).sum(0)
        return sign < 0 and bool((self.values[:, 2] < LOST * before).any())


async def recount_lift(tx: Tx, whose: str, *values: Any) -> int:
    """Take users out of the sums and put them in as they are now; the row of `lift` is locked against others who do."""
    shift = (await tx.all("SELECT shift FROM lift u WHERE id = 1 /*LOCK*/"))[0][0]
    old = {
        row[0]: Counted(row[1], row[2], np.frombuffer(row[3]), row[4])
        for row in await tx.all(
            f"SELECT user_id, version, arm, rewards, reached FROM lift_users WHERE user_id IN ({whose})", *values
        )
    }
    new = await _as_they_are(tx, whose, values)
    if shift is None:
        known = [one.rewards[np.isfinite(one.rewards)] for one in new.values()]
        first = np.concatenate([*known, np.zeros(0)])
        if len(first):  # sums are of differences from the first reward: no digits are lost to a mean far from zero
            shift = float(first[0])
            await tx.run("UPDATE lift SET shift = $1 WHERE id = 1", shift)
    await _exchange(tx, old, new, shift or 0.0)
    return len(new)


async def _as_they_are(tx: Tx, whose: str, values: Sequence[Any]) -> dict[str, Counted]:
    """Users who are in the lift now."""
    people = await tx.all(
        "SELECT id, shares, arm FROM users WHERE arm IS NOT NULL AND shares IS NOT NULL AND alias_of IS NULL"
        f" AND mixed = 0 AND lift_out = 0 AND id IN ({whose})",
        *values,
    )
    rows = await tx.all(
        "SELECT user_id, id, slate, CASE WHEN status IN ('rewarded', 'default') THEN reward END, change, status"
        f" FROM events WHERE arm <> 'observed' AND user_id IN ({whose}) ORDER BY user_id",
        *values,
    )
    known = {user: list(group) for user, group in groupby(rows, key=lambda row: row[0])}
    found = {}
    for user, version, arm in people:
        events = known.get(user, [])
        rewards = lift_interactions([row[1:4] for row in events if row[5] != "void"])
        if len(rewards):
            found[user] = Counted(int(version), arm, rewards, max(row[4] for row in events))
    return found


async def _exchange(tx: Tx, old: dict[str, Counted], new: dict[str, Counted], shift: float) -> None:
    """Write users who changed, and the sums."""
    for user in sorted(old.keys() - new.keys()):
        await tx.run("DELETE FROM lift_users WHERE user_id = $1", user)
    for user, one in sorted(new.items()):
        await tx.run(
            "INSERT INTO lift_users (user_id, version, arm, rewards, reached) VALUES ($1, $2, $3, $4, $5) ON"
            " CONFLICT (user_id) DO UPDATE SET version = excluded.version, arm = excluded.arm,"
            " rewards = excluded.rewards, reached = excluded.reached",
            *(user, one.version, one.arm, one.rewards.tobytes(), one.reached),
        )
    for place in sorted({(one.version, one.arm) for one in (*old.values(), *new.values())}):
        gone, come = ([one for one in few.values() if (one.version, one.arm) == place] for few in (old, new))
        found = await _sums(tx, *place)
        lost = found.add(gone, -1, shift)
        found.add(come, 1, shift)
        if lost:
            found = await _added_up(tx, *place, shift)
        await tx.run(
            "INSERT INTO lift_sums (version, arm, users, interactions, rewarded, sums) VALUES ($1, $2, $3, $4, $5, $6)"
            " ON CONFLICT (version, arm) DO UPDATE SET users = excluded.users, interactions = excluded.interactions,"
            " rewarded = excluded.rewarded, sums = excluded.sums",
            *(*place, found.users, found.interactions, found.rewarded, found.values.tobytes()),
        )


async def _sums(tx: Tx, version: int, arm: str) -> Sums:
    sql = "SELECT users, interactions, rewarded, sums FROM lift_sums WHERE version = $1 AND arm = $2"
    rows = await tx.all(sql, version, arm)
    return _read(rows[0]) if rows else Sums.none()


def _read(row: Sequence[Any]) -> Sums:
    return Sums(int(row[0]), int(row[1]), int(row[2]), np.frombuffer(row[3]).reshape(FIRST + 1, 3).copy())


async def _added_up(tx: Tx, version: int, arm: str, shift: float) -> Sums:
    """The sums of an arm from its users: a reward of 1e12 that was corrected leaves no digit of the others."""
    found = Sums.none()
    sql = "SELECT version, arm, rewards, reached FROM lift_users WHERE version = $1 AND arm = $2"
    users = [Counted(row[0], row[1], np.frombuffer(row[2]), row[3]) for row in await tx.all(sql, version, arm)]
    for first in range(0, len(users), AT_ONCE):
        found.add(users[first : first + AT_ONCE], 1, shift)
    return found


async def recount_lift_of_user(tx: Tx, user: str) -> None:
    """One user, of whom something changed that is no event: erased, merged, or cut by retention."""
    await recount_lift(tx, NAMED, user)


async def leave_lift(tx: Tx, user: str) -> None:
    """This user is no part of the lift from now on."""
    await tx.run("UPDATE users SET lift_out = 1 WHERE id = $1", user)
    await recount_lift_of_user(tx, user)


async def advance_lift(service: Service, seconds: float = SECONDS) -> int:
    """Count what changed since; at most so long. How many changes are left."""

    async def step(tx: Tx) -> bool:
        reached = (await tx.all("SELECT reached FROM lift u WHERE id = 1 /*LOCK*/"))[0][0]
        listed = "SELECT change FROM events WHERE change > $1 ORDER BY change LIMIT $2"
        until = (await tx.all(f"SELECT max(change) FROM ({listed}) few", reached, AT_ONCE))[0][0]
        if until is not None:
            await recount_lift(tx, CHANGED, reached, until)
            await tx.run("UPDATE lift SET reached = $1 WHERE id = 1", until)
        return until is not None

    async def left(tx: Tx) -> int:
        reached = (await tx.all("SELECT reached FROM lift WHERE id = 1"))[0][0]
        last = (await tx.all("SELECT max(change) FROM events"))[0][0]
        return max(int(last or 0) - int(reached), 0)

    end = time.monotonic() + seconds
    while await service.store.transact(step):
        if time.monotonic() > end:
            return await service.store.transact(left)
    return 0


# What the sums say.


async def lift(service: Service) -> Lift:
    """The lift as it is now."""
    behind = await advance_lift(service)

    async def look(tx: Tx) -> tuple[Any, Any, Any]:
        rows = await tx.all("SELECT version, arm, users, interactions, rewarded, sums FROM lift_sums")
        shares = await tx.all("SELECT version, random, control, incumbent FROM shares")
        return rows, shares, (await tx.all("SELECT shift FROM lift WHERE id = 1"))[0][0]

    rows, shares, shift = await service.transact(look)
    cells = {(int(row[0]), str(row[1])): _read(row[2:]) for row in rows}
    known = {int(row[0]): Shares(*row) for row in shares}
    return lift_of_sums(cells, known, float(shift or 0.0), behind)


def lift_of_sums(cells: dict[tuple[int, str], Sums], shares: dict[int, Shares], shift: float, behind: int) -> Lift:
    """Means, lifts and the test of shares, from sums by version and arm."""
    versions = sorted({version for version, _ in cells})
    empty = Sums.none()
    table = [[cells.get((version, arm), empty) for arm in ARMS] for version in versions]
    values = np.array([[one.values for one in row] for row in table]).reshape(len(versions), len(ARMS), FIRST + 1, 3)
    values = np.moveaxis(values, 2, 0)  # (FIRST + 1, V, A, 3): overall, then by interaction
    longest = int((values[1:, ..., 0].sum((1, 2)) > 0).sum())  # interactions that somebody has a reward of
    means, lifts = _means(values[: longest + 1], shift), _lifts(values[: longest + 1])
    ratio = _sample_ratio(versions, table, shares)
    return Lift(
        words=[lift_in_words(one, values[0, :, 0, 0].sum()) for one in lifts[0]]
        or ["There is nothing to compare yet."],
        arms=means[0],
        lift=lifts[0],
        by_interaction=[Interaction(n, means[n], lifts[n]) for n in range(1, longest + 1)],
        sample_ratio=ratio,
        first=FIRST,
        confidence=1 - ALPHA,
        tuned=TUNED,
        behind=behind,
    )


def _means(sums: Floats, shift: float) -> list[list[ArmMean]]:
    """Arms that have users, for each of n sums (n, V, A, 3)."""
    found: list[list[ArmMean]] = [[] for _ in sums]
    for place, arm in enumerate(ARMS):
        users = sums[:, :, place, 0].sum(1).astype(int).tolist()
        for n, (value, around) in enumerate(
            zip(*(one.tolist() for one in confidence_sequence_mean(sums, place)), strict=True)
        ):
            if users[n]:
                found[n].append(ArmMean(arm, users[n], value + shift, *_ends(value + shift, around)))
    return found


def _lifts(sums: Floats) -> list[list[ArmLift]]:
    """Treated against each other arm, for each of n sums."""
    found: list[list[ArmLift]] = [[] for _ in sums]
    for place, arm in enumerate(ARMS[1:], start=1):
        users = sums[:, :, place, 0].sum(1).astype(int).tolist()
        for n, (value, around) in enumerate(
            zip(*(one.tolist() for one in confidence_sequence_difference(sums, 0, place)), strict=True)
        ):
            if np.isfinite(value):
                found[n].append(ArmLift(arm, users[n], value, *_ends(value, around)))
    return found


def _ends(value: float, around: float) -> tuple[float | None, float | None]:
    return (value - around, value + around) if np.isfinite(around) else (None, None)


def lift_in_words(one: ArmLift, treated: float) -> str:
    """A lift as a sentence.

    >>> lift_in_words(ArmLift("control", 500, 0.25, 0.1, 0.4), 9000)
    'Treated users get 0.25 more per decision than control users (0.1 to 0.4 more; 9,000 and 500 users).'
    """
    counts = f"{int(treated):,} and {one.users:,} users"
    if one.low is None or one.high is None:
        return f"Too early to compare treated with {one.against} ({counts}; {FEWEST} of each are needed)."
    if one.low > 0:
        ends = f"{one.low:.3g} to {one.high:.3g} more"
        return f"Treated users get {one.difference:.3g} more per decision than {one.against} users ({ends}; {counts})."
    if one.high < 0:
        ends = f"{-one.high:.3g} to {-one.low:.3g} less"
        return f"Treated users get {-one.difference:.3g} less per decision than {one.against} users ({ends}; {counts})."
    ends = f"{one.difference:+.3g}, {one.low:+.3g} to {one.high:+.3g}"
    return f"No difference between treated and {one.against} is shown yet ({ends}; {counts})."


def _sample_ratio(versions: Sequence[int], table: Sequence[Sequence[Sums]], shares: dict[int, Shares]) -> SampleRatio:
    """Users by arm against the shares of when they came."""
    counts = np.array([[one.users for one in row] for row in table], dtype=np.float64).reshape(-1, len(ARMS))
    wanted = np.array([[getattr(shares[version], arm) for arm in ARMS] for version in versions]).reshape(-1, len(ARMS))
    p_value = confidence_sequence_sample_ratio(counts, wanted)
    expected = (counts.sum(1, keepdims=True) * wanted).sum(0)
    arms = [
        ArmCount(
            arm,
            int(counts[:, i].sum()),
            float(expected[i]),
            sum(row[i].interactions for row in table),
            sum(row[i].rewarded for row in table),
        )
        for i, arm in enumerate(ARMS)
        if counts[:, i].sum() or expected[i]
    ]
    warning = None
    if p_value < MISMATCH:
        off = max(arms, key=lambda one: abs(one.users - one.expected) / max(one.expected, 1.0) ** 0.5)
        warning = (
            f"The arms do not have the users that their shares should bring: {off.users:,} {off.arm} users, and"
            f" {off.expected:,.0f} are expected (p = {p_value:.1g}). Do not trust the lift before you know why:"
            " requests that fail in one arm, erasures, or clients that choose whom they ask for."
        )
    return SampleRatio(p_value, warning, arms)
