"""Rivals against naive oracles: joint Gaussians conditioned by brute force, loops over pairs, CLUB from scratch."""

from __future__ import annotations

import numpy as np
import pytest

from newcomer.arrays import Floats
from newcomer.errors import PolicyError
from newcomer.rivals import priors
from newcomer.rivals.club import Club, Kinds
from newcomer.rivals.gaussian import GaussianTS, GaussianUCB, Prior
from newcomer.rivals.priors import Partial
from newcomer.testing import check_policy
from newcomer.worlds.people import MadeUp


def partial(people: int = 40, actions: int = 5, share: float = 0.6, seed: int = 0) -> Partial:
    """Made-up people with some of their answers."""
    rng = np.random.default_rng(seed)
    table = 3.0 + rng.normal(size=actions) + rng.normal(size=(people, 2)) @ rng.normal(size=(2, actions))
    table += 0.7 * rng.normal(size=table.shape)
    met = rng.random(table.shape) < share
    return Partial(np.where(met, table, 0.0), met)


def conditioned(mean: Floats, covariance: Floats, rows: Floats, rewards: Floats, noise: float) -> tuple[Floats, Floats]:
    """The posterior of a Gaussian given rewards = rows . x + noise, by the textbook formula."""
    gain = covariance @ rows.T @ np.linalg.inv(rows @ covariance @ rows.T + noise * np.eye(len(rows)))
    return mean + gain @ (rewards - rows @ mean), covariance - gain @ rows @ covariance


def policies() -> dict[str, object]:
    logged = partial()
    vectors, _ = priors.imputed(logged, priors.likeliest(logged))
    return {
        "pooled": GaussianUCB(priors.pooled(logged), width=1.0),
        "greedy": GaussianUCB(priors.likeliest(logged), width=0.0),
        "HierTS": GaussianTS(priors.hierarchical(logged)),
        "MetaTS": GaussianTS(priors.meta(logged), drawn_mean=True),
        "ebmTS": GaussianTS(priors.empirical(logged)),
        "ebmUCB": GaussianUCB(priors.empirical(logged), width=0.5),
        "dTS": GaussianTS(priors.diffused(logged, 8)),
        "CLUB": Club(Kinds.of(logged, vectors, count=4)),
    }


@pytest.mark.parametrize("name", list(policies()))
def test_every_rival_keeps_the_contract(name: str) -> None:
    check_policy(policies()[name])  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [priors.pooled, priors.hierarchical, priors.empirical, priors.likeliest])
def test_the_posterior_is_the_textbook_one(make: object) -> None:
    prior = make(partial())  # type: ignore[operator]
    policy, rng = GaussianUCB(prior, width=1.5), np.random.default_rng(1)
    rows, rewards = rng.normal(size=(7, 5)), rng.normal(size=7)
    state = policy.start(2)
    policy.update(state, rows, rewards, users=[1] * 7)
    mean, covariance = conditioned(prior.mean, prior.covariance, rows, rewards, prior.noise)
    np.testing.assert_allclose(state.mean, [prior.mean, mean], atol=1e-10)
    np.testing.assert_allclose(state.covariance[1], covariance, atol=1e-10)
    asked = rng.normal(size=(4, 5))
    said = asked @ mean + 1.5 * np.sqrt(np.einsum("kd,de,ke->k", asked, covariance, asked))
    np.testing.assert_allclose(policy.scores(state, asked)[1], said, atol=1e-10)


def test_draws_have_the_posterior_mean_and_covariance_of_candidates() -> None:
    prior = priors.empirical(partial())
    policy, asked = GaussianTS(prior), np.random.default_rng(2).normal(size=(3, 5))
    state = policy.start(1)
    query, rngs = policy.query(state, asked), [np.random.default_rng(3)]
    drawn = np.array([next(policy.draws(state, query, rngs))[0] for _ in range(20_000)])
    np.testing.assert_allclose(drawn.mean(axis=0), asked @ prior.mean, atol=0.1)
    np.testing.assert_allclose(np.cov(drawn.T), asked @ prior.covariance @ asked.T, rtol=0.05, atol=0.15)


def test_hierarchical_is_the_marginal_of_a_newcomer_given_all_logged_people() -> None:
    """The joint Gaussian of mean person, eight people and a newcomer, conditioned on every logged answer."""
    logged = partial(people=8, actions=3)
    prior, people, dim = priors.hierarchical(logged), 8, 3
    centre = logged.mean.mean()
    spread = max(logged.mean.var(ddof=1) - (logged.variance / logged.count).mean(), priors.LEAST)
    shared = np.kron(np.ones((people + 2, people + 2)), spread * np.eye(dim))
    own = np.kron(np.diag([0.0] + [1.0] * (people + 1)), logged.lasting * np.eye(dim))
    n, a = np.nonzero(logged.met)
    rows = np.zeros((len(n), dim * (people + 2)))
    rows[np.arange(len(n)), (n + 1) * dim + a] = 1.0
    start = np.full(dim * (people + 2), centre)
    mean, covariance = conditioned(start, shared + own, rows, logged.answers[n, a], logged.noise)
    np.testing.assert_allclose(prior.mean, mean[-dim:], atol=1e-9)
    np.testing.assert_allclose(prior.covariance, covariance[-dim:, -dim:], atol=1e-9)
    np.testing.assert_allclose(np.diag(prior.unsure), covariance[:dim, :dim], atol=1e-9)


