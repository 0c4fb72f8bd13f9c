"""Why is newcomer's order of films below the item mean's where nothing is known of a person? MovieLens-1M.

`python -m experiments.film_means` (NEWCOMER_DATA names the folder that holds ml-1m/) writes film-means.csv. The 1,000
most rated films, 3,000 people logged and fitted, up to 2,000 others judged by 40 of their own ratings, three splits:
the share of pairs of films that are ordered as the person rates them. The orders are those of

* the raw mean of each film,
* the population mean of the fit, which corrects for who rated the film,
* the mean of the fit among those who rated it: the population mean and what these people's preferences add to it.

If people rate what they expect to like, the third is the raw mean again, and all of the difference is who rated.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

import newcomer as nc
from experiments.results_table import Command
from experiments.rivals_recommenders import JUDGED, movielens
from newcomer.arrays import Floats
from newcomer.interval import Interval

BEGIN = "Our reading,"  # how the sentence on the page begins
SPLITS = 3


def orders(logged: pl.DataFrame) -> tuple[dict[int, int], dict[str, Floats]]:
    """The place of each film, and the three orders (films,) from what people logged."""
    logs = nc.Logs.from_arrays(user=logged["user"], action=logged["item"], reward=logged["rating"])
    model = nc.fit(logs, null=False, calibrate=False)
    place = {int(film): i for i, film in enumerate(model.action_ids)}
    found = model.transform(logs)
    film = logged["item"].replace_strict(place).to_numpy()
    who = np.searchsorted(found.users, logged["user"].to_numpy())
    met = np.bincount(film, minlength=len(place))
    shift = np.zeros((len(place), found.mean.shape[1]))
    np.add.at(shift, film, found.mean[who])
    raw = np.bincount(film, logged["rating"].to_numpy(), len(place)) / met
    among = model.mean + (model.factor * (shift / met[:, None])).sum(axis=1)
    return place, {"raw mean": raw, "population mean": model.mean, "mean among its raters": among}


def agreement(scores: Floats, ratings: Floats) -> float:
    """The share of pairs with different ratings that the scores order as the ratings do; ties count half."""
    first, second = np.triu_indices(len(ratings), 1)
    rated = np.sign(ratings[first] - ratings[second])
    scored = np.sign(scores[first] - scores[second])
    return float(0.5 + 0.5 * (rated * scored)[rated != 0].mean()) if rated.any() else float("nan")


def run(splits: int, people: int) -> pl.DataFrame:
    """Agreement of each order, and its paired difference to the raw mean's."""
    rows = []
    for split in range(splits):
        logged, others = movielens(split, people)
        place, scores = orders(logged)
        others = others.filter(pl.col("item").is_in(list(place)))
        rng = np.random.default_rng(split)
        found: dict[str, list[float]] = {name: [] for name in scores}
        for (_user,), own in others.sort("user", "item").group_by("user", maintain_order=True):
            judged = own[rng.permutation(len(own))[:JUDGED].tolist()]
            films = judged["item"].replace_strict(place).to_numpy()
            for name, order in scores.items():
                found[name].append(agreement(order[films], judged["rating"].to_numpy()))
        raw = np.array(found["raw mean"])
        for name, values in found.items():
            gain = Interval.of(np.array(values) - raw)
            rows.append({"split": split, "order by": name, "people": len(raw), "agreement": float(np.nanmean(values))})
            rows[-1] |= {"over raw": gain.value, "low": gain.low, "high": gain.high}
    return pl.DataFrame(rows)


def with_sentence(page: str, results: Path) -> str:
    """The page with the sentence that says what this table shows; as it is if there is none."""
    path = results / "film-means.csv"
    if not path.is_file():
        return page
    found = pl.read_csv(path)
    mean, among = (found.filter(pl.col("order by") == name) for name in ("population mean", "mean among its raters"))
    text = (
        f"{BEGIN} tested in {len(mean)} other splits (`python -m experiments.film_means`): people rate films that they "
    )
    text += "expect to like, and a film's raw mean holds that. The population mean of a fit corrects for who rated it, "
    text += (
        f"and orders by {-mean['over raw'].max():.4f} to {-mean['over raw'].min():.4f} less well; once the fit adds "
    )
    text += "what the raters of a film prefer, it orders as the raw mean does (difference at most "
    text += f"{among['over raw'].abs().max():.5f})."
    first = page.index(BEGIN)
    return page[:first] + text + page[page.index("\n", first) :]


if __name__ == "__main__":
    command = Command.read()
    table = run(1 if command.quick else SPLITS, 200 if command.quick else 2000)
    print(table)
    command.write(table, "film-means.csv", float_precision=5)
