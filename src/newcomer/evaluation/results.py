"""What `nc.evaluate` found: typed records, as sentences, as JSON and as tables.

Every number is an average over users with its 95% interval; differences are paired: the same users choose among the
same rows. The decision stands first (`newcomer.gain.verdict`), then what is behind it. Every gain has its
interval, and a difference within its interval is not called one.

From numbers of single users to the records of an evaluation: averages, paired differences, intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from html import escape
from typing import Any, Literal

import numpy as np
import polars as pl

from newcomer.arrays import Floats, Ints
from newcomer.errors import NewcomerError, error_name_hint
from newcomer.evaluation.cold_start import CHANCE, ERROR, ORDER, REWARD
from newcomer.evaluation.predictors import MEAN, OURS, AttributeStep, attribute_predictor_sentences
from newcomer.evaluation.settings import EVALUATION
from newcomer.evidence import LIMITS, Everybody
from newcomer.findings import Decision, Known
from newcomer.gain.arm_gains import ArmStep, arm_gain_sentences
from newcomer.gain.deals import UserResults
from newcomer.gain.settings import GAINS
from newcomer.gain.verdict import verdict_times
from newcomer.interval import FEWEST, Interval, interval_in_words
from newcomer.records import Shown, record_as_table


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
    chance); `reward` of the candidate that it puts first, and `over_ours`, how much more that is than PriorUCB's on the
    same users and candidates (paired).
    """

    predictor: str
    interactions: int
    people: int
    squared_error: Interval
    saved: Interval
    concordance: Interval
    reward: Interval
    over_ours: Interval | None = None


@dataclass(frozen=True)
class PolicyRow(Shown):
    """A policy's mean reward per round over the first `rounds`; paired, over the population mean's and PriorUCB's."""

    policy: str
    rounds: int
    people: int
    reward: Interval
    over_mean: Interval
    over_ours: Interval | None = None


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


def result_in_words(value: Interval, other: str) -> str:
    """A paired difference: its size where the interval excludes zero, else that it is not clear.

    >>> result_in_words(Interval(-0.0001, 0.001, -0.0021, 0.0019, 90), "chance")
    'no clear difference from chance (-0.0001, 95% interval -0.0021 to +0.0019)'
    >>> result_in_words(Interval(-0.2, 0.05, -0.3, -0.1, 90), "chance")
    '-0.200 (-0.300 to -0.100) against chance'
    """
    if value.error == 0:
        text = "the same as" if value.value == 0 else f"{value.value:+.2f} against"
        return f"{text} {other}, for every user"
    if value.low <= 0 <= value.high or not np.isfinite(value.error):
        text = interval_in_words(value).replace(" (", ", 95% interval ", 1).removesuffix(")")
        return f"no clear difference from {other} ({text})"
    return f"{interval_in_words(value)} against {other}"


def results_by_step(rows: Sequence[Any]) -> Mapping[int, list[Any]]:
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
    "interval_in_words",
    "result_in_words",
    "results_by_step",
]

OWN = ("posterior", "posterior without memory")  # what PriorUCB expects, without its bonus for uncertainty
MEANINGS = {
    "PriorUCB": "starts from the fitted distribution of users, and learns from each reward of the new user",
    "PriorTS": "the same, choosing by a random draw",
    "PopulationMean": "the same ranking for everybody",
    "EmpiricalArms": "the population mean of each action, updated by the new user's own rewards for it",
    "posterior": "the rewards that PriorUCB expects, without its bonus for uncertainty",
    "posterior without memory": "the same, without per-action effects",
    "SOLD's subspace": "ridge regression on the new user's rewards in the paper's subspace",
    "ridge": "ridge regression on the new user's rewards alone",
    "ALS fold-in": "matrix factorisation, with the new user's rewards folded in",
    "EASE fold-in": "an item-to-item recommender, with the new user's rewards folded in",
    "LinUCB": "a linear bandit that starts from nothing",
    "LinTS": "the same, choosing by a random draw",
    "ProBALLUCB": "the paper's bandit, which leaves the subspace when its bound says so",
    "ProBALLTS": "the same, choosing by a random draw",
    "Uniform": "a random candidate",
}