def test_hierarchical_is_the_incremental_meta_posterior_of_adats() -> None:
    """AdaTS person by person: precision += T / (T s0^2 + s^2), T the answers that the person gave to the action."""
    logged = partial(people=12, actions=4)
    prior = priors.hierarchical(logged)
    centre = logged.mean.mean()
    spread = max(logged.mean.var(ddof=1) - (logged.variance / logged.count).mean(), priors.LEAST)
    weighted, precision = np.full(4, centre / spread), np.full(4, 1.0 / spread)
    for answers, met in zip(logged.answers, logged.met, strict=True):
        weighted += answers * met / (met * logged.lasting + logged.noise)
        precision += met / (met * logged.lasting + logged.noise)
    np.testing.assert_allclose(prior.mean, weighted / precision, atol=1e-9)
    np.testing.assert_allclose(np.diag(prior.covariance), logged.lasting + 1.0 / precision, atol=1e-9)


def test_meta_draws_one_mean_a_newcomer_and_keeps_it() -> None:
    prior = priors.meta(partial())
    policy = GaussianTS(prior, drawn_mean=True)
    drawn = policy.start(2000).mean
    np.testing.assert_allclose(drawn.mean(axis=0), prior.mean, atol=0.05)
    np.testing.assert_allclose(drawn.var(axis=0), prior.unsure, rtol=0.15)
    np.testing.assert_array_equal(policy.start(3).mean, drawn[:3])
    with pytest.raises(PolicyError, match="unsure"):
        GaussianTS(priors.pooled(partial()), drawn_mean=True)


def test_empirical_covariance_is_that_of_people_who_have_both() -> None:
    logged = partial()
    prior, raw = priors.empirical(logged), np.zeros((5, 5))
    for a in range(5):
        for b in range(5):
            both = logged.met[:, a] & logged.met[:, b]
            products = (logged.answers[both, a] - logged.mean[a]) * (logged.answers[both, b] - logged.mean[b])
            raw[a, b] = products.mean() - logged.noise * (a == b)
    values, vectors = np.linalg.eigh(raw)
    np.testing.assert_allclose(prior.covariance, vectors @ np.diag(values.clip(0.0)) @ vectors.T, atol=1e-10)


def test_em_raises_the_likelihood_of_what_was_answered() -> None:
    logged = partial()

    def likelihood(prior: Prior) -> float:
        total = 0.0
        for answers, met in zip(logged.answers, logged.met, strict=True):
            spread = prior.covariance[np.ix_(met, met)] + prior.noise * np.eye(met.sum())
            error = (answers - prior.mean)[met]
            total -= 0.5 * (np.linalg.slogdet(spread)[1] + error @ np.linalg.solve(spread, error))
        return total

    found = [likelihood(priors.likeliest(logged, steps)) for steps in (0, 1, 2, 5, 20)]
    assert found == sorted(found)


def test_diffusion_is_its_chain_conditioned_by_brute_force() -> None:
    """Posterior of beta in the joint Gaussian of all layers, against the policy's."""
    logged, layers, dim = partial(), 6, 5
    known = priors.likeliest(logged)
    prior = priors.diffused(logged, layers, known)
    scale = np.trace(known.covariance) / dim
    # psi_(l-1) = W_l psi_l + e_l from psi_L = e: each layer is a linear map of independent normals.
    maps, variances = np.eye(dim), [1.0]
    for weights, variance in reversed(priors.denoisers(known.covariance / scale, layers)):
        maps = np.hstack([weights @ maps, np.eye(dim)])
        variances.append(variance)
    latent = np.kron(np.diag(variances), np.eye(dim))
    rows, rewards = np.random.default_rng(4).normal(size=(4, dim)), np.array([1.0, -1.0, 2.0, 0.0])
    through = np.sqrt(scale) * rows @ maps
    given, left = conditioned(np.zeros(len(latent)), latent, through, rewards - rows @ prior.mean, prior.noise)
    state = GaussianTS(prior).start(1)
    GaussianTS(prior).update(state, rows, rewards, users=[0] * 4)
    np.testing.assert_allclose(state.mean[0], prior.mean + np.sqrt(scale) * maps @ given, atol=1e-9)
    np.testing.assert_allclose(state.covariance[0], scale * maps @ left @ maps.T, atol=1e-9)


