"""Replay of real ratings: no simulator, no noise of our making, no linear model behind the rewards.

A newcomer is a user kept out of everything that was learned. Each round offers movies which that user really rated,
and the reward is the rating the user really gave. Regret of a round is the best rating on offer less the chosen one's.

What keeps it honest:

* Movie features come from a factorisation of the *other* users' ratings alone, and so do the logs.
* No movie is offered twice to a newcomer: the user's movies are shuffled and dealt out in disjoint sets. Otherwise a
  policy could profit from remembering movies instead of learning a taste. So T rounds of K candidates need a user with
  T K ratings; users with fewer cannot be newcomers for that horizon (`eligible` counts those who can).
* A rating does not depend on what was shown before, so every policy gets exactly what its choice would have paid.

What it cannot tell: how a user would rate a movie they never chose to see. People rate what they expected to like, so
all candidates are better than a random movie, and differences between policies are smaller than on a whole catalogue.
Nor were the logs made by uniform behaviour: each history is what a person chose to watch, in the order of rating, and
SOLD's assumption that behaviour does not depend on taste fails to an extent that nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.errors import NewcomerError
from newcomer.paper.worlds.download import find_movielens
from newcomer.paper.worlds.factorise import Factors, Kind, factorise
from newcomer.paper.worlds.ratings import Ratings, read_ratings
from newcomer.users import hold_out_users
from newcomer.worlds.world import Episode, world_stream

if TYPE_CHECKING:
    from newcomer.logs import Logs


@dataclass(frozen=True, eq=False)
class Replay:
    """Held-out users' real ratings as a world.

    Parameters
    ----------
    train : ratings of the users who are in the logs.
    test : ratings of the users who are newcomers, of the same movies.
    factors : factorisation of `train`; only its movie features are used.
    choices : movies a round.
    """

    train: Ratings
    test: Ratings
    factors: Factors
    choices: int = 10

    def __post_init__(self) -> None:
        same = np.array_equal(self.train.movies, self.test.movies) and len(self.factors.movies) == len(self.test.movies)
        _require(same, "train, test and factors", "use the same movies for all three")
        _require(not len(np.intersect1d(self.train.users, self.test.users)), "train and test", "keep the users apart")
        _require(self.choices >= 1, f"choices={self.choices}", "at least one movie a round")

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        kind: Kind = "literal",
        dim: int = 40,
        rank: int = 18,
        least: int = 200,
        held_out: float = 0.3,
        choices: int = 10,
        seed: int = 0,
        cache: str | Path | None = None,
    ) -> Replay:
        """The replay of the files at `path` (or NEWCOMER_DATA, or the cache), with a share of users `held_out`.

        Nothing here asks for the paper's 200 dimensions: 40 predict held-out ratings as well (RMSE 0.831, not 0.830),
        and are kinder to policies that learn from the newcomer alone.
        """
        ratings = read_ratings(find_movielens(path, cache=cache)).filtered(least)
        train, test = split_users(ratings, held_out, seed=seed)
        return cls(train, test, factorise(train, kind=kind, dim=dim, rank=rank, seed=seed, cache=cache), choices)

    @property
    def dim(self) -> int:
        """Feature dimension d."""
        return self.factors.dim

    @property
    def catalogue(self) -> Floats:
        """Features (m, d) of the movies."""
        return self.factors.movies

    def eligible(self, horizon: int) -> Ints:
        """Positions in `test` of the users with enough ratings for `horizon` rounds."""
        counts = np.bincount(self.test.user, minlength=len(self.test.users))
        return np.flatnonzero(counts >= horizon * self.choices)

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One held-out user for `horizon` rounds of movies rated by that user; means are the ratings themselves."""
        _require(horizon >= 1, f"horizon={horizon}", "at least one round")
        users = self.eligible(horizon)
        most = int(np.bincount(self.test.user).max()) // self.choices
        _require(len(users) > 0, f"horizon={horizon}, choices={self.choices}", f"at most {most} rounds can be replayed")
        movies, ratings = self._rated[rng.choice(users)]
        dealt = rng.permutation(len(movies))[: horizon * self.choices].reshape(horizon, self.choices)
        return Episode(self.catalogue[movies[dealt]], ratings[dealt], ratings[dealt], ids=movies[dealt])

    def logs(self, users: int | None = None, steps: int | None = None, seed: int = 0) -> Logs:
        """Real histories of training users, in the order of rating; user ids are those of the data.

        By default everybody with everything. `users` takes that many, without replacement; `steps` keeps that many of
        each user's ratings, drawn uniformly (fewer if there are fewer).
        """
        from newcomer.logs import Logs

        kept = self._sample(users, steps, seed)
        order = kept[np.lexsort((kept, self.train.time[kept], self.train.user[kept]))]
        return Logs.from_arrays(
            user=self.train.users[self.train.user[order]],
            action=self.train.movie[order],
            items=self.catalogue,
            reward=self.train.rating[order],
        )

    def _sample(self, users: int | None, steps: int | None, seed: int) -> Ints:
        """Rows of `train` to keep: each user's are ordered by lot and the first `steps` taken, of the first users."""
        everyone = world_stream(seed, "replay users").permutation(len(self.train.users))
        wanted = len(everyone) if users is None else users
        _require(1 <= wanted <= len(everyone), f"users={users}", f"there are {len(everyone)} training users")
        _require(steps is None or steps >= 1, f"steps={steps}", "at least one")
        lottery = world_stream(seed, "replay steps").random(len(self.train.user))
        ticket = np.lexsort((lottery, self.train.user))
        counts = np.bincount(self.train.user, minlength=len(everyone))
        place = np.arange(len(ticket)) - np.repeat(np.cumsum(counts) - counts, counts)
        early = ticket if steps is None else ticket[place < steps]
        return np.asarray(early[np.isin(self.train.user[early], everyone[:wanted])])

    @cached_property
    def _rated(self) -> list[tuple[Ints, Floats]]:
        """For each test user the movies rated and the ratings."""
        order = np.argsort(self.test.user, kind="stable")
        cuts = np.searchsorted(self.test.user[order], np.arange(1, len(self.test.users)))
        return list(zip(np.split(self.test.movie[order], cuts), np.split(self.test.rating[order], cuts), strict=True))


def split_users(ratings: Ratings, held_out: float, *, seed: int) -> tuple[Ratings, Ratings]:
    """Ratings of the training users, and of a share `held_out` of users who are kept apart."""
    _require(0 < held_out < 1, f"held_out={held_out}", "choose a share between 0 and 1")
    train, test = hold_out_users(len(ratings.users), held_out, world_stream(seed, "replay split"))
    _require(min(len(train), len(test)) > 0, f"held_out={held_out}", "leave users on both sides")
    return ratings.of_users(train), ratings.of_users(test)


def _require(holds: bool, where: str, todo: str) -> None:
    if not holds:
        raise NewcomerError("these ratings cannot be replayed so", where=where, todo=todo)
