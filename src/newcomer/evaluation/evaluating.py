"""evaluate(): will it help newcomers? What people who were kept out of the fit say, and what stands behind it.

People are split by hash; everything is fitted to one part and judged by the other (five parts in turn where users are
few). For each fold: what predictors and PriorUCB are worth after t interactions (judging.py), policies that begin from
nothing (replaying.py), values by propensities (propensities.py), and fits to fewer users. Last, policies play in a
world drawn from the first fit (fitted_world.py), which is a simulation and is called one.
"""

from __future__ import annotations

import operator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from newcomer import arguments
from newcomer.arrays import Ints
from newcomer.checks.quick import quick_check
from newcomer.errors import LogsError, NewcomerError
from newcomer.evaluation import propensities, replaying
from newcomer.evaluation.answers import Evaluation
from newcomer.evaluation.contenders import ARMS, MEAN, OURS, Contenders, contenders, left_out, named, policies
from newcomer.evaluation.fitted_world import FittedWorld, menu_of
from newcomer.evaluation.judging import DEALS, ByPolicy, judge
from newcomer.evaluation.persons import Progress, Table
from newcomer.evaluation.splitting import Fold, shares_of, split
from newcomer.evaluation.stages import Stages
from newcomer.evaluation.stretches import LOOK, PolicyRow
from newcomer.evaluation.summing import STEPS, curves_of, headline_of, learning_of, simulated_rows, table_rows
from newcomer.fitting import fit
from newcomer.logs.batch import Batch
from newcomer.logs.crew import Crew
from newcomer.logs.engine import reduce
from newcomer.logs.from_files import read_logs
from newcomer.logs.logbook import Logs
from newcomer.model import Model
from newcomer.policies.baselines import PopulationMean
from newcomer.policies.empirical_arms import EmpiricalArms
from newcomer.policies.prior_policies import PriorTS, PriorUCB
from newcomer.simulation import play

LONGEST = 255  # rows from which lengths of histories are not told apart
CHOICES = 10  # candidates, or fewer where histories are short
MOST, PLAYED = 2500, 800  # held-out people who are looked at, and for whom policies play from the beginning
SIMULATED, ROUNDS = 200, 20  # newcomers of the simulation, and rounds
LEAST = 40  # users whom a fit of the learning curve has at least
VOTES = 64  # draws by which PriorTS tells its probabilities
WEIGHTS = {"fit": 1.0, "others": 0.6, "judge": 1.5, "replay": 1.0, "weigh": 0.7, "learn": 1.2}
LONG = ("learn",)  # what a quick evaluation leaves out
CHECKED = 0.3  # what the checks cost beside a fit


