"""A round by ids: PriorUCB beside `implicit`'s fold-in and bayesianbandits, for one newcomer of a catalogue of films.

20 candidates of the catalogue of benchmarks/decide_ids.py a round, choose + update, rewards of 1 to 5. All three know
the films by 16 numbers each. `implicit` (`recalculate_user` of its exact alternating least squares) keeps no running
sums and no uncertainty: it solves for the user's factors from all ratings so far, each round. bayesianbandits has a
shared learner on the loadings of the candidates, and its Thompson sampling.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any, Protocol

import numpy as np
from benchmarks import decide_ids
from benchmarks.peers.players import BayesianBandits

import newcomer as nc

ROUNDS, REPEATS = 200, 5
OURS = "newcomer PriorUCB, by ids"


class FilmPlayer(Protocol):
    """A recommender for one user."""

    def choose(self, offered: list[Any]) -> int:
        """The index of the film to show among ids."""

    def update(self, film: Any, reward: float) -> None:
        """Learn from the reward of the film just chosen."""


class Prior:
    """newcomer: choose and update of PriorUCB by ids, with all their checks."""

    def __init__(self, model: nc.Model) -> None:
        self.policy = nc.PriorUCB(model)
        self.state = self.policy.start(1)

    def choose(self, offered: list[Any]) -> int:
        return int(self.policy.choose(self.state, ids=offered)[0])

    def update(self, film: Any, reward: float) -> None:
        self.policy.update(self.state, ids=[film], reward=[reward])


class FoldIn:
    """implicit: the user's factors from all ratings so far, then a product with the candidates' factors."""

    def __init__(self, model: nc.Model) -> None:
        from implicit.als import AlternatingLeastSquares

        self.als = AlternatingLeastSquares(factors=16, num_threads=1, use_cg=False, use_gpu=False)
        self.als.item_factors = np.ascontiguousarray(model.catalogue.loadings, dtype=np.float32)
        self.als.user_factors = np.zeros((1, 16), dtype=np.float32)
        self.places = {one: place for place, one in enumerate(model.action_ids)}
        self.seen: dict[int, float] = {}

    def choose(self, offered: list[Any]) -> int:
        from scipy.sparse import csr_matrix

        films, stars = list(self.seen), np.array(list(self.seen.values()), dtype=np.float32)
        row = csr_matrix((stars, films, [0, len(films)]), shape=(1, len(self.places)))
        user = self.als.recalculate_user(0, row)
        places = [self.places[one] for one in offered]
        return int(np.argmax(self.als.item_factors[places] @ np.ravel(user)))

    def update(self, film: Any, reward: float) -> None:
        self.seen[self.places[film]] = reward


class SharedLearner:
    """bayesianbandits: its agent with one learner, on the loadings of the candidates."""

    def __init__(self, model: nc.Model) -> None:
        self.table, self.means = model.catalogue.loadings, model.catalogue.population_mean
        self.places = {one: place for place, one in enumerate(model.action_ids)}
        self.agent = BayesianBandits(self.table.shape[1], 20)

    def choose(self, offered: list[Any]) -> int:
        return self.agent.choose(np.ascontiguousarray(self.table[[self.places[one] for one in offered]]))

    def update(self, film: Any, reward: float) -> None:
        place = self.places[film]
        self.agent.update(self.table[place], reward - float(self.means[place]))


PLAYERS = {OURS: Prior, "implicit, fold-in": FoldIn, "bayesianbandits TS, loadings": SharedLearner}


def play(player: FilmPlayer, offers: list[list[Any]], rewards: list[float]) -> float:
    """Microseconds of processor time a round."""
    begun = time.process_time()
    for offered, reward in zip(offers, rewards, strict=True):
        player.update(offered[player.choose(offered)], reward)
    return 1e6 * (time.process_time() - begun) / len(offers)


def measure() -> tuple[str, list[dict[str, object]]]:
    """What the films are, and one row a player: the median of its turns, and its ratio to ours."""
    model, name = decide_ids.film_model()
    offers = decide_ids.offers(model, ROUNDS)
    rewards = np.random.default_rng(2).integers(1, 6, ROUNDS).astype(float).tolist()
    turns: dict[str, list[float]] = {}
    for repeat in range(REPEATS + 1):  # the first turn is not counted
        for player, make in PLAYERS.items():
            try:
                took = play(make(model), offers, rewards)
            except Exception as problem:  # noqa: BLE001 whatever a peer raises: it is left out, and that is said
                print(f"left out: {player} ({type(problem).__name__}: {problem})", file=sys.stderr)
                continue
            turns.setdefault(player, []).extend([took] if repeat else [])
    medians = {player: statistics.median(times) for player, times in turns.items() if times}
    return name, [
        {"player": player, "microseconds": round(took, 1), "ratio": round(took / medians[OURS], 2)}
        for player, took in medians.items()
    ]


def section() -> str:
    """The section of docs/benchmarks/peers.md."""
    name, rows = measure()
    lines = ["| library | a round, µs (median) | times ours |", "|---|---:|---:|"]
    lines += [f"| {r['player']} | {r['microseconds']} | {r['ratio']} |" for r in rows]
    said = (
        f"{name}, {ROUNDS} rounds of choose + update for one newcomer, 20 candidates by ids, medians of"
        f" {REPEATS} turns in one run."
        " `implicit` keeps no running sums and no uncertainty, and solves for the user from all ratings each round;"
        " bayesianbandits has a shared learner on the 16 loadings."
    )
    return "\n".join(["## By ids, with what users share", "", said, "", *lines])


if __name__ == "__main__":
    print(section())
