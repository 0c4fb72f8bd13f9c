"""Guards the policy contract: every policy keeps every promise of newcomer.testing; the suite notices broken ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import newcomer as nc
from newcomer import files
from newcomer.errors import ModelError, PolicyError
from newcomer.linear import ridge, state_file
from newcomer.linear.state import State
from newcomer.model import Model
from newcomer.policies import calls
from newcomer.policies.base import Contract
from newcomer.policies.linear import LinUCB
from newcomer.testing import ACTIONS, PROMISES, Trial, check_policy, check_world
from newcomer.worlds.world import Episode
from tests.contract.examples import EXAMPLES, SITUATIONS, literal, make_model, with_catalogue


def test_every_public_policy_has_an_example():
    public = {name for name in nc.__all__ if hasattr(getattr(nc, name), "choose")}
    assert public == EXAMPLES.keys()
    assert all(issubclass(getattr(nc, name), Contract) for name in public)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize(("name", "place"), SITUATIONS)
def test_every_policy_keeps_every_promise(name, place, promise):
    promise(Trial(EXAMPLES[name](5, 2)[place], 5, seed=1))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("persistence", [None, 0.4])
@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("make", [nc.PriorUCB, nc.PriorTS, nc.EmpiricalArms, nc.PopulationMean])
def test_policies_on_models_with_a_catalogue_keep_every_promise(make, one_hot, persistence, promise):
    promise(Trial(make(with_catalogue(5, 2, one_hot=one_hot, persistence=persistence)), 5, seed=1))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("kind", ["features alone", "one-hot", "items", "one-hot, share known"])
@pytest.mark.parametrize("make", [nc.PriorUCB, nc.PriorTS, nc.EmpiricalArms, nc.PopulationMean, nc.ProBALLUCB])
def test_policies_on_models_of_clicks_keep_every_promise(make, kind, promise):
    share = 0.4 if kind == "one-hot, share known" else None
    alone = kind == "features alone"
    model = make_model(5, 2) if alone else with_catalogue(5, 2, one_hot=kind != "items", persistence=share)
    if make is nc.EmpiricalArms and alone:
        return  # it needs named actions
    settings = literal(5, tau=0.5) if make is nc.ProBALLUCB else {}
    promise(Trial(make(replace(model, outcome="binary"), **settings), 5, seed=1))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("make", [nc.PriorUCB, nc.PriorTS, nc.EmpiricalArms, nc.PopulationMean, nc.LinUCB, nc.Uniform])
@pytest.mark.parametrize("outcome", ["gaussian", "binary"])
def test_policies_whose_newcomers_share_a_row_keep_every_promise(monkeypatch, make, outcome, promise):
    monkeypatch.setattr("newcomer.linear.state.PLAIN_USERS", 0)
    model = replace(with_catalogue(5, 2), outcome=outcome)
    policy = make() if make is nc.Uniform else make(5, horizon=20) if make is nc.LinUCB else make(model)
    assert policy.start(3).shared is not None
    promise(Trial(policy, 5, seed=1))


@pytest.mark.parametrize(("name", "place"), SITUATIONS)
def test_one_dimension_is_nothing_special(name, place):
    check_policy(EXAMPLES[name](1, 1)[place], dim=1, seed=2)


@dataclass(frozen=True)
class Forgetful:
    """LinUCB, but it breaks a promise: it learns from NaN, by taking it for zero."""

    inner: LinUCB

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def update(self, state, features=None, reward=None, *, ids=None, users=None):
        self.inner.update(state, features, np.nan_to_num(reward), ids=ids, users=users)


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
    with pytest.raises(PolicyError, match="this state was started by .*; this policy is LinUCB with dim 3"):
        nc.LinUCB(3, horizon=5).choose(state, np.ones((2, 3)))


def test_what_is_no_state_at_all_is_refused():
    with pytest.raises(PolicyError, match="started by nobody"):
        nc.LinUCB(3, horizon=5).choose(np.ones(3), np.ones((2, 3)))


def test_a_state_from_other_settings_is_refused_rather_than_misread():
    model = make_model(3, 1)
    patient = nc.ProBALLUCB(model, horizon=5, tau=0.0, radius=1.0)
    hasty = nc.ProBALLUCB(model, horizon=5, tau=1e9, radius=1.0)
    with pytest.raises(PolicyError, match="radius \\* tau 0, .*; this policy is .* radius \\* tau 1000000000, "):
        hasty.choose(patient.start(1), np.eye(3))


def test_settings_that_do_not_change_what_a_state_holds_do_not_make_it_refused():
    model = make_model(3, 1)
    for one, other in (
        (nc.LinUCB(3, horizon=5), nc.LinUCB(3, horizon=50, widths=0.1)),
        (nc.LinTS(3, horizon=5), nc.LinTS(3, horizon=5, votes=7)),
        (nc.PriorUCB(model), nc.PriorUCB(model, width=2.0)),
        (nc.ProBALLUCB(model, horizon=5, radius=0.5, tau=2.0), nc.ProBALLUCB(model, horizon=9, radius=1.0, tau=1.0)),
        (nc.LocalUCB(model, horizon=5, radius=0.5), nc.LocalUCB(model, horizon=9, radius=0.1)),
    ):
        assert other.choose(one.start(2), np.eye(3), np.random.default_rng(0)).shape == (2,)


def test_the_state_of_another_model_is_refused():
    model = make_model(3, 1)
    first, second = nc.PopulationMean(model), nc.PopulationMean(replace(model, noise_variance=2.0))
    state = first.start(1)
    with pytest.raises(PolicyError, match=f"on model {model.id[:12]}; .* on model {second.model.id[:12]}"):
        second.choose(state, np.eye(3))
    with pytest.raises(PolicyError, match="put together"):
        type(state).concat([state, second.start(1)])


def test_the_catalogue_gives_the_features_of_ids():
    catalogue = np.diag([1.0, 2.0, 3.0])
    model = replace(make_model(3, 1), action_ids=("a", "b", "c"), action_features=catalogue)
    policy, names = nc.PriorUCB(model), np.array([["a", "b", "c"], ["c", "b", "a"]])
    state, twin, actions = policy.start(2), policy.start(2), np.stack([catalogue, catalogue[::-1]])
    np.testing.assert_array_equal(policy.scores(state, ids=names), policy.scores(state, actions))
    np.testing.assert_array_equal(policy.choose(state, ids=names[0]), policy.choose(state, actions[0]))
    policy.update(state, ids=["c", "b"], reward=[1.0, 2.0])
    policy.update(twin, catalogue[[2, 1]], [1.0, 2.0])
    assert state.to_bytes() == twin.to_bytes()
    new = policy.scores(state, ids=["a", "z"])  # an action that it does not know is a new one, like the average one
    average = catalogue.mean(axis=0)[None]
    np.testing.assert_allclose(new[:, 1:], policy.scores(state, average))
    with pytest.raises(ModelError, match="'z' is not among the 3 actions"):
        model.features(["a", "z"])


def test_ids_without_a_catalogue_ask_for_features_in_one_sentence():
    policy = nc.LinUCB(3, horizon=5)
    with pytest.raises(PolicyError, match="LinUCB has no model with a catalogue: pass actions beside ids="):
        policy.choose(policy.start(1), ids=[4, 5])
    with pytest.raises(PolicyError, match="LinUCB has no model with a catalogue: pass features beside ids="):
        policy.update(policy.start(1), ids=[4], reward=[1.0])


def test_a_state_whose_arrays_are_not_those_of_its_record_is_refused():
    state = nc.LinUCB(3, horizon=5).start(1)
    state.record = nc.LinUCB(4, horizon=5).record
    loaded = type(state).from_bytes(state.to_bytes())
    with pytest.raises(PolicyError, match="arrays"):
        nc.LinUCB(4, horizon=5).choose(loaded, np.ones((2, 4)))


def test_a_state_from_before_there_were_records_is_refused_in_one_sentence():
    state = nc.LinUCB(2, horizon=5).start(1)
    old = files.pack_file("Ridge", {name: array for name, array, _ in state.arrays()}, {})
    with pytest.raises(ModelError, match="older version"):
        type(state).from_bytes(old)


def test_bytes_of_another_kind_or_a_newer_format_are_refused():
    state = nc.LinUCB(2, horizon=5).start(1)
    uniform = nc.Uniform().start(1)
    with pytest.raises(ModelError, match="kind"):
        type(uniform).from_bytes(state.to_bytes())
    data = state.to_bytes()
    newer = data[:4] + bytes((state_file.FORMAT + 1,)) + data[5:]
    with pytest.raises(ModelError, match="newer"):
        type(state).from_bytes(newer)
    with pytest.raises(ModelError, match="checksum"):
        type(state).from_bytes(data[:-1] + b"\x05")


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


@dataclass(frozen=True)
class Unfinished(Contract[ridge.Ridge]):
    """A policy by somebody who has not read everything; `mistake` says what is returned wrongly."""

    dim: int
    mistake: str = ""

    def init(self, n):
        return {"count": np.zeros(n)} if self.mistake == "init" else ridge.start_ridge(n, self.dim)

    def score(self, state, query):
        scores = calls.call_mean_rewards(state.mean[query.users], query)
        return scores[0] if self.mistake == "score" else np.asfortranarray(scores)

    def learn(self, state, observed):
        ridge.learn_ridge(state, observed.features, observed.reward, observed.users)


def test_mistakes_in_a_policy_are_named_in_one_sentence():
    with pytest.raises(PolicyError, match="Unfinished.init gave a dict and no state"):
        check_policy(Unfinished(5, "init"))
    policy = Unfinished(5, "score")
    for ask in (policy.choose, policy.scores, policy.probabilities):
        with pytest.raises(PolicyError, match=r"scores of shape \(6,\) for 4 users and 6 actions"):
            ask(policy.start(4), np.ones((6, 5)))


def test_a_policy_with_hooks_of_an_earlier_version_is_refused_with_their_new_names():
    hooks = {"begin": "init", "rank": "score", "law": "choice_probabilities", "inside": "in_subspace"}
    for old, new in hooks.items():
        with pytest.raises(PolicyError, match=f"Old has hooks of an earlier version: rename {old} to {new}"):
            type("Old", (Contract,), {old: lambda self, state: None})
    assert type("New", (Contract,), {"rank": 3}).rank == 3, "a setting may have such a name"


def test_in_subspace_of_a_policy_is_called_with_states_of_its_own_alone():
    policy = nc.ProBALLUCB(make_model(4, 2), horizon=5, radius=1.0)
    with pytest.raises(PolicyError, match="this state was started by"):
        policy.in_subspace(nc.LinUCB(4, horizon=5).start(1))
    state = policy.start(2)
    policy.in_subspace(state)[:] = False
    assert policy.in_subspace(state).all(), "the answer is a copy"


def test_scores_may_lie_in_memory_as_they_like():
    check_policy(Unfinished(5))


@dataclass
class OneMean(State):
    """A user's estimate (n, d)."""

    mean: np.ndarray


