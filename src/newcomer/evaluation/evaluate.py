"""evaluate(): will it help newcomers? What held-out users say, and what stands behind it.

A fit holds out users by hash to choose its rank, one fifth of them, or every fifth in turn, and tells what PriorUCB is
worth to these (`newcomer.gain`). That is the first answer here too, to the number. Behind it, for the same fits without
the same people: what other predictors are worth after t interactions (cold_start.py), policies that begin from nothing
and values by propensities (off_policy.py), and fits to fewer users. Last, policies play in a world drawn
from the first of these fits (worlds/fitted.py), which is a simulation and is called one.

How far an evaluation is: stages of known weight, so that a bar can show one share and one time left for all.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from newcomer._fit import Fitting, fit_and_fit_parts
from newcomer.arrays import Ints
from newcomer.checks.quick import quick_check
from newcomer.errors import LogsError, NewcomerError
from newcomer.evaluation import off_policy
from newcomer.evaluation.cold_start import REWARD, ByPolicy, Fold, cold_start_shares, judge_cold_start
from newcomer.evaluation.off_policy import off_policy_misfit, off_policy_rows, off_policy_sums
from newcomer.evaluation.predictors import (
    ARMS,
    MEAN,
    OURS,
    Predictors,
    attribute_predictor_steps,
    policies_beside_predictors,
    predictor_knows_actions,
    predictors_left_out,
    predictors_of,
)
from newcomer.evaluation.results import (
    Evaluation,
    HeadlineStep,
    PolicyRow,
    learning_results,
    result_curves,
    result_table_rows,
    simulated_result_rows,
)
from newcomer.evaluation.settings import EVALUATION
from newcomer.evidence import Evidence, GainStep, HeldoutGain
from newcomer.findings import Findings
from newcomer.gain.arm_gains import arm_gains
from newcomer.gain.deals import Progress, UserResults, deal_choices, deal_lengths, usual_deal_length
from newcomer.gain.heldout_gain import heldout_gain_deals, heldout_gain_judges
from newcomer.gain.propensities import why_no_propensities
from newcomer.gain.settings import GAINS
from newcomer.gain.verdict import decide_verdict, findings_of_verdict
from newcomer.interval import FEWEST
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.read import read_logs_if_path
from newcomer.logs.reduce import reduce
from newcomer.model import Model
from newcomer.policies.baselines import EmpiricalArms, PopulationMean
from newcomer.policies.prior import PriorTS, PriorUCB
from newcomer.run_settings import Run
from newcomer.simulate import play
from newcomer.users import FEW, FOLDS
from newcomer.validate import validate_flag, validate_instance, validate_whole
from newcomer.worlds.fitted import FittedWorld, fitted_world_menu

# What stages cost beside a fit, all folds together: every user is judged once. Fits to fewer users are made in each.
WEIGHTS = {"others": 0.3, "judge": 0.85, "replay": 0.35, "weigh": 0.6}
LEARN = 0.9
CHECKED, FITTED = 0.3, 1.0  # what the checks cost beside a fit


def evaluate(
    logs: Logs | Any,
    *,
    seed: int = 0,
    quick: bool = False,
    rank: int | Literal["auto"] = "auto",
    estimator: str = "em",
    run: Run | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    findings: Findings | None = None,
) -> Evaluation:
    """Measure on held-out users whether personalisation would help new users, with intervals.

    Parameters
    ----------
    logs : logs, or what `read_logs` takes without options: a path, a pattern, a frame.
    seed : seed of all draws; the numbers depend on it and on the logs alone. Held-out users are those of `fit`.
    quick : skip the learning curve, the simulation, and the fit of SOLD to more than 1,000 actions; the decision and
        its numbers are the same.
    rank, estimator : of the fits, as in `fit`.
    run : workers and a callback for progress (`nc.Run`); the numbers do not depend on it. The keywords workers and
        progress do the same, and warn.
    findings : what `check` found in these logs, so that the checks are not made again.

    >>> from newcomer.worlds import Synthetic
    >>> found = evaluate(Synthetic.learnable(dim=8, seed=1).logs(400, 12, seed=1), quick=True)
    >>> found.verdict, found.look.interactions
    ('helps', 5)
    """
    run = Run.asked(run, who="evaluate", workers=workers, progress=progress).for_reading("evaluate")
    seed = validate_whole(seed, "seed", least=0, most=2**62, kind=NewcomerError)
    quick = validate_flag(quick, "quick", kind=NewcomerError)
    if findings is not None:
        validate_instance(findings, Findings, "findings", todo="pass what nc.check returned", kind=NewcomerError)
    with read_logs_if_path(logs, run.workers) as read:
        settings: dict[str, Any] = {"seed": seed, "quick": quick, "rank": rank, "estimator": estimator}
        return evaluate_fitted(read, None, progress=run.progress, findings=findings, **settings)


def evaluate_fitted(
    logs: Logs,
    fitted: Fitting | None,
    *,
    seed: int = 0,
    quick: bool = False,
    rank: int | Literal["auto"] = "auto",
    estimator: str = "em",
    progress: Progress | None = None,
    findings: Findings | None = None,
) -> Evaluation:
    """The evaluation of logs, by a fit to them and checks of them that were made already, or are made now."""
    judges = logs.judges
    seen = reduce(judges or logs, _Seen.of, operator.add)
    if judges is logs:
        seen.check(logs)
    elif judges is None or seen.judging(logs) < FEWEST:
        made = fitted or fit_and_fit_parts(logs, rank=rank, estimator=estimator, calibrate=not quick, progress=progress)
        looked = findings or quick_check(logs, seed=seed, progress=progress)
        return _by_arms_alone(logs, judges, replace(made.model.evidence, checks=looked))
    checks = CHECKED if findings is None else 0.0
    stages = Stages(progress, checks + _work(logs, seen, quick=quick, fit=fitted is None))
    checked = findings
    if checked is None:
        checked = quick_check(logs, seed=seed, progress=stages.begin(checks))
    if fitted is None:
        begun = stages.begin_fit(FITTED)
        fitted = fit_and_fit_parts(logs, rank=rank, estimator=estimator, calibrate=not quick, progress=begun)
    plan = replace(EvaluationPlan.of(logs, seed, seen, fitted, quick=quick), rank=rank, estimator=estimator)
    models = [model for model, _ in fitted.apart]
    each = _folds(plan, models, stages)
    evidence = replace(fitted.model.evidence, checks=checked)
    found = _told(plan, each, evidence.measured)
    stages.end()
    return _decided(replace(found, arms=arm_gains(logs)), evidence)


def _decided(found: Evaluation, evidence: Evidence) -> Evaluation:
    """The evaluation with what the checks found wrong, and with what all of it comes to."""
    broken, doubtful = (
        tuple(one.name for one in findings_of_verdict(evidence.checks, verdict)) for verdict in ("broken", "doubtful")
    )
    return replace(found, broken=broken, doubtful=doubtful, decision=decide_verdict(evidence))


def _by_arms_alone(logs: Logs, judges: Logs | None, evidence: Evidence) -> Evaluation:
    """What arms say where too few users of the random arm could judge a fit: what each arm paid, and no more."""
    users = 0 if judges is None else judges.summary.usable
    why = f"{users:,} users of the random arm have two rows or more, too few to judge a fit by: serve more at random."
    nothing: dict[str, Any] = dict.fromkeys(("headline", "curves", "replay", "simulation", "learning"), ())
    found = Evaluation(
        users=logs.summary.users,
        rows=logs.summary.rows,
        judged=0,
        folds=0,
        choices=0,
        off_policy=None,
        why_no_off_policy=why,
        far_rewards=logs.summary.far_rewards,
        remedy=logs.summary.remedies,
        arms=arm_gains(logs),
        **nothing,
    )
    return _decided(found, evidence)


def _work(logs: Logs, seen: _Seen, *, quick: bool, fit: bool) -> float:
    """What all stages cost, if as many parts are held out in turn as is usual."""
    weighed = seen.propensities and logs.by_action
    judged = sum(weight for name, weight in WEIGHTS.items() if weighed or name != "weigh")
    return FITTED * fit + judged + (0.0 if quick else LEARN * _usual_evaluation_folds(logs))


def _usual_evaluation_folds(logs: Logs) -> int:
    """In how many parts a fit usually holds its users out; more where their number leaves the rank open."""
    return FOLDS if logs.summary.users < FEW else 1


@dataclass(frozen=True, eq=False)
class EvaluationPlan:
    """What is decided before the first fit: who is held out, what they choose among, and what can be estimated."""

    logs: Logs
    seed: int
    quick: bool
    choices: int
    rounds: int
    look: int  # interactions after which fits to fewer users are compared
    folds: list[Fold]
    people: int  # held out, with enough rows
    why_not: str  # of values by propensities
    sample: int | None  # users by whom everything was chosen, where there are many
    rank: int | Literal["auto"] = "auto"
    estimator: str = "em"

    @property
    def judging(self) -> Logs:
        """The logs of those who may judge: everybody, or the users of the random arm."""
        return self.logs.judges or self.logs

    @classmethod
    def of(cls, logs: Logs, seed: int, seen: _Seen, fitted: Fitting, *, quick: bool) -> EvaluationPlan:
        """By what was seen of the logs, and the buckets of the users whom each fit held out."""
        held_out, facts = [judged for _, judged in fitted.apart], fitted.model.evidence.population
        length = seen.usual_length(logs)
        choices = deal_choices(length)
        able = seen.able(choices)
        if not held_out:
            raise _too_few_to_evaluate(able, choices, logs)
        folds = [Fold(~judged, judged, seed) for judged in held_out]
        people = round(able * float(np.mean(np.any(held_out, axis=0))))
        known = logs.action_ids is not None and logs.by_action
        why = why_no_propensities(logs, seen.propensities, seen.candidates, known)
        rounds = int(np.clip(length // 2, 1, max(EVALUATION.rounds)))
        look = max(t for t in EVALUATION.steps if t <= 1 or (t <= GAINS.look and choices + t <= length))
        sample = facts.sample.users if facts is not None and facts.sample is not None else None
        return cls(logs, seed, quick, choices, rounds, look, folds, people, why, sample)

    @property
    def settings(self) -> dict[str, Any]:
        """Of every fit; SOLD finds its rank with the null."""
        null = self.estimator != "em" and self.rank == "auto"
        return {"rank": self.rank, "estimator": self.estimator, "null": null}

    @property
    def share(self) -> float:
        """Of the held-out users, those by whom predictors are compared."""
        return min(1.0, EVALUATION.judged / max(self.judges, 1))

    @property
    def judges(self) -> int:
        """The users who are held out, as the held-out gain counts them."""
        return heldout_gain_judges(self.judging.summary.users, len(self.folds))

    @property
    def deals(self) -> int:
        """Of each user's rows, as for the held-out gain."""
        return heldout_gain_deals(self.judges)

    @property
    def fitted_users(self) -> int:
        """Users that a fit without the held-out ones was fitted to, on average."""
        return round(self.logs.summary.users * float(np.mean([fold.fitted.mean() for fold in self.folds])))

    @property
    def weights(self) -> dict[str, float]:
        """What the stages of a fold cost, so that those of all folds add up to the total announced at the start."""
        folds = len(self.folds)
        each = {name: weight / folds for name, weight in WEIGHTS.items() if name != "weigh" or not self.why_not}
        if not self.quick and not self.sample:
            each["learn"] = LEARN * _usual_evaluation_folds(self.logs) / folds
        return each


