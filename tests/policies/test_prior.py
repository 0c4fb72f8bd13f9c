"""Guards PriorUCB and PriorTS: posteriors against Bayes' rule, the contract, scale, and the test for strangers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from newcomer.errors import PolicyError
from newcomer.model import Model
from newcomer.policies.baselines import PopulationMean
from newcomer.policies.exits import SHARES, SIZES, OutlierTest, likeliest_exit_size
from newcomer.policies.prior import PriorTS, PriorUCB
from newcomer.testing import PROMISES, Trial


def make_model(dim=6, rank=2, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((dim, rank))
    basis = np.linalg.qr(factor)[0]
    return Model(basis, np.ones(dim), rng.standard_normal(dim), factor, noise)


def dense(prior_mean, prior_covariance, X, r, noise):
    """Bayes' rule for joint Gaussians, with everything written out."""
    gain = prior_covariance @ X.T @ np.linalg.inv(X @ prior_covariance @ X.T + noise * np.eye(len(r)))
    return prior_mean + gain @ (r - X @ prior_mean), prior_covariance - gain @ X @ prior_covariance


def history(model, rows=9, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, model.dim))
    return X, rng.standard_normal(rows), rng.standard_normal((7, model.dim))


POLICIES = {
    "UCB": PriorUCB(make_model(5)),
    "UCB that escapes": PriorUCB(make_model(5), level=0.9),
    "UCB that stays": PriorUCB(make_model(5), level=0.0),
    "TS": PriorTS(make_model(5), votes=20),
    "TS that escapes": PriorTS(make_model(5), level=0.9, votes=20),
    "UCB of rank 0": PriorUCB(replace(make_model(5), factor=np.zeros((5, 0)))),
}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("name", POLICIES)
def test_they_keep_every_promise(name, promise):
    promise(Trial(POLICIES[name], 5, seed=1))


def test_by_default_optimism_is_half_of_what_one_more_reward_could_change():
    """The change is found from its definition: by learning a reward one deviation above what was expected."""
    model = make_model()
    X, r, actions = history(model)
    policy, plain = PriorUCB(model, level=0.0), PriorUCB(model, level=0.0, width=0.0)
    state = policy.start(1)
    policy.update(state, X, r, users=np.zeros(len(X), dtype=int))
    _, covariance = dense(model.mean, model.covariance, X, r, model.noise_variance)
    before = plain.scores(state, actions[None])[0]
    expected = []
    for place, action in enumerate(actions):
        deviation = np.sqrt(action @ covariance @ action + model.noise_variance)
        after = state.take([0])
        plain.update(after, action[None], [before[place] + deviation])
        expected.append(plain.scores(after, actions[None])[0, place] - before[place])
    np.testing.assert_allclose(policy.scores(state, actions[None])[0], before + 0.5 * np.array(expected), atol=1e-9)


def test_draws_are_the_narrower_the_less_a_reward_tells():
    model = make_model()
    X, r, actions = history(model)
    X, r = X[:1], r[:1]
    _, covariance = dense(model.mean, model.covariance, X, r, model.noise_variance)
    spread = np.einsum("ad,de,ae->a", actions, covariance, actions)
    scale = 0.5 * np.sqrt((spread / (spread + model.noise_variance)).mean())
    chosen = []
    for policy in (PriorTS(model, level=0.0), PriorTS(model, level=0.0, scale=float(scale))):
        state = policy.start(1)
        policy.update(state, X, r, users=np.zeros(len(X), dtype=int))
        chosen.append([policy.choose(state, actions[None], np.random.default_rng(seed))[0] for seed in range(50)])
    assert chosen[0] == chosen[1] and len(set(chosen[0])) > 1


@pytest.mark.parametrize("width", [0.0, 1.3])
def test_scores_are_those_of_the_dense_posterior(width):
    model = make_model()
    X, r, actions = history(model)
    policy, sampled = PriorUCB(model, width=width, level=0.0), PriorTS(model, level=0.0)
    state, twin = policy.start(1), sampled.start(1)
    for x, y in zip(X, r, strict=True):
        policy.update(state, x[None], [y])
        sampled.update(twin, x[None], [y])
    mean, covariance = dense(model.mean, model.covariance, X, r, model.noise_variance)
    expected = actions @ mean + width * np.sqrt(np.einsum("ad,de,ae->a", actions, covariance, actions))
    np.testing.assert_allclose(policy.scores(state, actions[None])[0], expected, atol=1e-9)
    np.testing.assert_allclose(sampled.scores(twin, actions[None])[0], actions @ mean, atol=1e-9)