def evaluate(
    logs: Logs | Any,
    *,
    seed: int = 0,
    quick: bool = False,
    rank: int | Literal["auto"] = "auto",
    estimator: str = "em",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Tell from logs whether the method will help newcomers, and how sure that is.

    Parameters
    ----------
    logs : logs, or whatever `read_logs` takes as it is: a path, a pattern, a frame.
    seed : which people are held out, and what is drawn; the numbers depend on it and on the logs alone.
    quick : fewer deals, no learning curve and no simulation.
    rank, estimator : of the fits, as in `fit`.
    workers : processes that pass over the logs, a core each, as in `fit`; the numbers do not depend on it.
    progress : called with (done, total), units of work, again and again.

    >>> from newcomer.worlds import Synthetic
    >>> found = evaluate(Synthetic.learnable(dim=8, seed=1).logs(400, 12, seed=1), quick=True)
    >>> found.verdict, found.look.interactions
    ('helps', 5)
    """
    seed = arguments.whole(seed, "seed", least=0, most=2**62, kind=NewcomerError)
    quick = arguments.flag(quick, "quick", kind=NewcomerError)
    arguments.callback(progress, "progress", kind=NewcomerError)
    logs = logs if isinstance(logs, Logs) else read_logs(logs)
    with ExitStack() as stack:
        if workers is not None and arguments.whole(workers, "workers", kind=NewcomerError) > 1 and logs.engine is None:
            logs = logs.on(stack.enter_context(Crew(workers)))
        plan = replace(Plan.of(logs, seed, quick=quick), rank=rank, estimator=estimator)
        stages = Stages(progress, CHECKED + len(plan.folds) * sum(plan.weights.values()))
        checked = quick_check(logs, seed=seed, progress=stages.begin(CHECKED))
        found = _told(plan, [_fold(plan, fold, stages) for fold in plan.folds])
        stages.end()
        broken, doubtful = (tuple(one.name for one in checked.of(verdict)) for verdict in ("broken", "doubtful"))
        return replace(found, broken=broken, doubtful=doubtful)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is decided before the first fit: who is held out, what they choose among, and what can be told at all."""

    logs: Logs
    seed: int
    quick: bool
    choices: int
    rounds: int
    look: int  # interactions after which fits to fewer users are compared
    folds: list[Fold]
    people: int  # held out, with enough rows
    why_not: str  # of values by propensities
    rank: int | Literal["auto"] = "auto"
    estimator: str = "em"

    @classmethod
    def of(cls, logs: Logs, seed: int, *, quick: bool) -> Plan:
        """Look at the logs."""
        seen = reduce(logs, _Seen.of, operator.add)
        length = seen.usual_length(logs)
        # Half of a history is known and half is on offer, unless that keeps people from having `LOOK` interactions.
        choices = int(np.clip(min(length // 2, max(length - LOOK, 2)), 2, CHOICES))
        folds, people = split(logs, seed, rows=choices + 1)
        known = logs.action_ids is not None and logs.by_action
        why = propensities.why_not(logs, seen.propensities, seen.candidates, known)
        rounds = int(np.clip(length // 2, 1, max(replaying.ROUNDS)))
        look = max(t for t in STEPS if t <= 1 or (t <= LOOK and choices + t <= length))
        return cls(logs, seed, quick, choices, rounds, look, folds, people, why)

    @property
    def settings(self) -> dict[str, Any]:
        """Of every fit; SOLD finds its rank with the null."""
        null = self.estimator != "em" and self.rank == "auto"
        return {"rank": self.rank, "estimator": self.estimator, "null": null}

    @property
    def share(self) -> float:
        """Of the people held out, those who are looked at."""
        return min(1.0, MOST / max(self.people, 1))

    @property
    def weights(self) -> dict[str, float]:
        """What the stages of a fold cost."""
        leave = {*(LONG if self.quick else ()), *(("weigh",) if self.why_not else ())}
        return {name: weight for name, weight in WEIGHTS.items() if name not in leave}


@dataclass(frozen=True)
class _Seen:
    """How many histories have each length (up to the last, which has all longer ones), and which columns there are."""

    lengths: Ints
    propensities: bool
    candidates: bool

    @classmethod
    def of(cls, batch: Batch) -> _Seen:
        lengths = np.bincount(np.minimum(batch.lengths, LONGEST), minlength=LONGEST + 1).astype(np.int64)
        return cls(lengths, batch.propensities is not None, getattr(batch, "candidates", None) is not None)

    def __add__(self, other: _Seen) -> _Seen:
        return _Seen(self.lengths + other.lengths, self.propensities, self.candidates)

    def usual_length(self, logs: Logs) -> int:
        """The median length of histories that have two rows."""
        able = self.lengths.copy()
        able[:2] = 0
        if not able.any():
            what = f"none of the {logs.summary.users:,} users has two rows, one to learn from and one to judge by"
            raise LogsError(what, todo="log several rows of each user")
        return int(np.searchsorted(np.cumsum(able), able.sum() / 2))


@dataclass(frozen=True, eq=False)
class Found:
    """What one fold gave."""

    made: Contenders
    judged: Table
    played: Table
    weighed: Table | None
    learned: dict[float, tuple[int, Table]] = field(default_factory=dict)  # by share of users: how many, and rewards


def _fold(plan: Plan, fold: Fold, stages: Stages) -> Found:
    """Fit, judge, play, weigh, and fit again to fewer."""
    train, people = fold.to_fit(plan.logs), fold.held_out(plan.logs, plan.share)
    begun = stages.begin_fit(plan.weights["fit"])
    model = _model(train, plan.settings, calibrate=not plan.quick, progress=begun)
    stages.begin(plan.weights["others"])
    made = contenders(train, model)
    deals, told = (1 if plan.quick else DEALS), stages.begin(plan.weights["judge"])
    judged = judge(made.predictors, people, steps=STEPS, choices=plan.choices, deals=deals, progress=told)
    told = stages.begin(plan.weights["replay"])
    some = fold.held_out(plan.logs, plan.share * min(1.0, PLAYED / max(len(judged.people.hashes), 1)))
    played = replaying.replay(policies(made, plan.rounds), some, rounds=plan.rounds, seed=plan.seed, progress=told)
    weighed = None if plan.why_not else _weighed(plan, model, people, stages.begin(plan.weights["weigh"]))
    learned = {} if plan.quick else _learned(plan, fold, train, people, stages)
    return Found(made, judged, played, weighed, learned)


def _model(train: Logs, settings: dict[str, Any], *, calibrate: bool, progress: Progress) -> Model:
    """The fit that is judged; one that fails says that it is not a fit to all logs."""
    try:
        return fit(train, calibrate=calibrate, progress=progress, **settings)
    except LogsError as error:
        raise LogsError(f"without the people held out: {error.what}", where=error.where, todo=error.todo) from error


def _weighed(plan: Plan, model: Model, people: Logs, progress: Progress) -> Table:
    """Values by propensities of the policies that have a model."""
    judged = {OURS: PriorUCB(model), "PriorTS": PriorTS(model, votes=VOTES), MEAN: PopulationMean(model)}
    judged |= {ARMS: EmpiricalArms(model)} if named(model) else {}
    return propensities.weigh(judged, PriorTS(model), people, seed=plan.seed, progress=progress)


def _learned(plan: Plan, fold: Fold, train: Logs, people: Logs, stages: Stages) -> dict[float, tuple[int, Table]]:
    """What PriorUCB gets after some interactions when it was fitted to fewer users; less where they are too few."""
    told = stages.begin_fit(plan.weights["learn"])
    found = {}
    for share in shares_of(train.summary.usable, LEAST):
        fewer = fold.to_fit(plan.logs, share)
        try:
            model = fit(fewer, calibrate=False, progress=told, **plan.settings)
        except NewcomerError:  # so few rows that no direction is reached, say: then there is nothing to compare
            continue
        look = {OURS: ByPolicy(PriorUCB(model))}
        found[share] = fewer.summary.users, judge(look, people, steps=(plan.look,), choices=plan.choices)
    return found


def _told(plan: Plan, found: list[Found]) -> Evaluation:
    """The folds together, in records."""
    logs, first = plan.logs.summary, found[0].made
    judged = Table.joined([one.judged for one in found])
    played = Table.joined([one.played for one in found])
    headline = headline_of(judged)
    off_policy, why = _off_policy(plan, [one.weighed for one in found if one.weighed is not None])
    return Evaluation(
        users=logs.users,
        rows=logs.rows,
        judged=len(judged.people.hashes),
        folds=len(found),
        choices=plan.choices,
        headline=headline,
        curves=curves_of(judged),
        replay=table_rows(played, replaying.ROUNDS),
        off_policy=off_policy,
        why_no_off_policy=why,
        simulation=() if plan.quick else _simulated(plan, first),
        learning=learning_of(judged, [one.learned for one in found], [one.made for one in found], plan.look),
        notes=tuple(_notes(plan, first)),
        far_rewards=logs.far_rewards,
        remedy=logs.remedy,
    )


def _off_policy(plan: Plan, weighed: list[Table]) -> tuple[Any, str]:
    """Rows, or None and why there are none."""
    if not weighed:
        return None, plan.why_not
    table = Table.joined(weighed)
    odd = propensities.inconsistent(table)
    rows, missing = propensities.rows_of(table)
    if odd or not rows:
        few = "Propensities are so small, or people so few, that no policy's value is carried by 30 effective rows."
        return None, odd or few
    return tuple(rows), f"{missing} values by propensities are left out: 30 effective rows carry none." * bool(missing)


def _notes(plan: Plan, first: Contenders) -> list[str]:
    """What was left out, and which limits were kept to."""
    said = [*first.notes, *left_out(first)]
    if plan.share < 1:
        said.append(f"{MOST:,} of the {plan.people:,} people held out were looked at, drawn by hash.")
    if len(plan.folds) > 1:
        said.append(f"Users are few: {len(plan.folds)} fits, each judged by the people that it was not fitted to.")
    if plan.quick:
        said.append("Quick: one deal a person, no learning curve and no simulation.")
    return said


def _simulated(plan: Plan, first: Contenders) -> tuple[PolicyRow, ...]:
    """Policies in a world drawn from the first fit."""
    menu = menu_of(plan.logs, named=named(first.model), seed=plan.seed)
    world = FittedWorld(first.model, menu, choices=plan.choices)
    chosen = policies(first, ROUNDS)
    return simulated_rows(play(chosen, world, horizon=ROUNDS, users=SIMULATED, seed=plan.seed, progress=False))