@dataclass(frozen=True)
class _Seen:
    """How many histories have each length (up to the last, which has all longer ones), and which columns there are."""

    lengths: Ints
    propensities: bool
    candidates: bool

    @classmethod
    def of(cls, batch: Batch) -> _Seen:
        return cls(deal_lengths(batch), batch.propensities is not None, getattr(batch, "candidates", None) is not None)

    def __add__(self, other: _Seen) -> _Seen:
        return _Seen(self.lengths + other.lengths, self.propensities, self.candidates)

    def able(self, choices: int) -> int:
        """Users with one row more than candidates."""
        return int(self.lengths[choices + 1 :].sum())

    def judging(self, logs: Logs) -> int:
        """How many users may be held out with the rows to judge, where these are some of the users of the logs."""
        length = usual_deal_length(self.lengths)
        return self.able(deal_choices(length)) // (1 if _usual_evaluation_folds(logs) > 1 else FOLDS) if length else 0

    def check(self, logs: Logs) -> None:
        """Refuse logs of which nobody can judge a fit, before it is made."""
        choices = deal_choices(self.usual_length(logs))
        if not self.able(choices):
            raise _too_few_to_evaluate(0, choices, logs)

    def usual_length(self, logs: Logs) -> int:
        """The median length of histories that have two rows."""
        length = usual_deal_length(self.lengths)
        if not length:
            what = f"none of the {logs.summary.users:,} users has two rows, one to learn from and one to judge by"
            raise LogsError(what, todo="log several rows of each user")
        return length


