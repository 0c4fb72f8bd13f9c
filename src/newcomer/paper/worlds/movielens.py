"""The MovieLens world of the paper: users and movies of a factorisation, rewards beta_i . phi_j + N(0, 1/2).

A newcomer is a user. Each round offers 20 movies of different genres; there are only 18 genres, so "different" means
distinct genre strings ("Action|Sci-Fi"): a round draws 20 of them and one movie of each, both uniformly. 1/2 is the
*variance* of the noise. The paper's offline logs are 5000 histories of 50 steps with uniform behaviour, of 1589 users:
so users are drawn with replacement, one user may stand behind several histories, and newcomers are users who are in
the logs too. That is the default; `held_out` keeps newcomers out of the logs.

Which of the two factorisations is in use (see `newcomer.paper.worlds.factorise`) is `world.factors.recipe.kind`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.errors import NewcomerError
from newcomer.paper.worlds.download import find_movielens
from newcomer.paper.worlds.factorise import Factors, Kind, factorise
from newcomer.paper.worlds.ratings import Strings, read_ratings
from newcomer.subspace import fix_subspace_signs
from newcomer.worlds.world import Episode, world_stream

if TYPE_CHECKING:
    from newcomer.logs import Logs

BLOCK = 256  # histories drawn from one generator; fixed, or the first n would change with their number


@dataclass(frozen=True, eq=False)
class MovieLens:
    """Users and movies of a factorisation as a world.

    Parameters
    ----------
    factors : reward vectors of users and features of movies.
    genres : genre string of each movie, (m,).
    noise_variance : of rewards around beta . phi.
    choices : candidates a round, of distinct genre strings.
    held_out : share of users who are newcomers and not in the logs; 0 draws both from all users, as the paper does.
    seed : draws who is held out.
    """

    factors: Factors
    genres: Strings
    noise_variance: float = 0.5
    choices: int = 20
    held_out: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        _require(
            len(self.genres) == len(self.factors.movies), f"{len(self.genres)} genre strings", "one for each movie"
        )
        strings = len(np.unique(self.genres))
        _require(1 <= self.choices <= strings, f"choices={self.choices}", f"there are {strings} genre strings")
        _require(self.noise_variance >= 0, f"noise_variance={self.noise_variance}", "choose 0 or more")
        _require(0 <= self.held_out < 1, f"held_out={self.held_out}", "choose a share from 0 to below 1")

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        kind: Kind = "literal",
        dim: int = 200,
        rank: int = 18,
        least: int = 200,
        held_out: float = 0.0,
        seed: int = 0,
        cache: str | Path | None = None,
    ) -> MovieLens:
        """The world of the files at `path` (or NEWCOMER_DATA, or the cache); the first time takes a minute or two.

        `least` is the number of ratings that users and movies need; `seed` is that of the factorisation and of who is
        held out.
        """
        ratings = read_ratings(find_movielens(path, cache=cache)).filtered(least)
        factors = factorise(ratings, kind=kind, dim=dim, rank=rank, seed=seed, cache=cache)
        return cls(factors, ratings.genres, held_out=held_out, seed=seed)

    @property
    def dim(self) -> int:
        """Feature dimension d."""
        return self.factors.dim

    @property
    def rank(self) -> int:
        """Rank k of the users."""
        return self.factors.rank

    @property
    def catalogue(self) -> Floats:
        """Features (m, d) of the movies."""
        return self.factors.movies

    @cached_property
    def newcomers(self) -> Ints:
        """Positions of the users from whom newcomers are drawn."""
        return self._order[: self._count] if self._count else self._order

    @cached_property
    def logged(self) -> Ints:
        """Positions of the users who stand behind the logs."""
        return self._order[self._count :]

    @cached_property
    def mean(self) -> Floats:
        """Mean reward vector (d,) of the logged users."""
        return np.asarray(self.factors.users[self.logged].mean(axis=0))

    @cached_property
    def second_moment(self) -> Floats:
        """Mean of beta beta^T (d, d) over the logged users, of rank k."""
        betas = self.factors.users[self.logged]
        return betas.T @ betas / len(betas)

    @cached_property
    def covariance(self) -> Floats:
        """Covariance (d, d) of the logged users' reward vectors."""
        return self.second_moment - np.outer(self.mean, self.mean)

    @cached_property
    def basis(self) -> Floats:
        """Orthonormal basis (d, k) of all users' vectors, principal directions first, largest entry positive."""
        return fix_subspace_signs(np.linalg.svd(self.factors.users, full_matrices=False)[2][: self.rank].T)

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One newcomer for `horizon` rounds with the outcome of every candidate."""
        _require(horizon >= 1, f"horizon={horizon}", "at least one round")
        beta = self.factors.users[rng.choice(self.newcomers)]
        movies = self.candidates(rng, horizon)
        actions = self.catalogue[movies]
        means = actions @ beta
        return Episode(actions, means, means + self._noise(rng, means.shape), ids=movies)

    def candidates(self, rng: np.random.Generator, rounds: int) -> Ints:
        """Movies (rounds, choices) on offer: distinct genre strings, one movie of each."""
        _, starts = self._shelves
        drawn = rng.random((rounds, len(starts) - 1)).argpartition(self.choices - 1, axis=1)
        return self._pick(rng, drawn[:, : self.choices])

    def logs(self, users: int = 5000, steps: int = 50, seed: int = 0) -> Logs:
        """Histories of uniform behaviour: `users` of the logged users, with replacement; actions are movies."""
        from newcomer.logs import Logs

        _require(users >= 1 and steps >= 1, f"users={users}, steps={steps}", "at least one of each")
        blocks = [
            self._block(world_stream(seed, "movielens logs", index), steps) for index in range(-(-users // BLOCK))
        ]
        action, reward = (np.concatenate(column)[:users] for column in zip(*blocks, strict=True))
        user = np.repeat(np.arange(users), steps)
        return Logs.from_arrays(user=user, action=action.ravel(), items=self.catalogue, reward=reward.ravel())

    def _block(self, rng: np.random.Generator, steps: int) -> tuple[Ints, Floats]:
        """Movies and rewards (BLOCK, steps). Of a round's candidates one is taken uniformly, which is to say that
        its genre string is uniform, and so is the movie within it.
        """
        betas = self.factors.users[rng.choice(self.logged, size=BLOCK)]
        action = self._pick(rng, rng.integers(len(self._shelves[1]) - 1, size=(BLOCK, steps)))
        means = np.einsum("nhd,nd->nh", self.catalogue[action], betas)
        return action, means + self._noise(rng, means.shape)

    def _pick(self, rng: np.random.Generator, shelf: Ints) -> Ints:
        """A uniform movie of each genre string."""
        movies, starts = self._shelves
        return np.asarray(movies[rng.integers(starts[shelf], starts[shelf + 1])])

    def _noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return rng.standard_normal(shape) * math.sqrt(self.noise_variance)

    @cached_property
    def _shelves(self) -> tuple[Ints, Ints]:
        """Movies by genre string: string g has `movies[starts[g]:starts[g + 1]]`."""
        _, shelf, counts = np.unique(self.genres, return_inverse=True, return_counts=True)
        return np.argsort(shelf, kind="stable"), np.concatenate([[0], np.cumsum(counts)])

    @property
    def _count(self) -> int:
        """Number of users held out."""
        count = round(self.held_out * len(self.factors.users))
        return max(count, 1) if self.held_out else 0

    @cached_property
    def _order(self) -> Ints:
        """All users in a random order: those who are held out come first."""
        return world_stream(self.seed, "held-out users").permutation(len(self.factors.users))


def _require(holds: bool, where: str, todo: str) -> None:
    if not holds:
        raise NewcomerError("this MovieLens world cannot be drawn", where=where, todo=todo)
