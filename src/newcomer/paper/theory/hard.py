"""The families of worlds behind the paper's lower bound, with their constants, conditions and caveats.

A family has a member for every choice of signs. A member is a latent bandit F, which made the logs, and a newcomer's
reward vector beta in its support; actions are the unit ball, noise is N(0, 1). Whatever a learner does, its regret
*averaged over the members* is at least a bound, so that some member costs it that much. With q = k T / ((d - k) N):

q > 1          "online": Theorem 24.2 of Lattimore and Szepesvari in d dimensions. beta in {+-D}^d, D = sqrt(d/T) /
               (4 sqrt 3); bound d sqrt(T) / (16 sqrt 3). The offline users flip signs of k - 1 coordinates of beta
1/2 <= q <= 1  "hybrid": beta in {+-D_in}^(k-1) x {0} x {+-D_out}^(d-k), D_in = sqrt(k/T) / (5 sqrt 3), D_out =
               sqrt(k/N) / (4 sqrt 3); the offline users flip signs of the first k - 1 coordinates. Bound k sqrt(T) (1 +
               sqrt((d-k) T / (k N))) / (80 sqrt 6)
q < 1/2        "offline": the same theorem in k dimensions. beta in {+-D}^k x {0}^(d-k), D = sqrt(k/T) / (4 sqrt 3);
               bound k sqrt(T) / (16 sqrt 3)

Conditions as printed: d^2 H <= 2 T, d^2 <= N, k > 1. What does not hold as printed:

* The regret is decomposed with sqrt(k-1) D_in + sqrt(d-k) D_out as the best reward, which only an action of length
  sqrt 2 earns; in the ball it is |beta|. Over T rounds the difference is more than the bound. With the best action
  beta / |beta| the same steps go through: `proven` evaluates what they give for these N, T and H, no constant hidden.
* The offline divergence carries a spurious factor k / (48 N). Without it the logs tell about the hidden coordinates
  unless H k is at most of the order of d; `proven` has the true divergence, with actions logged uniformly on the
  sphere, and counts a coordinate for nothing where the logs tell too much. With endless histories the printed bound is
  beaten (tests/paper/test_hard.py).
* The printed online family flips k coordinates and keeps the others: rank k + 1. We flip k - 1. And for a coordinate
  that is not flipped the logs of adjacent members differ, so this regime has an offline divergence too.
* "lambda_theta uniformly bounded": by covariance it is 0 in the direction that all users share, and by second moment
  it falls with d.
* The offline family gives k sqrt(T) only, below the claimed k sqrt(T) (1 + sqrt(d T / (k N))) where T > N k / d. The
  hybrid family keeps its bound for all q <= 1, and can be asked for by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from newcomer.arrays import Floats
from newcomer.errors import NewcomerError
from newcomer.paper.theory.guarantees import minimax_regret
from newcomer.worlds.world import world_stream, world_unit_vectors

if TYPE_CHECKING:
    from newcomer.logs import Logs

Regime = Literal["online", "hybrid", "offline"]
BLOCK = 256  # users drawn from one generator; fixed, or the first n users would change


@dataclass(frozen=True)
class Hard:
    """One member of the hard family for N offline users of H steps and T rounds.

    Parameters
    ----------
    dim, rank : d and k, 1 < k < d.
    offline, steps, horizon : N, H and T, for which the members are as close together as can be.
    member : which one; the seed of its signs.
    regime : the family; None takes the one that `dim`, `rank`, `offline` and `horizon` call for.
    scale : multiplies beta. The bounds are about 1, where nothing can be learned; more is easier to learn and costs
        more while it is not.
    """

    dim: int = 10
    rank: int = 2
    offline: int = 400
    steps: int = 2
    horizon: int = 800
    member: int = 0
    regime: Regime | None = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        _require(1 < self.rank < self.dim, f"dim={self.dim}, rank={self.rank}", "choose 1 < rank < dim")
        sizes = (self.offline, self.steps, self.horizon)
        _require(min(sizes) >= 1, f"offline, steps, horizon = {sizes}", "at least one of each")
        _require(self.regime in (None, *get_args(Regime)), f"regime={self.regime!r}", "online, hybrid or offline")
        _require(self.scale > 0, f"scale={self.scale}", "choose a positive number")

    @property
    def ratio(self) -> float:
        """q = k T / ((d - k) N), which tells the regimes apart."""
        return self.rank * self.horizon / ((self.dim - self.rank) * self.offline)

    @property
    def family(self) -> Regime:
        """The regime whose family this is."""
        if self.regime is not None:
            return self.regime
        return "online" if self.ratio > 1 else "hybrid" if self.ratio >= 0.5 else "offline"

    @property
    def excess(self) -> float:
        """sqrt((d - k) T / (k N)): how much larger than k sqrt(T) the hybrid bound is, less one."""
        return math.sqrt((self.dim - self.rank) * self.horizon / (self.rank * self.offline))

    @cached_property
    def sizes(self) -> Floats:
        """The size |beta_i| (d,) of each coordinate, before `scale`."""
        d, k, found = self.dim, self.rank, np.zeros(self.dim)
        if self.family == "online":
            found[:] = math.sqrt(d / self.horizon) / (4 * math.sqrt(3))
        elif self.family == "offline":
            found[:k] = math.sqrt(k / self.horizon) / (4 * math.sqrt(3))
        else:
            found[: k - 1] = math.sqrt(k / self.horizon) / (5 * math.sqrt(3))
            found[k:] = math.sqrt(k / self.offline) / (4 * math.sqrt(3))
        return found

    @property
    def flipped(self) -> int:
        """How many coordinates, the first ones, have random signs among offline users."""
        return self.rank if self.family == "offline" else self.rank - 1

    @cached_property
    def beta(self) -> Floats:
        """The newcomer's reward vector (d,) in this member."""
        signs = world_stream(self.member, "hard signs").choice([-1.0, 1.0], size=self.dim)
        return np.asarray(self.scale * self.sizes * signs)

    @cached_property
    def second_moment(self) -> Floats:
        """E[beta beta^T] (d, d) of the offline users, of rank k."""
        rest = self.beta.copy()
        rest[: self.flipped] = 0.0
        return np.diag(np.where(np.arange(self.dim) < self.flipped, self.beta**2, 0.0)) + np.outer(rest, rest)

    @cached_property
    def basis(self) -> Floats:
        """Orthonormal basis (d, k) of the offline users: the flipped axes, and what they all share."""
        found = np.eye(self.dim)[:, : self.rank].copy()
        if self.flipped < self.rank:
            rest = self.beta.copy()
            rest[: self.flipped] = 0.0
            found[:, self.flipped] = rest / np.linalg.norm(rest)
        return found

    @property
    def conditions(self) -> dict[str, bool]:
        """The theorem's conditions by name, and the one that its offline divergence needs."""
        d, k = self.dim, self.rank
        return {
            "d^2 H <= 2 T": d * d * self.steps <= 2 * self.horizon,
            "d^2 <= N": d * d <= self.offline,
            "k > 1": k > 1,
            "d >= 1.01 k": d >= 1.01 * k,
            "H k <= d": self.steps * k <= d,
        }

    @property
    def claimed(self) -> float:
        """The rate of the theorem, min(d sqrt T, k sqrt T (1 + sqrt(d T / (k N)))), without a constant."""
        return minimax_regret(self.dim, self.rank, self.offline, self.horizon)

    @property
    def printed(self) -> float:
        """The bound on the mean regret over this family with its printed constants."""
        root = math.sqrt(self.horizon)
        if self.family == "online":
            return self.dim * root / (16 * math.sqrt(3))
        if self.family == "offline":
            return self.rank * root / (16 * math.sqrt(3))
        return self.rank * root * (1 + self.excess) / (80 * math.sqrt(6))

    @property
    def proven(self) -> float:
        """What the corrected steps give for the mean regret over this family, with every constant; 0 if nothing.

        With the best action a* = beta / |beta| and w_i = |beta_i| / |beta| a round's regret is |beta| - A . beta >=
        |beta| / 2 sum_i (w_i - A_i sign beta_i)^2. Stop coordinate i when sum A_i^2 exceeds T w_i^2. For members that
        differ in its sign, the sum of their U_i is at least 2 T w_i^2 less (4 T w_i^2 + 2) sqrt(KL / 2), and KL <= 2
        beta_i^2 (T w_i^2 + 1 + N H / d), the last term being the logs', only where offline users keep the sign.
        """
        length = float(np.linalg.norm(self.scale * self.sizes))
        size = self.scale * self.sizes
        budget = self.horizon * (size / length) ** 2
        information = np.where(np.arange(self.dim) < self.flipped, 0.0, self.offline * self.steps / self.dim)
        found = 2 * budget - (4 * budget + 2) * size * np.sqrt(budget + 1 + information)
        return float(length / 4 * np.maximum(found, 0.0)[size > 0].sum())

    @property
    def largest(self) -> float:
        """T |beta|: the regret of actions that know nothing."""
        return float(self.horizon * np.linalg.norm(self.beta))

    def newcomer(self, rng: np.random.Generator) -> Floats:
        """The reward vector (d,) of this member."""
        return self.beta

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Standard normal noise."""
        return rng.standard_normal(shape)

    def logs(self, users: int, steps: int, seed: int) -> Logs:
        """Histories of users of this member's latent bandit; actions are uniform on the sphere."""
        from newcomer.logs import Logs

        _require(users >= 1 and steps >= 1, f"users={users}, steps={steps}", "at least one of each")
        blocks = [self._block(world_stream(seed, "hard logs", index), steps) for index in range(-(-users // BLOCK))]
        features, reward = (np.concatenate(column)[:users] for column in zip(*blocks, strict=True))
        user = np.repeat(np.arange(users), steps)
        return Logs.from_arrays(user=user, features=features.reshape(-1, self.dim), reward=reward.ravel())

    def _block(self, rng: np.random.Generator, steps: int) -> tuple[Floats, Floats]:
        """Features (BLOCK, steps, d) and rewards (BLOCK, steps)."""
        betas = np.tile(self.beta, (BLOCK, 1))
        betas[:, : self.flipped] *= rng.choice([-1.0, 1.0], size=(BLOCK, self.flipped))
        features = world_unit_vectors(rng, (BLOCK, steps, self.dim))
        return features, np.einsum("nhd,nd->nh", features, betas) + self.draw_noise(rng, (BLOCK, steps))


def _require(holds: bool, where: str, todo: str) -> None:
    if not holds:
        raise NewcomerError("this hard world cannot be drawn", where=where, todo=todo)
