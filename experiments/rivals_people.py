"""Policies with learned priors beside PriorUCB, on newcomers of Young People and bfi; see rivals-plan.md."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

import newcomer as nc
from experiments.results_table import Command
from experiments.rivals_jobs import all_kept, kept
from newcomer.arrays import Floats
from newcomer.evaluation.recommenders import recommenders
from newcomer.paper.studies.comparison import ratio_of_means
from newcomer.paper.studies.earlier_users import Dealt, deal
from newcomer.paper.studies.people import AGAIN, CASES, LIMIT, ONCE, ROUNDS, WAVERING
from newcomer.rivals import priors
from newcomer.rivals.club import Club, Kinds
from newcomer.rivals.gaussian import GaussianTS, GaussianUCB
from newcomer.rivals.priors import Partial
from newcomer.simulate import simulated_mean_and_error
from newcomer.worlds.people import People
from newcomer.worlds.world import world_stream

TABLES = {"young": (20, 60), "bfi": (12, 20), "young 0/1": (20, 60), "bfi 0/1": (12, 20)}
SPLITS, TUNING, NEWCOMERS = tuple(range(101, 107)), 100, 100
QUICK = {"people": "bfi", "answers": 12, "seed": 101, "width": 0.5, "alpha": 0.1, "alpha2": 1.0, "newcomers": 5}
WIDTHS, ALPHAS, THRESHOLDS = (0.25, 0.5, 1.0, 2.0), (0.1, 0.5), (1.0, 2.0, 4.0)
OURS = "PriorUCB"


def world_of(people: str, seed: int) -> People:
    """The people of a table, split by the seed."""
    world = People.young(seed=seed) if people.startswith("young") else People.bfi(seed=seed)
    return world.liked(4) if people.endswith("0/1") else world


def cases_of(people: str) -> list[str]:
    """How newcomers meet questions: only Young People has enough of them to come once each."""
    return [AGAIN, WAVERING, ONCE] if people == "young" else [AGAIN, WAVERING]


class Fitted:
    """Everything that is learned from the logs of one split, with the processor seconds that it took."""

    def __init__(self, people: str, answers: int, seed: int) -> None:
        self.world = world_of(people, seed)
        self.logs = self.world.logs(steps=answers, seed=seed)
        self.seconds: dict[str, float] = {}
        self.logged = self._timed("pooled", lambda: Partial.of(self.logs))
        self.empirical = self._timed("ebm", lambda: priors.empirical(self.logged))
        self.hierarchical = self._timed("HierTS", lambda: priors.hierarchical(self.logged))
        self.likeliest = self._timed("EM", lambda: priors.likeliest(self.logged))
        self.diffused = self._timed("dTS", lambda: priors.diffused(self.logged, known=self.likeliest))
        self.kinds = self._timed("CLUB", self._kinds)

    def _kinds(self) -> Kinds:
        return Kinds.of(self.logged, priors.imputed(self.logged, self.likeliest)[0])

    def _timed(self, name: str, make: Any) -> Any:
        began = time.process_time()
        made = make()
        self.seconds[name] = time.process_time() - began
        return made

    def ours(self) -> dict[str, Any]:
        """Ours, the baselines, and ALS with a person's own answers."""
        model = self._timed(OURS, lambda: nc.fit(self.logs, null=False, calibrate=False))
        als = self._timed("ALS", lambda: recommenders(self.logs, model)["ALS fold-in, own answers"])
        return {
            OURS: nc.PriorUCB(model),
            "PriorTS": nc.PriorTS(model),
            "EmpiricalArms": nc.EmpiricalArms(model),
            "PopulationMean": nc.PopulationMean(model),
            "ALS, own answers": als,
        }

    def rivals(self, width: float, alpha: float, alpha2: float) -> dict[str, Any]:
        """The rivals of the plan, with the settings that were tuned."""
        return {
            "ebmTS": GaussianTS(self.empirical),
            "ebmUCB": GaussianUCB(self.empirical, width=width),
            "HierTS / AdaTS": GaussianTS(self.hierarchical),
            "MetaTS": GaussianTS(priors.meta(self.logged), drawn_mean=True),
            "dTS, linear": GaussianTS(self.diffused),
            "pooled ridge, greedy": GaussianUCB(priors.pooled(self.logged), width=0.0),
            "pooled ridge, UCB": GaussianUCB(priors.pooled(self.logged), width=1.0),
            "CLUB": Club(self.kinds, alpha=alpha, alpha2=alpha2),
            "full covariance, greedy": GaussianUCB(self.likeliest, width=0.0),
        }

    def cost(self, name: str) -> float:
        """Processor seconds until a policy can serve, shared steps included."""
        spent = self.seconds
        parts = {
            "ebm": ("pooled", "ebm"),
            "Hier": ("pooled", "HierTS"),
            "Meta": ("pooled", "HierTS"),
            "dTS": ("pooled", "EM", "dTS"),
            "CLUB": ("pooled", "EM", "CLUB"),
            "full": ("pooled", "EM"),
            "pooled": ("pooled",),
            "ALS": ("ALS",),
        }
        found = next((steps for start, steps in parts.items() if name.startswith(start)), (OURS,))
        return sum(spent.get(step, 0.0) for step in found)


