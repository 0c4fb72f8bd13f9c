"""Shared preferences: do users differ in what they prefer, and what that was not logged could look the same?

What both halves of a history say of a user's preferences agrees only if there are some: x of the first half against x
of the second, rows shuffled, each residual less the mean of its half, so that a user's general level does not count.
The trace of their covariance is the variance of rewards that preferences explain, along the directions looked at.

Of many users a sample is looked at. Where it shows no preferences worth serving, all users are: do the other actions of
held-out users predict each reward, along the directions that moments of the others show (`newcomer.em.large_logs`)?

What logs cannot show is listed with how strong it would have to be. A hidden cause that moved both what was shown and
what was paid would have to explain a share of the variance of both: the robustness value of Cinelli and Hazlett (2020),
f = R^2 / (1 - R^2), RV = (sqrt(f^2 + 4 f) - f) / 2 at equal shares, is what explains all of it away. A cause that stays
with the user shows in what halves of histories have in common: `newcomer.checks.dependence.context_dependence` bounds
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from newcomer.arrays import Floats
from newcomer.checks.permutation_tests import (
    Draft,
    PermutationTest,
    binned_permutation_means,
    cross_permutation_test,
    leading_permutation_directions,
)
from newcomer.checks.residuals import MOST, HalvedRows
from newcomer.em.large_logs import shared_in_large_logs
from newcomer.em.passes import Passes
from newcomer.em.shrinkage import start_with_shrinkage
from newcomer.evidence import Summary
from newcomer.findings import SHARED, Finding, finding_chance
from newcomer.gain.settings import GAINS
from newcomer.logs.logs import Logs

SLIGHT = 0.01  # share of the residual variance below which preferences are hardly worth serving
UNIT = "of the residual variance"
LITTLE = "There is little to gain from serving preferences."


def shared_preferences(view: HalvedRows, level: float, seed: int) -> Finding:
    """Whether the halves of histories agree about the user, beyond the user's general level."""
    first, second = view.sums(_without_level(view))
    before, after = (np.maximum(one - 1, 1) for one in view.sizes)
    found = cross_permutation_test(
        first, second, view.sample.window, before * after * 1.0, seed=seed, matched=view.leading
    )
    if found is None or view.sample.spread <= 0:
        what = "Too few users have equally long histories, or actions explain all rewards: this test cannot run."
        return Finding(
            SHARED, "doubtful", what, "Serve everybody the action that is best on average, and log more users."
        )
    share = float(np.clip(np.trace(found.matrix) / view.sample.spread, 0.0, 1.0))
    left, right = leading_permutation_directions(found.matrix)
    labels = {"x_label": "preference by one half", "y_label": "preference by the other"}
    title = "Do both halves of a history show the same preferences?"
    picture = binned_permutation_means(first @ left / before, second @ right / after, title=title, **labels)
    made = partial(Finding, SHARED, effect=share, unit=UNIT, p_value=found.p_value, picture=picture)
    if found.p_value > level:
        told = finding_chance(found.p_value)
        what = f"The two halves of a history agree about its user no more than by chance ({told})."
        return made("doubtful", what, "Serve everybody the action that is best on average, or log more.")
    size = f"explain {share:.1%} {UNIT}" if share >= GAINS.agreed else "exist, but are too small to measure"
    what = f"Preferences shared by both halves of histories {size} ({finding_chance(found.p_value)})."
    if share < SLIGHT:
        return made("doubtful", what, LITTLE)
    return made("fine", what, "Nothing to do.")


def shared_preferences_of_all(
    logs: Logs, sample: Finding, level: float, progress: Callable[[int, int], None] | None
) -> Finding:
    """The finding by all users, where a sample of them shows no preferences worth serving; by three passes, six where
    actions are many.
    """
    users = logs.summary.users
    if users <= 2 * MOST or sample.verdict == "fine" or (logs.wide and logs.intercept):
        return sample
    passes = Passes(logs, progress)
    sure, share = shared_in_large_logs(passes, start_with_shrinkage(passes, None))
    p_value = 0.5 * math.erfc(sure / math.sqrt(2.0))
    if p_value > level or share <= (sample.effect or 0.0):
        return replace(
            sample, what=f"{sample.what} All {users:,} users together show no more ({finding_chance(p_value)})."
        )
    size = f"explain {share:.1%} {UNIT}" if share >= GAINS.agreed else "exist, but are too small to measure"
    what = (
        f"Over all {users:,} users, shared preferences {size} ({finding_chance(p_value)}); a "
        "sample of the users is too small to show them."
    )
    verdict, advice = ("doubtful", LITTLE) if share < SLIGHT else ("fine", "Nothing to do.")
    return replace(sample, verdict=verdict, what=what, advice=advice, effect=share, p_value=p_value)


