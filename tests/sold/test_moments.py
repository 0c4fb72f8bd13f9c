"""Guards the sums over users: against a per-user loop, under merging, and under any order or batching."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newcomer.errors import LogsError
from newcomer.sold.moments import longest_in_moment_stratum, merge_moments, moment_stratum, moments_of
from newcomer.sold.one_hot_moments import one_hot_moments_of
from newcomer.users import user_bucket_count, user_buckets, user_group_bounds
from tests.helpers import batch_of, histories, one_hot_batch_of
from tests.oracles import sold

RIDGES = st.sampled_from([None, 0.3, 1.0, 20.0])


def close(a, b, tolerance=1e-9):
    a, b = np.asarray(a), np.asarray(b)
    assert np.abs(a - b).max(initial=0) <= tolerance * max(1.0, np.abs(b).max(initial=0))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), dim=st.integers(1, 7), users=st.integers(3, 25), ridge=RIDGES)
def test_sums_match_a_loop_over_users(seed, dim, users, ridge):
    parts = histories(np.random.default_rng(seed), users=users, dim=dim, lengths=(1, 17))
    got = moments_of(batch_of(parts), ridge)
    usable = [(i, sold.user_terms(X, r, ridge)) for i, (X, r) in enumerate(parts) if len(r) >= 2]
    assert got.count == len(usable) and got.too_short == users - len(usable)
    buckets = user_bucket_count(dim)
    hashes = batch_of(parts).hashes
    groups = np.searchsorted(user_group_bounds(buckets), np.arange(buckets), side="right") - 1
    products, squares = np.zeros_like(got.pairs.products), np.zeros_like(got.pairs.squares)
    estimates = np.zeros_like(got.pairs.estimates)
    small = np.zeros_like(got.pairs.symmetric_squares)
    for i, (outer, _, _, b1, b2) in usable:
        where = user_buckets(hashes[i : i + 1], buckets)[0]
        products[where] += outer
        squares[groups[where]] += np.array([outer @ outer.T, outer.T @ outer, outer @ outer])
        small[groups[where]] += sold.sym(outer) @ sold.sym(outer)
        estimates[where] += np.array([b1, b2])
    close(got.pairs.products, products)
    close(got.pairs.squares, squares)
    close(got.pairs.symmetric_squares, small)
    norms = [[np.linalg.norm(M, 2) for M in (outer, sold.sym(outer))] for _, (outer, *_) in usable]
    close(got.pairs.largest, np.max(norms, axis=0, initial=0.0))
    close(got.pairs.estimates, estimates)
    for length, total in zip(got.lengths, got.coverage, strict=True):
        same = [t for i, t in usable if len(parts[i][1]) == length]
        close(total, [sum(t[1] for t in same), sum(t[2] for t in same)])


def test_repeated_and_zero_features_are_projections_without_ridge():
    rng = np.random.default_rng(1)
    row = rng.standard_normal(4)
    X = np.array([row, row, 2 * row, np.zeros(4), row, np.zeros(4)])
    parts = [(X, rng.standard_normal(6)), (np.zeros((4, 4)), np.ones(4))]
    got = moments_of(batch_of(parts), None)
    terms = [sold.user_terms(x, r, None) for x, r in parts[:1]]
    close(got.coverage.sum(axis=0), [terms[0][1], terms[0][2]])
    close(got.pairs.products.sum(axis=0), terms[0][0])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), ridge=RIDGES)
def test_merging_is_associative_commutative_and_free_of_order(seed, ridge):
    rng = np.random.default_rng(seed)
    parts = histories(rng, users=30, dim=5, lengths=(1, 80))
    whole = moments_of(batch_of(parts), ridge)
    order = rng.permutation(30)
    cuts = np.sort(rng.choice(np.arange(1, 30), 2, replace=False))
    a, b, c = (moments_of(batch_of([parts[i] for i in part], part), ridge) for part in np.split(order, cuts))
    for other in (
        merge_moments(merge_moments(a, b), c),
        merge_moments(a, merge_moments(b, c)),
        merge_moments(c, merge_moments(b, a)),
    ):
        assert other.rows == whole.rows and other.too_short == whole.too_short
        np.testing.assert_array_equal(other.lengths, whole.lengths)
        np.testing.assert_array_equal(other.users, whole.users)
        np.testing.assert_array_equal(other.pairs.counts, whole.pairs.counts)
        for name in ("coverage", "gram"):
            close(getattr(other, name), getattr(whole, name), 1e-10)
        for name in ("estimates", "products", "squares", "largest"):
            close(getattr(other.pairs, name), getattr(whole.pairs, name), 1e-10)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), actions=st.sampled_from([2, 6, 40]), ridge=RIDGES)
def test_one_hot_moments_are_those_of_the_features_written_out(seed, actions, ridge):
    """And coverage by pairs and sums by action are those of a loop over users; both are sums over users."""
    rng = np.random.default_rng(seed)
    met = [(rng.integers(0, actions, h), rng.standard_normal(h)) for h in rng.integers(1, 9, 40)]
    parts = [(np.eye(actions)[one], rewards) for one, rewards in met]
    whole, dense = one_hot_moments_of(one_hot_batch_of(met, actions), ridge), moments_of(batch_of(parts), ridge)
    ids = np.arange(40)
    halves = [one_hot_moments_of(one_hot_batch_of(met[i::2], actions, ids[i::2]), ridge) for i in (1, 0)]
    for other in (dense, merge_moments(*halves)):
        assert (other.ridge, other.rows, other.too_short) == (whole.ridge, whole.rows, whole.too_short)
        for name in ("lengths", "users", "coverage", "gram", "reward_squares", "reward_max"):
            close(getattr(other, name), getattr(whole, name), 1e-10)
        for name in ("counts", "estimates", "products", "squares", "largest"):
            close(getattr(other.pairs, name), getattr(whole.pairs, name), 1e-10)
    terms = [sold.user_terms(X, r, ridge) for X, r in parts if len(r) >= 2]
    close(whole.joint, sum(np.outer(D1.diagonal(), D2.diagonal()) for _, D1, D2, _, _ in terms))
    close(merge_moments(*halves).joint, whole.joint, 1e-12)
    used, rewards = (np.concatenate(side) for side in zip(*(one for one in met if len(one[1]) >= 2), strict=True))
    sums = [[(rewards[used == a] ** p).sum() for a in range(actions)] for p in range(3)]
    close(whole.by_action, np.array(sums))
    close(merge_moments(*halves).by_action, whole.by_action, 1e-12)


def test_one_hot_moments_of_nobody_are_zero():
    nothing = one_hot_moments_of(one_hot_batch_of([([1], np.ones(1))], 3), 1.0)
    assert (nothing.count, nothing.too_short, nothing.rows) == (0, 1, 0)
    assert not nothing.joint.any() and not nothing.pairs.products.any() and nothing.coverage.shape == (0, 2, 3, 3)


def test_one_hot_moments_of_before_sums_by_action_merge():
    rng = np.random.default_rng(0)
    some, others = (
        one_hot_moments_of(one_hot_batch_of([(rng.integers(0, 6, 5), rng.standard_normal(5))] * 9, 6), ridge)
        for ridge in (1.0, 1.0)
    )
    before = replace(some, by_action=np.zeros((3, 0)))  # of a file of before it was added up
    close(merge_moments(before, others).by_action, others.by_action, 1e-12)
    assert not merge_moments(before, before).by_action.size
    with pytest.raises(LogsError, match="cannot be merged"):
        merge_moments(some, moments_of(batch_of([(np.eye(6), np.ones(6))]), 1.0))


def test_moments_of_different_settings_do_not_merge():
    parts = histories(np.random.default_rng(0), users=4, dim=3, lengths=(2, 4))
    with pytest.raises(LogsError, match="cannot be merged"):
        merge_moments(moments_of(batch_of(parts), 1.0), moments_of(batch_of(parts), 2.0))


def test_strata_are_exact_then_four_per_octave():
    lengths = (2, 17, 64, 65, 79, 80, 127, 128, 159, 160, 1000)
    assert [moment_stratum(h, 50) for h in lengths] == [2, 17, 64, 64, 64, 80, 112, 128, 128, 160, 896]
    assert [moment_stratum(h, 300) for h in (2, 3, 17, 64, 1000)] == [2, 2, 16, 64, 512]
    for dim in (50, 300):
        for h in range(2, 3000):
            assert moment_stratum(longest_in_moment_stratum(moment_stratum(h, dim), dim), dim) == moment_stratum(h, dim)
            assert moment_stratum(longest_in_moment_stratum(moment_stratum(h, dim), dim) + 1, dim) > moment_stratum(
                h, dim
            )
    assert user_group_bounds(16).tolist() == [0, 1, 2, 4, 8, 16]


def test_a_large_dimension_takes_coarser_strata_and_gathers_rows_of_many_users():
    rng = np.random.default_rng(0)
    parts = histories(rng, users=40, dim=260, lengths=(2, 9))
    got = moments_of(batch_of(parts), 1.0)
    assert got.lengths.tolist() == [2, 4, 8]
    terms = [sold.user_terms(X, r, 1.0) for X, r in parts]
    close(got.coverage.sum(axis=0), [sum(t[1] for t in terms), sum(t[2] for t in terms)])
    close(got.pairs.products.sum(axis=0), sum(t[0] for t in terms))


def test_only_short_users_give_empty_moments():
    parts = histories(np.random.default_rng(0), users=4, dim=3, lengths=(1, 1))
    got = moments_of(batch_of(parts), 1.0)
    assert got.count == 0 and got.too_short == 4 and got.coverage.shape == (0, 2, 3, 3)