def _too_few_to_evaluate(able: int, choices: int, logs: Logs) -> LogsError:
    """Says that too few users have the rows to judge a fit."""
    return LogsError(
        f"{able:,} of {logs.summary.users:,} users have the {choices + 1} rows that it takes to judge a fit",
        todo="log more rows of more users; 150 users of 10 rows are a beginning",
    )


@dataclass(frozen=True, eq=False)
class FoldResult:
    """What one fold gave."""

    made: Predictors
    judged: UserResults
    played: UserResults
    weighed: UserResults | None
    learned: dict[float, tuple[int, UserResults]] = field(
        default_factory=dict
    )  # by share of users: how many, and rewards


def _folds(plan: EvaluationPlan, models: list[Model], stages: Stages) -> list[FoldResult]:
    """What each fold gives; where there are workers and several folds, they are shared out."""
    tasks, engine = list(zip(plan.folds, models, strict=True)), plan.logs.engine
    if engine is None or len(tasks) == 1:
        return [_fold(plan, fold, model, stages) for fold, model in tasks]
    answers, found = engine.each(_fold_by_worker, tasks, given=plan), []
    for _ in tasks:
        stages.begin(sum(plan.weights.values()))
        found.append(next(answers))
    return found


def _fold_by_worker(plan: EvaluationPlan, task: tuple[Fold, Model]) -> FoldResult:
    """A fold in another process, which tells of its end alone."""
    return _fold(plan, *task, Stages(None, 1.0))


