"""Advice: plain sentences about logs that can be used, but perhaps better otherwise.

A mean reward far from zero has to be carried by the features. It can be if the constant lies in their span, that is if
min_w sum (1 - w.x)^2 = n - s' G^+ s is 0, with G = sum x x' and s = sum x. Otherwise an intercept is worth having.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import NamedTuple, cast

import numpy as np

from newcomer.arrays import Floats
from newcomer.evidence import HEAVY_TAILS, LIMITS, Summary
from newcomer.logs.histories import Histories
from newcomer.logs.summary import FAR as FAR_OUTSIDE
from newcomer.logs.summary import TAIL, LogTotals
from newcomer.transforms import Transform, untransform_rewards

NO_CONSTANT = "no combination of the features is constant"
FAR = 0.25  # standard deviations of the rewards that their mean may be from zero before anything is said
SAMPLE = 20_000  # rows whose features are looked at
NAMED = 3  # rows that are named


def intercept_advice(summary: Summary, sample: Floats) -> list[str]:
    """Advise an intercept if the mean reward needs one, judged by the features (n, d) of some rows."""
    if abs(summary.mean_reward) <= FAR * summary.reward_deviation or _advise_on_constant(sample):
        return []
    found = f"The mean reward is {summary.mean_reward:.3g} and {NO_CONSTANT}"
    return [f"{found}: consider intercept=True (--intercept), or subtract the mean from the rewards."]


def short_history_advice(summary: Summary) -> list[str]:
    """Say how many users cannot be split, and how many rows have no order of their own."""
    said = []
    if summary.too_short:
        have = "has" if summary.too_short == 1 else "have"
        said.append(f"{summary.too_short:,} of {summary.users:,} users {have} a single row, too short to learn from.")
    if summary.ties:
        said.append(f"{summary.ties:,} of {summary.rows:,} rows share user and time with another; file order decides.")
    return said


def candidate_advice(total: LogTotals) -> list[str]:
    """Say how often a candidate was on offer that was never chosen."""
    if not total.nowhere:
        return []
    share = f"{total.nowhere:,} of {total.candidates:,} entries of candidates"
    return [f"{share} name actions that were never chosen in these logs, about which nothing can be learned."]


class FarRow(NamedTuple):
    """A reward far from all others: sorted by how far, then by user, whatever order they were found in."""

    closeness: float
    hash: int
    step: int
    user: int | str
    reward: float
    action: int  # position in the catalogue, -1 where none is named

    def told(self, actions: Sequence[int | str]) -> str:
        """The reward and where it is; `actions` are the ids of the catalogue."""
        named = f", action {actions[self.action]!r}" if 0 <= self.action < len(actions) else ""
        return f"{self.reward:.6g} (user {self.user!r}, row {self.step} of theirs{named})"


def reward_advice(
    summary: Summary, parts: Callable[[], Iterable[Histories]], actions: Sequence[int | str] = ()
) -> list[str]:
    """Say which rewards are far outside, where they are, and whether the tails are heavy; what was clipped."""
    said, transform = [], summary.reward_transform
    if transform is not None:
        said.append(
            "Rewards are learned as log(1 + reward): their mean and deviation are those of the logarithms, "
            "what is expected of a reward is a typical one, and gains are in the units of the rewards."
        )
    if summary.clip is not None:
        low, high = untransform_rewards(np.array(summary.clip), cast(Transform | None, transform)).tolist()
        said.append(f"{summary.clipped:,} of {summary.rows:,} rewards were clipped to [{low:.6g}, {high:.6g}].")
    middle, deviation = summary.median_reward, summary.robust_deviation
    if summary.far_rewards:
        rows = ", ".join(row.told(actions) for row in _far_rows_to_advise(parts(), middle)[: summary.far_rewards])
        more = ", ..." if summary.far_rewards > NAMED else ""
        are = "is" if summary.far_rewards == 1 else "are"
        said.append(
            f"{summary.far_rewards:,} of {summary.rows:,} rewards {are} more than {FAR_OUTSIDE:.0f} deviations"
            f" ({deviation:.3g}, robust) from the median {middle:.3g}: {rows}{more}. Remove them if they are mistakes"
            f" or stand for missing values{_otherwise(summary)}."
        )
    elif summary.tail_share > HEAVY_TAILS:
        said.append(
            f"Rewards have heavy tails: those more than {TAIL:.0f} robust deviations ({deviation:.3g}) from the median"
            f" {middle:.3g} make up {summary.tail_share:.0%} of the sum of squares, and may hide how users differ"
            f"{_otherwise(summary, '; ')}."
        )
    return said


def _otherwise(summary: Summary, link: str = ", else ") -> str:
    """The one thing to do about rewards that are right; nothing where the limits it advises were given already."""
    return "" if summary.remedy == LIMITS and summary.clip is not None else f"{link}{summary.remedy}"


def _far_rows_to_advise(parts: Iterable[Histories], middle: float) -> list[FarRow]:
    """The rows whose rewards are furthest from the `middle`; ties go to the lower hash of the user, then step."""
    found: list[FarRow] = []
    for part in parts:
        away = np.abs(part.rewards - middle)
        edge = np.partition(away, -NAMED)[-NAMED] if len(away) > NAMED else 0.0
        rows = np.flatnonzero(away >= edge)
        owners = np.searchsorted(part.offsets, rows, side="right") - 1
        steps = rows - part.offsets[owners] + 1
        described = zip(rows.tolist(), owners.tolist(), steps.tolist(), strict=True)
        found = nsmallest(
            NAMED,
            [
                *found,
                *(
                    FarRow(
                        *(-float(away[r]), int(part.hashes[o]), step, part.users[o], float(part.rewards[r])),
                        -1 if part.actions is None else int(part.actions[r]),
                    )
                    for r, o, step in described
                ),
            ],
        )
    return found


def _advise_on_constant(sample: Floats, tolerance: float = 1e-6) -> bool:
    """Whether some combination of the columns of (n, d) is 1 in every row, up to a share `tolerance` of the squares.

    >>> _advise_on_constant(np.array([[0.2, 0.8], [0.5, 0.5]])), _advise_on_constant(np.array([[1.0], [2.0]]))
    (True, False)
    """
    total = sample.sum(axis=0)
    explained = total @ np.linalg.lstsq(sample.T @ sample, total, rcond=None)[0]
    return bool(len(sample) - explained <= tolerance * len(sample))


def arm_advice(users: int, random: int | None) -> str:
    """Who learns and who judges, where rows have the arms of an experiment.

    >>> arm_advice(900, None)
    'Rows have arms, and nobody was served at random, so these logs cannot judge a model.'
    """
    if random is None:
        return "Rows have arms, and nobody was served at random, so these logs cannot judge a model."
    were = "user was" if random == 1 else "users were"
    return (
        f"Rows have arms: {random:,} of {users:,} {were} served at random, and these rows judge (checks, gains, SOLD "
        "and radii); EM learns from the rows of all arms."
    )