Verdict = Literal["helps", "no help", "not clear", "unknown"]
HELPS: dict[Known, Verdict] = {"yes": "helps", "no": "no help", "not clear": "not clear", "unknown": "unknown"}


@dataclass(frozen=True)
class Evaluation(Shown):
    """What the logs say of newcomers; make one with `nc.evaluate`.

    `users` and `rows` are those of the logs; `judged` users, held out in `folds` parts, chose among `choices` of their
    own rows. `off_policy` is None, or lacks rows, where it cannot be had: `why_no_off_policy` says why.
    `simulation` is of a world drawn from the fit, not of users. `notes` say what was left out and which limits were
    kept to. `far_rewards` lie far outside all others; `remedy` is what helps. `broken` and `doubtful` name what the
    checks found wrong with the logs: held-out users come from the same logs, so that broken ones promise nothing,
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
    arms: tuple[ArmStep, ...] = ()  # what each arm paid, where logs have those of a service
    attributes: tuple[AttributeStep, ...] = ()  # what attributes of users are worth, where the model has some

    @property
    def look(self) -> HeadlineStep | None:
        """The step that stands first in every command: `look` interactions, or the longest before that users have."""
        within = [step for step in self.headline if step.interactions <= GAINS.look]
        return within[-1] if within else None

    @property
    def repeats(self) -> bool:
        """Whether each action by itself differs from the population mean: only where users meet an action again."""
        return any(step.empirical_arms not in (None, step.population_mean) for step in self.headline)

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

        parts = ("headline", "arms", "attributes", "curves", "replay", "off_policy", "simulation", "learning")
        if part not in parts:
            raise NewcomerError(
                f"an evaluation has no part '{part}'", todo=f"choose {error_name_hint(part, parts) or parts}"
            )
        return pl.DataFrame([_flat(row) for row in getattr(self, part) or ()], infer_schema_length=None)

    def facts(self) -> dict[str, Any]:
        """The evaluation in a few numbers and words."""
        content: dict[str, Any] = {"verdict": self.verdict, "users": self.users, "judged": self.judged}
        return content | {f"{i}": said for i, said in enumerate(self.sentences(), start=1)}

    def __repr__(self) -> str:
        return "\n".join([f"Evaluation ({self.verdict})", *self.sentences()])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{escape(said)}</p>" for said in self.sentences())
        rows = {f"after {step.interactions}": interval_in_words(step.population_mean) for step in self.headline}
        return lines + (record_as_table("Gain over the population mean", rows) if rows else "")


def _flat(record: Any) -> dict[str, Any]:
    """A record as one row: the parts of an interval become columns of their own."""
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
        nothing = found.why_no_off_policy if found.arms else _nothing(found)
        return [*decided, nothing, *arm_gain_sentences(found.arms), *found.notes]
    said = [*decided, _answer(found, look), *arm_gain_sentences(found.arms)]
    said += [*attribute_predictor_sentences(found.attributes), *_rivals(found, look)]
    said += [*_learning(found.learning), *_replay(found.replay), *_off_policy(found), *_simulation(found.simulation)]
    return [*said, *found.notes]


def _nothing(found: Evaluation) -> str:
    return (
        f"Nothing could be measured: fewer than 30 of {found.users:,} users have the rows for a choice among "
        f"{found.choices} after one interaction. Log more users, and several rows of each."
    )


def _answer(found: Evaluation, look: HeadlineStep) -> str:
    """One number of interactions, against every other rule."""
    measured = "Measured nevertheless: after" if found.broken else "After"
    over = [f"{interval_in_words(look.population_mean)} over the ranking by the population mean"]
    if look.empirical_arms is not None and found.repeats:
        over.append(f"{interval_in_words(look.empirical_arms)} over per-action averages (EmpiricalArms)")
    over.append(f"{interval_in_words(look.logging)} over a random one of the same rows, which is what was logged")
    again = "" if found.repeats or look.empirical_arms is None else f" {ONCE}"
    arm = " of the random arm" if found.arms else ""
    return (
        f"{measured} {verdict_times(look.interactions)} a new user gets {look.reward.value:.4g} "
        "by PriorUCB in a choice among "
        f"{found.choices}: {', '.join(over)}. Judged by {look.people:,} held-out users{arm}; 95% intervals.{again}"
    )


ONCE = (
    "Per-action averages (EmpiricalArms) choose as the population mean does here, as where actions do not come again."
)


def _rivals(found: Evaluation, look: HeadlineStep) -> list[str]:
    """Predictors beside PriorUCB, on the same users and candidates; only a clear difference is called one."""
    at = [one for one in found.curves if one.interactions == look.interactions and one.predictor not in OWN]
    over = sorted(((one.over_ours.value, one) for one in at if one.over_ours is not None), key=lambda one: -one[0])
    if not over:
        return []
    same = f"On the same {over[0][1].people:,} held-out users and choices, after {verdict_times(look.interactions)},"
    clear = [one for _, one in over if one.over_ours is not None and one.over_ours.clear]
    if clear:
        better = ", ".join(
            f"{one.predictor} by {interval_in_words(one.over_ours)}" for one in clear[:3] if one.over_ours
        )
        return [f"{same} others chose better than PriorUCB: {better}."]
    best = over[0][1]
    assert best.over_ours is not None
    closest = f"the next best, {best.predictor}: {interval_in_words(best.over_ours)}"
    if best.over_ours.high < 0:
        return [f"{same} PriorUCB chose better than every rival predictor ({closest})."]
    return [f"{same} no rival predictor chose clearly better than PriorUCB ({closest})."]


def _learning(steps: tuple[LearningStep, ...]) -> list[str]:
    """Whether more users would help, from what the last doubling added."""
    if len(steps) < 2:
        return []
    half, every = steps[-2], steps[-1]
    gains = ", ".join(f"{step.users:,} users {step.gain.value:+.3g}" for step in steps)
    if half.lacking.clear:
        end = f"The last doubling added {interval_in_words(half.lacking)}: more users would help."
    elif half.lacking.high <= 0 or half.lacking.high < 0.2 * abs(every.gain.value):
        end = f"The last doubling added {interval_in_words(half.lacking)}: more users would change little."
    else:
        end = f"The last doubling added {interval_in_words(half.lacking)}: whether more users would help is not clear."
    return [f"Gain after {verdict_times(every.interactions)} with fits to fewer users: {gains}. {end}"]


def _replay(rows: tuple[PolicyRow, ...]) -> list[str]:
    """Policies from the first round on, among own rows."""
    if not rows:
        return []
    last = [row for row in rows if row.rounds == max(one.rounds for one in rows)]
    ours = _named(last, OURS)
    rounds = f"{ours.rounds} round{'s' * (ours.rounds != 1)}"
    said = (
        f"Replay from the first interaction, {rounds} among a user's own rows ({ours.people:,} held-out users): mean "
        f"reward per round of PriorUCB {result_in_words(ours.over_mean, 'the population mean')}."
    )
    better = [row for row in last if row.over_ours is not None and row.over_ours.clear]
    best = max(better, key=lambda row: row.reward.value, default=None)
    other = (
        f" {best.policy} did better than PriorUCB by {interval_in_words(best.over_ours)}."
        if best and best.over_ours
        else ""
    )
    return [f"{said}{other}"]


def _off_policy(found: Evaluation) -> list[str]:
    """The doubly robust value, or why there is none."""
    if found.off_policy is None:
        return [found.why_no_off_policy]
    ours = [row for row in found.off_policy if row.policy == OURS]
    if not ours:
        return ["By propensities: too few effective rows for PriorUCB."]
    row = max(ours, key=lambda one: one.interactions if one.interactions <= GAINS.look else -1)
    said = (
        "By propensities (doubly robust), one decision of PriorUCB after "
        f"{verdict_times(row.interactions)} or a few more: "
        f"{result_in_words(row.over_logging, 'the logged one')}; {row.effective:,.0f} effective rows."
    )
    return [said, *([found.why_no_off_policy] if found.why_no_off_policy else [])]


def _simulation(rows: tuple[PolicyRow, ...]) -> list[str]:
    """What the simulation says, called one."""
    if not rows:
        return []
    ours = _named([row for row in rows if row.rounds == max(one.rounds for one in rows)], OURS)
    said = result_in_words(ours.over_mean, "the population mean")
    over = f"mean reward per round of PriorUCB over {ours.rounds} rounds"
    return [f"Simulation, not users: if the fit were true, {over} {said}."]


def result_meanings(names: Sequence[str]) -> list[tuple[str, str]]:
    """What the predictors and policies of these names are."""
    return [(name, MEANINGS[name]) for name in MEANINGS if name in names]


def _named(rows: list[PolicyRow], name: str) -> PolicyRow:
    return next(row for row in rows if row.policy == name)


def result_curves(judged: UserResults) -> tuple[CurveStep, ...]:
    """Every predictor after every number of interactions; PriorUCB ranks by more than it expects, and has no error."""
    curves = []
    for name in (name for name in judged.names if name not in (OURS, CHANCE)):
        for place, t in enumerate(EVALUATION.steps):
            own, mean = judged.of(name)[:, place], judged.of(MEAN)[:, place]
            people = int(np.isfinite(own[:, REWARD]).sum())
            if people >= FEWEST:
                error, order, reward = (Interval.of(own[:, kind], judged.folds) for kind in (ERROR, ORDER, REWARD))
                saved = Interval.of(mean[:, ERROR] - own[:, ERROR], judged.folds)
                over = Interval.of(own[:, REWARD] - judged.of(OURS)[:, place, REWARD], judged.folds)
                curves.append(CurveStep(name, t, people, error, saved, order, reward, over))
    return tuple(curves)


def result_table_rows(played: UserResults, rounds: Sequence[int]) -> tuple[PolicyRow, ...]:
    """Average rewards a round of each policy over the first rounds; rewards are (n, P, T)."""
    people, _, length = played.people.values.shape
    if people < FEWEST:
        return ()
    shown = sorted({t for t in rounds if t <= length} | {length})
    rewards = {name: played.of(name) for name in played.names}
    return tuple(_row(name, t, rewards, played.folds) for name in played.names for t in shown)


def _row(name: str, rounds: int, rewards: Mapping[str, Floats], folds: Ints | None = None) -> PolicyRow:
    own, mean, ours = (rewards[one][:, :rounds].mean(axis=1) for one in (name, MEAN, OURS))
    reward, over_mean, over_ours = (Interval.of(one, folds) for one in (own, own - mean, own - ours))
    return PolicyRow(name, rounds, len(own), reward, over_mean, over_ours)


def simulated_result_rows(rows: pl.DataFrame) -> tuple[PolicyRow, ...]:
    """The same of the rows of `play`."""
    names = rows["policy"].unique(maintain_order=True).to_list()
    users, rounds = rows["user"].n_unique(), rows["t"].n_unique()
    won = {
        name: rows.filter(pl.col("policy") == name).sort("user", "t")["reward"].to_numpy().reshape(users, rounds)
        for name in names
    }
    return tuple(_row(name, t, won) for name in names for t in EVALUATION.simulated_reported if t <= rounds)


def learning_results(
    judged: UserResults, learned: Sequence[dict[float, tuple[int, UserResults]]], users: int, look: int
) -> tuple[LearningStep, ...]:
    """Gains after `look` interactions by users fitted to: those of the folds together, and all `users` last."""
    place = EVALUATION.steps.index(look)
    ours, mean = (judged.of(name)[:, place, REWARD] for name in (OURS, MEAN))
    if int(np.isfinite(ours).sum()) < FEWEST:
        return ()
    lines = []
    for share in (share for share in learned[0] if all(share in one for one in learned)):
        fewer = UserResults.joined([one[share][1] for one in learned])
        own = _aligned(judged, fewer, fewer.of(OURS)[:, 0, REWARD])
        fewer_users = round(np.mean([one[share][0] for one in learned]))
        gains = (Interval.of(one, judged.folds) for one in (own - mean, ours - own))
        lines.append(LearningStep(fewer_users, look, *gains))
    whole = LearningStep(users, look, Interval.of(ours - mean, judged.folds), Interval.of(0.0 * ours))
    return (*lines, whole) if lines else ()


def _aligned(judged: UserResults, other: UserResults, values: Floats) -> Floats:
    """Values of another table of users in the order of the first, NaN where somebody is not in it."""
    places = dict(zip(other.people.hashes.tolist(), values.tolist(), strict=True))
    return np.array([places.get(one, np.nan) for one in judged.people.hashes.tolist()])
