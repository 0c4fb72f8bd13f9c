"""Guards SOLD's corrected moment, its eigenvectors, coverage, and the distance of subspaces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newcomer.sold.correction import (
    corrected_population_mean,
    corrected_second_moment,
    correction_strata,
    coverage_for_correction,
)
from newcomer.sold.moments import moments_of
from newcomer.subspace import fix_subspace_signs, subspace_distance, top_eigenvectors
from tests.helpers import batch_of, close, histories
from tests.oracles import sold


def orthonormal(rng, dim, rank):
    return np.linalg.qr(rng.standard_normal((dim, rank)))[0]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), dim=st.integers(1, 6), ridge=st.sampled_from([None, 0.3, 1.0, 20.0]))
def test_second_moment_matches_the_paper_and_the_mixture_equation(seed, dim, ridge):
    parts = histories(np.random.default_rng(seed), users=200, dim=dim, lengths=(1, 20))
    moments = moments_of(batch_of(parts), ridge)
    close(corrected_second_moment(moments, literal=True), sold.literal(parts, ridge))
    close(corrected_second_moment(moments), sold.stratified(parts, ridge))
    close(corrected_population_mean(moments), sold.mean(parts, ridge))


def test_one_length_is_the_paper_with_nothing_symmetrised_before_the_end():
    for length in (11, 12):
        parts = histories(np.random.default_rng(3), users=50, dim=5, lengths=(length, length))
        moments = moments_of(batch_of(parts), 1.0)
        close(corrected_second_moment(moments), sold.pooled(parts, 1.0))
        close(corrected_second_moment(moments, literal=True), sold.literal(parts, 1.0))


@pytest.mark.parametrize("ridge", [None, 0.1])
def test_odd_lengths_bias_the_literal_version_only(ridge):
    """NOTES 11: the halves of three steps have two rows and one, so D1 and D2 have different means."""
    rng = np.random.default_rng(0)
    basis, users = orthonormal(rng, 3, 1), 100_000
    X = np.array([2.0, 1.0, 0.3]) * rng.standard_normal((users, 3, 3))
    r = np.einsum("nhd,nd->nh", X, rng.standard_normal((users, 1)) @ basis.T) + 0.3 * rng.standard_normal((users, 3))
    errors = {}
    for count in (10_000, users):
        moments = moments_of(batch_of(list(zip(X[:count], r[:count], strict=True))), ridge)
        for literal in (True, False):
            found = top_eigenvectors(corrected_second_moment(moments, literal=literal), 1)[1]
            errors[literal, count] = subspace_distance(found, basis)
    assert errors[False, users] < 0.008 and errors[False, users] < errors[False, 10_000]
    assert errors[True, users] > 0.035


def test_ragged_lengths_bias_the_literal_version_only():
    """NOTES 1: a subspace error that does not vanish with N, with anisotropic features and lengths 2..60."""
    rng = np.random.default_rng(5)
    dim, users = 6, 20_000
    basis = orthonormal(rng, dim, 2)
    # Half of the users see few rows, half many; features differ in scale, so coverage changes shape with length.
    shape = np.array([1.0, 0.8, 0.5, 0.3, 0.2, 0.1]) * 2
    parts = []
    for length in (2, 60):
        X = shape * rng.standard_normal((users // 2, length, dim))
        beta = rng.standard_normal((users // 2, 2)) @ basis.T
        r = np.einsum("nhd,nd->nh", X, beta) + 0.05 * rng.standard_normal((users // 2, length))
        parts += list(zip(X, r, strict=True))
    moments = moments_of(batch_of(parts), 1.0)
    literal, mixture = (
        subspace_distance(top_eigenvectors(corrected_second_moment(moments, literal=flag), 2)[1], basis)
        for flag in (True, False)
    )
    assert mixture < 0.03 < 2 * 0.03 < literal


def test_strata_are_large_enough_to_reach_every_direction():
    assert correction_strata(np.array([50, 60, 10, 95, 30, 20]), 0.1) == [0, 2]
    assert correction_strata(np.array([100, 100, 100]), 0.1) == [0, 1, 2]
    assert correction_strata(np.array([100, 100, 100]), 0.001) == [0]


def test_directions_that_no_stratum_holds_together_do_not_blow_up():
    """Rare items: the equation over strata alone is singular for such pairs, and its solution without bound."""
    rng = np.random.default_rng(0)
    parts = [(np.eye(12)[rng.integers(0, 8, 6)], rng.standard_normal(6)) for _ in range(300)]
    for i, extra in enumerate([3, 5, 9, 14]):  # four users with more rows, on items of their own
        parts[i] = (np.eye(12)[np.r_[rng.integers(0, 8, 6), np.full(extra, 8 + i)]], rng.standard_normal(6 + extra))
    moments = moments_of(batch_of(parts), 1.0)
    both = [np.linalg.eigvalsh(corrected_second_moment(moments, literal=flag)) for flag in (True, False)]
    assert np.isfinite(both).all() and np.abs(both[1]).max() < 20 * np.abs(both[0]).max()


def test_uncovered_directions_are_reported_and_left_out():
    rng = np.random.default_rng(2)
    span = orthonormal(rng, 6, 4)
    parts = [(X @ span.T, r) for X, r in histories(rng, users=200, dim=4, lengths=(6, 9))]
    moments = moments_of(batch_of(parts), 1.0)
    coverage = coverage_for_correction(moments)
    assert coverage.uncovered.shape == (6, 2) and coverage.covered.shape == (6, 4)
    assert np.abs(span.T @ coverage.uncovered).max() < 1e-9
    assert coverage.smallest > 0.01
    moment = corrected_second_moment(moments)
    assert np.abs(moment @ coverage.uncovered).max() < 1e-9
    inside = corrected_second_moment(moments_of(batch_of([(X @ span, r) for X, r in parts]), 1.0))
    close(span.T @ moment @ span, inside)


def test_coverage_is_the_papers_lambda_a():
    parts = histories(np.random.default_rng(4), users=40, dim=4, lengths=(5, 5))
    terms = [sold.user_terms(X, r, 1.0) for X, r in parts]
    smallest = min(np.linalg.eigvalsh(np.mean([t[i] for t in terms], axis=0))[0] for i in (1, 2))
    coverage = coverage_for_correction(moments_of(batch_of(parts), 1.0))
    assert coverage.smallest == pytest.approx(smallest, rel=1e-10)
    assert coverage.inverse_norm == pytest.approx(1 / smallest, rel=1e-10)


def test_signs_are_deterministic():
    rng = np.random.default_rng(0)
    basis = orthonormal(rng, 5, 3)
    flipped = basis * np.array([1, -1, -1])
    np.testing.assert_array_equal(fix_subspace_signs(basis), fix_subspace_signs(flipped))
    assert (fix_subspace_signs(basis)[np.abs(basis).argmax(axis=0), range(3)] > 0).all()
    assert fix_subspace_signs(np.empty((5, 0))).shape == (5, 0)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), dim=st.integers(2, 9))
def test_distance_is_the_norm_of_the_difference_of_projections(seed, dim):
    rng = np.random.default_rng(seed)
    rank, other_rank = rng.integers(1, dim + 1, 2)
    U, W = orthonormal(rng, dim, rank), orthonormal(rng, dim, other_rank)
    gap = U @ U.T - W @ W.T
    assert subspace_distance(U, W) == pytest.approx(np.linalg.norm(gap, 2), abs=1e-12)
    assert subspace_distance(U, W, norm="frobenius") == pytest.approx(np.linalg.norm(gap), abs=1e-12)
    turn = orthonormal(rng, rank, rank)
    assert subspace_distance(U @ turn, W) == pytest.approx(subspace_distance(U, W), abs=1e-12)


def test_distance_is_exact_for_tiny_angles():
    angle = 1e-11
    assert subspace_distance(np.array([[1.0], [0.0]]), np.array([[np.cos(angle)], [np.sin(angle)]])) == pytest.approx(
        angle
    )
