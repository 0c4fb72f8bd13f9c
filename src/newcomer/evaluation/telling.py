"""An evaluation in sentences: the answer first, then what stands behind it. No word of hope without an interval."""

from __future__ import annotations

from newcomer.evaluation.answers import LOOK, CurveStep, Evaluation, HeadlineStep, LearningStep, PolicyRow, shown

OURS = "PriorUCB"
OWN = ("posterior", "posterior without memory")  # what PriorUCB expects, without its curiosity


def sentences(found: Evaluation) -> list[str]:
    """Everything there is to say, in the order in which it matters."""
    look = found.look
    if look is None:
        return [_nothing(found), *found.notes]
    said = [_answer(found, look), _verdict(found), *_others(found, look), *_rivals(found, look)]
    said += [*_learning(found.learning), *_replay(found.replay), *_off_policy(found), *_simulation(found.simulation)]
    return [*said, *found.notes]


def _nothing(found: Evaluation) -> str:
    return (
        f"Nothing can be told: of {found.users:,} users fewer than 30 could be held out who have the rows for a choice "
        f"of {found.choices} after one interaction. Log more users, and several rows of each."
    )


def _answer(found: Evaluation, look: HeadlineStep) -> str:
    """The first sentence."""
    arms = [] if look.empirical_arms is None else [f"{shown(look.empirical_arms)} against each action by itself"]
    over = [f"{shown(look.population_mean)} against the population-mean ranking", *arms]
    over += [f"{shown(look.logging)} against what was logged among the same"]
    return (
        f"After {_times(look.interactions)} a newcomer gets {look.reward.value:.4g} from a choice of {found.choices}: "
        f"{', '.join(over)}. Judged by {look.people:,} people who were in no log of the fit; intervals of 95%."
    )


def _verdict(found: Evaluation) -> str:
    """The one word, and why; a step that people are too short for is named."""
    short = ""
    if found.look is not None and found.look.interactions < LOOK:
        short = f" Histories are too short to tell of {LOOK} interactions."
    told = {
        "helps": "Worth it: the interval of the gain over the population mean is above zero.",
        "no help": "Do not bother: with these logs newcomers gain nothing over the population mean.",
        "not clear": "Not clear: the interval of the gain over the population mean has zero in it.",
    }
    return told.get(found.verdict, "") + short


def _others(found: Evaluation, look: HeadlineStep) -> list[str]:
    """The gain after other numbers of interactions."""
    rest = [f"after {s.interactions} {shown(s.population_mean)}" for s in found.headline if s is not look]
    return [f"Gain over the population mean {', '.join(rest)}."] if rest else []


def _rivals(found: Evaluation, look: HeadlineStep) -> list[str]:
    """Predictors that would have chosen better than ours, on average; they are named even if it is not clear."""
    at = [one for one in found.curves if one.interactions == look.interactions and one.predictor not in OWN]
    better = sorted((step for step in at if step.reward.value > look.reward.value), key=_reward, reverse=True)
    if not better:
        return ["No other predictor chose better on average."] if at else []
    named = ", ".join(f"{step.predictor} {step.reward.value:.4g}" for step in better[:3])
    return [f"On average others chose better than PriorUCB's {look.reward.value:.4g}: {named}."]


def _reward(step: CurveStep) -> float:
    return step.reward.value


def _learning(steps: tuple[LearningStep, ...]) -> list[str]:
    """Whether more logs would help, from what the last doubling did."""
    if len(steps) < 2:
        return []
    half, every = steps[-2], steps[-1]
    gains = ", ".join(f"{step.users:,} users {step.gain.value:+.3g}" for step in steps)
    if half.lacking.clear:
        end = f"The last doubling added {shown(half.lacking)}: more logs would help."
    elif half.lacking.high <= 0 or half.lacking.high < 0.2 * abs(every.gain.value):
        end = f"The last doubling added {shown(half.lacking)}: more logs would change little."
    else:
        end = f"The last doubling added {shown(half.lacking)}: whether more logs would help is not clear."
    return [f"Gain after {_times(LOOK)} by users fitted to: {gains}. {end}"]


def _replay(rows: tuple[PolicyRow, ...]) -> list[str]:
    """Who did best from the beginning, among own rows."""
    if not rows:
        return []
    last = [row for row in rows if row.rounds == max(one.rounds for one in rows)]
    ours, best = (_named(last, OURS), max(last, key=lambda row: row.reward.value))
    other = "" if best.policy == OURS else f" The best was {best.policy}, {shown(best.over_mean)}."
    said = (
        f"From nothing, choosing among own rows for {ours.rounds} rounds ({ours.people:,} people), PriorUCB gets a "
        f"round {shown(ours.over_mean)} more than the population mean.{other}"
    )
    return [said]


def _off_policy(found: Evaluation) -> list[str]:
    """The doubly robust value, or why there is none."""
    if found.off_policy is None:
        return [found.why_no_off_policy]
    ours = [row for row in found.off_policy if row.policy == OURS]
    if not ours:
        return ["Propensities carry other policies, but too few effective rows of PriorUCB."]
    row = max(ours, key=lambda one: one.interactions if one.interactions <= LOOK else -1)
    said = (
        f"By propensities (doubly robust), one decision of PriorUCB after {_times(row.interactions)} or a few more is "
        f"worth {shown(row.over_logging)} more than the logged one; {row.effective:,.0f} effective rows."
    )
    return [said, *([found.why_no_off_policy] if found.why_no_off_policy else [])]


def _simulation(rows: tuple[PolicyRow, ...]) -> list[str]:
    """What the simulation says, called one."""
    if not rows:
        return []
    ours = _named([row for row in rows if row.rounds == max(one.rounds for one in rows)], OURS)
    said = (
        f"Simulation, not people: if the fit were true, PriorUCB would get a round {shown(ours.over_mean)} more than "
        f"the population mean over {ours.rounds} rounds."
    )
    return [said]


def _named(rows: list[PolicyRow], name: str) -> PolicyRow:
    return next(row for row in rows if row.policy == name)


def _times(count: int) -> str:
    """`1 interaction`, `5 interactions`."""
    return f"{count} interaction{'s' * (count != 1)}"
