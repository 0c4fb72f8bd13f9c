"""Thompson sampling with a mixture prior: mmTS (Hong et al. 2020) and MixTS (Hong et al. 2022).

Users come in S kinds, and users of a kind differ: beta | s ~ N(m_s, Sig_s), s ~ w. Each round draws a kind s from its
posterior p, then beta from its posterior given s, and plays the action of largest phi . beta. Both algorithms have this
posterior and differ only in Sig_s (our reading): mmTS isotropic, the variance within the cluster; MixTS the covariance
within the cluster plus a ridge. `newcomer.clusters.cluster_users` gives the models, the weights and both spreads. The
maths of the posterior is in policies/mixture_posterior.py.

The Bayes regret is of order sqrt(d T) plus what it costs to find the kind, if newcomers do come from the mixture and
the noise is Gaussian of the given size. With one component it is linear Thompson sampling with that prior.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from newcomer import files
from newcomer.arrays import Floats
from newcomer.errors import PolicyError
from newcomer.policies import calls
from newcomer.policies.base import Contract
from newcomer.policies.calls import Generators, Query, Random, call_floats
from newcomer.policies.finite_models import (
    NOISE_SD,
    checked_finite_models,
    draw_finite_model,
    finite_model_posterior,
    finite_model_weights,
)
from newcomer.policies.mixture_posterior import Full, GaussianMixture, Isotropic, MixtureState
from newcomer.validate import positive, whole


@dataclass(frozen=True, eq=False)
class MmTS(Contract[MixtureState]):
    """Thompson sampling for users spread evenly around the models `centers` (S, d).

    `variances` (S,), or one number, are the variances of beta per coordinate within each kind, `weights` (S,) the prior
    weights, equal by default; `probabilities` counts about `votes` draws.
    """

    centers: Floats
    variances: Floats = field(kw_only=True)
    weights: Floats | None = field(default=None, kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)
    votes: int = field(default=256, kw_only=True)

    sampled = True

    def __post_init__(self) -> None:
        positive(self.noise_sd, "noise_sd")
        whole(self.votes, "votes")
        self.mixture  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The prior."""
        centers = checked_finite_models(self.centers)
        spread = Isotropic(_variances(self.variances, len(centers)))
        return GaussianMixture(centers, finite_model_weights(self.weights, len(centers)), spread, self.noise_sd)

    @property
    def learner(self) -> GaussianMixture:
        """The prior, conditioned on rewards."""
        return self.mixture

    def state_settings(self) -> dict[str, str | float]:
        """What is remembered is about this prior."""
        return {"prior": _digest(self.mixture, _variances(self.variances, len(self.mixture.centers)))}

    def score(self, state: MixtureState, query: Query) -> Floats:
        """The posterior mean reward, phi . E[beta] (m, K)."""
        return _means(self.mixture, state, query)

    def draws(self, state: MixtureState, query: Query, rngs: Generators) -> Iterator[Floats]:
        """phi . beta (m, K) for a reward vector drawn from each user's posterior."""
        return _draws(self.mixture, state, query, rngs)

    def choice_probabilities(self, state: MixtureState, query: Query, rng: Random) -> Floats:
        """How often (m, K) each action wins: exact in the kind of user, by votes given the kind."""
        return _choice_probabilities(self.mixture, state, query, self._generators(rng, query), self.votes)


@dataclass(frozen=True, eq=False)
class MixTS(Contract[MixtureState]):
    """Thompson sampling with the prior sum_s weights[s] N(centers[s], covariances[s]).

    `centers` (S, d), `covariances` (S, d, d), or one (d, d) for all; `weights` (S,), equal by default; `probabilities`
    counts about `votes` draws.

    >>> policy = MixTS([[1.0, 0.0], [0.0, 1.0]], covariances=np.zeros((2, 2)), weights=[1.0, 3.0])
    >>> policy.scores(policy.start(1), [[1.0, 0.0], [0.0, 1.0]]).round(6).tolist()
    [[0.25, 0.75]]
    """

    centers: Floats
    covariances: Floats = field(kw_only=True)
    weights: Floats | None = field(default=None, kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)
    votes: int = field(default=256, kw_only=True)

    sampled = True

    def __post_init__(self) -> None:
        positive(self.noise_sd, "noise_sd")
        whole(self.votes, "votes")
        self.mixture  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The prior."""
        centers = checked_finite_models(self.centers)
        weights = finite_model_weights(self.weights, len(centers))
        return GaussianMixture(centers, weights, _full(self.covariances, centers), self.noise_sd)

    @property
    def learner(self) -> GaussianMixture:
        """The prior, conditioned on rewards."""
        return self.mixture

    def state_settings(self) -> dict[str, str | float]:
        """What is remembered is about this prior."""
        return {"prior": _digest(self.mixture, call_floats(self.covariances, "covariances"))}

    def score(self, state: MixtureState, query: Query) -> Floats:
        """The posterior mean reward, phi . E[beta] (m, K)."""
        return _means(self.mixture, state, query)

    def draws(self, state: MixtureState, query: Query, rngs: Generators) -> Iterator[Floats]:
        """phi . beta (m, K) for a reward vector drawn from each user's posterior."""
        return _draws(self.mixture, state, query, rngs)

    def choice_probabilities(self, state: MixtureState, query: Query, rng: Random) -> Floats:
        """How often (m, K) each action wins: exact in the kind of user, by votes given the kind."""
        return _choice_probabilities(self.mixture, state, query, self._generators(rng, query), self.votes)


