"""Arms: who judges logs of an experiment, and whether each arm's propensities are those that its rule has.

Random users have 1/K among K candidates, to the last digit. A deterministic rule has 1: exact too, but rows of
propensity 1 say nothing of what any other action would have paid. The tests of chance look at users of the random arm
alone; here it is said how many they are, and how many would do.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.checks.permutation_tests import Draft
from newcomer.findings import ARMS, LIFT, Finding
from newcomer.gain.arm_gains import arm_gain_lift, arm_gains
from newcomer.interval import interval_in_words
from newcomer.logs.arms import OBSERVED, RANDOM
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import reduce

EXACT = 1e-6  # relative difference of a propensity from 1/K that is rounding
NOBODY = "No user was served at random, so nothing tells how these actions were chosen."
SERVE = "Serve a part of the users at random (`newcomer serve --random 0.05`)"


@dataclass(frozen=True)
class ArmCounts:
    """Sums by arm (k,): users of this arm alone, rows, rows of propensity 1, rows without one, rows whose propensity is
    not 1/K; and how many users have rows of several arms.
    """

    users: Ints
    rows: Ints
    certain: Ints
    unknown: Ints
    uneven: Ints
    mixed: int

    def __add__(self, other: ArmCounts) -> ArmCounts:
        names = ("users", "rows", "certain", "unknown", "uneven")
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return ArmCounts(mixed=self.mixed + other.mixed, **sums)

    @classmethod
    def of(cls, batch: Batch, *, arms: tuple[str, ...]) -> ArmCounts:
        """Of a batch: the map of a pass."""
        assert batch.arms is not None
        k, owner = len(arms), np.repeat(np.arange(len(batch.users)), batch.lengths)
        count = partial(np.bincount, minlength=k)
        met = np.zeros((len(batch.users), k), dtype=np.bool_)
        met[owner, batch.arms] = True
        if OBSERVED in arms:
            met[:, arms.index(OBSERVED)] &= met.sum(axis=1) == 1
        alone = met.sum(axis=1) == 1
        p = np.full(len(owner), np.nan) if batch.propensities is None else batch.propensities
        sizes = _offered(batch)
        expected = np.where(sizes > 0, sizes, np.rint(1.0 / p))  # a whole catalogue has some whole number of actions
        uneven = np.abs(p * expected - 1.0) > EXACT
        return cls(
            users=met[alone].sum(axis=0),
            rows=count(batch.arms),
            certain=count(batch.arms[p == 1.0]),
            unknown=count(batch.arms[np.isnan(p)]),
            uneven=count(batch.arms[uneven]),
            mixed=int((~alone).sum()),
        )


def _offered(batch: Batch) -> Floats:
    """How many candidates each row lists (rows,); 0 where it lists none."""
    listed = batch.candidates
    return np.zeros(len(batch.rewards)) if listed is None else listed.lengths.astype(np.float64)


def count_arms_to_check(logs: Logs) -> ArmCounts:
    """One pass over all rows."""
    found: ArmCounts = reduce(logs, partial(ArmCounts.of, arms=logs.arms), operator.add)
    return found


def check_arms(logs: Logs, counts: ArmCounts, drafts: Sequence[object], *, blocked: str = "") -> Finding:
    """Which arms there are, what was judged by whom, and what treated users got beyond the control arm.

    `drafts` are the tests, which know how sure they are; `blocked` says why there are none though users would do.
    """
    made = partial(_told, logs, counts, drafts, blocked)
    lift = arm_gain_lift(arm_gains(logs))
    if lift is None or lift.over is None:
        return made(None, None)
    p_value = math.erfc(abs(lift.over.value) / max(lift.over.error, 1e-300) / math.sqrt(2.0))
    found = made(lift.over.value, p_value)
    first = f"first {lift.interactions} interactions" if lift.interactions > 1 else "first interaction"
    said = (
        f" Over the {first} treated users got {interval_in_words(lift.over)} over the control arm, "
        "which gets the best for"
    )
    return replace(found, what=f"{found.what}{said} everybody.")


def _told(
    logs: Logs, counts: ArmCounts, drafts: Sequence[object], blocked: str, lift: float | None, p_value: float | None
) -> Finding:
    """The finding, with the lift of the treated arm where there is one."""
    made = partial(Finding, ARMS, effect=lift, unit="" if lift is None else LIFT, p_value=p_value)
    each = [f"{n:,} {name}" for name, n in zip(logs.arms, counts.users.tolist(), strict=True) if n]
    mixed = f"; {counts.mixed:,} have rows of several arms and are not used to judge" if counts.mixed else ""
    told = f"Users by arm: {', '.join(each)}{mixed}."
    if logs.judges is None:
        return made("doubtful", f"{told} {NOBODY}", f"{SERVE}: only these users can be used to evaluate the model.")
    users = logs.judges.summary.usable
    told += f" The {users:,} users of the random arm with two or more rows are used to test logging, drift and shared"
    told += " preferences; all rows for coverage and rewards; propensities are tested arm by arm. In the other arms,"
    told += " what is shown depends on preferences, as intended."
    if blocked:
        return made("unknowable", f"{told} {blocked}", "Mend what the finding repeats says first.")
    if not any(isinstance(one, Draft) for one in drafts):
        return made(
            "unknowable", f"{told} The random arm is too small for any test.", f"{SERVE}: a few hundred of them."
        )
    needed = _needed_users(users, drafts)
    if needed <= users:
        return made("fine", told, "Nothing to do.")
    few = f" The random arm is too small for some of these tests: about {needed:,} users are needed."
    advice = f"{SERVE} for longer, or with a larger share."
    return made("unknowable", told + few, advice)


def _needed_users(users: int, drafts: Sequence[object]) -> int:
    """With how many users every test would see an effect that spoils a fit: what chance gives shrinks with the root.

    >>> _needed_users(12, ())
    12
    """
    tests = [one for one in drafts if isinstance(one, Draft)]
    shares = [(one.chance.blind * one.scale / one.limits.broken) ** 2 for one in tests]
    needed = users * max(shares, default=1.0)
    return users if needed <= users else _rounded(needed)


def _rounded(value: float) -> int:
    unit = int(10 ** max(len(str(int(value))) - 2, 0))
    return math.ceil(value / unit) * unit


def check_propensities_by_arm(logs: Logs, counts: ArmCounts, random: Finding | None) -> Finding:
    """Each arm's propensities against its rule; `random` is what frequencies say of the random arm."""
    place = logs.arms.index(RANDOM) if RANDOM in logs.arms else None
    rules: dict[str, list[str]] = {}
    for name, *each in zip(logs.arms, *(one.tolist() for one in (counts.rows, counts.certain, counts.unknown))):
        if each[0] and name != RANDOM:
            rules.setdefault(_rule(*each), []).append(name)
    others = ". ".join(f"{', '.join(names).capitalize()}: {rule}" for rule, names in rules.items())
    if place is None or random is None:
        return Finding("propensities", "unknowable", f"{others}. {NOBODY}", f"{SERVE}.")
    uneven = int(counts.uneven[place])
    if uneven:
        rows = int(counts.rows[place])
        what = f"Random: in {uneven:,} of {rows:,} rows the propensity is not 1 over the number of candidates."
        return Finding("propensities", "broken", what, "Correct the propensities or the candidates of the random arm.")
    what = f"Random: 1 over the number of candidates in each row. {random.what}"
    what = f"{what} {others}." if others else what
    picture = random.picture
    return Finding("propensities", random.verdict, what, random.advice, random.effect, random.unit, picture=picture)


def _rule(rows: int, certain: int, unknown: int) -> str:
    if unknown == rows:
        return "none, because the service did not choose"
    if certain == rows:
        return "1 in every row, a deterministic rule, which does not tell what other actions would have paid"
    return f"1 in {certain / rows:.0%} of the rows, otherwise the probability with which a policy drew the action"
