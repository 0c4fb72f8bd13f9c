"""Guards what a fit says of actions that were hardly ever shown: their residual variances, and their means."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer._fit import fit
from newcomer.em.optimizer import SCATTER, Totals
from newcomer.em.passes import Passes
from newcomer.em.shrinkage import start_with_shrinkage
from tests.helpers import close
from tests.oracles import prior as oracle

ACTIONS, USERS, ROWS, NOISE = 20, 400, 10, 0.5


def served(seed):
    """Logs of a service: one user in twenty is shown anything, the others what is about best for them."""
    rng = np.random.default_rng(seed)
    mean, factor = 1.0 + 0.3 * rng.standard_normal(ACTIONS), 0.5 * rng.standard_normal((ACTIONS, 2))
    z = rng.standard_normal((USERS, 2))
    doubt = 0.3 * rng.standard_normal((USERS, ROWS, 2))
    shown = (mean + (z[:, None] + doubt) @ factor.T).argmax(axis=2)
    shown[: USERS // 20] = rng.integers(ACTIONS, size=(USERS // 20, ROWS))
    rewards = mean[shown] + np.einsum("nhk,nk->nh", factor[shown], z) + NOISE * rng.standard_normal(shown.shape)
    user = np.repeat(np.arange(USERS), ROWS)
    logs = nc.Logs.from_arrays(user=user, action=[f"{a:02}" for a in shown.ravel()], reward=rewards.ravel())
    return logs, mean, np.bincount(shown.ravel(), minlength=ACTIONS)


@pytest.mark.parametrize("seed", range(3))
def test_residual_variances_of_rare_actions_are_those_of_the_others(seed):
    """Moments leave 0.03 to 0.1 of them where 0.25 is true, and the means of rare actions then follow their noise."""
    logs, _, met = served(seed)
    model, rare = fit(logs, null=False, calibrate=False), met <= 12
    assert rare.sum() >= 5
    found = model.residual_variance[rare]
    assert 0.16 < np.median(found) < 0.34 and found.min() > 0.09


def test_the_line_is_weighted_least_squares_with_a_belief_about_its_slope():
    rng = np.random.default_rng(4)
    rows, totals = rng.integers(1, 900, size=12).astype(float), rng.uniform(0.5, 3.0, size=12)
    variances = 0.3 * totals**0.6 * np.exp(0.1 * rng.standard_normal(12))
    found = Totals(rows, totals, np.ones(12)).line(variances)
    close(found, oracle.line_of_variances(rows, totals, variances, SCATTER))


@pytest.mark.parametrize(("power", "shape"), [(0.0, np.ones(6)), (1.0, np.linspace(1.0, 3.0, 6))])
def test_the_slope_is_what_the_actions_with_many_rows_have(power, shape):
    rows, totals = np.array([3.0, 500.0, 500.0, 500.0, 500.0, 3.0]), np.linspace(1.0, 3.0, 6)
    found = Totals(rows, totals, np.ones(len(rows))).line(0.2 * totals**power * np.array([0.1, 1, 1, 1, 1, 0.1]))
    slope = np.log(found[-1] / found[0]) / np.log(3.0)
    assert abs(slope - power) < 0.25  # half of what is believed beforehand is gone
    assert found[2:4] == pytest.approx(0.2 * shape[2:4], rel=0.06)


def test_means_are_shrunk_towards_the_mean_over_actions_not_over_rows():
    """Nine rows in ten are of an action that pays 2, and the nine others pay 1."""
    user, action = np.repeat(np.arange(90), 10), np.zeros((90, 10), dtype=int)
    action[np.arange(90), np.arange(90) % 10] = 1 + np.arange(90) % 9
    reward = np.where(action == 0, 2.0, 1.0) + 0.1 * np.random.default_rng(0).standard_normal(action.shape)
    logs = nc.Logs.from_arrays(user=user, action=action.ravel(), reward=reward.ravel())
    origin = start_with_shrinkage(Passes(logs), None)
    anchor = origin.anchor(np.ones(len(origin.pairs.users), dtype=bool))
    assert anchor[0] == pytest.approx(1.17, abs=0.03) and np.ptp(anchor) == 0
