"""Guards the latent-model baselines (mUCB, mmUCB, mTS, mmTS, MixTS): the policy contract, agreement with naive oracles
of the published definitions, and the identities that tie them to each other and to linear Thompson sampling."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import newcomer as nc
from newcomer.errors import ModelError, PolicyError
from newcomer.policies.finite_models import cluster_into_finite_models
from newcomer.policies.mixtures import MixtureState
from newcomer.testing import check_policy
from tests.oracles import models as oracle

DIM, COUNT = 4, 3


def make_prior(seed=0, dim=DIM, count=COUNT):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((count, dim, dim)) / np.sqrt(dim)
    return rng.standard_normal((count, dim)), 0.3 * roots @ roots.transpose(0, 2, 1), rng.dirichlet(np.ones(count) * 3)


CENTERS, COVARIANCES, WEIGHTS = make_prior()
VARIANCES = np.array([0.1, 0.5, 0.02])
ISOTROPIC = VARIANCES[:, None, None] * np.eye(DIM)

EVERY = {
    "MUCB": nc.MUCB(CENTERS, horizon=50),
    "MmUCB": nc.MmUCB(CENTERS, 0.1, horizon=50),
    "MTS": nc.MTS(CENTERS, weights=WEIGHTS),
    "MmTS": nc.MmTS(CENTERS, variances=VARIANCES, weights=WEIGHTS, votes=200),
    "MixTS": nc.MixTS(CENTERS, covariances=COVARIANCES, weights=WEIGHTS, votes=200),
}


def make_history(seed, rounds, dim=DIM, centers=CENTERS):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rounds, dim)) / np.sqrt(dim)
    return [(phi, float(phi @ centers[0] + 0.5 * rng.standard_normal())) for phi in features]


def after(policy, history):
    state = policy.start(1)
    for phi, reward in history:
        policy.update(state, [phi], [reward])
    return state


def some_actions(seed, count=6, dim=DIM):
    return np.random.default_rng(seed).standard_normal((count, dim))


@pytest.mark.parametrize("name", EVERY)
def test_contract(name):
    check_policy(EVERY[name])


def test_contract_in_one_dimension_with_one_model():
    for policy in (
        nc.MUCB([[1.0]], horizon=5),
        nc.MTS([[1.0]]),
        nc.MmTS([[1.0]], variances=0.5, votes=50),
        nc.MixTS([[1.0]], covariances=[[0.5]], votes=50),
    ):
        check_policy(policy)


# mUCB and mmUCB


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@pytest.mark.parametrize("horizon", [1, 3, 200])
def test_elimination_follows_the_definition(horizon, epsilon):
    """Played for 80 rounds: charges, the plausible set and every index agree with the replayed definition."""
    policy = nc.MmUCB(CENTERS, epsilon, horizon=horizon, noise_sd=0.3)
    rng, state, history, emptied = np.random.default_rng(horizon), policy.start(1), [], 0
    beta = -CENTERS.mean(axis=0)  # a stranger, so that promises are broken
    for t in range(80):
        actions = some_actions(1000 + t)
        counts, gaps, alive = oracle.elimination(CENTERS, history, horizon=horizon, noise_sd=0.3, epsilon=epsilon)
        np.testing.assert_array_equal(state.count[0], counts)
        np.testing.assert_allclose(state.gap[0], gaps, atol=1e-12)
        index = oracle.elimination_index(CENTERS, alive, actions)
        np.testing.assert_allclose(policy.scores(state, actions)[0], index, atol=1e-12)
        chosen = int(policy.choose(state, actions)[0])
        assert index[chosen] >= index.max() - 1e-12
        emptied += all(gap > 0.3 * np.sqrt(6 * n * np.log(horizon)) for n, gap in zip(counts, gaps, strict=True))
        history.append((actions[chosen], float(actions[chosen] @ beta + 0.3 * rng.standard_normal())))
        policy.update(state, [history[-1][0]], [history[-1][1]])
    assert emptied or horizon == 200  # the short horizons do reach the case that no model is plausible


def test_a_model_is_plausible_up_to_its_threshold():
    """G_s <= sigma sqrt(6 N_s log T): here 0.5 sqrt(6 * 8 * log 100)."""
    policy = nc.MUCB(np.array([[1.0], [2.0]]), horizon=100, noise_sd=0.5)
    state, threshold = policy.start(2), 0.5 * np.sqrt(6 * 8 * np.log(100))
    state.count[:], state.gap[:] = [0, 8], [[0.0, 0.999 * threshold], [0.0, 1.001 * threshold]]
    np.testing.assert_array_equal(policy.scores(state, [[1.0]]), [[2.0], [1.0]])


def test_when_no_model_is_plausible_the_least_implausible_stays():
    policy = nc.MUCB(np.array([[1.0], [2.0]]), horizon=2, noise_sd=1.0)
    state = policy.start(1)
    state.count[:], state.gap[:] = [[4, 1]], [[10.0, 6.0]]  # 10 / 2 < 6 / 1
    np.testing.assert_allclose(policy.scores(state, [[3.0]]), [[3.0]])
    state.count[:] = [[1, 4]]
    np.testing.assert_allclose(policy.scores(state, [[3.0]]), [[6.0]])


def test_mmucb_without_error_is_mucb():
    plain, tolerant = nc.MUCB(CENTERS, horizon=60), nc.MmUCB(CENTERS, 0.0, horizon=60)
    first, second = plain.start(2), tolerant.start(2)
    rng = np.random.default_rng(5)
    for t in range(60):
        actions = np.stack([some_actions(t), some_actions(t + 100)])
        chosen = plain.choose(first, actions)
        np.testing.assert_array_equal(chosen, tolerant.choose(second, actions))
        played, rewards = actions[[0, 1], chosen], rng.standard_normal(2)
        plain.update(first, played, rewards)
        tolerant.update(second, played, rewards)
    np.testing.assert_array_equal(first.count, second.count)
    np.testing.assert_array_equal(first.gap, second.gap)


def test_an_unclipped_radius_never_eliminates():
    """The paper's epsilon = Delta_off ~ 48 exceeds every broken promise."""
    state = after(nc.MmUCB(CENTERS, 48.0, horizon=200), make_history(3, 100))
    assert (state.gap <= 0).all()


