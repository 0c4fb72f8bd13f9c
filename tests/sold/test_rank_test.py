"""Guards the choice of the rank: it finds what is there and says 0 where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer.sold.moments import moments_of
from newcomer.sold.rank_test import rank_flip_tests
from newcomer.worlds import Synthetic
from tests.helpers import batch_of, histories
from tests.oracles import sold


def noise_logs(seed, *, users=5000, steps=20, dim=50, mean=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((users * steps, dim))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    shared = 0.0 if mean is None else X @ mean
    reward = shared + 0.5 * rng.standard_normal(users * steps)
    return nc.Logs.from_arrays(user=np.repeat(np.arange(users), steps), features=X, reward=reward)


def ranks(logs):
    evidence = nc.fit(logs, estimator="sold", calibrate=False).evidence.rank
    return evidence.moment.rank, evidence.covariance.rank


def test_two_directions_are_found_in_the_learnable_world():
    found = [ranks(Synthetic.learnable(seed=s).logs(5000, 20, seed=s))[0] for s in range(20)]
    assert found.count(2) >= 18


def test_nothing_is_found_in_noise():
    found = [ranks(noise_logs(seed))[0] for seed in range(20)]
    assert found.count(0) >= 18


def test_users_all_alike_share_one_direction_and_do_not_differ():
    mean = np.ones(10)
    found = [ranks(noise_logs(seed, users=2000, dim=10, mean=mean)) for seed in range(5)]
    assert found.count((1, 0)) >= 4


def test_evidence_is_the_spectrum_of_the_pooled_moment_and_of_signed_sums():
    parts = histories(np.random.default_rng(0), users=300, dim=4, lengths=(6, 9))
    test = rank_flip_tests(moments_of(batch_of(parts), 1.0)).moment
    kept = test.evidence()
    expected = np.linalg.eigvalsh(sold.pooled(parts, 1.0))[::-1]
    np.testing.assert_allclose(test.observed, expected, rtol=1e-9)
    assert test.null.shape == (63, 4) and kept.level == pytest.approx(1 / 64)
    assert test.rank == kept.rank == 2
    thresholds = test.null.max(axis=0)
    assert (test.observed[:2] > thresholds[:2]).all() and test.observed[2] <= thresholds[2]
    assert kept.spectrum == tuple(test.observed) and kept.threshold == tuple(thresholds)
    assert kept.null_low <= kept.null_high <= kept.threshold


def test_rank_zero_is_said_plainly_and_refused_where_a_basis_is_needed():
    model = nc.fit(noise_logs(0, users=500, dim=10), estimator="sold")
    assert model.rank == 0 and model.basis.shape == (10, 0) and model.covariance.shape == (10, 10)
    with pytest.raises(nc.errors.ModelError, match="rank 0"):
        model.radius()
