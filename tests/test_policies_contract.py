"""Guards the policy contract: every policy keeps every promise of newcomer.testing, and the suite notices broken ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import newcomer as nc
from newcomer.errors import ModelError, PolicyError
from newcomer.model import Model
from newcomer.policies.linear import LinUCB
from newcomer.testing import PROMISES, Trial, check_policy, check_world
from newcomer.worlds.world import Episode


def make_model(dim, rank, seed=0):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    return Model(basis, np.ones(dim), rng.standard_normal(dim), basis.copy(), 1.0)


def make_policies(dim, rank):
    model = make_model(dim, rank)
    settings = {"horizon": 20, "radius": 1.0}
    return {
        "Uniform": nc.Uniform(),
        "PopulationMean": nc.PopulationMean(model),
        "LinUCB": nc.LinUCB(dim, horizon=20),
        "LinTS": nc.LinTS(dim, horizon=20, votes=20),
        "ProBALLUCB inside": nc.ProBALLUCB(model, tau=0.0, **settings),
        "ProBALLUCB leaves": nc.ProBALLUCB(model, tau=dim / 3, **settings),
        "ProBALLUCB bends": nc.ProBALLUCB(model, tau=dim / 9, tau_prime=0.5, widths="theoretical", **settings),
        "ProBALLTS outside": nc.ProBALLTS(model, tau=1e9, votes=20, **settings),
        "ProBALLTS leaves": nc.ProBALLTS(model, tau=dim / 3, tau_prime=0.1, votes=20, **settings),
    }


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("name", make_policies(5, 2))
def test_every_policy_keeps_every_promise(name, promise):
    promise(Trial(make_policies(5, 2)[name], 5, seed=1))


@pytest.mark.parametrize("name", make_policies(1, 1))
def test_one_dimension_is_nothing_special(name):
    check_policy(make_policies(1, 1)[name], dim=1, seed=2)


@dataclass(frozen=True)
class Forgetful:
    """LinUCB, but it breaks a promise: it learns from NaN, by taking it for zero."""

    inner: LinUCB

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def update(self, state, features, reward, *, users=None):
        self.inner.update(state, features, np.nan_to_num(reward), users=users)


def test_the_suite_notices_a_broken_promise():
    with pytest.raises(AssertionError, match="NaN"):
        check_policy(Forgetful(nc.LinUCB(3, horizon=10)), dim=3)


def test_worlds_are_checked_too():
    class Stuck:
        dim = 2

        def episode(self, rng, horizon):
            return Episode(np.ones((horizon, 3, 2)), np.zeros((horizon, 3)), np.zeros((horizon, 3)))

    with pytest.raises(AssertionError, match="alike"):
        check_world(Stuck())


@pytest.mark.parametrize(
    "make",
    [
        lambda: nc.LinUCB(0, horizon=10),
        lambda: nc.LinUCB(2.5, horizon=10),
        lambda: nc.LinUCB(3, horizon=0),
        lambda: nc.LinUCB(3, horizon=10, widths="practicl"),
        lambda: nc.LinUCB(3, horizon=10, widths=-1.0),
        lambda: nc.LinTS(3, horizon=10, votes=0),
        lambda: nc.ProBALLUCB(make_model(3, 1), horizon=10, radius=-1.0),
        lambda: nc.ProBALLUCB(make_model(3, 1), horizon=10, radius=np.nan),
        lambda: nc.ProBALLUCB(make_model(3, 1), horizon=10, radius=1.0, tau=-1.0),
        lambda: nc.ProBALLUCB(make_model(3, 1), horizon=10, radius=1.0, widths=(1.0,)),
    ],
)
def test_senseless_settings_are_refused(make):
    with pytest.raises(PolicyError):
        make()


def test_a_model_of_rank_zero_is_refused_in_one_sentence():
    with pytest.raises(ModelError, match="rank 0"):
        nc.ProBALLUCB(make_model(3, 0), horizon=10, radius=1.0)


def test_hyperparameters_are_keyword_only():
    with pytest.raises(TypeError):
        nc.LinUCB(3, 10)


@pytest.mark.parametrize(
    "other", [nc.LinUCB(4, horizon=5), nc.Uniform(), nc.ProBALLUCB(make_model(3, 1), horizon=5, radius=1)]
)
def test_the_state_of_another_policy_is_refused(other):
    state = other.start(2)
    with pytest.raises(PolicyError, match="state|keeps"):
        nc.LinUCB(3, horizon=5).choose(state, np.ones((2, 3)))


def test_a_state_from_other_settings_is_refused_rather_than_misread():
    model = make_model(3, 1)
    patient = nc.ProBALLUCB(model, horizon=5, tau=0.0, radius=1.0)
    hasty = nc.ProBALLUCB(model, horizon=5, tau=1e9, radius=1.0)
    with pytest.raises(PolicyError, match="settings"):
        hasty.choose(patient.start(1), np.eye(3))


def test_bytes_of_another_kind_or_a_newer_format_are_refused():
    state = nc.LinUCB(2, horizon=5).start(1)
    uniform = nc.Uniform().start(1)
    with pytest.raises(ModelError, match="kind"):
        type(uniform).from_bytes(state.to_bytes())
    data = state.to_bytes()
    newer = data.replace(b'format\\": 2', b'format\\": 9')
    assert newer != data
    with pytest.raises(ModelError, match="newer"):
        type(state).from_bytes(newer)
    with pytest.raises(ModelError, match="checksum"):
        type(state).from_bytes(data[:-8] + b"\x00\x00\x00\x00\x00\x00\xf0\x3f")


def test_ties_within_rounding_go_to_the_lowest_index():
    policy = nc.PopulationMean(Model(np.eye(1), np.ones(1), np.ones(1), np.eye(1), 1.0))
    near = np.array([[1.0 - 1e-13], [1.0], [1.0 - 1e-11]])
    assert policy.choose(policy.start(1), near)[0] == 0
    assert policy.choose(policy.start(1), near[::-1].copy())[0] == 1


def test_uniform_is_uniform_over_what_is_allowed():
    policy = nc.Uniform()
    mask = np.array([True, False, True, True])
    state, rng = policy.start(3000), np.random.default_rng(0)
    chosen = policy.choose(state, np.zeros((4, 2)), rng, mask=mask)
    counts = np.bincount(chosen, minlength=4)
    assert counts[1] == 0 and np.all(np.abs(counts[mask] - 1000) < 120)


def test_random_policies_ask_for_a_generator():
    for policy in (nc.Uniform(), nc.LinTS(2, horizon=5)):
        with pytest.raises(PolicyError, match="rng"):
            policy.choose(policy.start(1), np.eye(2))
        with pytest.raises(PolicyError, match="generators"):
            policy.choose(policy.start(3), np.eye(2), [np.random.default_rng(0)] * 2)