def serve(policy: Any, dealt: Dealt, questions: Any, features: Floats | None) -> tuple[Floats, float]:
    """Regret (n,) of newcomers, and microseconds of a decision and its reward; by ids where features are None."""
    n, rounds, _ = dealt.offered.shape
    who, regret, state = np.arange(n), np.zeros(n), policy.start(n)
    rngs = [world_stream(0, "policy", user) for user in range(n)]
    spent = 0.0
    for t in range(rounds):
        offered = dealt.offered[:, t]
        asked = {"ids": questions[offered]} if features is None else {"actions": features[offered]}
        began = time.process_time()
        chosen = policy.choose(state, rng=rngs, **asked)
        spent += time.process_time() - began
        regret += dealt.means[:, t].max(axis=1) - dealt.means[who, t, chosen]
        taken = {"ids": asked["ids"][who, chosen]} if features is None else {"features": asked["actions"][who, chosen]}
        began = time.process_time()
        policy.update(state, reward=dealt.rewards[who, t, chosen], **taken)
        spent += time.process_time() - began
    return regret, 1e6 * spent / (n * rounds)


def played(
    fitted: Fitted, case: str, seed: int, policies: dict[str, Any], newcomers: int = NEWCOMERS
) -> list[dict[str, Any]]:
    """Mean regret of each policy with the newcomers of a case."""
    place = replace(fitted.world, **CASES[case])
    dealt = deal(place, newcomers, ROUNDS if place.repeat else place.dim // place.choices, seed)
    questions, features = np.array(place.questions), np.eye(place.dim)
    rows = []
    for name, policy in policies.items():
        named = hasattr(policy, "model") and name != LIMIT  # the limit's model keeps no features of its actions
        regret, spent = serve(policy, dealt, questions, None if named else features)
        rows.append({"case": case, "policy": name, "regret": float(regret.mean()), "decision_us": spent})
    return rows


def tune(people: str, answers: int) -> pl.DataFrame:
    """Widths of ebmUCB and of CLUB with the least regret on the split that is kept for it."""
    fitted = Fitted(people, answers, TUNING)
    widths = {f"{one:g}": GaussianUCB(fitted.empirical, width=one) for one in WIDTHS}
    clubs = {f"{a:g} {b:g}": Club(fitted.kinds, alpha=a, alpha2=b) for a in ALPHAS for b in THRESHOLDS}
    best = {}
    for kind, tried in {"ebmUCB": widths, "CLUB": clubs}.items():
        rows = played(fitted, WAVERING, TUNING, tried)
        best[kind] = min(rows, key=lambda row: float(row["regret"]))["policy"]
    alpha, alpha2 = (float(one) for one in str(best["CLUB"]).split())
    return pl.DataFrame({"width": [float(str(best["ebmUCB"]))], "alpha": [alpha], "alpha2": [alpha2]})


def split(
    people: str, answers: int, seed: int, width: float, alpha: float, alpha2: float, newcomers: int = NEWCOMERS
) -> pl.DataFrame:
    """All policies in all cases of one split."""
    fitted = Fitted(people, answers, seed)
    policies = fitted.ours() | fitted.rivals(width, alpha, alpha2)
    rows = []
    for case in cases_of(people):
        limit = nc.PriorUCB(replace(fitted.world, **CASES[case]).limit(), width=0.0, level=0.0)
        rows += played(fitted, case, seed, policies | {LIMIT: limit}, newcomers)
    found = pl.DataFrame(rows).with_columns(people=pl.lit(people), answers=pl.lit(answers), unit=pl.lit(seed))
    seconds = pl.col("policy").map_elements(fitted.cost, return_dtype=pl.Float64)
    return found.with_columns(fit_seconds=pl.when(pl.col("policy") == LIMIT).then(None).otherwise(seconds))


def write(command: Command, *, made: bool = True) -> None:
    """Every split of every table, and the table of ratios to PriorUCB: rivals.csv."""
    if command.quick:
        command.write(compared(split(**QUICK)), "rivals.csv")
        return
    module, tables = "experiments.rivals_people", [(name, one) for name, logged in TABLES.items() for one in logged]
    jobs = []
    for people, answers in tables:
        tuned = kept(module, tune, {"people": people, "answers": answers}, made=made)
        settings = {} if tuned is None else tuned.row(0, named=True)
        jobs += [{"people": people, "answers": answers, "seed": seed, **settings} for seed in SPLITS if settings]
    # Split after split, so that a run that is stopped has something of every table.
    rows = all_kept(module, split, sorted(jobs, key=lambda one: one["seed"]), made=made)
    if rows is not None:
        command.write(compared(rows), "rivals.csv", float_precision=4)


def compared(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret of every policy, its ratio to PriorUCB's over paired splits, and a t interval of 95%."""
    by = ["people", "answers", "case"]
    ours = rows.filter(policy=OURS).select(*by, "unit", ours="regret")
    groups = rows.join(ours, on=[*by, "unit"], maintain_order="left").group_by(*by, "policy", maintain_order=True)
    found = groups.agg(
        units=pl.len(),
        **simulated_mean_and_error("regret"),
        **ratio_of_means("regret", "ours"),
        fit_seconds=pl.col("fit_seconds").mean(),
        decision_us=pl.col("decision_us").median(),
    )
    quantile = pl.Series([float(stdtrit(max(units - 1, 1), 0.975)) for units in found["units"]])
    width = quantile * pl.col("ratio_se")
    return found.with_columns(low=pl.col("ratio") - width, high=pl.col("ratio") + width)


if __name__ == "__main__":
    write(Command.read())
