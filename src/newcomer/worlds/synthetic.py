"""The latent linear world of Definition 1, with the two scales of its simulation study.

User n has reward vector beta_n = U theta_n, theta_n of dimension k << d, and an action with features phi pays
phi^T beta_n + noise. The paper's simulation (appendix on experiments) takes U_ij ~ Unif(0, scale), theta ~ N(0, I/k),
Gaussian features of unit norm and noise of standard deviation 0.5; it does not state the number of candidates, we take
20 fresh ones a round. The printed scale 2.5/(k d) leaves a signal far below the noise and cannot be learned from 5000
users of 20 steps; 2.5/k can. Both have a name here.

Users of the logs always come from the population. Newcomers may be drawn outside it (`outside`, `length`), to see what
a policy does when the shared subspace is wrong for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.errors import NewcomerError
from newcomer.subspace import fix_subspace_signs
from newcomer.worlds.world import Episode, LogRows, world_stream, world_unit_vectors

if TYPE_CHECKING:
    from newcomer.logs import Logs

Tails = Literal["gaussian", "heavy"]

BLOCK = 256  # users drawn from one generator; fixed, or the first n users would change
CENTERS = 3
FREEDOM = 5.0  # degrees of freedom of the heavy-tailed (Student) variants, scaled to the same variance


@dataclass(frozen=True)
class Synthetic:
    """Latent linear users with rank `rank` in dimension `dim`; factor entries uniform on (0, `scale`).

    Parameters
    ----------
    noise : standard deviation of rewards around their mean; `noise_tails="heavy"` makes it Student.
    choices : candidates a round, drawn afresh, or from a fixed catalogue of `items` items if that is given.
    latents : distribution of theta around `offset` (the mean of each coordinate): "gaussian" N(0, I/k), "heavy"
        (Student with the same covariance) or "clusters" (three equally likely centres and a little spread).
    outside : sine of the angle between a newcomer's reward vector and the subspace: 0 inside, 1 orthogonal to it.
    length : norm of a newcomer's reward vector; None leaves it as drawn.
    seed : draws the factor, the catalogue and the cluster centres.
    """

    dim: int = 50
    rank: int = 2
    scale: float = 1.25
    noise: float = 0.5
    choices: int = 20
    items: int | None = None
    latents: Literal["gaussian", "heavy", "clusters"] = "gaussian"
    noise_tails: Tails = "gaussian"
    offset: float = 0.0
    outside: float = 0.0
    length: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _require(1 <= self.rank <= self.dim, f"rank={self.rank}", f"choose 1 to dim = {self.dim}")
        _require(self.scale > 0 and self.noise >= 0, f"scale={self.scale}, noise={self.noise}", "scale > 0, noise >= 0")
        _require(0 <= self.outside <= 1, f"outside={self.outside}", "choose 0 (inside) to 1 (orthogonal)")
        _require(not (self.outside and self.rank == self.dim), "rank=dim", "a full subspace has no outside")
        _require(self.length is None or self.length >= 0, f"length={self.length}", "choose 0 or more")
        most = self.items if self.items is not None else self.choices
        _require(1 <= self.choices <= most, f"choices={self.choices}, items={self.items}", "1 <= choices <= items")
        _require(
            self.latents in ("gaussian", "heavy", "clusters"), f"latents={self.latents!r}", "gaussian/heavy/clusters"
        )
        _require(self.noise_tails in ("gaussian", "heavy"), f"noise_tails={self.noise_tails!r}", "gaussian/heavy")

    @classmethod
    def printed(cls, *, dim: int = 50, rank: int = 2, seed: int = 0) -> Synthetic:
        """The simulation study as printed, entries up to 2.5/(k d): its subspace cannot be learned."""
        return cls(dim=dim, rank=rank, scale=2.5 / (rank * dim), seed=seed)

    @classmethod
    def learnable(cls, *, dim: int = 50, rank: int = 2, seed: int = 0) -> Synthetic:
        """The simulation study with entries up to 2.5/k, whose subspace 5000 users of 20 steps reveal."""
        return cls(dim=dim, rank=rank, scale=2.5 / rank, seed=seed)

    @cached_property
    def factor(self) -> Floats:
        """The map U (d, k) from latent to reward vectors; not orthonormal."""
        return world_stream(self.seed, "factor").uniform(0.0, self.scale, (self.dim, self.rank))

    @cached_property
    def basis(self) -> Floats:
        """Orthonormal basis (d, k) of the subspace, principal directions first, largest entry of a column positive."""
        left = np.linalg.svd(self.factor @ np.linalg.cholesky(self._latent_second_moment))[0]
        return fix_subspace_signs(left[:, : self.rank])

    @cached_property
    def mean(self) -> Floats:
        """Expected reward vector E[beta], (d,)."""
        return self.factor @ self._latent_mean

    @cached_property
    def second_moment(self) -> Floats:
        """E[beta beta^T], (d, d), of rank k."""
        return self.factor @ self._latent_second_moment @ self.factor.T

    @cached_property
    def covariance(self) -> Floats:
        """Covariance (d, d) of reward vectors."""
        return self.second_moment - np.outer(self.mean, self.mean)

    @cached_property
    def catalogue(self) -> Floats | None:
        """Features (items, d) of the fixed items, or None when every round has fresh actions."""
        return (
            None
            if self.items is None
            else world_unit_vectors(world_stream(self.seed, "catalogue"), (self.items, self.dim))
        )

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One newcomer for `horizon` rounds with the outcome of every candidate."""
        _require(horizon >= 1, f"horizon={horizon}", "at least one round")
        beta = self.newcomer(rng)
        ids, actions = self._candidates(rng, horizon)
        means = actions @ beta
        return Episode(actions, means, means + self.draw_noise(rng, means.shape), ids=ids)

    def logs(self, users: int, steps: int | tuple[int, int], seed: int) -> Logs:
        """Histories in memory; `steps` is a length, or the shortest and the longest of lengths drawn uniformly."""
        from newcomer.logs import Logs

        parts = list(self.histories(users, steps, seed))
        user = np.concatenate([part.user for part in parts])
        reward = np.concatenate([part.reward for part in parts])
        if self.catalogue is not None:
            action = np.concatenate([part.action for part in parts if part.action is not None])
            return Logs.from_arrays(user=user, action=action, items=self.catalogue, reward=reward)
        features = np.concatenate([part.features for part in parts])
        return Logs.from_arrays(user=user, features=features, reward=reward)

    def histories(self, users: int, steps: int | tuple[int, int], seed: int) -> Iterator[LogRows]:
        """The same histories in blocks of users, so that no more than one block need be in memory."""
        shortest, longest = (steps, steps) if isinstance(steps, int) else steps
        _require(users >= 1, f"users={users}", "at least one user")
        _require(1 <= shortest <= longest, f"steps={steps}", "pass a length, or (shortest, longest)")
        for first in range(0, users, BLOCK):
            # The whole block is drawn and then cut, or the draws would depend on the number of users.
            yield _cut(self._block(world_stream(seed, "logs", first // BLOCK), first, shortest, longest), users)

    def write_logs(
        self,
        path: str | Path,
        users: int,
        steps: int | tuple[int, int],
        seed: int,
        *,
        files: int = 1,
        grouped: bool = True,
    ) -> None:
        """Write the same histories as Parquet, in a stream; with a catalogue, rows hold action ids, not features.

        With `files` above one, `path` is a directory of that many parts. `grouped=False` writes rows as they happened,
        not user by user, so that users span all files.
        """
        from newcomer.worlds.world import write_world_rows

        write_world_rows(self.histories(users, steps, seed), path, users=users, files=files, grouped=grouped)

    def write_items(self, path: str | Path) -> None:
        """Write the catalogue as an items table (`action`, `features`)."""
        from newcomer.worlds.world import write_world_items

        if self.catalogue is None:
            raise NewcomerError("this world has no items", where="items=None", todo="make it with items=1000, say")
        write_world_items(self.catalogue, path)

    def _block(self, rng: np.random.Generator, first: int, shortest: int, longest: int) -> LogRows:
        """Histories of users `first` to `first + BLOCK - 1`: rewards phi . beta + noise of uniformly drawn actions."""
        lengths = rng.integers(shortest, longest, endpoint=True, size=BLOCK)
        user = np.repeat(np.arange(BLOCK), lengths)
        step = np.arange(len(user)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        betas = self.draw_latents(rng, BLOCK) @ self.factor.T
        action, features = self._shown(rng, len(user))
        reward = np.einsum("nd,nd->n", features, betas[user]) + self.draw_noise(rng, (len(user),))
        return LogRows(user + first, step, features, reward, action)

    def _shown(self, rng: np.random.Generator, rows: int) -> tuple[Ints | None, Floats]:
        """Actions (rows,) of a uniform logging policy, if there is a catalogue, and their features (rows, d)."""
        if self.catalogue is None:
            return None, world_unit_vectors(rng, (rows, self.dim))
        action = rng.integers(len(self.catalogue), size=rows)
        return action, self.catalogue[action]

    def _candidates(self, rng: np.random.Generator, horizon: int) -> tuple[Ints | None, Floats]:
        """Items (T, K) of every round, distinct within a round, if there is a catalogue, and features (T, K, d)."""
        if self.catalogue is None:
            return None, self.draw_actions(rng, horizon)
        shuffled = rng.random((horizon, len(self.catalogue))).argpartition(self.choices - 1, axis=1)
        items = shuffled[:, : self.choices]
        return items, self.catalogue[items]

    def newcomer(self, rng: np.random.Generator) -> Floats:
        """The reward vector beta (d,) of a newcomer: length (cosine * within + sine * away), as `outside` says."""
        inside: Floats = self.factor @ self.draw_latents(rng, 1)[0]
        stray = rng.standard_normal(self.dim)
        if not self.outside and self.length is None:
            return inside
        length = float(np.linalg.norm(inside)) if self.length is None else self.length
        cosine = math.sqrt(1.0 - self.outside**2)
        away = _unit(stray - self.basis @ (self.basis.T @ stray))
        return np.asarray(length * (cosine * _unit(inside) + self.outside * away))

    def draw_actions(self, rng: np.random.Generator, rounds: int) -> Floats:
        """Fresh candidates (rounds, choices, d), uniform on the sphere."""
        return world_unit_vectors(rng, (rounds, self.choices, self.dim))

    def draw_latents(self, rng: np.random.Generator, users: int) -> Floats:
        """Latent states theta (users, k)."""
        z = rng.standard_normal((users, self.rank)) / math.sqrt(self.rank)
        if self.latents == "heavy":
            z *= np.sqrt((FREEDOM - 2.0) / rng.chisquare(FREEDOM, (users, 1)))
        if self.latents == "clusters":
            z = 0.2 * z + self._centers[rng.integers(CENTERS, size=users)]
        return np.asarray(z + self.offset)

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Noise of standard deviation `noise`, Gaussian or Student with the same variance."""
        if self.noise_tails == "heavy":
            return np.asarray(rng.standard_t(FREEDOM, shape) * (self.noise * math.sqrt(1.0 - 2.0 / FREEDOM)))
        return rng.standard_normal(shape) * self.noise

    @cached_property
    def _centers(self) -> Floats:
        return world_stream(self.seed, "centers").standard_normal((CENTERS, self.rank)) / math.sqrt(self.rank)

    @cached_property
    def _latent_mean(self) -> Floats:
        center = self._centers.mean(axis=0) if self.latents == "clusters" else np.zeros(self.rank)
        return np.asarray(center + self.offset)

    @cached_property
    def _latent_second_moment(self) -> Floats:
        """E[theta theta^T], (k, k): I/k, or the spread of the cluster centres and a 25th of I/k, and the mean's."""
        spread = np.eye(self.rank) / self.rank
        if self.latents == "clusters":
            away = self._centers - self._centers.mean(axis=0)
            spread = 0.04 * spread + away.T @ away / CENTERS
        return spread + np.outer(self._latent_mean, self._latent_mean)


def _cut(part: LogRows, users: int) -> LogRows:
    """The rows of users below `users`."""
    rows = int(np.searchsorted(part.user, users))
    action = None if part.action is None else part.action[:rows]
    return LogRows(part.user[:rows], part.step[:rows], part.features[:rows], part.reward[:rows], action)


def _unit(vector: Floats) -> Floats:
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm else vector


def _require(holds: bool, where: str, todo: str) -> None:
    if not holds:
        raise NewcomerError("this synthetic world cannot be drawn", where=where, todo=todo)
