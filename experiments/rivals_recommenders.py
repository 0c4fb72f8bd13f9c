"""Recommenders as teams run them beside the expected rewards of our model, newcomers with 0 to 20 ratings.

Data are handed to each peer's environment as Parquet (benchmarks/peers/fold_in.py), scores come back; see
rivals-plan.md.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import newcomer as nc
from experiments.attributes import folder as data_folder
from experiments.results_table import Command
from experiments.rivals_jobs import ROOT, all_kept, work
from newcomer.arrays import Floats, Ints
from newcomer.evaluation.recommenders import recommenders
from newcomer.worlds.people import People

COUNTS, KNOWN, JUDGED, TEN = (0, 1, 2, 5, 10, 20), 20, 40, 10
FILMS, LOGGED, NEWCOMERS, PEOPLE, ANSWERS = 1000, 3000, 400, 200, 60
TABLES = ("movielens 101", "young 101", "young 102", "young 103")
PEERS = ("lenskit", "surprise", "cornac")
OURS, MEAN = "newcomer", "item mean"
INPUTS = ("logged", "known", "judged", "asked")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LK_NUM_THREADS", "RAYON_NUM_THREADS")


def environment(peer: str) -> Path:
    """The Python of a peer's environment."""
    return Path(os.environ.get("NEWCOMER_PEERS", ROOT / "benchmarks" / "peers" / ".rivals")) / peer / "bin" / "python"


def run_peer(peer: str, script: str, place: Path, argument: str, output: str) -> pl.DataFrame | None:
    """What a script of benchmarks/peers makes of the files of a folder in a peer's environment; None without one.

    What was made before of the same files by the same script is read again: our own code does not change it.
    """
    path, stamp = ROOT / "benchmarks" / "peers" / script, place / f"{output}.stamp"
    inputs = [one for one in sorted(place.glob("*.parquet")) if one.stem in INPUTS]
    digest = hashlib.sha256(b"".join(one.read_bytes() for one in (path, *inputs))).hexdigest()
    if not stamp.is_file() or stamp.read_text() != digest:
        if not environment(peer).exists():
            print(f"left out: {peer}, which has no environment at {environment(peer)}", flush=True)
            return None
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(environment(peer)), str(path), str(place), argument]
        subprocess.run(command, check=True, env=own | dict.fromkeys(THREADS, "1"))
        stamp.write_text(digest)
    return pl.read_parquet(place / f"{output}.parquet")


def movielens(seed: int, newcomers: int = NEWCOMERS) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Ratings of logged people and of newcomers, of the films with most ratings."""
    text = (data_folder() / "ml-1m" / "ratings.dat").read_text(encoding="latin-1").splitlines()
    rows = pl.DataFrame([line.split("::")[:3] for line in text], schema=["user", "item", "rating"], orient="row")
    rows = rows.select(pl.col("user", "item").cast(pl.Int64), pl.col("rating").cast(pl.Float64))
    often = rows.group_by("item").len().sort("len", "item", descending=[True, False])["item"].head(FILMS)
    rows = rows.filter(pl.col("item").is_in(often.to_list())).sort("user", "item")
    rng = np.random.default_rng(seed)
    counts = rows.group_by("user").len().sort("user")
    able = rng.permutation(counts.filter(pl.col("len") >= KNOWN + JUDGED)["user"].to_numpy())[:newcomers]
    others = counts.filter(~pl.col("user").is_in(able.tolist()))["user"].to_numpy()
    logged = rng.permutation(others)[:LOGGED]
    return rows.filter(pl.col("user").is_in(logged.tolist())), rows.filter(pl.col("user").is_in(able.tolist()))


def young(seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Answers of logged people, some of each, and all answers of newcomers."""
    world, rng = People.young(seed=seed), np.random.default_rng(seed)
    drawn = [(int(one), rng.permutation(world.dim)[:ANSWERS]) for one in world.logged]
    new = [(int(one), np.arange(world.dim)) for one in world.newcomers[:PEOPLE]]

    def frame(people: list[tuple[int, Ints]]) -> pl.DataFrame:
        user, item = np.repeat([one for one, _ in people], [len(own) for _, own in people]), [own for _, own in people]
        places = np.concatenate(item)
        return pl.DataFrame({"user": user, "item": places, "rating": world.table[user, places]})

    return frame(drawn), frame(new)