@dataclass(frozen=True)
class Plain(Contract[OneMean]):
    """A right policy: small steps towards each reward."""

    dim: int = 4

    def init(self, n):
        return OneMean(np.zeros((n, self.dim)))

    def score(self, state, query):
        return calls.call_mean_rewards(state.mean[query.users], query)

    def learn(self, state, observed):
        for x, r, user in zip(observed.features, observed.reward, observed.users, strict=True):
            state.mean[user] += 0.1 * (r - x @ state.mean[user]) * x


class WrongPropensities(Plain):
    """It says that every action is as likely, and takes the best."""

    sampled = True

    def draws(self, state, query, rngs):
        while True:
            yield 10 * super().score(state, query) + [0.01 * one.standard_normal(ACTIONS) for one in rngs]

    def choice_probabilities(self, state, query, rng):
        allowed = query.allowed().astype(float)
        return allowed / allowed.sum(axis=1, keepdims=True)


class TurnedByMasks(Plain):
    """With a mask it prefers what it did not before."""

    def score(self, state, query):
        scores = super().score(state, query)
        return scores if query.allowed().all() else -scores


@pytest.mark.parametrize(
    ("kind", "promise"),
    [(WrongPropensities, "of the choices"), (TurnedByMasks, "mask")],
)
def test_what_is_wrong_with_a_policy_is_said(kind, promise):
    check_policy(Plain())
    with pytest.raises(AssertionError, match=promise):
        check_policy(kind())


def test_policies_to_whom_all_actions_are_equal_keep_the_contract():
    check_policy(nc.PopulationMean(Model(np.eye(5)[:, :1], np.zeros(5), np.zeros(5), np.zeros((5, 1)), 1.0)))
    check_policy(nc.MUCB(np.zeros((1, 3)), horizon=20))


def test_scores_that_are_no_numbers_are_not_blamed_on_features():
    class NoNumbers(Plain):
        def score(self, state, query):
            return super().score(state, query) * np.nan

    with pytest.raises(PolicyError, match="gave a score that is no finite number"):
        check_policy(NoNumbers())