def test_several_rewards_of_a_user_in_one_call_are_charged_in_order():
    policy, history = EVERY["MUCB"], make_history(9, 30)
    together = policy.start(2)
    features, rewards = np.array([phi for phi, _ in history]), np.array([reward for _, reward in history])
    policy.update(together, np.repeat(features, 2, axis=0), np.repeat(rewards, 2), users=np.tile([1, 0], 30))
    apart = after(policy, history)
    assert together.take([0]).to_bytes() == together.take([1]).to_bytes() == apart.to_bytes()


# mTS


def test_model_posterior_and_exact_law():
    for seed in range(5):
        history, actions = make_history(seed, 4 * seed), some_actions(seed)
        state = after(EVERY["MTS"], history)
        chances = oracle.model_weights(CENTERS, WEIGHTS, history, noise_sd=0.5)
        law = oracle.model_law(CENTERS, chances, actions)
        np.testing.assert_allclose(EVERY["MTS"].probabilities(state, actions)[0], law, atol=1e-12)
        np.testing.assert_allclose(EVERY["MTS"].scores(state, actions)[0], actions @ (chances @ CENTERS), atol=1e-12)


def test_model_draws_have_the_exact_law():
    state, actions = after(EVERY["MTS"], make_history(1, 2)), some_actions(2)
    mask = np.array([True, True, False, True, True, True])
    law = EVERY["MTS"].probabilities(state, actions, mask=mask)[0]
    many = state.take(np.zeros(20_000, dtype=int))
    chosen = EVERY["MTS"].choose(many, actions, np.random.default_rng(0), mask=mask)
    same_law(np.bincount(chosen, minlength=6), law)
    assert law[2] == 0


# mmTS and MixTS


@pytest.mark.parametrize("rounds", [0, 1, 5, 15, 16, 17, 40])
def test_mixture_posterior_against_brute_force(rounds):
    """Weights, means and the covariance of draws; from 16 rows (max(16, 2d)) on, histories are folded."""
    history, actions = make_history(rounds, rounds), some_actions(rounds)
    for policy, spreads in ((EVERY["MmTS"], ISOTROPIC), (EVERY["MixTS"], COVARIANCES)):
        state = after(policy, history)
        chances = oracle.mixture_weights(CENTERS, spreads, WEIGHTS, history, noise_sd=0.5)
        found = np.exp(state.log_weights[0] - np.logaddexp.reduce(state.log_weights[0]))
        np.testing.assert_allclose(found, chances, rtol=1e-9)
        exact = [oracle.gaussian_posterior(m, c, history, noise_sd=0.5) for m, c in zip(CENTERS, spreads, strict=True)]
        mean = sum(p * e[0] for p, e in zip(chances, exact, strict=True))
        np.testing.assert_allclose(policy.scores(state, actions)[0], actions @ mean, atol=1e-10)
        for s, (center, covariance) in enumerate(exact):
            draws = policy.mixture.sample(state, 0, s, np.random.default_rng(s), size=40_000)
            same_gaussian(draws, center, covariance)


