"""Guards the memory of actions: posteriors against one dense Gaussian, repeats, late rewards, what is the same action,
small states.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import newcomer as nc
from newcomer.model import Model
from newcomer.policies.repeatability import SHARES, mean_repeatability, repeatability_by_deviations
from tests.oracles import memory as oracle


def make_model(rng, *, dim=6, rank=2, actions=9, persistence=0.5, one_hot=False, offsets=True):
    """A model with a catalogue, variances that differ between actions, and offsets."""
    dim = actions if one_hot else dim
    return Model(
        basis=np.linalg.qr(rng.standard_normal((dim, rank)))[0],
        spectrum=np.ones(dim),
        mean=rng.standard_normal(dim),
        factor=rng.standard_normal((dim, rank)),
        noise_variance=0.8,
        action_ids=tuple(f"a{i}" for i in range(actions)),
        action_features=None if one_hot else rng.standard_normal((actions, dim)),
        one_hot=one_hot,
        residual_variance=rng.uniform(0.3, 1.5, actions),
        offsets=None if one_hot or not offsets else 0.3 * rng.standard_normal(actions),
        persistence=persistence,
    )


def event(model, name, features=None, variance=None):
    """An event as the oracle takes it; the offset is a feature of its own with a known weight."""
    code = model.action_ids.index(name) if name in model.action_ids else None
    phi = model.features([name])[0] if features is None else features
    v = model.residual_variance[code] if code is not None else model.noise_variance
    return name, phi, model.persistence * v, (1 - model.persistence) * v


@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.parametrize("persistence", [0.0, 0.25, 0.75])
@pytest.mark.parametrize("seed", range(3))
def test_means_and_variances_are_those_of_the_dense_posterior(one_hot, persistence, seed):
    rng = np.random.default_rng(seed)
    model = make_model(rng, persistence=persistence, one_hot=one_hot)
    policy, bold = nc.PriorUCB(model, width=0.0, level=0.0), nc.PriorUCB(model, width=1.0, level=0.0)
    own = nc.PriorUCB(model, width=0.0, memory_width=1.0, level=0.0)
    state = policy.start(1)
    seen, rewards = [], []
    everything = list(model.action_ids)
    for _ in range(25):
        name = everything[rng.integers(len(everything))]
        code, reward = model.action_ids.index(name), float(rng.standard_normal())
        policy.update(state, ids=[name], reward=[reward])
        seen.append(event(model, name))
        rewards.append(reward - model.offsets[code])
        means, covariance = oracle.posterior(
            seen, np.array(rewards), [event(model, one) for one in everything], factor=model.factor, mean=model.mean
        )
        scores = policy.scores(state, ids=everything)[0]
        np.testing.assert_allclose(scores, means + model.offsets, rtol=1e-9, atol=1e-9)
        taste = bold_scores(bold, state, everything) - scores
        lasting = bold_scores(own, state, everything) - scores
        np.testing.assert_allclose(taste**2 + lasting**2, np.diag(covariance), rtol=1e-8, atol=1e-9)


def bold_scores(policy, state, names):
    copy = state.take([0])
    copy.record = policy.record
    return policy.scores(copy, ids=names)[0]


@pytest.mark.filterwarnings("ignore:.* ids are not among")
def test_features_that_change_from_meeting_to_meeting():
    rng = np.random.default_rng(4)
    model = make_model(rng, persistence=0.6, offsets=False)
    policy, state = nc.PriorUCB(model, width=0.0, level=0.0), None
    state = policy.start(1)
    seen, rewards = [], []
    for _ in range(20):
        name, phi, reward = f"b{rng.integers(3)}", rng.standard_normal(model.dim), float(rng.standard_normal())
        policy.update(state, phi, [reward], ids=[name])
        seen.append(event(model, name, phi))
        rewards.append(reward)
    candidates = [(f"b{i}", rng.standard_normal(model.dim)) for i in range(4)]
    means, _ = oracle.posterior(
        seen, np.array(rewards), [event(model, *one) for one in candidates], factor=model.factor, mean=model.mean
    )
    scores = policy.scores(state, np.array([phi for _, phi in candidates]), ids=[name for name, _ in candidates])[0]
    np.testing.assert_allclose(scores, means, rtol=1e-9, atol=1e-9)


def test_draws_have_the_law_of_the_posterior():
    rng = np.random.default_rng(1)
    model = make_model(rng, persistence=0.5)
    policy = nc.PriorTS(model, level=0.0, scale=1.0, memory_scale=1.0)
    state, names = policy.start(1), ["a0", "a1", "a2", "a0"]
    seen, rewards = [], []
    for name in ("a0", "a1", "a0", "a3"):
        reward = float(rng.standard_normal())
        policy.update(state, ids=[name], reward=[reward])
        seen.append(event(model, name))
        rewards.append(reward - model.offsets[model.action_ids.index(name)])
    means, covariance = oracle.posterior(
        seen, np.array(rewards), [event(model, one) for one in names], factor=model.factor, mean=model.mean
    )
    means = means + np.array([model.offsets[model.action_ids.index(one)] for one in names])
    query = policy.query(state, ids=names)
    draws = policy.draws(state, query, [np.random.default_rng(2)])
    sample = np.array([next(draws)[0] for _ in range(20_000)])
    np.testing.assert_allclose(sample.mean(axis=0), means, atol=5 * np.sqrt(covariance.max() / 20_000))
    np.testing.assert_allclose(np.cov(sample.T), covariance, atol=0.05 * covariance.max())
    assert np.array_equal(sample[:, 0], sample[:, 3]), "equal actions share their draw"


def test_one_reward_after_another_or_all_at_once_or_with_gaps():
    rng = np.random.default_rng(2)
    model = make_model(rng, persistence=None)
    policy = nc.PriorUCB(model)
    names = rng.choice(model.action_ids, 30)
    rewards = rng.standard_normal(30)
    one, all_at_once = policy.start(1), policy.start(1)
    for name, reward in zip(names, rewards, strict=True):
        policy.update(one, ids=[name], reward=[np.nan])
        policy.update(one, ids=[name], reward=[reward])
    policy.update(all_at_once, ids=names, reward=rewards, users=np.zeros(30, dtype=int))
    assert one.to_bytes() == all_at_once.to_bytes()


def test_unknown_persistence_is_served_as_the_share_that_repeats_tell():
    """After any sequence the state with an unknown share equals, in its scores, one that knew the final share all
    along.
    """
    rng = np.random.default_rng(3)
    for one_hot in (False, True):
        model = make_model(rng, persistence=None, one_hot=one_hot)
        policy = nc.PriorUCB(model, width=0.5, level=0.0)
        state = policy.start(1)
        names, rewards = rng.choice(model.action_ids, 40), rng.standard_normal(40)
        policy.update(state, ids=names, reward=rewards, users=np.zeros(40, dtype=int))
        from dataclasses import replace

        knew = nc.PriorUCB(replace(model, persistence=float(state.memory.share[0])), width=0.5, level=0.0)
        other = knew.start(1)
        knew.update(other, ids=names, reward=rewards, users=np.zeros(40, dtype=int))
        ids = list(model.action_ids)
        np.testing.assert_allclose(policy.scores(state, ids=ids), knew.scores(other, ids=ids), rtol=1e-8, atol=1e-9)


def test_equal_features_are_the_same_action_and_ids_tell_equal_features_apart():
    rng = np.random.default_rng(5)
    model = make_model(rng, persistence=0.5)
    policy = nc.PriorUCB(model, level=0.0)
    by_id, by_features = policy.start(1), policy.start(1)
    for name in ("a1", "a2", "a1"):
        policy.update(by_id, ids=[name], reward=[1.0])
        policy.update(by_features, model.features([name]), [1.0])
    for (name, one, _), (_, other, _) in zip(by_id.arrays(), by_features.arrays(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14, err_msg=name)
    twins = Model(**{**vars_of(model), "action_features": np.repeat(np.array(model.action_features[:1]), 9, axis=0)})
    policy = nc.PriorUCB(twins, width=0.0, level=0.0)
    state = policy.start(1)
    policy.update(state, ids=["a1"], reward=[9.0])
    scores = policy.scores(state, ids=["a1", "a2"])[0] - twins.offsets[[1, 2]]
    assert scores[0] > scores[1] + 0.1
    nameless = policy.start(1)
    policy.update(nameless, twins.features(["a1"]), [9.0])
    before = policy.scores(nameless, twins.features(["a1", "a2"]))[0]
    assert before[0] == before[1], "without ids nothing is recognised among equal features"


def vars_of(model):
    from dataclasses import fields

    return {part.name: getattr(model, part.name) for part in fields(model)}


@pytest.mark.filterwarnings("ignore:.* ids are not among")
def test_a_new_action_is_the_average_one_and_remembered():
    rng = np.random.default_rng(6)
    model = make_model(rng, persistence=0.5, one_hot=True)
    policy = nc.PriorUCB(model, width=0.0, level=0.0)
    state = policy.start(1)
    scores = policy.scores(state, ids=["a0", "nobody-knows"])[0]
    assert scores[1] == pytest.approx(model.mean.mean())
    policy.update(state, ids=["nobody-knows"], reward=[scores[1] + 2.0])
    assert policy.scores(state, ids=["nobody-knows"])[0, 0] > scores[1] + 1.0


def test_a_state_is_small_after_two_hundred_rewards():
    rng = np.random.default_rng(7)
    model = make_model(rng, dim=200, rank=18, actions=400, persistence=None)
    policy = nc.PriorUCB(model)
    state = policy.start(1)
    for _ in range(200):
        chosen = rng.choice(model.action_ids, 10)
        name = chosen[policy.choose(state, ids=chosen)[0]]
        policy.update(state, ids=[name], reward=[float(rng.standard_normal() + model.features([name])[0] @ model.mean)])
    assert state.in_subspace.all()
    assert len(state.to_bytes()) <= 20_000


def test_at_most_a_thousand_rows_beside_the_catalogue_the_oldest_dropped():
    model = Model(np.eye(2, 1), np.ones(2), np.zeros(2), np.eye(2, 1), 1.0, persistence=0.5)
    policy = nc.PriorUCB(model, level=0.0)
    state, rng = policy.start(1), np.random.default_rng(8)
    rows = rng.standard_normal((1005, 2))
    policy.update(state, rows, np.ones(1005), users=np.zeros(1005, dtype=int))
    assert state.memory.used[0] == 1000 and state.memory.rows.shape[1] == 1000
    keys = policy.learner.known.fingerprints(rows)
    assert state.memory.keys[0, 0] == keys[5] and state.memory.keys[0, 999] == keys[1004]


def test_shares_are_learned_from_repeats():
    weights = np.full(len(SHARES), 1 / len(SHARES))
    rng = np.random.default_rng(9)
    for share in (0.0, 0.5, 0.9):
        square = (1 - share) * rng.chisquare(400)
        told = repeatability_by_deviations(np.array([[400.0, square]]))
        assert mean_repeatability(weights, told)[0] == pytest.approx(share, abs=0.1)


def test_empirical_arms_learns_each_action_by_itself():
    model = Model(
        np.eye(3, 1), np.ones(3), np.array([1.0, 0.0, 0.0]), np.zeros((3, 0)), 1.0,
        action_ids=("x", "y", "z"), one_hot=True, persistence=0.5,
    )  # fmt: skip
    policy = nc.EmpiricalArms(model)
    state = policy.start(1)
    assert policy.scores(state, ids=["x", "y", "z"])[0].tolist() == [1.0, 0.0, 0.0]
    policy.update(state, ids=["y"], reward=[3.0])
    policy.update(state, ids=["y"], reward=[3.0])
    # c n = n s / (1 - s + n s) = 2/3 of a mean deviation of 3.
    np.testing.assert_allclose(policy.scores(state, ids=["x", "y", "z"])[0], [1.0, 2.0, 0.0])
    with pytest.raises(nc_error(), match="named actions"):
        nc.EmpiricalArms(Model(np.eye(2, 1), np.ones(2), np.zeros(2), np.eye(2, 1), 1.0))


def nc_error():
    from newcomer.errors import PolicyError

    return PolicyError


def test_equal_clicks_are_no_sign_that_an_opinion_lasts():
    """Most people do not click twice, whatever lasts: on a scale of 0 and 1 that must not pass for steadiness."""
    rng = np.random.default_rng(0)
    rate = rng.uniform(0.05, 0.4, 12)
    action = np.stack([rng.permutation(12)[:4] for _ in range(1500)]).ravel()
    clicks = (rng.random(6000) < rate[action]).astype(float)
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(1500), 4), action=action, reward=clicks)
    model = nc.fit(logs, null=False, calibrate=False)
    assert model.reward_step == 1.0 == logs.summary.reward_step and model.persistence is None
    shares = []
    for known in (model, replace(model, reward_step=0.0)):
        policy = nc.PriorUCB(known)
        state = policy.start(400)
        again = np.random.default_rng(1)
        for _ in range(12):
            policy.update(state, ids=np.full(400, 3), reward=(again.random(400) < rate[3]).astype(float))
        shares.append(float(state.memory.share.mean()))
    begun = float(policy.start(1).memory.share[0])
    assert shares[0] < begun < shares[1] - 0.1, (shares, begun)


def test_an_action_is_the_same_with_features_in_single_precision():
    rows = np.array([[0.1, 0.2], [0.3, -0.1], [0.7, 0.4]])
    basis = np.eye(2)[:, :1]
    given = {"action_ids": ("a", "b", "c"), "action_features": rows, "persistence": 0.8}
    policy = nc.PriorUCB(Model(basis, np.zeros(2), np.zeros(2), basis, 1.0, **given), width=0.0, level=0.0)
    state, ids = policy.start(1), ["a", "b", "c"]
    for _ in range(5):
        policy.update(state, ids=["a"], reward=[3.0])
    known, single = policy.scores(state, ids=ids), rows.astype(np.float32)
    assert np.allclose(policy.scores(state, single, ids=ids), known, atol=1e-6)
    policy.update(state, single[:1], [3.0], ids=["a"])
    assert state.memory.used[0] == 1


def test_the_offset_of_a_single_action_counts():
    def expected(count):
        given = {
            "action_ids": tuple("xy"[:count]),
            "action_features": np.ones((count, 1)),
            "offsets": [2.0, 0.0][:count],
        }
        policy = nc.PopulationMean(Model([[1.0]], [0.0], [1.0], [[0.5]], 0.3, **given))
        return policy.scores(policy.start(1), ids=["x"])[0, 0]

    assert expected(1) == expected(2) == 3.0
