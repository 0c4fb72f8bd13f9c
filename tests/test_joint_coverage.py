"""Guards SOLD for one-hot logs: pairs of actions corrected by joint coverage, the diagonal completed, not trusted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import newcomer as nc
from newcomer.logs.batch import Batch
from newcomer.sold.correction import correction_of, coverage_of, second_moment
from newcomer.sold.joint_coverage import JointCorrection, complete_diagonal, leading
from newcomer.sold.moments import merge, moments_of
from newcomer.sold.rank import flip_tests
from newcomer.subspace import distance, top_eigenvectors
from newcomer.users import mix
from tests.helpers import batch_of, close
from tests.oracles import sold


def ratings(rng, loadings, *, users, steps, again=False, lasting=0.0, noise=0.5):
    """Actions and rewards (users, steps) of tastes L z; `again` lets an action come twice, `lasting` is the standard
    deviation of what a user thinks of an action beyond the taste."""
    actions, rank = loadings.shape
    chosen = (
        rng.integers(0, actions, (users, steps))
        if again
        else rng.permuted(np.tile(np.arange(actions), (users, 1)), axis=1)[:, :steps]
    )
    opinions = rng.standard_normal((users, rank)) @ loadings.T + lasting * rng.standard_normal((users, actions))
    return chosen, np.take_along_axis(opinions, chosen, 1) + noise * rng.standard_normal((users, steps))


def moments(chosen, rewards, dim, ridge=1.0):
    users, steps = chosen.shape
    batch = Batch(
        users=np.arange(users),
        hashes=mix(np.arange(users, dtype=np.uint64)),
        offsets=np.arange(users + 1) * steps,
        table=np.eye(dim),
        actions=chosen.ravel(),
        rewards=rewards.ravel(),
    )
    return moments_of(batch, ridge, one_hot=True)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), ridge=st.sampled_from([None, 0.3, 1.0]))
def test_the_correction_matches_a_loop_over_users_and_entries(seed, ridge):
    rng = np.random.default_rng(seed)
    parts = [(np.eye(5)[rng.integers(0, 5, h)], rng.standard_normal(h)) for h in rng.integers(1, 12, 60)]
    found = moments_of(batch_of(parts), ridge, one_hot=True)
    expected = sold.entrywise(parts, ridge)
    close(JointCorrection.of(found).pooled(found.product), expected)
    moment = second_moment(found, rank=2)
    off = ~np.eye(5, dtype=bool)
    close(moment[off], expected[off])
    close(second_moment(found, literal=True), sold.literal(parts, ridge))


@pytest.mark.parametrize("ridge", [1.0, None])
def test_ratings_without_repeats_give_the_known_second_moment(ridge):
    """NOTES 11: d = 12, H = 8, nobody meets an action twice. The printed correction is off for any number of users."""
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((12, 2)) * [0.8, 0.4]
    truth = loadings @ loadings.T
    values, errors = np.linalg.eigvalsh(truth)[::-1][:2], []
    for users in (4_000, 64_000):
        found = moments(*ratings(rng, loadings, users=users, steps=8), 12, ridge)
        errors.append(np.abs(second_moment(found, rank=2) - truth).max() / values[0])
    literal = second_moment(found, literal=True)
    assert errors[1] < 0.01 and errors[1] < 0.5 * errors[0]
    np.testing.assert_allclose(np.linalg.eigvalsh(second_moment(found, rank=2))[::-1][:2], values, rtol=0.03)
    assert np.linalg.eigvalsh(literal)[-2] < 0.6 * values[1]
    assert flip_tests(found).moment.rank == 2


def test_lengths_may_differ():
    rng = np.random.default_rng(1)
    loadings = rng.standard_normal((10, 1))
    parts = [moments(*ratings(rng, loadings, users=20_000, steps=steps), 10) for steps in (2, 3, 9)]
    found = merge(merge(parts[0], parts[1]), parts[2])
    truth = loadings @ loadings.T
    assert np.abs(second_moment(found, rank=1) - truth).max() < 0.03 * np.linalg.eigvalsh(truth)[-1]


def test_what_lasts_of_an_action_is_no_shared_direction():
    """With repeats, rewards for the same action share what lasts: on the diagonal, which is not looked at."""
    rng = np.random.default_rng(2)
    loadings = np.zeros((10, 1))
    loadings[:, 0] = np.linspace(0.2, 0.6, 10)
    chosen, rewards = ratings(rng, loadings, users=20_000, steps=10, again=True, lasting=1.0)
    found = moments(chosen, rewards, 10)
    taste = loadings / np.linalg.norm(loadings)
    error = {}
    for literal in (True, False):
        correction = correction_of(found, coverage_of(found), literal=literal)
        moment = second_moment(found, correction=correction, rank=1)
        error[literal] = distance(top_eigenvectors(moment, 1)[1], taste)
        ranks = flip_tests(found, correction=correction).moment.rank
        assert ranks == (10 if literal else 1)
    assert error[False] < 0.05
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(20_000), 10), action=chosen.ravel(), reward=rewards.ravel())
    model = nc.fit(logs, estimator="sold", calibrate=False)
    assert model.rank == 1 and distance(model.basis, taste) < 0.05
    assert model.noise_variance == pytest.approx(1.25, rel=0.05)  # what lasts counts as noise here, not as taste


def test_a_diagonal_follows_from_the_rest_and_the_rank():
    rng = np.random.default_rng(3)
    for count, rank in ((6, 1), (12, 3), (40, 5), (350, 4)):
        loadings = rng.standard_normal((count, rank))
        truth = loadings @ loadings.T
        close(complete_diagonal(truth * (1 - np.eye(count)), rank), truth, 1e-6)
    assert not complete_diagonal(truth, 0).diagonal().any()


def test_few_actions_keep_the_diagonal_that_was_observed():
    """Two actions say nothing of their diagonal by the one entry off it: repeats must do."""
    rng = np.random.default_rng(4)
    loadings = np.array([[1.0], [-0.5]])
    found = moments(*ratings(rng, loadings, users=20_000, steps=6, again=True), 2)
    assert np.abs(second_moment(found, rank=1) - loadings @ loadings.T).max() < 0.05
    assert flip_tests(found).moment.rank == 1


def test_division_by_joint_coverage_is_bounded_as_said():
    rng = np.random.default_rng(5)
    found = moments(*ratings(rng, rng.standard_normal((9, 1)), users=300, steps=4), 9)
    correction = JointCorrection.of(found)
    for _ in range(50):
        error = sold.sym(rng.standard_normal((9, 9)))
        corrected = np.linalg.norm(error / correction.divisor, 2)
        assert corrected <= correction.inverse_norm**2 * np.linalg.norm(error, 2) * (1 + 1e-12)


def test_matrices_without_anything_in_them_are_no_error():
    """A part of the users may leave nothing: of 500 actions, none met by two of them."""
    nothing = np.zeros((500, 500))
    assert complete_diagonal(nothing, 3).tolist() == nothing.tolist()
    values, vectors = leading(nothing, 2, np.ones(500))
    assert values.tolist() == [0.0, 0.0] and vectors.shape == (500, 2)
