"""Guards weak directions: EM of a full covariance against conditional Gaussians, and who decides whether it is used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from newcomer._fit import fit
from newcomer.em.full_covariance import Whole, full_covariance_of_fit, full_covariance_products
from newcomer.logs import Logs
from newcomer.one_hot import OneHot
from newcomer.population import Population
from newcomer.users import mix_user_hashes
from tests.helpers import batch_of, close

EVERY = np.ones(64, dtype=bool)


def some_batch(rng, actions=6, users=9):
    """Histories of unequal length, with repeats."""
    lengths = rng.integers(1, 8, users)
    names = rng.integers(0, actions, lengths.sum())
    plain = batch_of([(np.eye(actions)[names], rng.standard_normal(len(names)))], [0])
    return replace(
        plain,
        users=np.arange(users),
        hashes=mix_user_hashes(np.arange(users, dtype=np.uint64)),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        row_features=None,
        table=OneHot(actions),
        actions=names,
    )


def em_step(batch, sigma, mean, target):
    """One step of MAP-EM, user by user: E[(x - m)(x - m)^T] given the first reward of each action."""
    size, total = len(mean), np.zeros((len(mean), len(mean)))
    for start, stop in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        first = {}
        for action, reward in zip(batch.actions[start:stop], batch.rewards[start:stop], strict=True):
            first.setdefault(int(action), float(reward))
        seen = sorted(first)
        gain = sigma[:, seen] @ np.linalg.inv(sigma[np.ix_(seen, seen)])
        x = gain @ (np.array([first[a] for a in seen]) - mean[seen])
        total += np.outer(x, x) + sigma - gain @ sigma[seen]
    return (size * target + total) / (size + len(batch.lengths))


def some_fit(rng, actions=6):
    return Population(
        rng.standard_normal(actions), rng.standard_normal((actions, 2)), 0.5, rng.uniform(0.2, 1.0, actions)
    )


def test_a_step_is_that_of_conditional_gaussians():
    rng = np.random.default_rng(1)
    for _ in range(5):
        batch, whole = some_batch(rng), full_covariance_of_fit(some_fit(rng), EVERY)
        expected = em_step(batch, whole.covariance, whole.population.mean, whole.target)
        (sums,) = full_covariance_products(batch, (whole,)).each
        close(whole.stepped(sums).covariance, expected)


def test_only_users_of_the_buckets_count():
    rng = np.random.default_rng(2)
    batch, fitted = some_batch(rng), np.arange(64) % 2 == 0
    one, other = (full_covariance_of_fit(some_fit(np.random.default_rng(3)), part) for part in (fitted, ~fitted))
    halves = full_covariance_products(batch, (one, other)).each
    (both,) = full_covariance_products(batch, (replace(one, fitted=EVERY),)).each
    assert halves[0].users + halves[1].users == both.users == 9
    close(halves[0].precision + halves[1].precision, both.precision)


def test_the_average_keeps_the_variance_of_rewards():
    rng = np.random.default_rng(4)
    fit_, root = some_fit(rng), rng.standard_normal((6, 9))
    found = Whole(root @ root.T + np.eye(6), fit_, EVERY).averaged()
    both = (fit_.factor @ fit_.factor.T + np.diag(fit_.variances) + root @ root.T + np.eye(6)) / 2
    assert found.rank == 6  # nothing had to be cut off
    close(found.factor @ found.factor.T + np.diag(found.variances), both)


def people(rng, users, actions, met, factor, noise=1.0):
    """Logs of users with reward vectors N(3, F F^T), each of `met` actions once."""
    taste = rng.standard_normal((users, factor.shape[1])) @ factor.T
    action = np.concatenate([rng.permutation(actions)[:met] for _ in range(users)])
    user = np.repeat(np.arange(users), met)
    reward = 3.0 + taste[user, action] + noise * rng.standard_normal(len(user))
    return Logs.from_arrays(user=user, action=action, reward=reward)


def test_many_weak_directions_are_kept_and_two_strong_ones_are_left_alone():
    rng = np.random.default_rng(5)
    weak = people(rng, 500, 40, 15, 0.25 * rng.standard_normal((40, 12)))
    found = fit(weak, null=False, calibrate=False)
    facts = found.evidence.population
    assert facts.weak.kept == found.factor.shape[1] > facts.directions and facts.weak.gain > facts.weak.without
    strong = fit(people(rng, 1500, 30, 12, rng.standard_normal((30, 2))), null=False, calibrate=False)
    assert strong.factor.shape == (30, 2) and strong.evidence.population.weak.kept == 0


def test_nothing_is_made_up_where_nobody_has_a_taste():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        found = fit(people(rng, 600, 20, 6, np.zeros((20, 1))), null=False, calibrate=False)
        assert found.factor.shape == (20, 0)


def test_a_refit_begins_without_weak_directions():
    rng = np.random.default_rng(5)
    logs = people(rng, 500, 40, 15, 0.25 * rng.standard_normal((40, 12)))
    before = fit(logs, null=False, calibrate=False)
    after = fit(logs, start=before, null=False, calibrate=False)
    assert after.evidence.population.directions == before.evidence.population.directions
    assert np.abs(after.factor @ after.factor.T - before.factor @ before.factor.T).max() < 0.1