def test_log_weights_grow_by_the_predictive_density():
    """log p_s += log N(r; phi . mean_s, sigma^2 + phi . Cov_s phi), the sequential form of the definition."""
    policy, history = EVERY["MixTS"], make_history(4, 12)
    state, logs = policy.start(1), np.log(WEIGHTS)
    for t, (phi, reward) in enumerate(history):
        for s in range(COUNT):
            mean, spread = oracle.gaussian_posterior(CENTERS[s], COVARIANCES[s], history[:t], noise_sd=0.5)
            logs[s] += stats.norm.logpdf(reward, phi @ mean, np.sqrt(0.25 + phi @ spread @ phi))
        policy.update(state, [phi], [reward])
    np.testing.assert_allclose(state.log_weights[0] - state.log_weights[0, 0], logs - logs[0], atol=1e-9)


def test_mixture_choices_and_votes_follow_the_law():
    history, actions = make_history(8, 6), some_actions(8)
    for policy, spreads in ((EVERY["MmTS"], ISOTROPIC), (EVERY["MixTS"], COVARIANCES)):
        state = after(policy, history)
        law = oracle.mixture_law(CENTERS, spreads, WEIGHTS, history, actions, noise_sd=0.5, draws=200_000, seed=1)
        chosen = policy.choose(state.take(np.zeros(4000, dtype=int)), actions, np.random.default_rng(0))
        same_law(np.bincount(chosen, minlength=6), law)
        votes = policy.probabilities(state, actions, np.random.default_rng(1))[0]
        assert votes.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(votes, law, atol=4 * 0.5 / np.sqrt(policy.votes))


def test_equal_inputs_equal_laws():
    """With Sig_s = v_s I, MixTS and mmTS draw the same kinds of users from the same posterior, draw for draw."""
    first = nc.MmTS(CENTERS, variances=VARIANCES, weights=WEIGHTS)
    second = nc.MixTS(CENTERS, covariances=ISOTROPIC, weights=WEIGHTS)
    history, actions = make_history(11, 25), some_actions(11)
    one, two = after(first, history), after(second, history)
    np.testing.assert_allclose(one.log_weights, two.log_weights, atol=1e-9)
    np.testing.assert_allclose(first.scores(one, actions), second.scores(two, actions), atol=1e-10)
    rows = np.zeros(500, dtype=int)
    chosen = [
        policy.choose(state.take(rows), actions, np.random.default_rng(3))
        for policy, state in ((first, one), (second, two))
    ]
    np.testing.assert_array_equal(*chosen)


def test_one_component_is_linear_thompson_sampling_with_that_prior():
    """The law of beta is N(mean, (Sig^-1 + X^T X / sigma^2)^-1), and choices follow it."""
    policy = nc.MixTS(CENTERS[:1], covariances=COVARIANCES[0])
    history, actions = make_history(12, 9), some_actions(12)
    state = after(policy, history)
    mean, covariance = oracle.gaussian_posterior(CENTERS[0], COVARIANCES[0], history, noise_sd=0.5)
    betas = np.random.default_rng(2).multivariate_normal(mean, covariance, size=200_000)
    law = np.bincount(np.argmax(betas @ actions.T, axis=1), minlength=6) / len(betas)
    chosen = policy.choose(state.take(np.zeros(4000, dtype=int)), actions, np.random.default_rng(4))
    same_law(np.bincount(chosen, minlength=6), law)
    np.testing.assert_allclose(policy.scores(state, actions)[0], actions @ mean, atol=1e-10)


def test_no_spread_is_mts():
    """mmTS with variance 0 believes in the models alone: the posterior of mTS."""
    history = make_history(13, 20)
    state = after(nc.MmTS(CENTERS, variances=0.0, weights=WEIGHTS), history)
    plain = after(EVERY["MTS"], history)
    difference = state.log_weights - plain.log_weights
    np.testing.assert_allclose(difference, difference[:, :1].repeat(COUNT, axis=1), atol=1e-9)


def test_long_histories_are_folded_and_stay_small():
    policy, history = EVERY["MixTS"], make_history(14, 200)
    state = after(policy, history)
    assert state.features.shape[1] == 16
    chances = oracle.mixture_weights(CENTERS, COVARIANCES, WEIGHTS, history, noise_sd=0.5)
    found = np.exp(state.log_weights[0] - np.logaddexp.reduce(state.log_weights[0]))
    np.testing.assert_allclose(found, chances, rtol=1e-7, atol=1e-12)
    mean, _ = oracle.gaussian_posterior(CENTERS[0], COVARIANCES[0], history, noise_sd=0.5)
    np.testing.assert_allclose(policy.mixture.mean(state, 0, 0), mean, atol=1e-10)