def _fold(plan: EvaluationPlan, fold: Fold, model: Model, stages: Stages) -> FoldResult:
    """Judge the model of a fit without some users by these, play, weigh, and fit again to fewer."""
    train, people = fold.to_fit(plan.logs), fold.held_out(plan.judging, plan.share)
    stages.begin(plan.weights["others"])
    made = predictors_of(train, model, quick=plan.quick)
    deals, tick = plan.deals, stages.begin(plan.weights["judge"])
    steps, choices = EVALUATION.steps, plan.choices
    judged = judge_cold_start(made.predictors, people, steps=steps, choices=choices, deals=deals, progress=tick)
    tick = stages.begin(plan.weights["replay"])
    some = fold.held_out(plan.judging, plan.share * min(1.0, EVALUATION.played / max(len(judged.people.hashes), 1)))
    played = off_policy.off_policy_replay(
        policies_beside_predictors(made, plan.rounds), some, rounds=plan.rounds, seed=plan.seed, progress=tick
    )
    weighed = None if plan.why_not else _weighed(plan, model, people, stages.begin(plan.weights["weigh"]))
    learned = _learned(plan, fold, train, people, stages) if "learn" in plan.weights else {}
    return FoldResult(made, judged, played, weighed, learned)


def _weighed(plan: EvaluationPlan, model: Model, people: Logs, progress: Progress) -> UserResults:
    """Values by propensities of the policies that have a model."""
    judged: dict[str, Any] = {OURS: PriorUCB(model), "PriorTS": PriorTS(model, votes=EVALUATION.votes)}
    judged |= {MEAN: PopulationMean(model.without_attributes())}
    judged |= {ARMS: EmpiricalArms(model)} if predictor_knows_actions(model) else {}
    return off_policy_sums(judged, PriorTS(model), people, seed=plan.seed, progress=progress)


def _learned(
    plan: EvaluationPlan, fold: Fold, train: Logs, people: Logs, stages: Stages
) -> dict[float, tuple[int, UserResults]]:
    """What PriorUCB gets after some interactions when it was fitted to fewer users; less where they are too few."""
    tick = stages.begin_fit(plan.weights["learn"])
    found = {}
    for share in cold_start_shares(train.summary.usable, EVALUATION.least):
        fewer = fold.to_fit(plan.logs, share)
        try:
            model = fit_and_fit_parts(fewer, calibrate=False, measure=False, progress=tick, **plan.settings).model
        except NewcomerError:  # so few rows that no direction is reached, say: then there is nothing to compare
            continue
        look = {OURS: ByPolicy(PriorUCB(model))}
        found[share] = (
            fewer.summary.users,
            judge_cold_start(look, people, steps=(plan.look,), choices=plan.choices, deals=plan.deals),
        )
    return found


def _told(plan: EvaluationPlan, found: list[FoldResult], heldout: HeldoutGain | None) -> Evaluation:
    """The folds together, in records."""
    logs, first = plan.logs.summary, found[0].made
    judged = UserResults.joined([one.judged for one in found])
    played = UserResults.joined([one.played for one in found])
    headline = tuple(_headline(step) for step in heldout.steps) if heldout else ()
    values, why = _off_policy(plan, [one.weighed for one in found if one.weighed is not None])
    return Evaluation(
        users=logs.users,
        rows=logs.rows,
        judged=headline[0].people if headline else 0,
        folds=len(found),
        choices=plan.choices,
        headline=headline,
        curves=result_curves(judged),
        attributes=attribute_predictor_steps(judged, EVALUATION.steps, REWARD, OURS, MEAN),
        replay=result_table_rows(played, EVALUATION.rounds),
        off_policy=values,
        why_no_off_policy=why,
        simulation=() if plan.quick else _simulated(plan, first),
        learning=learning_results(judged, [one.learned for one in found], plan.fitted_users, plan.look),
        notes=tuple(_notes(plan, first)),
        far_rewards=logs.far_rewards,
        everybody=heldout.everybody if heldout else None,
        remedy=logs.remedies,
    )


