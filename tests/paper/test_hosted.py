"""Guards the ProBALL idea around any linear policy."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer.errors import PolicyError
from newcomer.model import Model
from newcomer.paper.theory.hosted import Hosted
from newcomer.testing import check_policy

RNG = np.random.default_rng(0)
BASIS = np.linalg.qr(RNG.standard_normal((6, 2)))[0]
MODEL = Model(BASIS, np.ones(6), np.zeros(6), BASIS, noise_variance=1.0)


def hosted(**settings):
    return Hosted(MODEL, inner=nc.LinUCB(2, horizon=80), outer=nc.LinUCB(6, horizon=80), **settings)


@pytest.mark.parametrize("radius", [0.0, 0.9, 2.0, 50.0])
def test_around_linucb_it_is_proball_ucb_decision_for_decision(radius):
    ours, theirs = hosted(radius=radius), nc.ProBALLUCB(MODEL, horizon=80, radius=radius)
    one, other, rng = ours.start(3), theirs.start(3), np.random.default_rng(1)
    for _ in range(80):
        actions = rng.standard_normal((3, 7, 6)) / 3.0
        assert np.array_equal(ours.in_subspace(one), theirs.in_subspace(other))
        assert np.allclose(ours.scores(one, actions), theirs.scores(other, actions), atol=1e-9)
        chosen = ours.choose(one, actions)
        assert np.array_equal(chosen, theirs.choose(other, actions))
        features, reward = actions[np.arange(3), chosen], rng.standard_normal(3)
        ours.update(one, features, reward)
        theirs.update(other, features, reward)
    assert ours.in_subspace(one).all() == (radius * np.sqrt(81) <= 6)


def test_it_keeps_the_contract_with_hosts_that_differ():
    check_policy(hosted(radius=0.9))
    check_policy(Hosted(MODEL, inner=nc.LinUCB(2, horizon=9, widths=0.0), outer=nc.LinUCB(6, horizon=9), radius=2.0))


@pytest.mark.parametrize(
    "hosts",
    [
        {"inner": nc.LinUCB(3, horizon=9), "outer": nc.LinUCB(6, horizon=9)},
        {"inner": nc.LinUCB(2, horizon=9), "outer": nc.LinTS(6, horizon=9)},
        {"inner": nc.LinUCB(2, horizon=9), "outer": nc.Uniform()},
    ],
)
def test_hosts_that_do_not_fit_are_refused(hosts):
    with pytest.raises(PolicyError, match="cannot be the"):
        Hosted(MODEL, radius=1.0, **hosts)
