"""A small pretrained transformer beside PriorUCB, on Young People; see rivals-plan.md.

Logs and newcomers are handed to the environment that has torch as Parquet (benchmarks/peers/transformer.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from experiments.results_table import Command
from experiments.rivals_jobs import all_kept, work
from experiments.rivals_people import NEWCOMERS, OURS, Fitted, serve
from experiments.rivals_recommenders import run_peer
from newcomer.evaluation.recommenders import recommender_table
from newcomer.paper.studies.earlier_users import Dealt, deal
from newcomer.paper.studies.people import AGAIN, CASES, ROUNDS, WAVERING
from newcomer.worlds.people import People

ANSWERS, SEED, SECONDS = (20, 60), 101, "120"


def dealt_to(world: People) -> dict[str, Dealt]:
    """The newcomers of both cases."""
    return {case: deal(replace(world, **CASES[case]), NEWCOMERS, ROUNDS, SEED) for case in (AGAIN, WAVERING)}


def hand_over(answers: int, cases: dict[str, Dealt], world: People) -> Path:
    """Logged answers and newcomers' offers, as the peer reads them."""
    place = work() / f"transformer-{answers}"
    place.mkdir(exist_ok=True)
    table, met = recommender_table(world.logs(steps=answers, seed=SEED))
    user, question = np.nonzero(met)
    logged = pl.DataFrame({"user": user, "question": question, "answer": table[met]})
    logged.write_parquet(place / "logged.parquet")
    frames = []
    for case, dealt in cases.items():
        u, t, k = (one.ravel() for one in np.indices(dealt.offered.shape))
        cells = {"user": u, "t": t, "k": k, "question": dealt.offered.ravel(), "mean": dealt.means.ravel()}
        frames.append(pl.DataFrame(cells | {"reward": dealt.rewards.ravel()}).with_columns(case=pl.lit(case)))
    pl.concat(frames).write_parquet(place / "asked.parquet")
    return place


def compared(answers: int, *, peer: bool = True) -> pl.DataFrame:
    """Regret of every newcomer with ours and, with its environment, the transformer: `method`, `case`, `user`."""
    fitted = Fitted("young", answers, SEED)
    cases = dealt_to(fitted.world)
    ours, questions = fitted.ours(), np.array(fitted.world.questions)
    rows = []
    for case, dealt in cases.items():
        for name in (OURS, "EmpiricalArms", "PopulationMean"):
            regret, _ = serve(ours[name], dealt, questions, None)
            told = {"user": np.arange(len(regret)), "regret": regret}
            rows.append(pl.DataFrame(told).with_columns(case=pl.lit(case), method=pl.lit(name), seconds=None))
    place = hand_over(answers, cases, fitted.world)
    found = run_peer("torch", "transformer.py", place, SECONDS, "played") if peer else None
    columns = ["method", "case", "user", "regret", "seconds"]
    rows += [] if found is None else [found]
    same = [one.with_columns(pl.col("user").cast(pl.Int64), pl.col("seconds").cast(pl.Float64)) for one in rows]
    return pl.concat([one.select(columns) for one in same]).with_columns(answers=pl.lit(answers))


def write(command: Command, *, made: bool = True) -> None:
    """Both numbers of logged answers: rivals-transformer.csv."""
    jobs = [{"answers": one} for one in ANSWERS]
    quick, module = command.quick, "experiments.rivals_transformer"
    rows = compared(ANSWERS[0], peer=False) if quick else all_kept(module, compared, jobs, made=made)
    if rows is None:
        return
    by = ["answers", "case"]
    ours = rows.filter(method=OURS).select(*by, "user", ours="regret")
    gap = pl.col("regret") - pl.col("ours")
    groups = rows.join(ours, on=[*by, "user"], maintain_order="left").group_by(*by, "method", maintain_order=True)
    table = groups.agg(
        newcomers=pl.len(),
        regret=pl.col("regret").mean(),
        ratio=pl.col("regret").mean() / pl.col("ours").mean(),
        over_ours=gap.mean(),
        over_ours_se=gap.std() / pl.len().sqrt(),
        seconds=pl.col("seconds").mean(),
    )
    command.write(table, "rivals-transformer.csv", float_precision=4)


if __name__ == "__main__":
    write(Command.read())
