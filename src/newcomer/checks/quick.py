"""Quick: every check that needs no fit, in the order of the report.

One pass over the logs, and some more where users are many and a sample of them shows no preferences worth serving.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from newcomer.checks import dependence
from newcomer.checks.arms import NOBODY, check_arms, check_propensities_by_arm, count_arms_to_check
from newcomer.checks.copies import count_copies, find_copies, find_twins
from newcomer.checks.dependence import attribute_dependence, self_selection_dependence, single_action_dependence
from newcomer.checks.descriptive import (
    describe_coverage,
    describe_propensities,
    describe_repeats,
    describe_rewards,
    describe_spellings,
)
from newcomer.checks.permutation_tests import Draft, UsersTested, findings_by_permutation_tests
from newcomer.checks.residuals import HalvedRows, ResidualSample, sorted_by_reward, take_residual_sample
from newcomer.checks.shared_preferences import (
    shared_preferences,
    shared_preferences_behind_tails,
    shared_preferences_of_all,
    unknowable_of_shared_preferences,
)
from newcomer.findings import LOGGING, SHARED, Finding, Findings
from newcomer.logs.logs import Logs

FEWEST = 10  # users below whom no test is made
TESTS = (*LOGGING, "history length", "drift")
LOG_MORE = "Log more users, with several different actions each."


def quick_check(
    logs: Logs, *, level: float = 0.05, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> Findings:
    """Check logs without a fit; `progress` is called with (rows done, rows in all)."""
    everybody = take_residual_sample(logs, progress=progress)
    drafts: list[Draft | Finding] = [
        describe_coverage(logs, everybody),
        *describe_spellings(logs.action_ids or ()),
        describe_rewards(logs),
    ]
    looked = logs.judges or logs  # by whom the tests are made: everybody, or the users of the random arm
    found = everybody if looked is logs else take_residual_sample(looked, progress=progress)
    sample = ResidualSample.of(found, logs.item_features)
    why = _why_not(sample) if logs.judges is not None else NOBODY
    copies = count_copies(logs, progress=progress)
    repeats = describe_repeats(sample) if len(sample) else _untold("repeats", why)
    among = copies.twins(logs.summary.users)
    judging = among if looked is logs else count_copies(looked, progress=progress).twins(looked.summary.users)
    repeats = find_twins(repeats, among, judging)
    advice, twins = LOG_MORE, repeats.verdict == "broken"
    if twins:
        why, advice = "Some users are copies of others, so that tests cannot tell chance from effect.", repeats.advice
    tests = [_untold(name, why, advice) for name in (*TESTS, SHARED)] if why else _tests(sample, level, seed)
    weighed = describe_propensities(found, looked.summary.rows, level) if logs.judges is not None else None
    if looked is not logs or weighed is None:
        counts = count_arms_to_check(logs)
        drafts.append(check_arms(logs, counts, tests, blocked=why if twins else ""))
        weighed = check_propensities_by_arm(logs, counts, weighed)
    drafts += [weighed, find_copies(repeats, copies)]
    ordered = getattr(logs, "ordered", True)
    tested = UsersTested(
        looked.summary.users, len(sample), ordered, not ordered and sorted_by_reward(found), arm=looked is not logs
    )
    told = findings_by_permutation_tests([*drafts, *tests], level, tested)
    if not why:
        shared = next(one for one in told if one.name == SHARED)
        shared = shared_preferences_behind_tails(
            shared_preferences_of_all(looked, shared, level, progress), logs.summary, level
        )
        told = [shared if one.name == SHARED else one for one in told]
    shown = next((one for one in tests if isinstance(one, Draft) and one.name == "contexts"), None)
    deviation, learned = logs.summary.reward_deviation, logs.summary.learned
    random = found.propensities is not None and weighed.verdict == "fine"
    hidden = unknowable_of_shared_preferences(
        next(one for one in told if one.name == SHARED), shown, deviation, level, learned, random=random
    )
    first = single_action_dependence(sample, deviation, learned, random=random)
    known = attribute_dependence(looked, level=level, seed=seed, blocked=why if twins else "", advice=advice)
    told = told if known is None else [*told, known]
    return Findings((*told, first, *hidden), level, logs.summary.users, logs.summary.rows, len(sample))


def _why_not(sample: ResidualSample) -> str:
    """Why there is nothing to test; nothing where there are users, and rewards that differ."""
    if len(sample) < FEWEST:
        return f"Too few users ({len(sample)}) have two or more rows for this test."
    alike = sample.spread <= 1e-12 * max(float(np.mean(sample.reward**2)), 1e-300)
    return "All rewards of an action are the same, so there is nothing to test." if alike else ""


def _tests(sample: ResidualSample, level: float, seed: int) -> list[Draft | Finding]:
    """The tests of chance, each with permutations of its own."""
    timed, shuffled = HalvedRows.of(sample, shuffled=False), HalvedRows.of(sample, shuffled=True)
    unit = dependence.dependence_unit(shuffled)
    seeds = np.random.SeedSequence(seed).generate_state(7).tolist()
    found = [
        dependence.adaptive_logging_dependence(timed, unit, seeds[0]),
        dependence.logging_preference_dependence(timed, unit, seeds[1]),
        self_selection_dependence(shuffled, seeds[6]),
        dependence.context_dependence(shuffled, seeds[2]),
        dependence.length_dependence(timed, unit, seeds[3]),
        dependence.drift_dependence(timed, seeds[4]),
    ]
    told = [one or _untold(name) for name, one in zip(TESTS, found, strict=True)]
    return [*told, shared_preferences(shuffled, level, seeds[5])]


def _untold(name: str, why: str = "", advice: str = LOG_MORE) -> Finding:
    """What is said where there is nothing to test with; nothing is promised of preferences that cannot be seen."""
    what = why or "Too few users have two rows, or rows and rewards are too similar, for this test."
    verdict = "doubtful" if name == SHARED else "unknowable"
    return Finding(name, verdict, what, advice)
