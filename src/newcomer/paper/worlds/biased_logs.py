"""Logs that break what learning from logs assumes, each in one way and as much as `strength` says.

The users are those of a synthetic world, and so are the newcomers; only how they were logged differs. At strength 0
every kind logs as Assumption 1 asks: actions drawn uniformly, histories of one length, preferences that stay.

taste      the logger knows the preferences: of the candidates of a step it takes one with probability proportional to
           exp(strength phi . beta), uniform at 0 and nearly always the best at 16
liking     people log what they like: the same, by the reward that this user gives, noise and all, in place of what the
           user is expected to give
adaptive   the logger learns: with probability `strength` a step is chosen by LinUCB from what this user paid before,
           else uniformly. Actions depend on logged rewards only, so the likelihood stays right where SOLD does not
lengths    how long a history is depends on the preferences: length = steps (1 - strength q), q in (0, 1) the share of
           users whose first latent coordinate is larger; never below 2
drift      rewards change with the position h of a step, the same for everybody: phi . (beta + strength s_h g), s_h
           from 0 at the first step to 1 at the last, g a direction of the seed's choice, as long as users' beta are
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from scipy.special import ndtr

from newcomer.arrays import Floats, Ints
from newcomer.errors import NewcomerError
from newcomer.policies.linear import LinUCB
from newcomer.worlds.synthetic import BLOCK, Synthetic
from newcomer.worlds.world import Episode, world_stream

if TYPE_CHECKING:
    from newcomer.logs import Logs

Bias = Literal["taste", "liking", "adaptive", "lengths", "drift"]
SHARES = ("adaptive", "lengths")  # whose strength is a share


@dataclass(frozen=True)
class BiasedLogs:
    """A synthetic world whose logs are biased by `bias`.

    Parameters
    ----------
    world : whose users, actions and newcomers these are; without a catalogue.
    bias : "taste", "liking", "adaptive", "lengths" or "drift", as the module says.
    strength : how strong the bias is, 0 for none; a share for "adaptive" and "lengths".
    """

    world: Synthetic
    bias: Bias
    strength: float = 1.0

    def __post_init__(self) -> None:
        _require(self.bias in get_args(Bias), f"bias={self.bias!r}", ", ".join(get_args(Bias)))
        _require(self.strength >= 0, f"strength={self.strength}", "choose 0 or more")
        if self.bias in SHARES:
            _require(self.strength <= 1, f"strength={self.strength}", "choose a share from 0 to 1")
        _require(self.world.items is None, f"items={self.world.items}", "take a world whose actions are fresh")

    @property
    def dim(self) -> int:
        """Feature dimension d."""
        return self.world.dim

    @property
    def rank(self) -> int:
        """Dimension k of the subspace."""
        return self.world.rank

    @property
    def basis(self) -> Floats:
        """Orthonormal basis (d, k) of the users' subspace."""
        return self.world.basis

    @cached_property
    def drift(self) -> Floats:
        """The direction g (d,) of "drift", of the root mean square length of users' reward vectors."""
        length = float(np.sqrt(np.trace(self.world.second_moment)))
        away = world_stream(self.world.seed, "drift").standard_normal(self.dim)
        return np.asarray(away * (length / np.linalg.norm(away)))

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One newcomer of the underlying world."""
        return self.world.episode(rng, horizon)

    def logs(self, users: int, steps: int, seed: int) -> Logs:
        """Biased histories of `users` users, `steps` long at most."""
        from newcomer.logs import Logs

        _require(users >= 1 and steps >= 2, f"users={users}, steps={steps}", "at least one user and two steps")
        blocks = [self._block(world_stream(seed, f"{self.bias} logs", i), steps) for i in range(-(-users // BLOCK))]
        lengths, features, reward = (np.concatenate(column)[:users] for column in zip(*blocks, strict=True))
        kept = np.arange(steps) < lengths[:, None]
        user = np.broadcast_to(np.arange(users)[:, None], kept.shape)[kept]
        return Logs.from_arrays(user=user, features=features[kept], reward=reward[kept])

    def _block(self, rng: np.random.Generator, steps: int) -> tuple[Ints, Floats, Floats]:
        """Lengths (BLOCK,), features (BLOCK, steps, d) and rewards (BLOCK, steps), of which lengths are kept."""
        latents = self.world.draw_latents(rng, BLOCK)
        betas = latents @ self.world.factor.T
        features, reward = self._logged(rng, betas, steps)
        if self.bias == "drift":
            reward = reward + self.strength * (features @ self.drift) * np.linspace(0.0, 1.0, steps)
        return self._lengths(latents, steps), features, reward

    def _logged(self, rng: np.random.Generator, betas: Floats, steps: int) -> tuple[Floats, Floats]:
        """What the logger shows, features (BLOCK, steps, d), and what it pays, (BLOCK, steps)."""
        everyone = np.arange(BLOCK)
        learner = LinUCB(self.dim, horizon=steps)
        state = learner.start(BLOCK)
        shown, paid = np.empty((BLOCK, steps, self.dim)), np.empty((BLOCK, steps))
        for step in range(steps):
            offers = self.world.draw_actions(rng, BLOCK)
            liked = np.einsum("nkd,nd->nk", offers, betas)
            if self.bias == "liking":
                liked = liked + self.world.draw_noise(rng, liked.shape)
            if self.bias in ("taste", "liking"):
                chosen = biased_softmax_choice(rng, self.strength * liked)
            else:
                chosen = rng.integers(offers.shape[1], size=BLOCK)
            if self.bias == "adaptive":
                chosen = np.where(rng.random(BLOCK) < self.strength, learner.choose(state, offers), chosen)
            shown[:, step] = offers[everyone, chosen]
            paid[:, step] = liked[everyone, chosen]
            if self.bias != "liking":
                paid[:, step] += self.world.draw_noise(rng, (BLOCK,))
            if self.bias == "adaptive":
                learner.update(state, shown[:, step], paid[:, step])
        return shown, paid

    def _lengths(self, latents: Floats, steps: int) -> Ints:
        if self.bias != "lengths":
            return np.full(BLOCK, steps)
        above = ndtr(-(latents[:, 0] - self.world.offset) * np.sqrt(self.rank))  # exact for Gaussian latents
        return np.asarray(np.maximum(2, np.rint(steps * (1.0 - self.strength * above))), np.int64)


def biased_softmax_choice(rng: np.random.Generator, scores: Floats) -> Ints:
    """A choice (...,) from scores (..., K) with probabilities proportional to their exponentials.

    The largest of score + Gumbel noise is such a draw.
    """
    return np.asarray((scores + rng.gumbel(size=scores.shape)).argmax(axis=-1))


def _require(holds: bool, where: str, todo: str) -> None:
    if not holds:
        raise NewcomerError("these biased logs cannot be drawn", where=where, todo=todo)
