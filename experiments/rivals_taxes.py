"""Choice experiments: our model with attributes beside a mixed logit with attributes, at 0, 2 and 5 known tasks.

Tasks are handed to xlogit's environment as Parquet (benchmarks/peers/mixed_logit.py); see rivals-plan.md.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import newcomer as nc
from experiments.attributes import folder as data_folder
from experiments.results_table import Command
from experiments.rivals_jobs import all_kept, work
from experiments.rivals_recommenders import run_peer

FOLDS, DEALS, KNOWN, PLACES = 3, 3, (0, 2, 5), 5
OURS, MEAN = "newcomer, attributes", "PopulationMean"


def choices(most: int | None = None) -> tuple[pl.DataFrame, list[str], pl.DataFrame]:
    """Rows (user, task, alternative, chosen, levels), the names of the levels, and what is known of people.

    Of `most` people, if that is given.
    """
    frame = pl.read_parquet(data_folder() / "taxes" / "choices.parquet").sort("user", "task", "step")
    levels = [name for name in frame.columns if name not in ("user", "task", "step", "reward")]
    frame = frame.with_columns(alternative=pl.int_range(pl.len()).over("user", "task"), chosen="reward")
    people = pl.read_csv(data_folder() / "taxes" / "people.csv")
    people = people if most is None else people.head(most)
    return frame.filter(pl.col("user").is_in(people["user"].to_list())), levels, people


def hand_over(fold: int, most: int | None = None) -> Path:
    """The folder of a fold: logged tasks and newcomers' tasks in the order of each deal, as the peer reads them."""
    frame, levels, people = choices(most)
    place = work() / f"taxes-{fold}{'' if most is None else '-quick'}"
    place.mkdir(exist_ok=True)
    users = people["user"].to_numpy()
    new = users[np.random.default_rng(2026).permutation(len(users)) % FOLDS == fold]
    kept_levels = [name for name in levels if name not in references(levels)]
    own = people.to_dummies("partyid", drop_first=True).fill_null(strategy="mean")
    facts = {name: f"a{number}" for number, name in enumerate(one for one in own.columns if one != "user")}
    wide = frame.select(
        "user", "task", "alternative", "chosen", *(pl.col(one).alias(f"x{i}") for i, one in enumerate(kept_levels))
    ).join(own.rename(facts), on="user", maintain_order="left")
    wide.filter(~pl.col("user").is_in(new.tolist())).write_parquet(place / "logged.parquet")
    asked = []
    for deal in range(DEALS):
        rng = np.random.default_rng([fold, deal])
        order = np.argsort(rng.random((len(new), 8)), axis=1)
        dealt = {"user": np.repeat(new, 8), "task": np.tile(np.arange(8), len(new)), "place": order.ravel()}
        asked.append(wide.join(pl.DataFrame(dealt).with_columns(deal=deal), on=["user", "task"], how="inner"))
    pl.concat(asked).sort("deal", "user", "place", "alternative").write_parquet(place / "asked.parquet")
    return place


def references(levels: list[str]) -> set[str]:
    """The first level of each group, by which the others are measured."""
    first: dict[str, str] = {}
    for name in levels:
        first.setdefault(name.split("_")[0], name)
    return set(first.values())