def _headline(step: GainStep) -> HeadlineStep:
    """What a fit estimated for so many interactions."""
    assert step.reward is not None and step.over_logged is not None
    return HeadlineStep(step.interactions, step.people, step.reward, step.over_mean, step.over_arms, step.over_logged)


def _off_policy(plan: EvaluationPlan, weighed: list[UserResults]) -> tuple[Any, str]:
    """Rows, or None and why there are none."""
    if not weighed:
        return None, plan.why_not
    table = UserResults.joined(weighed)
    odd = off_policy_misfit(table)
    rows, missing = off_policy_rows(table)
    if odd or not rows:
        few = "Propensities are too small, or users too few: no policy's value rests on 30 effective rows."
        return None, odd or few
    return tuple(
        rows
    ), f"{missing} values by propensities are left out: they rest on fewer than 30 effective rows." * bool(missing)


def _notes(plan: EvaluationPlan, first: Predictors) -> list[str]:
    """What was left out, and which limits were kept to."""
    said = [*first.notes, *predictors_left_out(first)]
    if plan.judging is not plan.logs:
        users = plan.judging.summary.users
        said.append(f"The {users:,} users of the random arm judge; fits learn from the rows of all arms.")
    if plan.share < 1:
        said.append(
            f"Other predictors are compared on about {EVALUATION.judged:,} of the {plan.people:,} held-out users."
        )
    if len(plan.folds) > 1:
        said.append(f"Every user is held out once: {len(plan.folds)} fits, each judged by the users held out of it.")
    if plan.sample is not None:
        said.append(
            f"Fits to fewer users are not compared: what is measured here is of fits to a sample of {plan.sample:,} "
            "users, and a fit to all may be worth more."
        )
    if plan.quick:
        said.append("Quick: the learning curve and the simulation were skipped.")
    return said


def _simulated(plan: EvaluationPlan, first: Predictors) -> tuple[PolicyRow, ...]:
    """Policies in a world drawn from the first fit."""
    menu = fitted_world_menu(plan.logs, named=predictor_knows_actions(first.model), seed=plan.seed)
    world = FittedWorld(first.model, menu, choices=plan.choices)
    rounds, users = EVALUATION.simulated_rounds, EVALUATION.simulated
    chosen = policies_beside_predictors(first, rounds)
    return simulated_result_rows(play(chosen, world, horizon=rounds, users=users, seed=plan.seed, progress=False))


UNITS = 1000  # of progress for a weight of one
PASSES = 25.0  # of a fit until half of its share is behind it; how many there will be nobody knows


class Stages:
    """Tells `progress(done, total)` about stages that follow one another; `total` is the sum of their weights."""

    def __init__(self, progress: Progress | None, total: float) -> None:
        self._progress, self._total = progress, total
        self._done = self._weight = 0.0

    def begin(self, weight: float) -> Progress:
        """The next stage, a pass: what it calls with (rows done, rows in all)."""
        self._enter(weight)
        return lambda done, total: self._tell(done / max(total, 1))

    def begin_fit(self, weight: float) -> Progress:
        """The next stage, a fit of unknown length: every pass brings it nearer to its end, and none reaches it."""
        self._enter(weight)
        return self._counting()

    def end(self) -> None:
        """All stages are behind us."""
        self._enter(0.0)
        self._done = self._total
        self._tell(0.0)

    def _enter(self, weight: float) -> None:
        self._done, self._weight = self._done + self._weight, weight
        self._tell(0.0)

    def _counting(self) -> Callable[[int, int], None]:
        passes, last = 0.0, 0

        def tell(done: int, total: int) -> None:
            nonlocal passes, last
            passes += done <= last
            last = done
            far = passes + done / max(total, 1)
            self._tell(far / (far + PASSES))

        return tell

    def _tell(self, share: float) -> None:
        if self._progress is not None:
            now = min(self._done + share * self._weight, self._total)
            self._progress(round(UNITS * now), round(UNITS * self._total))
