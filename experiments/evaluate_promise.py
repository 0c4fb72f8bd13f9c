"""Does `nc.evaluate` keep its word? MovieLens: 70% of the people are evaluated, then the others are served.

`python -m experiments.evaluate_promise` (NEWCOMER_DATA names the folder that holds ml-1m/) writes
experiments/results/evaluate-promise.csv: for each number of interactions the gain over the population mean that was
said, its interval, where the average of the others should fall in 19 of 20 cases, and what happened to them when
PriorUCB, fitted to all of the 70%, chose among their own ratings. The 100 most rated films.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from experiments import markdown
from experiments.results_table import Command
from newcomer._fit import fit
from newcomer.arrays import Floats, Ints
from newcomer.evaluation.evaluate import evaluate
from newcomer.evaluation.off_policy import off_policy_choice_rewards
from newcomer.logs import Logs
from newcomer.paper.worlds.download import find_movielens
from newcomer.paper.worlds.ratings import read_ratings
from newcomer.policies.baselines import PopulationMean
from newcomer.policies.prior import PriorUCB
from newcomer.users import hold_out_users
from newcomer.worlds.world import world_stream

FILMS, APART, SEED = 100, 0.3, 1


def people(films: int = FILMS) -> tuple[Logs, Logs]:
    """The logs of 70% of the people, and of the others."""
    ratings = read_ratings(find_movielens(None))
    often = np.argsort(-np.bincount(ratings.movie), kind="stable")[:films]
    kept = np.isin(ratings.movie, often)
    user, film, stars = ratings.user[kept], ratings.movie[kept], ratings.rating[kept]
    known = np.unique(user)
    logged, others = hold_out_users(len(known), APART, world_stream(SEED, "evaluate"))
    return _logs(user, film, stars, known[logged]), _logs(user, film, stars, known[others])


def _logs(user: Ints, film: Ints, stars: Floats, who: Ints) -> Logs:
    own = np.isin(user, who)
    return Logs.from_arrays(user=user[own], action=film[own], reward=stars[own])


def run(films: int = FILMS) -> pl.DataFrame:
    """What was said and what happened."""
    logged, others = people(films)
    found = evaluate(logged)
    print(found)
    model = fit(logged, null=False, calibrate=False)
    policies = {"ours": PriorUCB(model), "mean": PopulationMean(model)}
    rows = []
    for step in found.headline:
        got = off_policy_choice_rewards(policies, others, steps=step.interactions, choices=found.choices)
        gain, said = got["ours"] - got["mean"], step.population_mean
        expected = said.again(len(gain))
        told = {"interactions": step.interactions, "judged": said.people, "said": said.value, "low": said.low}
        told |= {"high": said.high, "again_low": expected[0], "again_high": expected[1], "served": len(gain)}
        rows.append(told | {"happened": float(gain.mean()), "error": float(gain.std(ddof=1) / np.sqrt(len(gain)))})
    return pl.DataFrame(rows)


def with_table(page: str, results: Path) -> str:
    """The page of the evaluation with the table made anew; as it is if there is none."""
    path = results / "evaluate-promise.csv"
    if not path.is_file():
        return page
    head = ["after", "people asked", "gain said", "interval", "others", "people served", "gain that happened"]
    body = [
        [f"{row['interactions']}", f"{row['judged']}", f"{row['said']:+.3f}"]
        + [f"{row[low]:+.3f} to {row[high]:+.3f}" for low, high in (("low", "high"), ("again_low", "again_high"))]
        + [f"{row['served']}", f"{row['happened']:+.3f} ± {row['error']:.3f}"]
        for row in pl.read_csv(path).iter_rows(named=True)
    ]
    return markdown.replaced(page, "| after | people asked |", markdown.table(head, body))


if __name__ == "__main__":
    command = Command.read()
    table = run(20 if command.quick else FILMS)
    print(table)
    command.write(table, "evaluate-promise.csv", float_precision=5)