def test_a_stranger_is_served_by_the_dense_posterior_of_the_full_prior():
    model = make_model()
    X, r, actions = history(model)
    policy = PriorUCB(model, width=1.0, level=0.99)
    state = policy.start(1)
    size = None
    for x, y in zip(X, 20 * r, strict=True):
        policy.update(state, x[None], [y])
        if size is None and not policy.in_subspace(state)[0]:
            size = SIZES[likeliest_exit_size(state.outlier, 0)]
    assert size is not None
    full = model.covariance + size * np.trace(model.covariance) / model.dim * np.eye(model.dim)
    mean, covariance = dense(model.mean, full, X, 20 * r, model.noise_variance)
    expected = actions @ mean + np.sqrt(np.einsum("ad,de,ae->a", actions, covariance, actions))
    np.testing.assert_allclose(policy.scores(state, actions[None])[0], expected, rtol=1e-8, atol=1e-8)


def test_draws_have_the_law_of_the_posterior():
    model = make_model(4)
    X, r, actions = history(model)
    policy = PriorTS(model, level=0.0, scale=1.0, votes=4000)
    state = policy.start(1)
    policy.update(state, X, r, users=np.zeros(len(r), dtype=int))
    mean, covariance = dense(model.mean, model.covariance, X, r, model.noise_variance)
    rng = np.random.default_rng(0)
    wins = np.argmax(actions @ rng.multivariate_normal(mean, covariance, 40_000).T, axis=0)
    shares = np.bincount(wins, minlength=len(actions)) / 40_000
    votes = policy.probabilities(state, actions[None], np.random.default_rng(1))[0]
    assert np.abs(votes - shares).max() < 0.04


def test_rewards_times_a_hundred_give_the_same_actions():
    model = make_model(8, 3)
    scaled = replace(model, mean=100 * model.mean, factor=100 * model.factor, noise_variance=1e4 * model.noise_variance)
    rng = np.random.default_rng(2)
    plain, large = PriorUCB(model, level=0.2), PriorUCB(scaled, level=0.2)
    a, b = plain.start(20), large.start(20)
    for _ in range(30):
        actions = rng.standard_normal((20, 5, 8))
        chosen = plain.choose(a, actions)
        np.testing.assert_array_equal(chosen, large.choose(b, actions))
        features, reward = actions[np.arange(20), chosen], 3 * rng.standard_normal(20)
        plain.update(a, features, reward)
        large.update(b, features, 100 * reward)
        np.testing.assert_array_equal(plain.in_subspace(a), large.in_subspace(b))


def test_without_differences_it_is_the_population_mean():
    model = replace(make_model(), factor=np.zeros((6, 0)))
    X, r, actions = history(model)
    policy, mean = PriorUCB(model, level=0.0), PopulationMean(model)
    state = policy.start(1)
    policy.update(state, X, r, users=np.zeros(len(r), dtype=int))
    np.testing.assert_allclose(policy.scores(state, actions[None]), mean.scores(mean.start(1), actions[None]))


def lives(model, betas, rounds, level, seed):
    """Whether each user is still taken for one of the population after choosing among random actions."""
    rng = np.random.default_rng(seed)
    policy = PriorUCB(model, level=level)
    state, who = policy.start(len(betas)), np.arange(len(betas))
    for _ in range(rounds):
        actions = rng.standard_normal((len(betas), 4, model.dim)) / np.sqrt(model.dim)
        features = actions[who, policy.choose(state, actions)]
        noise = np.sqrt(model.noise_variance) * rng.standard_normal(len(betas))
        policy.update(state, features, np.einsum("nd,nd->n", features, betas) + noise)
    return policy.in_subspace(state)


def test_users_of_the_population_are_rarely_taken_for_strangers_and_strangers_are_found():
    model = make_model(10, 2)
    rng = np.random.default_rng(3)
    usual = model.mean + rng.standard_normal((2000, 2)) @ model.factor.T
    gone = 1 - lives(model, usual, 150, 0.1, seed=4).mean()
    assert gone <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 2000)
    strange = usual[:100] + 2.0 * rng.standard_normal((100, 10))
    assert lives(model, strange, 150, 0.01, seed=5).mean() < 0.1


def test_the_evidence_has_mean_one_under_the_prior():
    """The running product is a martingale: its mean over many users stays one, whatever the features."""
    rng = np.random.default_rng(6)
    n, d = 40_000, 3
    test = OutlierTest(0.1, 0.01, d)
    state = test.start(n)
    for _ in range(4):
        features, deviation = 0.5 * rng.standard_normal((n, d)), rng.uniform(1, 2, n)
        test.look(state, np.arange(n), features, rng.standard_normal(n), deviation)
    products = np.exp(test.evidence(state, np.arange(n)))
    assert products.mean() == pytest.approx(1.0, abs=4 * products.std() / np.sqrt(n))