def our_scores(place: Path, most: int | None = None) -> pl.DataFrame:
    """Expected rewards of our models, with attributes and without, in the form of the peer's scores."""
    frame, levels, people = choices(most)
    asked = pl.read_parquet(place / "asked.parquet").select("deal", "user", "task", "alternative", "place", "chosen")
    asked = asked.join(frame.select("user", "task", "alternative", *levels), on=["user", "task", "alternative"])
    asked = asked.sort("deal", "user", "place", "alternative")
    some = frame.filter(~pl.col("user").is_in(asked["user"].unique().to_list()))
    plain = nc.Logs.from_arrays(user=some["user"], features=some.select(levels).to_numpy(), reward=some["reward"])
    told = plain.with_users(people)
    fits: dict[str, Any] = {}
    for name, logs, outcome in (
        (OURS, told, "gaussian"),
        ("newcomer, without attributes", plain, "gaussian"),
        ("newcomer, attributes, binary", told, "binary"),
    ):
        began = time.process_time()
        fits[name] = nc.fit(logs, null=False, calibrate=False, outcome=outcome), time.process_time() - began
    found = []
    for (deal,), own in asked.group_by("deal", maintain_order=True):
        users = own["user"].unique(maintain_order=True)
        x = own.select(levels).to_numpy().reshape(len(users), 8, 2, len(levels))
        chosen = own["chosen"].to_numpy().reshape(len(users), 8, 2)
        who = pl.DataFrame({"user": users}).join(people, on="user", maintain_order="left")
        judged = own.filter(pl.col("place") >= PLACES).select("deal", "user", "task", "alternative")
        for name, (model, seconds) in fits.items():
            names = [one.name for one in model.attributes]
            for label, policy in {name: nc.PriorTS(model), MEAN: nc.PopulationMean(model)}.items():
                if label == MEAN and name != "newcomer, without attributes":
                    continue
                given = {"attributes": who.select(names)} if names and label != MEAN else {}
                state = policy.start(len(users), **given)
                for t in range(PLACES + 1):
                    if t in KNOWN:
                        said = policy.scores(state, x[:, PLACES:].reshape(len(users), 6, -1))
                        rows = judged.with_columns(known=t, score=pl.Series(said.ravel()), seconds=seconds)
                        found.append(rows.with_columns(method=pl.lit(label)))
                    if t < PLACES:
                        for side in (0, 1):
                            policy.update(state, np.ascontiguousarray(x[:, t, side]), chosen[:, t, side])
    return pl.concat(found)


def judged(fold: int, most: int | None = None) -> pl.DataFrame:
    """The share of judged tasks in which the plan that was chosen is ranked first: `method`, `known`, `user`.

    A quick run has `most` people and our models alone.
    """
    place = hand_over(fold, most)
    scores = [our_scores(place, most)]
    for attributes in ("1", "0") if most is None else ():
        found = run_peer("xlogit", "mixed_logit.py", place, attributes, f"logit-{attributes}")
        if found is not None:
            name = "mixed logit, attributes" if attributes == "1" else "mixed logit, without attributes"
            scores.append(found.with_columns(method=pl.lit(name)).select(scores[0].columns))
    truth = pl.read_parquet(place / "asked.parquet").select("deal", "user", "task", "alternative", "chosen")
    keys = ["deal", "user", "task", "alternative"]
    whole = pl.concat([one.with_columns(pl.col(*keys, "known").cast(pl.Int64)) for one in scores])
    rows = whole.join(truth.with_columns(pl.col(*keys).cast(pl.Int64)), on=keys)
    task = ["method", "known", "deal", "user", "task"]
    first = pl.col("chosen").filter(pl.col("score") == pl.col("score").max()).mean()
    right = rows.group_by(*task, maintain_order=True).agg(right=first, seconds=pl.col("seconds").first())
    own = right.group_by("method", "known", "user", maintain_order=True).agg(pl.col("right", "seconds").mean())
    return own.with_columns(fold=fold)


def write(command: Command, *, made: bool = True) -> None:
    """All folds: rivals-taxes.csv."""
    jobs = [{"fold": fold} for fold in range(FOLDS)]
    rows = judged(0, 150) if command.quick else all_kept("experiments.rivals_taxes", judged, jobs, made=made)
    if rows is None:
        return
    ours = rows.filter(method=OURS).select("known", "user", ours="right")
    gap = pl.col("right") - pl.col("ours")
    found = rows.join(ours, on=["known", "user"]).group_by("method", "known", maintain_order=True)
    table = found.agg(
        newcomers=pl.len(),
        folds=pl.col("fold").n_unique(),
        right=pl.col("right").mean(),
        right_se=pl.col("right").std() / pl.len().sqrt(),
        over_ours=gap.mean(),
        over_ours_se=gap.std() / pl.len().sqrt(),
        fit_seconds=pl.col("seconds").mean(),
    )
    command.write(table, "rivals-taxes.csv", float_precision=6)


if __name__ == "__main__":
    write(Command.read())
