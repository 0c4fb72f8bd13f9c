"""Guards the search for the rank: clicks that share tastes are found to, and those that share none are not.

`python -m experiments.click_worlds` is the whole list of worlds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from experiments import click_worlds

import newcomer as nc
from newcomer.cli.model_summary import model_summary_of, model_summary_rank_line
from newcomer.em.likelihood import Comparison, compare_likelihoods
from newcomer.em.model_selection import (
    ROUGH,
    model_selection_certainty,
    model_selection_clarity,
    select_smallest_good_rank,
)
from newcomer.evidence import RankComparison
from newcomer.population import Population
from newcomer.users import user_bucket_count
from newcomer.worlds import Synthetic


def test_what_users_of_rare_clicks_share_is_found():
    """A search that had collapsed to rank 0 once found a direction in 3 of these 12 worlds."""
    found = [click_worlds.fitted(seed, taste=True).facts for seed in range(click_worlds.TASTE)]
    assert sum(facts.directions > 0 for facts in found) >= click_worlds.FOUND
    assert all(facts.ranks.certainty > 3.1 for facts in found if facts.directions)


def test_where_nothing_is_shared_nothing_is_found():
    """Twelve of the forty worlds."""
    found = [click_worlds.fitted(seed, taste=False).facts for seed in range(12)]
    assert sum(facts.directions > 0 for facts in found) <= 1
    assert all(facts.ranks.certainty < 3.1 and not facts.ranks.too_weak for facts in found)


def test_the_linear_part_of_the_gain_by_definition():
    """Of a user's rewards, each is predicted from the others: gain = 2 e p - p^2, linear part e p, over the units."""
    rng = np.random.default_rng(1)
    factor, units = rng.standard_normal((4, 2)), rng.uniform(0.5, 2.0, 4)
    one = Population(rng.standard_normal(4), factor, 1.0, np.full(4, 0.7), units=units)
    action, reward = np.argsort(rng.random((50, 4)), axis=1)[:, :3], rng.standard_normal((50, 3))
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(50), 3), action=action.ravel(), reward=reward.ravel())
    batch = next(logs.batches())
    assert batch.actions is not None
    each = []
    for n in range(50):
        rows = slice(int(batch.offsets[n]), int(batch.offsets[n + 1]))
        own, paid = batch.actions[rows], batch.rewards[rows]
        gain = linear = 0.0
        for i in range(3):
            others = np.arange(3) != i
            a, e = factor[own[others]], paid[others] - one.mean[own[others]]
            z = np.linalg.solve(np.eye(2) + a.T @ a / 0.7, a.T @ e / 0.7)
            error, told = paid[i] - one.mean[own[i]], factor[own[i]] @ z
            gain += (2 * error * told - told**2) / units[own[i]]
            linear += error * told / units[own[i]]
        each.append((gain, linear))
    gains = np.array(each)
    every = np.ones(user_bucket_count(4), dtype=bool)
    found = compare_likelihoods(batch, ((one,),), (every,))
    np.testing.assert_allclose(found.sums, [gains[:, 0].sum()])
    np.testing.assert_allclose(found.linear[:, 0], [gains[:, 1].sum(), (gains[:, 1] ** 2).sum()])
    expected = gains[:, 1].mean() / (gains[:, 1].std() / np.sqrt(49))
    assert found.certainty(0) == pytest.approx(expected)


def test_what_is_certain_and_of_no_use_is_said_to_be_so():
    weak = RankComparison(0, (0.0, 0.1), (0.0, 0.1), 900, certainty=4.2)
    assert "certainly share" in weak.too_weak and "too weakly to use" in weak.too_weak
    assert not RankComparison(0, (0.0, 0.1), (0.0, 0.1), 900, certainty=2.0).too_weak
    assert not RankComparison(1, (0.1, 0.0), (0.1, 0.0), 900, certainty=4.2).too_weak


def test_the_screen_says_what_is_too_weak_to_use():
    model = nc.fit(Synthetic.learnable(dim=6, seed=1).logs(300, 8, seed=1), null=False, calibrate=False)
    ranks = RankComparison(0, (0.0, 0.1), (0.0, 0.1), 900, certainty=4.2)
    facts = replace(model.evidence.population, ranks=ranks)
    told = model_summary_rank_line(model_summary_of(replace(model, evidence=replace(model.evidence, population=facts))))
    assert told.startswith("no usable direction: users certainly share preferences (4.2 standard errors)")


def test_a_gain_that_is_not_there_makes_nothing_clear():
    """Linear parts may be clear of zero where held-out users are predicted worse than by their mean."""
    linear = np.array([[0.0, 50.0], [0.0, 60.0]])
    worse = Comparison(100, np.array([0.0, -3.0]), np.eye(2), linear)
    better = Comparison(100, np.array([0.0, 2 * ROUGH]), np.eye(2), linear)
    assert model_selection_certainty(worse) == model_selection_certainty(better) > 3.1
    assert model_selection_clarity(worse) == 0.0 and select_smallest_good_rank(worse) == 0
    assert model_selection_clarity(better) > 3.1 and select_smallest_good_rank(better) == 1
