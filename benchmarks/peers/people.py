"""What recommender teams run today, on real people: python -m benchmarks.peers.people.

Young People (NEWCOMER_DATA), as in the study `people`: 70% of the people are logged with 20 or 60 answers, the others
are newcomers, 40 rounds of ten questions that may come again, or 13 rounds in which each comes once; ten splits of a
hundred newcomers; and the replay of MovieLens, each film once, with a hundred newcomers. Beside PriorUCB and both
honest baselines plays `implicit`'s AlternatingLeastSquares (18 factors, 15 iterations, its other settings as they
come), folded in for a newcomer by `recalculate_user`, in the two ways in which teams feed it ratings: answers as
confidences, and answers above the question's mean as positives. It ranks by its own score, as its documentation does.
"""

from __future__ import annotations

import csv
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix

import newcomer as nc
from newcomer.evaluation.recommenders import Fold, FoldIn, recommender_table
from newcomer.paper.named_worlds import real_ratings
from newcomer.paper.scale import Setting
from newcomer.paper.studies.comparison import regrets
from newcomer.paper.studies.people import ANSWERS, CASES, FILMS, ROUNDS, SPLITS
from newcomer.paper.worlds.download import cache_folder, find_movielens
from newcomer.worlds.people import People

ROOT = Path(__file__).resolve().parent.parent.parent
FACTORS, ITERATIONS, NEWCOMERS = 18, 15, 100


def folded(answers: np.ndarray, met: np.ndarray, *, above: np.ndarray | None) -> Fold:
    """ALS of `implicit`, fitted to logged answers (n, A); confidences are answers, or one for answers above a mean."""

    def confidences(given: np.ndarray, where: np.ndarray) -> csr_matrix:
        kept = where if above is None else where & (given > above)
        return csr_matrix(np.where(kept, given if above is None else 1.0, 0.0).astype(np.float32))

    model = AlternatingLeastSquares(factors=FACTORS, iterations=ITERATIONS, num_threads=1, random_state=0)
    model.fit(confidences(answers, met), show_progress=False)

    def fold(given: np.ndarray, where: np.ndarray) -> np.ndarray:
        users = model.recalculate_user(np.arange(len(given)), confidences(given, where))
        return np.asarray(users @ model.item_factors.T, dtype=np.float64)

    return fold


def players(logs: nc.Logs) -> dict[str, object]:
    """Everybody who plays, from the same logs."""
    model = nc.fit(logs, null=False, calibrate=False)
    given, met = recommender_table(logs)
    means = given.sum(axis=0) / np.maximum(met.sum(axis=0), 1)
    nothing = np.zeros(len(means))
    return {
        "PriorUCB": nc.PriorUCB(model),
        "EmpiricalArms": nc.EmpiricalArms(model),
        "PopulationMean": nc.PopulationMean(model),
        "implicit ALS, answers as confidences": FoldIn(model, nothing, folded(given, met, above=None)),
        "implicit ALS, answers above the mean": FoldIn(model, nothing, folded(given, met, above=means)),
    }


def main() -> None:
    """Play every split and write regrets with standard errors over splits."""
    warnings.simplefilter("ignore")
    found: dict[tuple[str, int, str], list[float]] = {}
    for seed in range(1, SPLITS + 1):
        world = People.young(seed=seed)
        for answers in ANSWERS:
            policies = players(world.logs(steps=answers, seed=seed))
            for case, settings in CASES.items():
                place = replace(world, **settings)
                horizon = ROUNDS if place.repeat else place.dim // place.choices
                rows = regrets(policies, place, horizon=horizon, users=NEWCOMERS, seed=seed)
                for (name,), own in rows.group_by("policy", maintain_order=True):
                    found.setdefault((case, answers, str(name)), []).append(float(own["regret"].mean()))
    films, cache = find_movielens(None), cache_folder()
    place = real_ratings(Setting("full", str(films), str(cache)))
    rows = regrets(players(place.logs()), place, horizon=ROUNDS, users=NEWCOMERS, seed=0)
    for (name,), own in rows.group_by("policy", maintain_order=True):
        found[FILMS, 0, str(name)] = own["regret"].to_list()
    path = ROOT / "docs" / "benchmarks" / "people.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["case", "answers", "policy", "units", "regret", "regret_se", "PriorUCB / it"])
        for (case, answers, name), values in found.items():
            ours = np.mean(found[case, answers, "PriorUCB"])
            error = np.std(values, ddof=1) / np.sqrt(len(values))
            numbers = (f"{value:.3f}" for value in (np.mean(values), error, ours / np.mean(values)))
            writer.writerow([case, answers, name, len(values), *numbers])
    print(path.read_text())


if __name__ == "__main__":
    main()
