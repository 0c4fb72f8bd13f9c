"""Thompson sampling with a mixture prior: mmTS (Hong et al. 2020) and MixTS (Hong et al. 2022).

Users come in S kinds, and users of a kind differ: beta | s ~ N(m_s, Sig_s), s ~ w. Each round draws a kind s from its
posterior p, then beta from its posterior given s, and plays the action of largest phi . beta. Both algorithms have this
posterior and differ only in Sig_s (our reading): mmTS isotropic, the variance within the cluster; MixTS the covariance
within the cluster plus a ridge. `newcomer.clusters.cluster` gives the models, the weights and both spreads. The maths
of the posterior is in policies/components.py.

The Bayes regret is of order sqrt(d T) plus what it costs to find the kind, if newcomers do come from the mixture and
the noise is Gaussian of the given size. With one component it is linear Thompson sampling with that prior.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from newcomer.errors import PolicyError
from newcomer.policies import base
from newcomer.policies.base import Bools, Floats, Ints, Offer, Random
from newcomer.policies.components import Evidence, Full, Isotropic, Mixture
from newcomer.policies.latent import NOISE_SD, draw, models, own, positive, posterior, shares


@dataclass(frozen=True, eq=False)
class MmTS:
    """Thompson sampling for users spread evenly around the models `centers` (S, d).

    `variances` (S,), or one number, are the variances of beta per coordinate within each kind, `weights` (S,) the prior
    weights, equal by default; `probabilities` counts about `votes` draws.
    """

    centers: Floats
    variances: Floats = field(kw_only=True)
    weights: Floats | None = field(default=None, kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)
    votes: int = field(default=256, kw_only=True)

    def __post_init__(self) -> None:
        self._sampler.check()

    def start(self, n: int) -> Evidence:
        """The state of n newcomers."""
        return self._sampler.start(n)

    def choose(
        self,
        state: Evidence,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The best allowed action (m,) for a reward vector drawn from each user's posterior."""
        return self._sampler.choose(state, self._sampler.offer(state, actions, mask, users), rng)

    def probabilities(
        self,
        state: Evidence,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """How often (m, K) each action wins: exact in the kind of user, by votes given the kind."""
        return self._sampler.law(state, self._sampler.offer(state, actions, mask, users), rng)

    def scores(
        self,
        state: Evidence,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """The posterior mean reward, phi . E[beta] (m, K)."""
        return self._sampler.scores(state, self._sampler.offer(state, actions, mask, users))

    def in_subspace(self, state: Evidence) -> Bools:
        """Never (n,): the components fill the space."""
        return np.zeros(len(self._sampler.own(state)), dtype=np.bool_)

    def update(
        self, state: Evidence, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None
    ) -> None:
        """Condition every component on the rewards and weigh it by their density."""
        self._sampler.update(state, features, reward, users)

    @cached_property
    def _sampler(self) -> _Sampler:
        centers = models(self.centers)
        spread = Isotropic(_variances(self.variances, len(centers)))
        mixture = Mixture(centers, shares(self.weights, len(centers)), spread, self.noise_sd)
        return _Sampler(mixture, self.votes, "MmTS")


@dataclass(frozen=True, eq=False)
class MixTS:
    """Thompson sampling with the prior sum_s weights[s] N(centers[s], covariances[s]).

    `centers` (S, d), `covariances` (S, d, d), or one (d, d) for all; `weights` (S,), equal by default; `probabilities`
    counts about `votes` draws.
    """

    centers: Floats
    covariances: Floats = field(kw_only=True)
    weights: Floats | None = field(default=None, kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)
    votes: int = field(default=256, kw_only=True)

    def __post_init__(self) -> None:
        self._sampler.check()

    def start(self, n: int) -> Evidence:
        """The state of n newcomers."""
        return self._sampler.start(n)

    def choose(
        self,
        state: Evidence,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The best allowed action (m,) for a reward vector drawn from each user's posterior."""
        return self._sampler.choose(state, self._sampler.offer(state, actions, mask, users), rng)

    def probabilities(
        self,
        state: Evidence,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """How often (m, K) each action wins: exact in the kind of user, by votes given the kind."""
        return self._sampler.law(state, self._sampler.offer(state, actions, mask, users), rng)

    def scores(
        self,
        state: Evidence,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """The posterior mean reward, phi . E[beta] (m, K)."""
        return self._sampler.scores(state, self._sampler.offer(state, actions, mask, users))

    def in_subspace(self, state: Evidence) -> Bools:
        """Never (n,): the components fill the space."""
        return np.zeros(len(self._sampler.own(state)), dtype=np.bool_)

    def update(
        self, state: Evidence, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None
    ) -> None:
        """Condition every component on the rewards and weigh it by their density."""
        self._sampler.update(state, features, reward, users)

    @cached_property
    def _sampler(self) -> _Sampler:
        centers = models(self.centers)
        mixture = Mixture(centers, shares(self.weights, len(centers)), _full(self.covariances, centers), self.noise_sd)
        return _Sampler(mixture, self.votes, "MixTS")


@dataclass(frozen=True, eq=False)
class _Sampler:
    """What mmTS and MixTS share, on behalf of the policy called `who`."""

    mixture: Mixture
    votes: int
    who: str

    def check(self) -> None:
        positive(self.mixture.noise_sd, "noise_sd")
        base.whole(self.votes, "votes")

    def start(self, n: int) -> Evidence:
        return self.mixture.start(base.newcomers(n))

    def own(self, state: Evidence) -> Evidence:
        own(state, Evidence, len(self.mixture.centers), self.who)
        if state.features.shape[2] != self.mixture.centers.shape[1]:
            raise PolicyError(f"{self.who} was given the state of a policy of another dimension")
        return state

    def offer(self, state: Evidence, actions: ArrayLike, mask: ArrayLike | None, users: ArrayLike | None) -> Offer:
        return base.offer(self.own(state), actions, dim=self.mixture.centers.shape[1], mask=mask, users=users)

    def choose(self, state: Evidence, asked: Offer, rng: Random) -> Ints:
        rngs = base.generators(rng, len(asked.users), self.who)
        chances = posterior(state.log_weights[asked.users])
        table = asked.table()
        for row, (user, own_rng) in enumerate(zip(asked.users, rngs, strict=True)):
            component = int(draw(chances[row : row + 1], [own_rng])[0])
            beta = self.mixture.sample(state, user, component, own_rng, size=1)[0]
            table[row] = _rewards(asked, row, beta)
        return base.pick(table, asked)

    def law(self, state: Evidence, asked: Offer, rng: Random) -> Floats:
        rngs = base.generators(rng, len(asked.users), self.who)
        chances = posterior(state.log_weights[asked.users])
        out = np.zeros(asked.table().shape)
        for row, own_rng in enumerate(rngs):
            for component in np.flatnonzero(chances[row]):
                chance = chances[row, component]
                size = int(np.ceil(self.votes * chance))
                out[row] += chance * self._share(state, asked, row, int(component), own_rng, size)
        return out

    def _share(self, state: Evidence, asked: Offer, row: int, component: int, rng: Generator, size: int) -> Floats:
        """The share (K,) of `size` draws given the component in which each action is best."""
        betas = self.mixture.sample(state, asked.users[row], component, rng, size=size)
        block = asked.actions[min(row, len(asked.actions) - 1)]
        mask = np.repeat(asked.mask[row : row + 1], size, axis=0)
        with np.errstate(invalid="ignore", over="ignore"):
            chosen = base.pick(betas @ block.T, Offer(block[None], np.zeros(size, dtype=np.int64), mask))
        return np.bincount(chosen, minlength=len(block)) / size

    def scores(self, state: Evidence, asked: Offer) -> Floats:
        chances = posterior(state.log_weights[asked.users])
        table = asked.table()
        for row, user in enumerate(asked.users):
            means = [self.mixture.mean(state, user, s) for s in range(chances.shape[1])]
            table[row] = _rewards(asked, row, chances[row] @ np.array(means))
        return base.masked(table, asked)

    def update(self, state: Evidence, features: ArrayLike, reward: ArrayLike, users: ArrayLike | None) -> None:
        dim = self.mixture.centers.shape[1]
        self.mixture.learn(state, base.rewards(self.own(state), features, reward, dim=dim, users=users))


def _rewards(asked: Offer, row: int, beta: Floats) -> Floats:
    with np.errstate(invalid="ignore", over="ignore"):
        products: Floats = asked.actions[min(row, len(asked.actions) - 1)] @ beta
    return products


def _variances(values: ArrayLike, count: int) -> Floats:
    """Variances (S,) out of one for each component or one for all, checked."""
    given = base.floats(values, "variances")
    if given.shape not in ((), (count,)) or not np.isfinite(given).all() or (given < 0).any():
        raise PolicyError(f"variances must be {count} numbers of at least 0, or one")
    return np.array(np.broadcast_to(given, (count,)))


def _full(values: ArrayLike, centers: Floats) -> Full:
    """Covariances (S, d, d) out of one for each component or one for all, checked, with their symmetric roots."""
    count, dim = centers.shape
    given = base.floats(values, "covariances")
    if given.shape not in ((count, dim, dim), (dim, dim)) or not np.isfinite(given).all():
        raise PolicyError(f"covariances must be finite, of shape ({count}, {dim}, {dim}) or ({dim}, {dim})")
    given = np.array(np.broadcast_to(given, (count, dim, dim)))
    size = np.abs(given).max()
    if not np.allclose(given, given.transpose(0, 2, 1), rtol=0, atol=1e-10 * size):
        raise PolicyError("covariances must be symmetric")
    values_, vectors = np.linalg.eigh(given)
    if values_.min() < -1e-10 * size:
        raise PolicyError(f"covariances must not have negative eigenvalues, and one is {values_.min():g}")
    scaled = vectors * np.sqrt(np.maximum(values_, 0.0))[:, None, :]
    return Full(given, scaled @ vectors.transpose(0, 2, 1))
