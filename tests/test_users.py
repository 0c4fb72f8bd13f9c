"""Guards the splits of users: they depend on ids alone, cover everybody once, and are balanced."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import hadamard

from newcomer.users import (
    FEW,
    UserSample,
    dealt_user_buckets,
    hold_out_users,
    mix_user_hashes,
    user_bucket_count,
    user_bucket_signs,
    user_buckets,
    user_folds,
    user_group_bounds,
)


def test_mix_is_splitmix64():
    """The first outputs of SplitMix64 from the states 0 and 1234567 (reference implementation)."""
    assert mix_user_hashes(np.array([0, 1234567], dtype=np.uint64)).tolist() == [
        16294208416658607535,
        6457827717110365317,
    ]


def test_buckets_take_equal_shares_and_do_not_depend_on_who_else_is_there():
    hashes = mix_user_hashes(np.arange(64_000, dtype=np.uint64))
    where = user_buckets(hashes, 64)
    counts = np.bincount(where, minlength=64)
    assert np.sum((counts - 1000) ** 2 / 1000) < 110  # chi-squared, 63 degrees of freedom, level 0.0002
    np.testing.assert_array_equal(user_buckets(hashes[::-7], 64), where[::-7])
    for dim in (1, 256, 257, 512, 513, 5000):
        buckets = user_bucket_count(dim)
        assert buckets & (buckets - 1) == 0 and user_group_bounds(buckets)[-1] == buckets
        bounds = user_group_bounds(buckets)
        assert (np.diff(bounds)[1:] == bounds[1:-1]).all()  # each group is as large as all before it


@pytest.mark.parametrize("buckets", [16, 32, 64])
def test_signs_are_the_balanced_rows_of_a_hadamard_matrix(buckets):
    signs = user_bucket_signs(buckets)
    np.testing.assert_array_equal(signs, hadamard(buckets)[1:])
    assert (signs.sum(axis=1) == 0).all()
    np.testing.assert_array_equal(signs @ signs.T, buckets * np.eye(buckets - 1))


def test_folds_hold_out_everybody_once_where_users_are_few_and_a_fifth_where_they_are_many():
    few, many = np.full(64, 10), np.full(64, FEW)
    assert (sum(fold.judged.astype(int) for fold in user_folds(few)) == 1).all()
    for fold in user_folds(few) + user_folds(many):
        assert (fold.fitted ^ fold.judged).all() and 12 <= fold.judged.sum() <= 13
    assert len(user_folds(few)) == 5 and len(user_folds(many)) == 1
    assert (sum(part.astype(int) for part in dealt_user_buckets(64, 8)) == 1).all()


def test_held_out_users_are_disjoint_and_follow_the_seed():
    fitted, apart = hold_out_users(100, 0.3, np.random.default_rng(1))
    assert sorted([*fitted, *apart]) == list(range(100)) and len(apart) == 30
    np.testing.assert_array_equal(apart, hold_out_users(100, 0.3, np.random.default_rng(1))[1])


def test_a_sample_of_a_purpose_is_by_hash_and_nested() -> None:
    hashes = mix_user_hashes(np.arange(20_000, dtype=np.uint64))
    small, large = (UserSample("judge", share, seed=3)(hashes) for share in (0.2, 0.5))
    assert abs(small.mean() - 0.2) < 0.01 and not (small & ~large).any()
    other = UserSample("learning curve", 0.2, seed=3)(hashes)
    assert abs((small & other).mean() - 0.04) < 0.01
    assert UserSample("fit", 1.0)(hashes).all() and not UserSample("checks", 0.0)(hashes).any()
