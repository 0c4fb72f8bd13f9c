"""The steps of an evaluation: every number an average over people with the error that this has, a `Interval`.

Differences are paired: the same people choose among the same rows.

Evaluation: what `nc.evaluate` found, as typed records that say it in sentences, in JSON and as tables.

What the evidence comes to stands first (`newcomer.gain.verdict`): what everybody should get, what personalising adds
after how many interactions, and what to do. Then what is behind it. No word of hope without an interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from newcomer.errors import NewcomerError, nearest
from newcomer.evaluation.attributes import AttributeStep, attribute_sentences
from newcomer.evidence import LIMITS, Everybody
from newcomer.findings import Decision, Known
from newcomer.interval import Interval, shown
from newcomer.records import Shown, as_table

if TYPE_CHECKING:
    import polars as pl

LOOK = 5  # interactions after which the first sentence tells the gain


@dataclass(frozen=True)
class HeadlineStep(Shown):
    """One choice after so many interactions, by PriorUCB: its reward, and how much more that is than by other rules.

    `population_mean`, `empirical_arms` (None where logs name no actions) and `logging` are paired differences to the
    population-mean ranking, to each action by itself, and to the average logged reward of the same candidates.
    """

    interactions: int
    people: int
    reward: Interval
    population_mean: Interval
    empirical_arms: Interval | None
    logging: Interval


@dataclass(frozen=True)
class CurveStep(Shown):
    """What one predictor says of the next rewards after so many interactions.

    `squared_error` of expected rewards; `saved`, how much less that is than the population mean's (paired);
    `concordance`, the share of pairs of candidates with different rewards that it puts in the right order (a half is
    chance); `reward` of the candidate that it puts first.
    """

    predictor: str
    interactions: int
    people: int
    squared_error: Interval
    saved: Interval
    concordance: Interval
    reward: Interval


@dataclass(frozen=True)
class PolicyRow(Shown):
    """A policy's average reward a round over the first `rounds`, and how much more it is than the population mean's."""

    policy: str
    rounds: int
    people: int
    reward: Interval
    over_mean: Interval


@dataclass(frozen=True)
class OffPolicyRow(Shown):
    """The value of one decision of a policy after so many logged interactions, by propensities.

    `ips` is inverse propensity scoring, `self_normalised` the same over the sum of weights, `doubly_robust` corrects
    what the model expects; `over_logging` is the doubly robust value less the average logged reward (paired).
    `effective` rows carry the weights, of which `largest` is the largest.
    """

    policy: str
    interactions: int
    people: int
    ips: Interval
    self_normalised: Interval
    doubly_robust: Interval
    over_logging: Interval
    effective: float
    largest: float


@dataclass(frozen=True)
class LearningStep(Shown):
    """The gain over the population mean after some interactions with a fit to fewer users, and what all users add."""

    users: int
    interactions: int
    gain: Interval
    lacking: Interval  # the gain of the fit to all users less this one, paired


def compared(value: Interval, other: str) -> str:
    """A paired difference as people say it: more than another, less, or not clearly either.

    >>> compared(Interval(-0.0001, 0.001, -0.0021, 0.0019, 90), "chance")
    'not clearly more or less than chance (-0.0001, 95% interval -0.0021 to +0.0019)'
    >>> compared(Interval(-0.2, 0.05, -0.3, -0.1, 90), "chance")
    '0.200 (0.100 to 0.300) less than chance'
    """
    if value.error == 0:
        told = (
            "as much as" if value.value == 0 else f"{abs(value.value):.2f} {'more' if value.value > 0 else 'less'} than"
        )
        return f"{told} {other}, the same for everybody"
    if value.low <= 0 <= value.high or not np.isfinite(value.error):
        told = shown(value).replace(" (", ", 95% interval ", 1).removesuffix(")")
        return f"not clearly more or less than {other} ({told})"
    word, ends = ("more", (value.low, value.high)) if value.value > 0 else ("less", (-value.high, -value.low))
    positive = Interval(abs(value.value), value.error, *ends, value.people)
    return f"{shown(positive).replace('+', '')} {word} than {other}"


def in_steps(rows: Sequence[Any]) -> Mapping[int, list[Any]]:
    """Records by their number of interactions, in order."""
    found: dict[int, list[Any]] = {}
    for row in rows:
        found.setdefault(row.interactions, []).append(row)
    return dict(sorted(found.items()))


__all__ = [
    "CurveStep",
    "Evaluation",
    "HeadlineStep",
    "Interval",
    "LearningStep",
    "OffPolicyRow",
    "PolicyRow",
    "compared",
    "in_steps",
    "shown",
]

OURS = "PriorUCB"
OWN = ("posterior", "posterior without memory")  # what PriorUCB expects, without its curiosity

Verdict = Literal["helps", "no help", "not clear", "unknown"]
HELPS: dict[Known, Verdict] = {"yes": "helps", "no": "no help", "not clear": "not clear", "unknown": "unknown"}


@dataclass(frozen=True)
class Evaluation(Shown):
    """What the logs say of newcomers; make one with `nc.evaluate`.

    `users` and `rows` are those of the logs, of whom `judged` people, held out in `folds` parts, chose among `choices`
    of their own rows. `off_policy` is None, or lacks rows, where it cannot be had: `why_no_off_policy` says why.
    `simulation` is of a world drawn from the fit, not of people. `notes` say what was left out and which limits were
    kept to. `far_rewards` lie far outside all others; `remedy` is what helps. `broken` and `doubtful` name what the
    checks found wrong with the logs: the people held out are of the same logs, so that broken ones promise nothing,
    whatever they say. `everybody` is what serving everybody the best is worth, and `decision` what all of it comes to,
    as `fit` and `check` say it.
    """

    users: int
    rows: int
    judged: int
    folds: int
    choices: int
    headline: tuple[HeadlineStep, ...]
    curves: tuple[CurveStep, ...]
    replay: tuple[PolicyRow, ...]
    off_policy: tuple[OffPolicyRow, ...] | None
    why_no_off_policy: str
    simulation: tuple[PolicyRow, ...]
    learning: tuple[LearningStep, ...]
    notes: tuple[str, ...] = ()
    far_rewards: int = 0
    remedy: str = LIMITS
    broken: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    everybody: Everybody | None = None
    decision: Decision | None = None
    attributes: tuple[AttributeStep, ...] = ()  # what attributes of users are worth, where the model has some

    @property
    def look(self) -> HeadlineStep | None:
        """What is told against every other rule: the step of `LOOK` interactions, or the longest that people have."""
        within = [step for step in self.headline if step.interactions <= LOOK]
        return within[-1] if within else None

    @property
    def verdict(self) -> Verdict:
        """Whether personalising will help: "helps" only if the decision says from how many interactions on."""
        return HELPS[self.decision.personal if self.decision else "unknown"]

    def sentences(self) -> list[str]:
        """The answer first, then what is behind it."""
        return _sentences(self)

    def to_json(self) -> dict[str, Any]:
        """Plain values: everything that was found, the verdict, and the sentences."""
        return {"verdict": self.verdict, "sentences": self.sentences(), **asdict(self)}

    def frame(self, part: str) -> pl.DataFrame:
        """A part (headline, curves, replay, off_policy, simulation, learning) as a Polars frame, a row a record."""
        import polars as pl

        parts = ("headline", "attributes", "curves", "replay", "off_policy", "simulation", "learning")
        if part not in parts:
            raise NewcomerError(f"an evaluation has no part '{part}'", todo=f"choose {nearest(part, parts) or parts}")
        return pl.DataFrame([_flat(row) for row in getattr(self, part) or ()], infer_schema_length=None)

    def facts(self) -> dict[str, Any]:
        """The evaluation in a few numbers and words."""
        told: dict[str, Any] = {"verdict": self.verdict, "users": self.users, "judged": self.judged}
        return told | {f"{i}": said for i, said in enumerate(self.sentences(), start=1)}

    def __repr__(self) -> str:
        return "\n".join([f"Evaluation ({self.verdict})", *self.sentences()])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{escape(said)}</p>" for said in self.sentences())
        rows = {f"after {step.interactions}": shown(step.population_mean) for step in self.headline}
        return lines + (as_table("Gain over the population mean", rows) if rows else "")


def _flat(record: Any) -> dict[str, Any]:
    """A record as one row: the parts of a stretch become columns of their own."""
    row: dict[str, Any] = {}
    for part in fields(record):
        value = getattr(record, part.name)
        if isinstance(value, Interval):
            row |= {part.name: value.value}
            row |= {f"{part.name}_{name}": getattr(value, name) for name in ("error", "low", "high")}
        else:
            row[part.name] = value
    return row


def _sentences(found: Evaluation) -> list[str]:
    """Everything there is to say, in the order in which it matters."""
    decided, look = list(found.decision.sentences) if found.decision else [], found.look
    if look is None:
        return [*decided, _nothing(found), *found.notes]
    said = [*decided, _answer(found, look), *attribute_sentences(found.attributes), *_rivals(found, look)]
    said += [*_learning(found.learning), *_replay(found.replay), *_off_policy(found), *_simulation(found.simulation)]
    return [*said, *found.notes]


def _nothing(found: Evaluation) -> str:
    return (
        f"Nothing can be told: of {found.users:,} users fewer than 30 could be held out who have the rows for a choice "
        f"of {found.choices} after one interaction. Log more users, and several rows of each."
    )


def _answer(found: Evaluation, look: HeadlineStep) -> str:
    """One number of interactions, against every other rule."""
    measured = "Measured all the same: after" if found.broken else "After"
    arms = [] if look.empirical_arms is None else [f"{shown(look.empirical_arms)} against each action by itself"]
    over = [f"{shown(look.population_mean)} against the population-mean ranking", *arms]
    over += [f"{shown(look.logging)} against what was logged among the same"]
    return (
        f"{measured} {_times(look.interactions)} a newcomer gets {look.reward.value:.4g} in a choice of "
        f"{found.choices}: "
        f"{', '.join(over)}. Judged by {look.people:,} people who were held out of the fit; intervals of 95%."
    )


def _rivals(found: Evaluation, look: HeadlineStep) -> list[str]:
    """Predictors that would have chosen better than ours, on average; they are named even if it is not clear."""
    at = [one for one in found.curves if one.interactions == look.interactions and one.predictor not in OWN]
    better = sorted((step for step in at if step.reward.value > look.reward.value), key=_reward, reverse=True)
    if not better:
        return [f"After {_times(look.interactions)} no other predictor chose better on average."] if at else []
    named = ", ".join(f"{step.predictor} {step.reward.value:.4g}" for step in better[:3])
    after = f"After {_times(look.interactions)} others chose better on average"
    return [f"{after} than PriorUCB's {look.reward.value:.4g}: {named}."]


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
    return [f"Gain after {_times(every.interactions)} by users fitted to: {gains}. {end}"]


def _replay(rows: tuple[PolicyRow, ...]) -> list[str]:
    """Who did best from the beginning, among own rows."""
    if not rows:
        return []
    last = [row for row in rows if row.rounds == max(one.rounds for one in rows)]
    ours, best = (_named(last, OURS), max(last, key=lambda row: row.reward.value))
    whole = f"Over all {ours.rounds} rounds together" if ours.rounds > 1 else "In this round"
    other = "" if best.policy == OURS else f" {whole} {best.policy} did best: {shown(best.over_mean)}."
    said = (
        f"From nothing, choosing among own rows for {ours.rounds} rounds ({ours.people:,} people), PriorUCB gets a "
        f"round {compared(ours.over_mean, 'the population mean')}.{other}"
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
        f"worth {compared(row.over_logging, 'the logged one')}; {row.effective:,.0f} effective rows."
    )
    return [said, *([found.why_no_off_policy] if found.why_no_off_policy else [])]


def _simulation(rows: tuple[PolicyRow, ...]) -> list[str]:
    """What the simulation says, called one."""
    if not rows:
        return []
    ours = _named([row for row in rows if row.rounds == max(one.rounds for one in rows)], OURS)
    said = (
        f"Simulation, not people: if the fit were true, PriorUCB would get a round "
        f"{compared(ours.over_mean, 'the population mean')} over {ours.rounds} rounds."
    )
    return [said]


def _named(rows: list[PolicyRow], name: str) -> PolicyRow:
    return next(row for row in rows if row.policy == name)


def _times(count: int) -> str:
    """`1 interaction`, `5 interactions`."""
    return f"{count} interaction{'s' * (count != 1)}"
