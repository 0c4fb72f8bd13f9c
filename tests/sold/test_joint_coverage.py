"""Guards SOLD for one-hot logs: pairs of actions corrected by joint coverage, the diagonal completed, not trusted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import newcomer as nc
from newcomer.cli.model_summary import model_summary_coverage_line, model_summary_of
from newcomer.logs.batch import Batch
from newcomer.sold.correction import (
    JointCorrection,
    correct_diagonal,
    corrected_second_moment,
    correction_of,
    coverage_for_correction,
    diagonal_correction_factor,
    leading_for_correction,
)
from newcomer.sold.moments import merge_moments
from newcomer.sold.one_hot_moments import one_hot_moments_of
from newcomer.sold.rank_test import rank_flip_tests
from newcomer.subspace import subspace_distance, top_eigenvectors
from newcomer.users import mix_user_hashes
from tests.helpers import close, one_hot_batch_of
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
        hashes=mix_user_hashes(np.arange(users, dtype=np.uint64)),
        offsets=np.arange(users + 1) * steps,
        table=np.eye(dim),
        actions=chosen.ravel(),
        rewards=rewards.ravel(),
    )
    return one_hot_moments_of(batch, ridge)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), ridge=st.sampled_from([None, 0.3, 1.0]))
def test_the_correction_matches_a_loop_over_users_and_entries(seed, ridge):
    rng = np.random.default_rng(seed)
    met = [(rng.integers(0, 5, h), rng.standard_normal(h)) for h in rng.integers(1, 12, 60)]
    parts = [(np.eye(5)[actions], rewards) for actions, rewards in met]
    found = one_hot_moments_of(one_hot_batch_of(met, 5), ridge)
    expected = sold.entrywise(parts, ridge)
    close(JointCorrection.of(found).pooled(found.product), expected)
    moment = corrected_second_moment(found, rank=2)
    off = ~np.eye(5, dtype=bool)
    close(moment[off], expected[off])
    close(corrected_second_moment(found, literal=True), sold.literal(parts, ridge))


@pytest.mark.parametrize("ridge", [1.0, None])
def test_ratings_without_repeats_give_the_known_second_moment(ridge):
    """NOTES 11: d = 12, H = 8, nobody meets an action twice. The printed correction is off for any number of users."""
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((12, 2)) * [0.8, 0.4]
    truth = loadings @ loadings.T
    values, errors = np.linalg.eigvalsh(truth)[::-1][:2], []
    for users in (4_000, 64_000):
        found = moments(*ratings(rng, loadings, users=users, steps=8), 12, ridge)
        errors.append(np.abs(corrected_second_moment(found, rank=2) - truth).max() / values[0])
    literal = corrected_second_moment(found, literal=True)
    assert errors[1] < 0.01 and errors[1] < 0.5 * errors[0]
    np.testing.assert_allclose(np.linalg.eigvalsh(corrected_second_moment(found, rank=2))[::-1][:2], values, rtol=0.03)
    assert np.linalg.eigvalsh(literal)[-2] < 0.6 * values[1]
    assert rank_flip_tests(found).moment.rank == 2


def test_lengths_may_differ():
    rng = np.random.default_rng(1)
    loadings = rng.standard_normal((10, 1))
    parts = [moments(*ratings(rng, loadings, users=20_000, steps=steps), 10) for steps in (2, 3, 9)]
    found = merge_moments(merge_moments(parts[0], parts[1]), parts[2])
    truth = loadings @ loadings.T
    assert np.abs(corrected_second_moment(found, rank=1) - truth).max() < 0.03 * np.linalg.eigvalsh(truth)[-1]


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
        correction = correction_of(found, coverage_for_correction(found), literal=literal)
        moment = corrected_second_moment(found, correction=correction, rank=1)
        error[literal] = subspace_distance(top_eigenvectors(moment, 1)[1], taste)
        ranks = rank_flip_tests(found, correction=correction).moment.rank
        assert ranks == (10 if literal else 1)
    assert error[False] < 0.05
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(20_000), 10), action=chosen.ravel(), reward=rewards.ravel())
    model = nc.fit(logs, estimator="sold", calibrate=False)
    assert model.rank == 1 and subspace_distance(model.basis, taste) < 0.05
    assert model.noise_variance == pytest.approx(1.25, rel=0.05)  # what lasts counts as noise here, not as taste


def test_a_diagonal_follows_from_the_rest_and_the_rank():
    rng = np.random.default_rng(3)
    for count, rank in ((6, 1), (12, 3), (40, 5), (350, 4)):
        loadings = rng.standard_normal((count, rank))
        truth = loadings @ loadings.T
        close(correct_diagonal(truth * (1 - np.eye(count)), rank), truth, 1e-6)
    assert not correct_diagonal(truth, 0).diagonal().any()


def test_few_actions_keep_the_diagonal_that_was_observed():
    """Two actions say nothing of their diagonal by the one entry off it: repeats must do."""
    rng = np.random.default_rng(4)
    loadings = np.array([[1.0], [-0.5]])
    found = moments(*ratings(rng, loadings, users=20_000, steps=6, again=True), 2)
    assert np.abs(corrected_second_moment(found, rank=1) - loadings @ loadings.T).max() < 0.05
    assert rank_flip_tests(found).moment.rank == 1


def test_division_by_joint_coverage_is_bounded_as_said():
    """Off the diagonal where it is completed, with it where it is taken as observed."""
    rng = np.random.default_rng(5)
    found = moments(*ratings(rng, rng.standard_normal((9, 1)), users=300, steps=4), 9)
    correction = JointCorrection.of(found)
    completed, observed = (correction.norm_of_inverse(rank) ** 2 for rank in (1, correction.most + 1))
    assert completed < observed / 3
    for _ in range(50):
        error = sold.sym(rng.standard_normal((9, 9)))
        corrected = error / correction.divisor
        size = np.linalg.norm(error, 2) * (1 + 1e-12)
        assert np.linalg.norm(corrected, 2) <= observed * size
        assert np.linalg.norm(correction.hollow(corrected), 2) <= completed * size


# A completed diagonal stays possible: S_aa <= E[r_a^2].


def stars(seed, *, users=1500, films=40, steps=12, tastes=3, popularity=1.0):
    """Films and ratings (users, steps) of 1 to 5 stars, each film at most once; the a-th is met like a^-popularity."""
    rng = np.random.default_rng(seed)
    means, loadings = rng.normal(3.5, 0.5, films), 0.4 * rng.standard_normal((films, tastes))
    keys = rng.gumbel(size=(users, films)) - popularity * np.log(np.arange(1, films + 1))
    chosen = rng.permuted(np.argsort(-keys, axis=1)[:, :steps], axis=1)
    opinions = means + rng.standard_normal((users, tastes)) @ loadings.T
    rewards = np.take_along_axis(opinions, chosen, 1) + 0.8 * rng.standard_normal((users, steps))
    return chosen, np.clip(np.rint(rewards), 1, 5), np.outer(means, means) + loadings @ loadings.T


def test_a_completed_diagonal_within_bounds_is_the_best_there_is():
    """The oracle minimises over matrices of this rank, from many starts."""
    rng = np.random.default_rng(6)
    for rank in (1, 2):
        loadings = rng.standard_normal((8, rank))
        matrix = sold.sym(loadings @ loadings.T + 0.3 * rng.standard_normal((8, 8)))
        np.fill_diagonal(matrix, 0.0)
        bounds = 0.7 * (loadings**2).sum(axis=1)
        found = correct_diagonal(matrix, rank, bounds)
        expected, best = sold.completed(matrix, rank, bounds)
        assert (found.diagonal() <= bounds).all() and (found.diagonal() == bounds).any()
        np.testing.assert_allclose(found.diagonal(), expected, atol=1e-4)
        assert sold.off_by(found, rank) == pytest.approx(best, rel=1e-5)


def test_no_direction_is_a_single_film():
    """Twelve worlds. Without the bounds a direction is one film in seven of them, and S_aa up to 101 of 25."""
    for seed in range(12):
        chosen, rewards, truth = stars(seed)
        found = moments(chosen, rewards, 40)
        correction = JointCorrection.of(found)
        moment = corrected_second_moment(found, correction=correction, rank=3)
        values, directions = top_eigenvectors(moment, 40)
        squares = np.bincount(chosen.ravel(), rewards.ravel() ** 2) / np.bincount(chosen.ravel())
        assert (moment.diagonal() <= squares * (1 + 1e-12)).all()
        assert (directions[:, :3] ** 2).max() < 0.5
        assert values[1] < 25 and values[2] < 25
        at_bound = correction.bound_actions(moment, 3)
        np.testing.assert_array_equal(at_bound, np.flatnonzero(moment.diagonal() >= squares * (1 - 1e-9)))
        if seed in (0, 5):
            free = corrected_second_moment(found, correction=replace(correction, bounds=np.zeros(0)), rank=3)
            assert (top_eigenvectors(free, 3)[1] ** 2).max() > 0.9
            assert np.linalg.norm(moment - truth) < 0.8 * np.linalg.norm(free - truth)


def test_a_fit_says_which_actions_are_at_their_bound():
    chosen, rewards, _ = stars(0)
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(1500), 12), action=chosen.ravel(), reward=rewards.ravel())
    model = nc.fit(logs, rank=3, estimator="sold", null=False, calibrate=False)
    coverage = model.evidence.coverage
    assert coverage.bounded > len(coverage.bounded_actions) == 10
    assert f"for {coverage.bounded} actions ({', '.join(coverage.bounded_actions[:6])}, ...)" in coverage.bounds()
    assert model.noise_variance > 0.3  # rounding and clipping stars change the 0.64 that were drawn
    assert coverage.bounds() in " ".join(model_summary_coverage_line(model_summary_of(model)).split())
    literal = nc.fit(logs, rank=3, estimator="sold", literal=True, null=False, calibrate=False)
    assert literal.evidence.coverage.bounded == 0


def test_the_covariance_is_bounded_by_the_variance():
    chosen, rewards, _ = stars(1)
    found = moments(chosen, rewards, 40)
    spread = JointCorrection.of(found).of_covariance().bounds
    expected = [rewards[chosen == film].var() for film in range(40)]
    np.testing.assert_allclose(spread, expected, rtol=1e-9)


# The radius: what is not used is not in the norm.


def test_completing_the_diagonal_enlarges_an_error_no_more_than_said():
    rng = np.random.default_rng(7)
    for count, rank in ((12, 2), (40, 3), (60, 1)):
        loadings = rng.standard_normal((count, rank))
        truth, basis = loadings @ loadings.T, np.linalg.svd(loadings, full_matrices=False)[0]
        most = diagonal_correction_factor(basis)
        for _ in range(10):
            error = 1e-5 * sold.sym(rng.standard_normal((count, count))) * (1 - np.eye(count))
            found = correct_diagonal(truth * (1 - np.eye(count)) + error, rank)
            assert np.linalg.norm(found - truth, 2) <= most * np.linalg.norm(error, 2)
    basis = np.linalg.qr(rng.standard_normal((3000, 2)))[0]  # many actions: no inverse, and close to what it would say
    least = 1.0 - (basis**2).sum(axis=1).max()
    assert (
        diagonal_correction_factor(basis) == pytest.approx(1 + 1 / (2 * least - 1))
        and diagonal_correction_factor(basis) < 2.1
    )
    assert (
        diagonal_correction_factor(np.eye(3000)[:, :1]) == 0.0
    )  # a direction that is one action: its entry may be anything


def test_radii_of_ratings_fall_with_the_number_of_users_and_cover_the_error():
    loadings = np.random.default_rng(0).standard_normal((12, 2)) * [0.8, 0.5]
    truth = np.linalg.svd(loadings, full_matrices=False)[0]

    def fitted(users, seed):
        chosen, rewards = ratings(np.random.default_rng(seed), loadings, users=users, steps=6)
        who = np.repeat(np.arange(users), 6)
        logs = nc.Logs.from_arrays(user=who, action=chosen.ravel(), reward=rewards.ravel())
        return nc.fit(logs, rank=2, estimator="sold", null=False, calibrate=False)

    few, many = fitted(1000, 1), fitted(64_000, 2)
    assert many.evidence.radius.inverse_norm < few.evidence.radius.inverse_norm < 12
    for kind in ("hoeffding", "bernstein", "martingale"):
        for form in ("theorem", "identity"):
            a, b = (one.radius(kind, clip=False, simplified=True, form=form) for one in (few, many))
            assert b < a / 4  # 1/8 by the rate, but R, the largest reward that was seen, grows with N
    for seed in range(20):
        model = fitted(500, 10 + seed)
        error = subspace_distance(model.basis, truth)
        for kind in ("hoeffding", "bernstein", "martingale"):
            assert all(
                error <= model.radius(kind, clip=False, simplified=True, form=form) for form in ("theorem", "identity")
            )


def test_matrices_without_anything_in_them_are_no_error():
    """A part of the users may leave nothing: of 500 actions, none met by two of them."""
    nothing = np.zeros((500, 500))
    assert correct_diagonal(nothing, 3).tolist() == nothing.tolist()
    values, vectors = leading_for_correction(nothing, 2, np.ones(500))
    assert values.tolist() == [0.0, 0.0] and vectors.shape == (500, 2)
