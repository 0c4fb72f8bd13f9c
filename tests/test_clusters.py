"""Guards the k-means helper of the latent-model baselines: correct means, shares, spreads and reward error, the same
answer for the same seed, and one plain sentence for what cannot be clustered."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from newcomer.errors import ModelError
from newcomer.policies.finite_models import cluster_into_finite_models, finite_models_reward_error


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    places = np.array([[5.0, 0, 0], [0, 5, 0], [0, 0, 5], [-5, -5, 0]])
    sizes = [60, 40, 30, 20]
    labels = np.repeat(np.arange(4), sizes)
    return places[labels] + 0.3 * rng.standard_normal((150, 3)), labels


def test_separated_groups_are_found_largest_first(blobs):
    vectors, truth = blobs
    found = cluster_into_finite_models(vectors, 4, seed=0)
    np.testing.assert_array_equal(found.labels, truth)
    np.testing.assert_allclose(found.shares, np.array([60, 40, 30, 20]) / 150)
    for s in range(4):
        members = vectors[truth == s]
        strays = members - members.mean(axis=0)
        np.testing.assert_allclose(found.centers[s], members.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(found.variances[s], (strays**2).mean(), rtol=1e-10)
        within = found.covariances[s] - strays.T @ strays / len(strays)
        pooled = np.square(vectors - found.centers[found.labels]).mean()
        np.testing.assert_allclose(within, 0.1 * pooled * np.eye(3), atol=1e-12)


def test_no_partition_of_a_small_set_is_tighter():
    """k-means minimises sum |x - c|^2; nine users in three clusters can be tried one by one."""
    vectors = np.random.default_rng(3).standard_normal((9, 2))

    def inertia(labels):
        groups = [vectors[np.array(labels) == s] for s in range(3)]
        return sum(((g - g.mean(axis=0)) ** 2).sum() for g in groups if len(g))

    best = min(inertia(labels) for labels in itertools.product(range(3), repeat=9))
    assert inertia(cluster_into_finite_models(vectors, 3, seed=0, restarts=30).labels) == pytest.approx(best, rel=1e-12)


def test_same_seed_same_clusters_and_far_from_the_origin(blobs):
    vectors, truth = blobs
    first, again = cluster_into_finite_models(vectors, 6, seed=7), cluster_into_finite_models(vectors, 6, seed=7)
    np.testing.assert_array_equal(first.labels, again.labels)
    np.testing.assert_array_equal(first.centers, again.centers)
    np.testing.assert_array_equal(cluster_into_finite_models(vectors + 1e7, 4, seed=0).labels, truth)


def test_as_many_clusters_as_users():
    vectors = np.random.default_rng(1).standard_normal((5, 3))
    found = cluster_into_finite_models(vectors, 5, seed=0)
    np.testing.assert_array_equal(found.centers[found.labels], vectors)
    np.testing.assert_array_equal(np.sort(found.labels), np.arange(5))
    np.testing.assert_array_equal(found.variances, np.zeros(5))


def test_reward_error_is_the_quantile_of_the_worst_action(blobs):
    vectors, _ = blobs
    found = cluster_into_finite_models(vectors, 4, seed=0)
    actions = np.random.default_rng(2).standard_normal((7, 3))
    worst = [
        max(abs(phi @ (beta - found.centers[label])) for phi in actions)
        for beta, label in zip(vectors, found.labels, strict=True)
    ]
    assert finite_models_reward_error(vectors, found, actions) == pytest.approx(np.quantile(worst, 0.9), rel=1e-12)
    assert finite_models_reward_error(vectors, found, actions, quantile=1.0) == pytest.approx(max(worst), rel=1e-12)


@pytest.mark.parametrize(
    ("vectors", "count"),
    [
        ([[1.0, np.nan]], 1),
        ([1.0, 2.0], 1),
        ([[1.0], [1.0], [2.0]], 3),
        ([["a"]], 1),
        (np.empty((0, 3)), 1),
        ([[1.0]], 0),
    ],
)
def test_what_cannot_be_clustered_is_refused(vectors, count):
    with pytest.raises(ModelError):
        cluster_into_finite_models(vectors, count, seed=0)


def test_reward_error_refuses_other_users(blobs):
    vectors, _ = blobs
    found = cluster_into_finite_models(vectors, 2, seed=0)
    with pytest.raises(ModelError, match="do not fit"):
        finite_models_reward_error(vectors[:3], found, np.eye(3))