def _digest(mixture: GaussianMixture, spread: Floats) -> str:
    """A fingerprint of the prior and the noise."""
    noise = np.array([mixture.noise_sd])
    return files.file_digest({"centers": mixture.centers, "weights": mixture.weights, "spread": spread, "noise": noise})


def _means(mixture: GaussianMixture, state: MixtureState, query: Query) -> Floats:
    """phi . E[beta] (m, K), the mean over components of their posterior means."""
    chances = finite_model_posterior(state.log_weights[query.users])
    table = query.table()
    for row, user in enumerate(query.users):
        means = [mixture.mean(state, user, s) for s in range(chances.shape[1])]
        table[row] = _rewards(query, row, chances[row] @ np.array(means))
    return table


def _draws(mixture: GaussianMixture, state: MixtureState, query: Query, rngs: Generators) -> Iterator[Floats]:
    """phi . beta (m, K): for each row a component from its posterior, then beta from its posterior given that."""
    chances = finite_model_posterior(state.log_weights[query.users])
    while True:
        table = query.table()
        for row, (user, rng) in enumerate(zip(query.users, rngs, strict=True)):
            component = int(draw_finite_model(chances[row : row + 1], [rng])[0])
            table[row] = _rewards(query, row, mixture.sample(state, user, component, rng, size=1)[0])
        yield table


def _choice_probabilities(
    mixture: GaussianMixture, state: MixtureState, query: Query, rngs: Generators, votes: int
) -> Floats:
    """Probabilities (m, K): each component by its posterior weight, with a share of the votes in proportion."""
    chances = finite_model_posterior(state.log_weights[query.users])
    out = np.zeros((len(rngs), query.actions.shape[1]))
    for row, rng in enumerate(rngs):
        for component in np.flatnonzero(chances[row]):
            chance = chances[row, component]
            size = int(np.ceil(votes * chance))
            out[row] += chance * _share(mixture, state, query, row, int(component), rng, size)
    return out


def _share(
    mixture: GaussianMixture, state: MixtureState, query: Query, row: int, component: int, rng: Generator, size: int
) -> Floats:
    """The share (K,) of `size` draws given the component in which each action is best."""
    betas = mixture.sample(state, query.users[row], component, rng, size=size)
    block, mask = query.block(row), np.repeat(query.mask[row : row + 1], size, axis=0)
    with np.errstate(invalid="ignore", over="ignore"):
        chosen = calls.pick_for_call(betas @ block.T, Query(block[None], np.zeros(size, dtype=np.int64), mask))
    return np.bincount(chosen, minlength=len(block)) / size


def _rewards(query: Query, row: int, beta: Floats) -> Floats:
    """phi . beta (K,) for the actions of a row; features that are not finite show here, and are refused later."""
    with np.errstate(invalid="ignore", over="ignore"):
        products: Floats = query.block(row) @ beta
    return products


def _variances(values: ArrayLike, count: int) -> Floats:
    """Variances (S,) out of one for each component or one for all, checked."""
    given = call_floats(values, "variances")
    if given.shape not in ((), (count,)) or not np.isfinite(given).all() or (given < 0).any():
        raise PolicyError(f"variances must be {count} numbers of at least 0, or one")
    return np.array(np.broadcast_to(given, (count,)))


def _full(values: ArrayLike, centers: Floats) -> Full:
    """Covariances (S, d, d) out of one for each component or one for all, checked, with their symmetric roots."""
    count, dim = centers.shape
    given = call_floats(values, "covariances")
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
