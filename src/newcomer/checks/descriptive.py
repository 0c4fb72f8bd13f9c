"""Descriptive: what is read off the logs without a test of chance: coverage, spellings, rewards, propensities, repeats.

A fault here counts directly. Propensities are held against the logs by the identity E[1(a shown) / p] = P(a can be
shown) <= 1: summed over rows and divided by their number, 1/p of an action exceeds 1 only by chance. Where an action
has the same propensity in every row and these add up to 1 over actions, the identity is an equation. Chance is judged
by a normal bound for the worst action, corrected for their number: conservative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.special import bdtr, bdtrc, ndtri

from newcomer.arrays import Floats, Ints
from newcomer.checks.residuals import CheckSample, Propensities, ResidualSample
from newcomer.evidence import HEAVY_TAILS
from newcomer.findings import SPELLING, Finding, Picture, Verdict
from newcomer.logs.advice import NO_CONSTANT
from newcomer.logs.logs import Logs

NOTHING = "Nothing to do."
RARE = 5  # rows of an action below which little is known of it
CROWDED = 0.5  # share of rewards at one end of the scale from which it is a floor or a ceiling
FEW_EVENTS = 100  # rewards of the rarer of two values below which there is little to learn from
TINY = 1e-3  # propensities below this make an estimate that divides by them depend on single rows
SCALE = 50  # different rewards up to which they are a scale
CODES = (-999.0, -99.0, -9.0, -1.0, 9.0, 99.0, 999.0)  # that people write for no answer
LOOKED = 20_000  # rows by whose features the level of rewards is looked for
SHOWN = 40  # points of a picture
SPELLINGS = 3  # of an action, and actions, that are named
OFF = 0.1  # relative deviation of frequencies from propensities that matters


def describe_coverage(logs: Logs, found: CheckSample) -> Finding:
    """Whether histories and actions are there to learn from: users of two rows, several actions, every direction."""
    summary, weakest, missing = logs.summary, *_weakest(logs, found)
    rare = float(np.mean(found.shown < RARE)) if len(found.shown) else 0.0
    short = summary.too_short / summary.users
    told = _seen_most(logs, found) if logs.one_hot else "There are too many features to test every direction"
    if weakest is not None and not logs.one_hot:
        told = f"The least covered direction of the features has {weakest:.2g} times the average coverage"
    told += f", and {missing} directions are never covered" if missing else ""
    made = partial(Finding, "coverage", effect=weakest, unit="of an average direction", picture=_by_action(found))
    if summary.usable < 2:
        return Finding(
            "coverage",
            "broken",
            f"{summary.usable:,} of {summary.users:,} users have two or more rows: "
            "too few to estimate what users share.",
            "Log several actions of each user: single rows tell the population mean and nothing about preferences.",
            effect=short,
            unit="of users with a single row",
        )
    if weakest == 0 and not missing:
        what = "Every row shows the same action, or the same features: there is nothing to choose between."
        return Finding("coverage", "broken", what, "Log several actions, or features that tell them apart.")
    doubts = [f"{short:.0%} of the users have a single row"] if short > 0.5 else []
    doubts += [f"{rare:.0%} of the actions have fewer than {RARE} rows"] if rare > 0.5 else []
    doubts += [f"{missing} directions of the items are never shown"] if missing else []
    if level := _level_without_place(logs):
        what = f"{told}. {level}, so that the model has no place for the mean."
        todo = "Read the logs with intercept=True (--intercept), or take the mean off the rewards."
        return made("doubtful", what, todo)
    if doubts:
        advice = "The model leaves out what is not covered: log what is missing, or drop rare actions."
        return made("doubtful", f"{told}; {', '.join(doubts)}.", advice)
    return made("fine", f"{told}.", NOTHING)


def _seen_most(logs: Logs, found: CheckSample) -> str:
    """How many actions there are, and how often they were shown."""
    shown = found.shown[found.shown > 0]
    return f"{len(shown):,} actions have {shown.min():,} to {shown.max():,} rows each" if len(shown) else "No actions"


def describe_spellings(ids: Sequence[int | str]) -> list[Finding]:
    """Ids of actions that differ in case or in blanks alone: each spelling counts as an action of its own.

    >>> describe_spellings(["Tea", "tea ", "rum"])[0].what
    "1 action occurs in several spellings, which count as different actions ('Tea', 'tea ')."
    """
    groups: dict[str, list[str]] = {}
    for one in ids:
        if isinstance(one, str):
            groups.setdefault(" ".join(one.split()).casefold(), []).append(one)
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return []
    occur = "action occurs" if len(several) == 1 else "actions occur"
    shown = "; ".join(", ".join(map(repr, group[:SPELLINGS])) for group in several[:SPELLINGS])
    what = f"{len(several):,} {occur} in several spellings, which count as different actions ({shown})."
    advice = "Join them with tidy_ids=True (--tidy-ids), if they are the same."
    return [Finding(SPELLING, "doubtful", what, advice, effect=float(len(several)), unit="actions")]


def _weakest(logs: Logs, found: CheckSample) -> tuple[float | None, int]:
    """Smallest eigenvalue of E[x x^T] as a share of the average one, and directions of the items that are not shown.

    For one-hot features eigenvalues are frequencies, and no d x d matrix is formed. None where rows bring too many.
    """
    if logs.one_hot:
        values = np.sort(found.shown[found.shown > 0] / max(found.shown.sum(), 1))
        return (float(values[0] * len(values)), 0) if len(values) > 1 else (0.0, 0)
    gram, rank = found.gram, 0
    if logs.item_features is not None:
        gram = (logs.item_features.T * found.shown) @ logs.item_features
        rank = int(np.linalg.matrix_rank(logs.item_features))
    if not gram.size:
        return None, 0
    if not np.trace(gram) > 0:
        return 0.0, 0
    values = np.linalg.eigvalsh(gram)
    reached = values[values > 1e-10 * values[-1]]
    varies = len(reached) > 1 or _varies(found)
    return (float(reached[0] / reached.mean()) if varies else 0.0), max(rank - len(reached), 0)


def _varies(found: CheckSample) -> bool:
    """Whether features that span one direction are not the same in every row."""
    if len(found.shown):
        return int((found.shown > 0).sum()) > 1
    return bool(len(found.features) and np.ptp(found.features, axis=0).any())


def _by_action(found: CheckSample) -> Picture | None:
    """Rows of the actions, most shown first."""
    if len(found.shown) < 2:
        return None
    counts = np.sort(found.shown)[::-1]
    at = np.unique(np.linspace(0, len(counts) - 1, SHOWN).astype(np.int64))
    labels = "actions, most shown first", "rows"
    return Picture("How often was each action shown?", *labels, tuple((at + 1.0).tolist()), _floats(counts[at]))


def describe_rewards(logs: Logs) -> Finding:
    """Constant, two-valued, piled up at an end, or far outside: what rewards look like."""
    values, counts = logs.total.rewards.listed(logs.summary.clip)
    total, summary = int(counts.sum()), logs.summary
    picture = _histogram(values, counts)
    if len(values) == 1:
        what = f"Every reward is {values[0]:g}: there is nothing to learn from."
        return Finding("rewards", "broken", what, "Log the outcome of each action, zeros included.")
    ends = {"lowest": counts[0] / total, "highest": counts[-1] / total}
    end, share = max(ends.items(), key=lambda one: one[1])
    most = values[0] if end == "lowest" else values[-1]
    made = partial(Finding, "rewards", effect=float(share), unit=f"of rewards are the {end}", picture=picture)
    span = f"{summary.learned[:1].upper()}{summary.learned[1:]} go{'es' * (summary.learned != 'rewards')} from "
    span += f"{values[0]:g} to {values[-1]:g}"
    if len(values) == 2:
        rarer = int(counts.min())
        what = f"Rewards take two values, {values[0]:g} and {values[1]:g}; {rarer:,} are the rarer one."
        verdict: Verdict = "doubtful" if rarer < FEW_EVENTS else "fine"
        advice = "Log more rows: so few of the rarer value say little." if verdict == "doubtful" else NOTHING
        return made(verdict, what, advice)
    if summary.far_rewards or summary.tail_share > HEAVY_TAILS:
        tails = "heavy tails" if not summary.far_rewards else summary.hiding
        what = f"{span}, with {tails}, which may hide how users differ."
        advice = f"Correct rewards that are mistakes; for those that are not, {summary.remedy}."
        unit = "of the sum of squared rewards is in the tails"
        return replace(made("doubtful", what, advice), effect=summary.tail_share, unit=unit)
    if code := _code_among_rewards(values, counts):
        said = (
            f"{code[1]:.0%} of them are {code[0]:g}, apart from the scale of all others: perhaps a code for no answer."
        )
        return made("doubtful", f"{span}; {said}", "Remove these rows if they are no answers.")
    if share > CROWDED:
        what = f"{span}, and {share:.0%} of them are {most:g}, the {end}: the scale hides"
        what += " preferences beyond it."
        advice = "Log a finer reward; near the end of the scale, gains are understated."
        return made("doubtful", what, advice)
    often = f"; {share:.0%} of them are {most:g}, the {end}" if share >= 0.01 else ""
    return made("fine", f"{span}{often}.", NOTHING)


def _code_among_rewards(values: Floats, counts: Ints) -> tuple[float, float] | None:
    """A customary code for no answer at an end of an otherwise regular scale, and its share; None if there is none.

    >>> _code_among_rewards(np.array([-1.0, 1.0, 2.0, 3.0]), np.array([3, 1, 1, 1]))
    (-1.0, 0.5)
    """
    if not 4 <= len(values) <= SCALE:
        return None
    for end, others in ((0, values[1:]), (-1, values[:-1])):
        steps, share = np.diff(others), float(counts[end] / counts.sum())
        gap = abs(values[end] - (others[0] if end == 0 else others[-1]))
        apart = np.ptp(steps) < 1e-9 * steps[0] and gap > 1.5 * steps[0]
        if float(values[end]) in CODES and 0.01 <= share <= 0.5 and apart:
            return float(values[end]), share
    return None


def _level_without_place(logs: Logs) -> str:
    """That the mean reward has no place in the features, in words; nothing where some rows show that it has."""
    summary = logs.summary
    if logs.one_hot or abs(summary.mean_reward) <= summary.reward_deviation:
        return ""
    line = next((one for one in logs.advice if NO_CONSTANT in one), "")
    if line:
        batch = next(iter(logs.batches()))
        features, rewards = batch.take(slice(0, LOOKED)), batch.rewards[:LOOKED]
        left = rewards - features @ np.linalg.lstsq(features, rewards, rcond=None)[0]
        line = line if abs(left.mean()) > left.std() else ""
    return line.partition(":")[0]


def _histogram(values: Floats, counts: Ints) -> Picture:
    """Shares of rewards in at most 40 bins."""
    middle, shares = values, counts / counts.sum()
    if len(values) > SHOWN:
        low, high = np.quantile(np.repeat(values, np.minimum(counts, 50)), [0.005, 0.995])
        edges = np.linspace(low, high, SHOWN + 1) if high > low else np.linspace(values[0], values[-1], SHOWN + 1)
        shares = np.histogram(np.clip(values, edges[0], edges[-1]), edges, weights=counts)[0] / counts.sum()
        middle = (edges[:-1] + edges[1:]) / 2
    return Picture("Rewards", "reward", "share of rows", _floats(middle), _floats(shares), kind="bars")


def describe_propensities(found: CheckSample, rows: int, level: float) -> Finding:
    """Whether propensities agree with how often actions were shown, and are far enough from zero."""
    told = found.propensities
    if told is None:
        return Finding(
            "propensities",
            "unknowable",
            "No propensities are logged, so only the tests tell how actions were chosen.",
            "If actions were drawn at random, add a column propensity with the probability of the logged action"
            f"{_equal(found)}: the gain of serving everybody the best action is then measured on all rows.",
        )
    ratio, error = _ratios(told, rows)
    fixed = bool(np.all(told.largest - told.least <= 1e-9)) and len(found.shown) > 1
    equal = fixed and abs(float(told.least[found.shown > 0].sum()) - 1) < 1e-6
    off = np.abs(ratio - 1) if equal else ratio - 1
    limit = -float(ndtri(level / (2 * len(ratio)))) * error
    if fixed:  # the error of a frequency is known, and estimated from few rows it is too small
        chance = _by_chance(told, rows)
        limit = np.where(chance < level / len(ratio), limit, np.maximum(limit, off))
    worst = int(np.argmax(off - limit))
    least, used = float(told.least.min()), float(told.inverse.sum() ** 2 / (rows * told.squares.sum()))
    picture, beyond = _ratio_picture(ratio, limit), float(max(off[worst], 0.0))
    made = partial(Finding, "propensities", effect=beyond, unit="relative deviation", picture=picture)
    least_told = f"the smallest propensity is {least:.2g}"
    if off[worst] > limit[worst] and off[worst] > OFF:
        what = f"One action was shown {ratio[worst]:.3g} times as often as its propensities allow; {least_told}."
        return made("broken", what, "Correct the propensities, or leave the column out.")
    if least < TINY or used < 0.1:
        what = f"Propensities agree with how often actions were shown, but {least_told}, and estimates that divide by"
        what += f" them use {used:.0%} of the rows."
        return made("doubtful", what, "Explore in at least 1% of the decisions.")
    return made("fine", f"They agree with how often actions were shown; {least_told}.", NOTHING)


def _equal(found: CheckSample) -> str:
    """The propensity of a test in which all actions are equally likely."""
    actions = int((found.shown > 0).sum())
    return f" (1/{actions:,} in each row if all were equally likely)" if actions > 1 else ""


def _ratios(told: Propensities, rows: int) -> tuple[Floats, Floats]:
    """Mean over rows of 1(a) / p of each action, for one without names over their number; and its standard error."""
    mean = told.inverse / rows
    return mean, np.sqrt(np.maximum(told.squares / rows - mean**2, 0.0) / rows)


def _by_chance(told: Propensities, rows: int) -> Floats:
    """Two-sided p-values (A,) of how often actions were shown, each with one propensity: by binomial tails."""
    odds = np.where(told.largest > 0, told.least, 1.0)
    met = np.rint(told.inverse * odds)
    tails = np.minimum(bdtr(met, rows, odds), bdtrc(met - 1, rows, odds))
    return np.where(told.largest > 0, np.minimum(2 * tails, 1.0), 1.0)


def _ratio_picture(ratio: Floats, limit: Floats) -> Picture:
    order = np.argsort(-ratio, kind="stable")[:SHOWN]
    x, y, room = np.arange(len(order)) + 1.0, ratio[order], limit[order]
    return Picture(
        title="Do propensities fit?",
        x_label="actions, largest first",
        y_label="shown / allowed by propensities",
        x=_floats(x),
        y=_floats(y),
        low=_floats(1 - room),
        high=_floats(1 + room),
        band="what chance allows",
    )


def describe_repeats(sample: ResidualSample) -> Finding:
    """Whether actions come again to the same user, and whether what is left of their rewards agrees then."""
    if not len(sample.actions) or not sample.repeats or sample.spread <= 0:
        what = "No user meets an action twice" if len(sample.actions) else "Actions have no names"
        what += ", so these logs do not tell how repeatable a user's reward for an action is."
        return Finding("repeats", "unknowable", what, "Nothing to do: each new user's own repeats will show it.")
    same, other, error = describe_repeat_agreement(sample)
    lasting = float(np.clip((same - other) / sample.spread, -1.0, 1.0))
    share = f"{max(lasting, 0.0):.0%} of the residual variance"
    what = f"{sample.repeats:,} rows repeat an action of the same user; {share} is"
    what += " repeatable, shared preferences included"
    labels, table = ("same action", "other actions"), (same / sample.spread, other / sample.spread)
    picture = Picture(
        "Do repeated actions pay the same?",
        "",
        "correlation of residuals",
        (0.0, 1.0),
        table,
        labels=labels,
        kind="bars",
    )
    sure = 2 * error / sample.spread
    told, unit = f"{what} (± {sure:.0%}).", "of the residual variance"
    return Finding("repeats", "fine", told, NOTHING, effect=lasting, unit=unit, picture=picture)


def describe_repeat_agreement(sample: ResidualSample) -> tuple[float, float, float]:
    """Mean product of residuals of two rows of a user: same action, other ones; and the first one's error."""
    key = sample.user * sample.count + sample.actions
    places, which = np.unique(key, return_inverse=True)
    e = sample.residual
    sums, squares = (np.bincount(which, weights=e**power) for power in (1, 2))
    times = np.bincount(which)
    user = places // sample.count
    same = np.bincount(user, weights=(sums**2 - squares) / 2, minlength=len(sample))
    pairs = np.bincount(user, weights=times * (times - 1) / 2, minlength=len(sample))
    whole = np.add.reduceat(e, sample.offsets[:-1]) ** 2 - np.add.reduceat(e**2, sample.offsets[:-1])
    every = sample.window * (sample.window - 1) / 2
    mean = same.sum() / pairs.sum()
    error = math.sqrt(float(((same - mean * pairs) ** 2).sum())) / float(pairs.sum())
    other = (whole.sum() / 2 - same.sum()) / max(float((every - pairs).sum()), 1.0)
    return float(mean), float(other), error


def _floats(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(one) for one in values)
