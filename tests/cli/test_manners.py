"""Guards the manners of records: short to see, compared with an answer, closed to writing; and what fit and policies
take in more than one form.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import newcomer as nc
from newcomer.errors import PolicyError
from newcomer.records import short_record_text
from newcomer.worlds import Synthetic
from tests.contract.examples import EXAMPLES
from tests.helpers import plain_model
from tests.optional import optional

SCREEN = 80 * 20


def table(users=40, rows=6, seed=0):
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), rows)
    return pl.DataFrame({"user": user, "action": rng.integers(4, size=len(user)), "reward": rng.random(len(user))})


@pytest.fixture(scope="module")
def model():
    return nc.fit(table())


@pytest.fixture(scope="module")
def constant():
    """A model of two features and the constant."""
    rng = np.random.default_rng(2)
    features = rng.standard_normal((600, 2))
    reward = features @ [1.0, -1.0] + 3.0 + 0.1 * rng.standard_normal(600)
    user = np.repeat(np.arange(100), 6)
    return nc.fit(nc.Logs.from_arrays(user=user, features=features, reward=reward, intercept=True))


# What fit takes.


def test_fit_takes_tables_and_files(model, tmp_path):
    frame = table()
    frame.write_csv(tmp_path / "x.csv")
    tables = [
        frame,
        frame.lazy(),
        pd.DataFrame(frame.to_dict(as_series=False)),
        pa.table(frame.to_dict(as_series=False)),
    ]
    for given in (*tables, str(tmp_path / "x.csv"), tmp_path / "x.csv", [tmp_path / "x.csv"], nc.read_logs(frame)):
        assert nc.fit(given) == model


def test_fit_takes_a_relation_of_duckdb(model):
    duckdb = optional("duckdb")
    rows = table().to_arrow()
    assert nc.fit(duckdb.from_arrow(rows)) == model


# Shown.


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_policies_and_states_are_shown_on_one_screen(name):
    for policy in EXAMPLES[name](30, 2):
        for one in (policy, policy.start(3)):
            assert type(one).__name__ in repr(one) and len(repr(one)) <= SCREEN and "\n" not in repr(one)
            assert one._repr_html_().startswith("<table>") and len(one._repr_html_()) < 10_000
        assert "users=3" in repr(policy.start(3)) and name in repr(policy.start(3))


def test_records_are_shown_without_their_arrays(model):
    logs = nc.read_logs(table())
    episode = Synthetic(dim=50, noise=0.1).episode(np.random.default_rng(0), 100)
    for one in (logs, model, logs.summary, model.evidence, next(logs.batches()), episode):
        assert len(repr(one)) <= SCREEN and "array(" not in repr(one)
    assert repr(model).startswith("Model(rank=") and "users=40" in repr(model)
    assert repr(nc.PriorUCB(model)).endswith("curiosity=None, width=None, level=0.1, memory_width=0)")


def test_ids_are_text_in_tables_of_html():
    frame = table().with_columns(action=pl.lit("<script>") + pl.col("action").cast(pl.String))
    logs = nc.read_logs(frame)
    model = nc.fit(logs)
    for one in (logs, model, nc.PriorUCB(model)):
        assert "<script>" not in one._repr_html_()
    assert "&lt;script&gt;0" in model._repr_html_()


def test_a_long_list_is_cut():
    assert short_record_text(list(range(7))) == "(0, 1, 2, ... 7 in all)" and len(short_record_text("x" * 999)) < 90


# Compared.


def test_models_are_equal_by_what_policies_read(model):
    again = nc.Model.from_bytes(model.to_bytes())
    other = replace(model, noise_variance=2 * model.noise_variance)
    assert again == model and hash(again) == hash(model) and len({again, model, other}) == 2
    assert model != other and model != "model" and model != np.ones(3) and (model == table()) is False


def test_logs_are_equal_if_a_fit_reads_the_same():
    logs, shuffled = nc.read_logs(table()), nc.read_logs(table().sort("user", descending=True, maintain_order=True))
    assert logs == shuffled and len({logs, shuffled}) == 1
    assert logs != nc.read_logs(table(seed=1)) and logs != nc.read_logs(table(), intercept=True) and logs != None


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_policies_are_equal_by_their_settings(name):
    ours, same, other = EXAMPLES[name](5, 2), EXAMPLES[name](5, 2), EXAMPLES[name](6, 2)
    for one, two, three in zip(ours, same, other, strict=True):
        assert one == two and hash(one) == hash(two) and len({one, two}) == 1
        assert (one != three) or name == "Uniform"
        assert one != 3 and one != np.zeros(3)


def test_states_are_equal_to_the_bit_and_have_no_hash():
    policy = nc.PriorUCB(plain_model(4, 2))
    one, two = policy.start(2), policy.start(2)
    assert one == two and one != policy.start(3) and one != nc.PriorUCB(plain_model(4, 2), level=0.2).start(2)
    policy.update(two, np.ones((2, 4)), [1.0, np.nan])
    assert one != two and one == type(one).from_bytes(one.to_bytes())
    for refusal in (nc.NewcomerError, TypeError):
        with pytest.raises(refusal, match="a state changes in place"):
            hash(one)


def test_batches_and_episodes_are_compared():
    first, second = (next(nc.read_logs(table()).batches()) for _ in range(2))
    assert first == second and hash(first) == hash(second)
    world = Synthetic(dim=3, noise=0.1)
    episodes = [world.episode(np.random.default_rng(seed), 4) for seed in (0, 0, 1)]
    assert episodes[0] == episodes[1] != episodes[2]


# Closed to writing, and apart from what was given.


def test_arrays_of_records_are_read_only_and_no_aliases(model):
    logs = nc.read_logs(table())
    batch = next(logs.batches())
    episode = Synthetic(dim=3, noise=0.1).episode(np.random.default_rng(0), 4)
    centers = np.eye(3)
    arrays = [
        batch.rewards,
        batch.features,
        batch.users,
        episode.actions,
        episode.means,
        nc.MUCB(centers, horizon=9).centers,
    ]
    arrays += [nc.MmTS(centers, variances=1.0).mixture.centers, model.factor, model.offsets]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    given = [np.eye(3, 1), np.ones(3), np.zeros(3), np.eye(3, 1)]
    made = nc.Model(*given, 1.0)
    for array in (*given, centers):
        array += 5.0
    assert made.mean.tolist() == [0.0, 0.0, 0.0] and made.basis[0, 0] == 1.0
    reward = np.ones(4)
    rows = nc.Logs.from_arrays(user=[1, 1, 2, 2], features=np.ones((4, 1)), reward=reward)
    reward += 1.0
    assert next(rows.batches()).rewards.tolist() == [1.0] * 4


# Policies take features without the constant.


@pytest.mark.parametrize("name", ["PriorUCB", "PriorTS", "PopulationMean", "LocalUCB", "ProBALLUCB"])
def test_a_model_with_an_intercept_takes_features_without_the_constant(constant, name):
    more = {"horizon": 20} if name in ("LocalUCB", "ProBALLUCB") else {}
    policy = getattr(nc, name)(constant, **more)
    features = np.random.default_rng(0).standard_normal((2, 5, 2))
    whole = np.concatenate([features, np.ones((2, 5, 1))], axis=2)
    with_it, without = policy.start(2), policy.start(2)
    for _ in range(3):
        policy.update(with_it, whole[:, 0], [1.0, 2.0])
        policy.update(without, features[:, 0], [1.0, 2.0])
        assert with_it == without
    for question in (features, features[0], features.tolist()):
        asked = whole if np.ndim(question) == 3 else whole[0]
        rng = [np.random.default_rng(1), np.random.default_rng(1)]
        assert np.array_equal(policy.scores(without, question), policy.scores(with_it, asked))
        assert np.array_equal(policy.choose(without, question, rng[0]), policy.choose(with_it, asked, rng[1]))
        assert np.array_equal(
            policy.probabilities(without, question, rng[0]), policy.probabilities(with_it, asked, rng[1])
        )
    policy.update(without, [0.5, 0.5], 1.0, users=[0])
    with pytest.raises(PolicyError):
        policy.scores(without, np.ones((5, 1)))


# Large numbers.


@pytest.mark.parametrize("size", [1e8, 1e-8])
def test_numbers_of_any_size_are_served(size):
    rng = np.random.default_rng(0)
    user, features = np.repeat(np.arange(200), 8), size * rng.standard_normal((1600, 4))
    tastes = rng.standard_normal((200, 1)) @ np.ones((1, 4))
    reward = size * ((features / size * tastes[user]).sum(axis=1) + 0.1 * rng.standard_normal(1600))
    model = nc.fit(nc.Logs.from_arrays(user=user, features=features, reward=reward))
    policies = [nc.PriorUCB(model), nc.PriorTS(model), nc.LocalUCB(model, horizon=50), nc.ProBALLUCB(model, horizon=50)]
    policies += [nc.LinUCB(4, horizon=50), nc.LocalUCB(model, horizon=50, radius=0.3, reward_bound=2.0)]
    for policy in policies:
        state = policy.start(2)
        for step in range(20):
            actions = size * rng.standard_normal((2, 5, 4))
            chosen = policy.choose(state, actions, rng)
            policy.update(state, actions[[0, 1], chosen], size * rng.standard_normal(2))
            assert np.isfinite(policy.scores(state, actions)).all(), (policy, step)


# States belong to their model.


def test_the_refusal_of_a_state_says_how_to_move_it_and_that_works(model):
    newer = nc.fit(table(seed=1))
    before, after = nc.PriorUCB(model), nc.PriorUCB(newer)
    state = before.start(2)
    with pytest.raises(PolicyError, match=r"replay their past events .* one call: .*policy.update\(.*users="):
        after.choose(state, ids=[0, 1])
    rng = np.random.default_rng(0)
    users, ids, reward = rng.integers(0, 50, 400), rng.integers(0, 4, 400), rng.random(400)
    at_once, in_turn = after.start(50), after.start(50)
    after.update(at_once, ids=ids, reward=reward, users=users)
    for user, one, paid in zip(users, ids, reward, strict=True):
        after.update(in_turn, ids=[one], reward=[paid], users=[user])
    for (name, one, _), (_, other, _) in zip(at_once.arrays(), in_turn.arrays(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=name)
    apart = [after.start(1) for _ in range(50)]
    for user in range(50):
        own = users == user
        after.update(apart[user], ids=ids[own], reward=reward[own], users=np.zeros(own.sum(), dtype=int))
    joint = type(at_once).concat(apart)
    assert np.array_equal(after.scores(joint, ids=[0, 1, 2, 3]), after.scores(at_once, ids=[0, 1, 2, 3]))