def hand_over(table: str, most: int | None = None) -> Path:
    """The folder of a table, with the three files that peers read; of `most` newcomers, if that is given."""
    name, seed = table.split()
    place = work() / f"{table.replace(' ', '-')}{'' if most is None else '-quick'}"
    logged, new = movielens(int(seed)) if name == "movielens" else young(int(seed))
    new = new if most is None else new.filter(pl.col("user").is_in(new["user"].unique().sort().head(most).to_list()))
    order = pl.Series(np.random.default_rng(int(seed)).random(len(new)))
    new = new.with_columns(place=order)
    new = new.sort("user", "place").with_columns(place=pl.int_range(pl.len()).over("user"))
    place.mkdir(exist_ok=True)
    logged.write_parquet(place / "logged.parquet")
    new.filter(pl.col("place") < KNOWN).write_parquet(place / "known.parquet")
    judged = new.filter(pl.col("place").is_between(KNOWN, KNOWN + JUDGED - 1))
    judged.with_columns(ten=(pl.col("place") - KNOWN) // TEN).write_parquet(place / "judged.parquet")
    return place


def our_scores(place: Path) -> pl.DataFrame:
    """Expected rewards of our model, and our own ALS and EASE, in the form of the peers' scores."""
    logged, known, judged = (pl.read_parquet(place / f"{one}.parquet") for one in ("logged", "known", "judged"))
    logs = nc.Logs.from_arrays(user=logged["user"], action=logged["item"], reward=logged["rating"])
    model = nc.fit(logs, null=False, calibrate=False)
    made: dict[str, Any] = {OURS: nc.PriorTS(model)}
    made |= {f"our {name}": one for name, one in recommenders(logs, model).items() if "own" not in name}
    users = judged["user"].unique(maintain_order=True).to_numpy()
    asked = judged["item"].to_numpy().reshape(len(users), JUDGED)
    items, ratings = (known[name].to_numpy().reshape(len(users), KNOWN) for name in ("item", "rating"))
    found = []
    for name, policy in made.items():
        state, spent = policy.start(len(users)), 0.0
        for count in range(KNOWN + 1):
            if count in COUNTS:
                began = time.process_time()
                scores = policy.scores(state, ids=asked, rng=None)
                seconds = (spent + time.process_time() - began) / len(users)
                cells = {"user": np.repeat(users, JUDGED), "item": asked.ravel(), "score": scores.ravel()}
                found.append(pl.DataFrame(cells).with_columns(known=count, seconds=seconds, method=pl.lit(name)))
            if count < KNOWN:
                began = time.process_time()
                policy.update(state, ids=items[:, count], reward=ratings[:, count])
                spent += time.process_time() - began
    return pl.concat(found).with_columns(taken=pl.lit("folded in"))


def measured(table: str, most: int | None = None) -> pl.DataFrame:
    """Order, NDCG@10 and choice of every newcomer with every method: `table`, `method`, `known`, `user`.

    A quick run has `most` newcomers and our methods alone.
    """
    place = hand_over(table, most)
    scores = [our_scores(place)]
    for peer in PEERS if most is None else ():
        found = run_peer(peer, "fold_in.py", place, peer, f"scores-{peer}")
        scores += [] if found is None else [found.select(scores[0].columns)]
    judged = pl.read_parquet(place / "judged.parquet")
    whole = pl.concat([one.with_columns(pl.col("user", "item", "known").cast(pl.Int64)) for one in scores])
    rows = whole.join(judged, on=["user", "item"], maintain_order="left")
    numbers = []
    by = ["method", "taken", "known", "user"]
    for key, own in rows.group_by(*by, maintain_order=True):
        said, rating, ten = (own[name].to_numpy() for name in ("score", "rating", "ten"))
        quality = {"order": order(said, rating), "ndcg": ndcg(said, rating), "choice": choice(said, rating, ten)}
        numbers.append(dict(zip(by, key, strict=True)) | quality | {"seconds": own["seconds"][0]})
    return pl.DataFrame(numbers).with_columns(table=pl.lit(table))


def order(said: Floats, rating: Floats) -> float:
    """The share of pairs with different ratings that are ranked rightly.

    >>> order(np.array([3.0, 2.0, 2.0]), np.array([5.0, 4.0, 1.0]))
    0.8333333333333334
    """
    first, second = np.triu_indices(len(said), 1)
    apart = np.sign(rating[first] - rating[second])
    right = (1.0 + np.sign(said[first] - said[second]) * apart) / 2.0
    return float(right[apart != 0].mean()) if apart.any() else 0.5


def ndcg(said: Floats, rating: Floats, top: int = 10) -> float:
    """NDCG of the first ten, gains linear in the rating; ties of scores by place."""
    weights = 1.0 / np.log2(2.0 + np.arange(top))
    gained = rating[np.argsort(-said, kind="stable")[:top]] @ weights
    return float(gained / (np.sort(rating)[::-1][:top] @ weights))


def choice(said: Floats, rating: Floats, ten: Ints) -> float:
    """The mean rating of the first-ranked of each ten."""
    return float(np.mean([rating[ten == one][np.argmax(said[ten == one])] for one in np.unique(ten)]))


def write(command: Command, *, made: bool = True) -> None:
    """All tables: rivals-recommenders.csv."""
    if command.quick:
        command.write(compared(measured(TABLES[1], 10)), "rivals-recommenders.csv")
        return
    jobs = [{"table": table} for table in TABLES]
    rows = all_kept("experiments.rivals_recommenders", measured, jobs, made=made)
    if rows is not None:
        command.write(compared(rows), "rivals-recommenders.csv", float_precision=6)


def compared(rows: pl.DataFrame) -> pl.DataFrame:
    """Means over newcomers, and paired differences to ours and to the item mean with their standard errors."""
    rows = rows.with_columns(people=pl.col("table").str.split(" ").list.first())
    pairs = rows
    for name, method in (("ours", OURS), ("mean", MEAN)):
        base = rows.filter(method=method).select(
            "table", "known", "user", *(pl.col(one).alias(f"{one}_{name}") for one in ("order", "ndcg", "choice"))
        )
        pairs = pairs.join(base, on=["table", "known", "user"], how="left", maintain_order="left")
    numbers: dict[str, pl.Expr] = {"newcomers": pl.len(), "seconds": pl.col("seconds").mean()}
    for one in ("order", "ndcg", "choice"):
        numbers[one] = pl.col(one).mean()
        for name in ("ours", "mean"):
            gap = pl.col(one) - pl.col(f"{one}_{name}")
            numbers[f"{one}_over_{name}"] = gap.mean()
            numbers[f"{one}_over_{name}_se"] = gap.std() / gap.count().sqrt()
    return pairs.group_by("people", "method", "taken", "known", maintain_order=True).agg(**numbers)


if __name__ == "__main__":
    write(Command.read())
