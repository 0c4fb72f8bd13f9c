"""Recommenders as teams run them, for newcomers with few ratings: python fold_in.py FOLDER PEER.

It runs in the environment of one peer (lenskit, surprise or cornac) and needs nothing of newcomer. FOLDER holds
`logged.parquet` (user, item, rating), `known.parquet` (the same of newcomers, with `place` from 0) and `judged.parquet`
(user, item). For each number of known ratings every method of the peer scores the judged items of every newcomer;
`scores-PEER.parquet` gets method, known, user, item, score and the processor seconds that a newcomer took. All settings
are the libraries' own defaults. Where a method has nothing to say of an item its item mean stands in, as LensKit's own
pipelines do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

COUNTS = (0, 1, 2, 5, 10, 20)
Scores = dict[int, np.ndarray]  # of each newcomer's judged items
Method = tuple[str, str, Callable[[int], Scores]]  # name, how newcomers are taken in, scores by known ratings


class Handed:
    """The files of a folder, users and items as they are."""

    def __init__(self, folder: Path) -> None:
        self.logged, self.known, self.judged = (
            pl.read_parquet(folder / f"{name}.parquet") for name in ("logged", "known", "judged")
        )
        self.newcomers = self.judged["user"].unique(maintain_order=True).to_list()
        self.items = {user[0]: rows["item"].to_numpy() for user, rows in self.judged.group_by("user")}
        means = self.logged.group_by("item").agg(pl.col("rating").mean())
        self.means = dict(zip(means["item"].to_list(), means["rating"].to_list(), strict=True))

    def first(self, count: int) -> pl.DataFrame:
        """What is known of newcomers after so many ratings."""
        return self.known.filter(pl.col("place") < count)

    def together(self, count: int) -> pl.DataFrame:
        """The logs with what is known of newcomers."""
        return pl.concat([self.logged, self.first(count).select(self.logged.columns)])

    def filled(self, user: int, scores: np.ndarray) -> np.ndarray:
        """Scores with item means where there are none."""
        means = np.array([self.means.get(int(item), 0.0) for item in self.items[user]])
        return np.where(np.isfinite(scores), scores, means)


def lenskit(handed: Handed) -> Iterator[Method]:
    """LensKit folds a history in; `implicit` is in the same environment."""
    from lenskit.als import BiasedMFScorer
    from lenskit.basic import BiasScorer
    from lenskit.data import ItemList, RecQuery, from_interactions_df
    from lenskit.knn import ItemKNNScorer

    data = from_interactions_df(handed.logged.to_pandas(), user_col="user", item_col="item", rating_col="rating")
    made = {
        "item mean": BiasScorer(entities={"item"}),
        "LensKit explicit ALS": BiasedMFScorer(),
        "LensKit item-kNN": ItemKNNScorer(),
    }
    for name, scorer in made.items():
        scorer.train(data)

        def fold(count: int, scorer: Any = scorer) -> Scores:
            rows = {user[0]: own for user, own in handed.first(count).group_by("user")}
            found = {}
            for user in handed.newcomers:
                own = rows.get(user)
                items = [] if own is None else own["item"].to_list()
                history = ItemList(item_ids=items, rating=[] if own is None else own["rating"].to_list())
                asked = ItemList(item_ids=handed.items[user])
                said = scorer(RecQuery(user_items=history), asked).scores()
                found[user] = handed.filled(user, np.asarray(said, dtype=np.float64))
            return found

        yield name, "folded in", fold
    yield from implicit(handed)


def implicit(handed: Handed) -> Iterator[Method]:
    """Its ALS ranks by how likely an item is to be met: ratings are confidences, or ones above the item mean."""
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    names = sorted({*handed.logged["item"].to_list(), *handed.judged["item"].to_list()})
    column = {item: place for place, item in enumerate(names)}
    means = np.array([handed.means.get(item, 0.0) for item in names])

    def matrix(rows: pl.DataFrame, users: dict[int, int], above: bool) -> Any:
        place = np.array([column[item] for item in rows["item"].to_list()], dtype=np.int64)
        rating = rows["rating"].to_numpy().astype(np.float32)
        kept = rating > means[place] if above else np.ones(len(rating), dtype=bool)
        row = np.array([users[user] for user in rows["user"].to_list()], dtype=np.int64)
        values = np.ones(kept.sum(), dtype=np.float32) if above else rating[kept]
        return csr_matrix((values, (row[kept], place[kept])), shape=(len(users), len(names)))

    logged = {user: row for row, user in enumerate(handed.logged["user"].unique().to_list())}
    newcomers = {user: row for row, user in enumerate(handed.newcomers)}
    for name, above in (("implicit ALS, confidences", False), ("implicit ALS, above the mean", True)):
        model = AlternatingLeastSquares(num_threads=1, random_state=0)
        model.fit(matrix(handed.logged, logged, above), show_progress=False)

        def fold(count: int, model: Any = model, above: bool = above) -> Scores:
            given = matrix(handed.first(count), newcomers, above)
            factors = np.asarray(model.recalculate_user(np.arange(len(newcomers)), given))
            places = {user: [column[item] for item in handed.items[user].tolist()] for user in newcomers}
            return {user: factors[row] @ model.item_factors[places[user]].T for user, row in newcomers.items()}

        yield name, "folded in", fold


def surprise(handed: Handed) -> Iterator[Method]:
    """surprise cannot fold in: it is fitted again with what is known of newcomers."""
    from surprise import SVD, Dataset, KNNBaseline, Reader

    low, high = float(handed.logged["rating"].min()), float(handed.logged["rating"].max())
    makers = {
        "surprise SVD": lambda: SVD(random_state=0),
        "surprise item-kNN": lambda: KNNBaseline(sim_options={"user_based": False}, verbose=False),
    }
    for name, make in makers.items():

        def refit(count: int, make: Any = make) -> Scores:
            frame = handed.together(count).select("user", "item", "rating").to_pandas()
            model = make()
            model.fit(Dataset.load_from_df(frame, Reader(rating_scale=(low, high))).build_full_trainset())
            return {
                user: np.array([model.predict(user, item, clip=False).est for item in handed.items[user].tolist()])
                for user in handed.newcomers
            }

        yield name, "fitted again", refit


def cornac(handed: Handed) -> Iterator[Method]:
    """cornac's MF and EASE cannot fold in either; users whom they do not know get item means."""
    from cornac.data import Dataset
    from cornac.models import EASE, MF

    makers = {"cornac MF": lambda: MF(seed=0), "cornac EASE": lambda: EASE(seed=0, verbose=False)}
    for name, make in makers.items():

        def refit(count: int, make: Any = make) -> Scores:
            rows = handed.together(count).select("user", "item", "rating").rows()
            data = Dataset.from_uir(rows, seed=0)
            model = make().fit(data)
            found = {}
            for user in handed.newcomers:
                if user not in data.uid_map:
                    found[user] = handed.filled(user, np.full(len(handed.items[user]), np.nan))
                    continue
                every = np.asarray(model.score(data.uid_map[user])).ravel()
                places = [data.iid_map.get(item, -1) for item in handed.items[user].tolist()]
                found[user] = handed.filled(user, np.array([every[one] if one >= 0 else np.nan for one in places]))
            return found

        yield name, "fitted again", refit


PEERS = {"lenskit": lenskit, "surprise": surprise, "cornac": cornac}


def main(folder: Path, peer: str) -> None:
    """Score everybody with every method of a peer."""
    handed, found = Handed(folder), []
    for name, taken, method in PEERS[peer](handed):
        for count in COUNTS:
            began = time.process_time()
            scores = method(count)
            spent = (time.process_time() - began) / (len(scores) if taken == "folded in" else 1)
            for user, values in scores.items():
                rows = {"item": handed.items[user], "score": np.asarray(values, dtype=np.float64)}
                told = {"user": pl.lit(user), "known": count, "seconds": spent, "method": pl.lit(name)}
                found.append(pl.DataFrame(rows).with_columns(**told, taken=pl.lit(taken)))
        print(name, flush=True)
    pl.concat(found).write_parquet(folder / f"scores-{peer}.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