def shared_preferences_behind_tails(found: Finding, summary: Summary, level: float) -> Finding:
    """The finding, where the test sees nothing and heavy tails, or a few far rewards, may be why: nothing is known."""
    if not summary.hiding or found.p_value is None or found.p_value <= level:
        return found
    what = f"{found.what.removesuffix('.')}: {summary.hiding} may hide shared preferences."
    return replace(found, verdict="unknowable", what=what, advice=f"Check again with an option: {summary.remedy}.")


def _without_level(view: HalvedRows) -> Floats:
    """(e - mean of its half) z, (R, leading); halves of a single row keep e as it is."""
    e = view.residual[:, None]
    sums, sizes = view.sums(e), view.sizes
    means = np.stack([(total[:, 0] / size) * (size > 1) for total, size in zip(sums, sizes, strict=True)], axis=1)
    counts = np.stack(sizes, axis=1)
    return np.asarray((e - np.repeat(means.ravel(), counts.ravel())[:, None]) * view.preferences)


def _shared_preferences_robustness(share: float) -> float:
    """Share of the variance of both that a hidden cause must explain to feign a share of explained variance.

    >>> round(_shared_preferences_robustness(0.1), 3), _shared_preferences_robustness(0.0)
    (0.282, 0.0)
    """
    odds = min(share, 1 - 1e-9) / (1 - min(share, 1 - 1e-9))
    return (math.sqrt(odds**2 + 4 * odds) - odds) / 2


def unknowable_of_shared_preferences(
    shared: Finding, shown: Draft | None, deviation: float, level: float, learned: str, *, random: bool = False
) -> list[Finding]:
    """What no check of these logs can tell, and how strong it would have to be; of preferences within chance no size
    is told.
    """
    seen = shared.p_value is not None and shared.p_value <= level
    share = (shared.effect or 0.0) if seen else 0.0
    hidden = _hidden(share, shown.chance if shown else None, random=random)
    return [hidden, _outliers(share, deviation, learned), _later(share)]


def _hidden(share: float, shown: PermutationTest | None, *, random: bool) -> Finding:
    """A cause that was not logged and moved both actions and rewards (Lemma 1 of the paper)."""
    needed = _shared_preferences_robustness(share)
    if random:
        what = "Propensities are logged, and agree with how often actions were shown. If they alone drew the actions,"
        what += " no unobserved confounder did."
        return Finding("hidden causes", "fine", what, "Nothing to do.", effect=needed, unit="of both variances")
    advice = "Only random actions rule it out: show some to a share of the users, and log these apart."
    made = partial(Finding, "hidden causes", "unknowable", advice=advice, effect=needed, unit="of both variances")
    if share < GAINS.agreed:
        return made(what="Logs cannot reveal an unobserved confounder of what was shown and the rewards.")
    what = f"An unobserved confounder could mimic all shared preferences if it explained {needed:.0%} of the variance"
    what += " of what was shown, and of the residual variance of rewards."
    if shown is not None:
        bound = shown.effect + shown.blind
        what += f" At most about {bound:.0%} of what was shown is the user's own"
        what += ", so only a confounder that changes within a history could." if bound < needed else "."
    return made(what=what)


def _outliers(share: float, deviation: float, learned: str) -> Finding:
    """Newcomers who are not like the logged."""
    size = math.sqrt(max(share, 0.0)) * deviation
    moved = "a reward" if learned == "rewards" else learned
    what = "New users may be unlike the logged ones"
    if share < GAINS.agreed:
        what += ". The model says little about those who are."
    else:
        what += f". Preferences move {moved} by {size:.2g} (one standard deviation). A user whose preferences move it"
        what += " by several times that is an outlier, about whom the model says little."
    advice = "Serve the population mean to a random share of new users, and compare."
    return Finding(
        "newcomers unlike the logged",
        "unknowable",
        what,
        advice,
        effect=size,
        unit=f"{moved.removeprefix('a ')}, one standard deviation of preferences",
    )


def _later(share: float) -> Finding:
    """Rewards and actions that change after the logs end."""
    what = "Logs cannot tell whether preferences and actions will stay as they were"
    what += f". If all preferences change, the {share:.1%} that they explain is lost." if share >= GAINS.agreed else "."
    return Finding(
        "later change",
        "unknowable",
        what,
        "Refit from time to time, and watch the gain. If rewards follow the season, check each season by itself, too.",
        effect=share,
        unit=UNIT,
    )