def layered_posterior(
    chain: list[tuple[Floats, float]], rows: Floats, rewards: Floats, noise: float
) -> tuple[Floats, Floats]:
    """Equations (17) to (21) of arXiv 2402.10028, appendix B.1, for one parameter, then its mean and covariance.

    theta | psi_1 ~ N(W_1 psi_1, v_1 I), psi_(l-1) | psi_l ~ N(W_l psi_l, v_l I), psi_L ~ N(0, I).
    """
    gram, moment = rows.T @ rows / noise, rows.T @ rewards / noise
    identity, conditional = np.eye(rows.shape[1]), []
    for weights, variance in chain:
        spread = np.linalg.inv(identity / variance + gram)
        conditional.append((spread, weights, variance, moment))
        moment = weights.T @ spread @ moment / variance
        gram = weights.T @ (identity / variance - spread / variance**2) @ weights
    covariance = np.linalg.inv(identity + gram)
    mean = covariance @ moment
    # Hierarchical sampling in expectation: the mean and the covariance of the draw of each layer, given the one above.
    for spread, weights, variance, moments in reversed(conditional):
        through = spread @ weights / variance
        mean, covariance = through @ mean + spread @ moments, through @ covariance @ through.T + spread
    return mean, covariance


def test_diffusion_is_the_layered_posterior_of_its_paper() -> None:
    logged, layers = partial(), 6
    known = priors.likeliest(logged)
    prior = priors.diffused(logged, layers, known)
    scale = float(np.trace(known.covariance)) / 5
    (first, nothing), *chain = priors.denoisers(known.covariance / scale, layers)
    assert nothing == 0.0  # the last step of a diffusion adds no noise, so that the parameter is W_1 psi_1
    rows, rewards = np.random.default_rng(6).normal(size=(4, 5)), np.array([2.0, -1.0, 0.5, 1.0])
    turned = np.sqrt(scale) * rows @ first
    mean, covariance = layered_posterior(chain, turned, rewards - rows @ prior.mean, prior.noise)
    state = GaussianTS(prior).start(1)
    GaussianTS(prior).update(state, rows, rewards, users=[0] * 4)
    np.testing.assert_allclose(state.mean[0], prior.mean + np.sqrt(scale) * first @ mean, atol=1e-8)
    np.testing.assert_allclose(state.covariance[0], scale * first @ covariance @ first.T, atol=1e-8)


def test_many_layers_of_diffusion_keep_most_of_the_covariance() -> None:
    known = priors.likeliest(partial(people=200))
    made = priors.diffused(partial(people=200), 40, known).covariance
    assert np.linalg.norm(made - known.covariance) < 0.2 * np.linalg.norm(known.covariance)


def test_club_is_the_ridge_regression_of_the_connected_rows() -> None:
    """CLUB from scratch: all rows of connected clusters and own rows, solved anew in every round."""
    logged = partial(people=60)
    vectors, _ = priors.imputed(logged, priors.likeliest(logged))
    kinds = Kinds.of(logged, vectors, count=4)
    policy, rng = Club(kinds, alpha=0.5, alpha2=1.0), np.random.default_rng(5)
    state, rows, rewards, edges = policy.start(1), [], [], np.ones(4, dtype=bool)
    estimates = np.array([np.linalg.inv(np.eye(5) + g) @ b for g, b in zip(kinds.grams, kinds.moments, strict=True)])
    sizes = []
    for t in range(15):
        asked = rng.normal(size=(3, 5))
        x, y = np.reshape(rows, (t, 5)), np.array(rewards)
        system = np.eye(5) + kinds.grams[edges].sum(axis=0) + x.T @ x
        w = np.linalg.solve(system, kinds.moments[edges].sum(axis=0) + x.T @ (y - x @ kinds.mean))
        unsure = np.sqrt(np.einsum("kd,de,ke->k", asked, np.linalg.inv(system), asked) * np.log1p(t))
        said = asked @ (kinds.mean + w) + 0.5 * kinds.scale * unsure
        np.testing.assert_allclose(policy.scores(state, asked)[0], said, atol=1e-8)
        rows.append(asked[0])
        rewards.append(float(rng.normal()))
        policy.update(state, asked[0], rewards[-1])
        x, y = np.array(rows), np.array(rewards)
        own = np.linalg.solve(np.eye(5) + x.T @ x, x.T @ (y - x @ kinds.mean))
        bound = np.sqrt((1 + np.log(1 + kinds.rows)) / (1 + kinds.rows)) + np.sqrt((1 + np.log(2 + t)) / (2 + t))
        edges &= np.linalg.norm(estimates - own, axis=1) <= kinds.scale * bound
        np.testing.assert_array_equal(state.edges[0], edges)
        sizes.append(edges.sum())
    assert sizes[0] > sizes[-1]


def test_partial_logs_are_the_cells_of_logs() -> None:
    world = MadeUp.draw(30, 12).world
    logged = Partial.of(world.logs(steps=4))
    assert logged.met.sum(axis=1).tolist() == [4] * len(logged.met)
    assert logged.noise + logged.lasting == pytest.approx(logged.variance)
    np.testing.assert_allclose(np.where(logged.met, logged.centred, 0.0).sum(axis=0), 0.0, atol=1e-9)


def test_a_prior_that_is_none_is_refused() -> None:
    with pytest.raises(PolicyError, match="positive noise"):
        Prior(np.zeros(2), np.eye(2), 0.0)