@pytest.mark.parametrize("scales", [np.zeros(0), np.array([[0.5, 1.0, 4.0], [0.3, 0.6, 0.1]])])
def test_of_one_hot_features_the_evidence_is_a_ratio_of_two_mixtures_of_normal_densities(scales):
    """The alternative: errors larger by 1 + size; the population: errors of the scales that it was found to have."""
    errors = np.random.default_rng(6).standard_normal((5, 7))
    test = OutlierTest(0.1, 0.3, 0, scales)
    state = test.start(5)
    for column in errors.T:
        test.look(state, np.arange(5), np.zeros((5, 0)), column, np.full(5, 2.0))

    def density(variances):
        return (np.exp(-(errors[:, :, None] ** 2) / (2 * variances)) / np.sqrt(2 * np.pi * variances)).prod(axis=1)

    null = density(np.ones(1))[:, 0]
    if scales.size:  # a scale stands for the smaller ones, too
        each = density(scales[0])
        null = sum(weight * each[:, : j + 1].max(axis=1) for j, weight in enumerate(scales[1]))
    wanted = np.log(density(1 + SIZES) @ SHARES / null)
    np.testing.assert_allclose(test.evidence(state, np.arange(5)), wanted, rtol=1e-10)


def people(share, *, one_hot, users, rounds, seed):
    """The share of ordinary users ever sent away, where so much lasts and the policy has to find out how much."""
    rng = np.random.default_rng(seed)
    actions, dim, rank = (60, 60, 3) if one_hot else (100, 20, 3)
    table = np.eye(actions) if one_hot else rng.standard_normal((actions, dim)) / np.sqrt(dim)
    factor = (0.4 if one_hot else 1.0) * rng.standard_normal((dim, rank))
    model = Model(
        basis=np.linalg.qr(factor)[0],
        spectrum=np.ones(dim),
        mean=rng.standard_normal(dim),
        factor=factor,
        noise_variance=0.8,
        action_ids=tuple(range(actions)),
        action_features=None if one_hot else table,
        one_hot=one_hot,
        residual_variance=rng.uniform(0.4, 1.2, actions),
        persistence=None,
    )
    v = model.residual_variance
    liked = (model.mean + rng.standard_normal((users, rank)) @ factor.T) @ table.T
    liked += np.sqrt(share * v) * rng.standard_normal((users, actions))
    policy = PriorUCB(model, level=0.1)
    state, who, ids = policy.start(users), np.arange(users)[:, None], np.arange(actions)
    for _ in range(rounds):
        offered = np.argsort(rng.random((users, actions)), axis=1)[:, :10]
        chosen = np.take_along_axis(offered, policy.choose(state, ids=ids[offered])[:, None], axis=1)[:, 0]
        reward = liked[who[:, 0], chosen] + np.sqrt((1 - share) * v[chosen]) * rng.standard_normal(users)
        policy.update(state, ids=chosen, reward=reward)
    return 1.0 - policy.in_subspace(state).mean()


@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75])
def test_ordinary_users_are_rarely_sent_away_however_much_lasts(share, one_hot):
    users = 300
    gone = people(share, one_hot=one_hot, users=users, rounds=60, seed=7)
    assert gone <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / users)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [PriorUCB, PriorTS])
def test_features_that_are_not_finite_are_refused_and_change_nothing(make, bad):
    policy = make(make_model())
    X, r, actions = history(policy.model)
    state = policy.start(1)
    policy.update(state, X, r, users=np.zeros(len(r), dtype=int))
    before = state.to_bytes()
    for place in range(policy.model.dim):
        broken = actions.copy()
        broken[-1, place] = bad
        with pytest.raises(PolicyError):
            policy.choose(state, broken[None], np.random.default_rng(0))
        with pytest.raises(PolicyError):
            policy.update(state, broken[-1:], [1.0])
    assert state.to_bytes() == before


def test_settings_are_checked():
    with pytest.raises(PolicyError, match="level"):
        PriorUCB(make_model(), level=1.0)
    with pytest.raises(PolicyError, match="width"):
        PriorUCB(make_model(), width=-1.0)
    with pytest.raises(PolicyError, match="started by PriorUCB with dim 5.*this policy is PriorUCB with dim 6"):
        PriorUCB(make_model(6)).in_subspace(PriorUCB(make_model(5)).start(1))