def test_users_with_and_without_history_live_together():
    """Cut and joined states carry the same users, whatever room each part had."""
    policy, actions = EVERY["MixTS"], some_actions(15)
    old, new = after(policy, make_history(15, 14)), policy.start(2)
    both = MixtureState.concat([new, old])
    np.testing.assert_array_equal(policy.scores(both, actions)[2], policy.scores(old, actions)[0])
    np.testing.assert_array_equal(policy.scores(both, actions)[:2], policy.scores(new, actions))
    back = MixtureState.from_bytes(both.to_bytes())
    np.testing.assert_array_equal(policy.scores(back, actions), policy.scores(both, actions))


@pytest.mark.parametrize("name", ["MTS", "MmTS", "MixTS", "MUCB"])
def test_play_does_not_depend_on_the_batch(name):
    class World:
        dim = DIM

        def episode(self, rng, horizon):
            from newcomer.worlds.world import Episode

            actions = rng.standard_normal((horizon, 5, DIM))
            means = actions @ (CENTERS[rng.integers(COUNT)] + 0.1 * rng.standard_normal(DIM))
            return Episode(actions, means, means + 0.5 * rng.standard_normal(means.shape))

    frames = [
        nc.play({name: EVERY[name]}, World(), horizon=25, users=5, seed=0, batch=batch, progress=False)
        for batch in (1, 5)
    ]
    assert frames[0].equals(frames[1])


def test_models_from_clusters_find_the_newcomers_kind():
    rng = np.random.default_rng(0)
    places = 3 * np.eye(DIM)[:COUNT]
    users = places[rng.integers(COUNT, size=300)] + 0.2 * rng.standard_normal((300, DIM))
    found = cluster_into_finite_models(users, COUNT, seed=0)
    mix = nc.MixTS(found.centers, covariances=found.covariances, weights=found.shares)
    state = after(mix, make_history(0, 60, centers=found.centers))
    assert np.argmax(state.log_weights[0]) == 0


# refusals


@pytest.mark.parametrize(
    "make",
    [
        lambda: nc.MUCB([1.0, 2.0], horizon=5),
        lambda: nc.MUCB([[np.nan]], horizon=5),
        lambda: nc.MUCB([["a"]], horizon=5),
        lambda: nc.MUCB(CENTERS, horizon=0),
        lambda: nc.MUCB(CENTERS, horizon=5, noise_sd=0.0),
        lambda: nc.MmUCB(CENTERS, -0.1, horizon=5),
        lambda: nc.MTS(CENTERS, weights=[1.0, 0.0, 1.0]),
        lambda: nc.MTS(CENTERS, weights=[1.0]),
        lambda: nc.MmTS(CENTERS, variances=[0.1]),
        lambda: nc.MmTS(CENTERS, variances=-1.0),
        lambda: nc.MmTS(CENTERS, variances=1.0, votes=0),
        lambda: nc.MixTS(CENTERS, covariances=np.eye(DIM + 1)),
        lambda: nc.MixTS(CENTERS, covariances=-np.eye(DIM)),
        lambda: nc.MixTS(CENTERS, covariances=np.triu(np.ones((DIM, DIM)))),
        lambda: nc.MixTS(CENTERS, covariances=np.full((DIM, DIM), np.inf)),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(PolicyError):
        make()


def test_states_of_others_are_refused():
    for name, policy in EVERY.items():
        for other in (nc.Uniform().start(1), nc.MTS(CENTERS[:2]).start(1), nc.MUCB(CENTERS[:1], horizon=3).start(1)):
            with pytest.raises(PolicyError):
                policy.scores(other, some_actions(0))
        assert name


def test_evidence_that_does_not_fit_together_is_refused():
    state = after(EVERY["MmTS"], make_history(0, 3))
    arrays = {name: array for name, array, _ in state.arrays()}
    for name, wrong in {"count": np.array([9]), "reward": np.zeros((1, 1)), "factor": np.zeros((1, 3, 2))}.items():
        with pytest.raises(ModelError):
            MixtureState.rebuild({**arrays, name: wrong})


def same_law(counts, law):
    """A chi-square test at one in ten thousand; rare actions are pooled."""
    common = law * counts.sum() >= 5
    seen = np.append(counts[common], counts[~common].sum())
    expected = np.append(law[common], law[~common].sum()) * counts.sum()
    keep = expected > 0
    assert seen[~keep].sum() == 0
    statistic = ((seen[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    assert statistic <= stats.chi2.ppf(1 - 1e-4, max(1, keep.sum() - 1))


def same_gaussian(draws, mean, covariance):
    """Sample mean and covariance within 5 standard errors."""
    size, spread = len(draws), np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(axis=0) - mean) <= 5 * spread / np.sqrt(size)).all()
    error = np.abs(np.cov(draws.T) - covariance)
    assert (error <= 5 * np.sqrt(2 / size) * np.outer(spread, spread)).all()
