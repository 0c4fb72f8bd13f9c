"""Guards items tables: which columns are features is said and chosen, what would drown them is refused, names are kept.

And what the logs do not reach is told by its reason: never seen, features that move together, seen in one half only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError, NewcomerError, PolicyError
from newcomer.worlds import Synthetic
from tests.optional import optional

ITEMS = 40
Told = Callable[[nc.Logs, str], bool]


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """A catalogue as a shop has it: measures, words, and numbers that measure nothing."""
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "action": np.arange(ITEMS),
            "name": [f"thing {i}" for i in range(ITEMS)],
            "price": rng.uniform(1, 9, ITEMS).round(2),
            "sku": rng.permutation(ITEMS) + 100_000,
            "colour": rng.choice(["red", "blue"], ITEMS),
            "added": rng.integers(1_600_000_000, 1_700_000_000, ITEMS),
            "weight": rng.normal(size=ITEMS).round(3),
            "new": rng.random(ITEMS) < 0.3,
        }
    )


@pytest.fixture(scope="module")
def rows(table: pl.DataFrame) -> pl.DataFrame:
    """Logs of people who differ in how they like weight and news."""
    rng = np.random.default_rng(1)
    user, action = np.repeat(np.arange(300), 10), rng.integers(0, ITEMS, 3000)
    tastes = rng.normal(size=(300, 2))
    features = table.select(pl.col("weight"), pl.col("new").cast(pl.Float64)).to_numpy()
    reward = (features[action] * tastes[user]).sum(axis=1) + 0.3 * rng.standard_normal(3000)
    return pl.DataFrame({"user": user, "action": action, "reward": reward})


def said(logs: nc.Logs, *parts: str) -> bool:
    return any(all(part in sentence for part in parts) for sentence in logs.advice)


def refusal(call: Callable[[], object], kind: type[NewcomerError] = LogsError) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.todo and "\n" not in str(caught.value)
    return str(caught.value)


def test_a_number_that_measures_nothing_is_refused(rows: pl.DataFrame, table: pl.DataFrame, tmp_path: Path) -> None:
    table.write_csv(tmp_path / "items.csv")
    for items in (table, tmp_path / "items.csv"):
        told = refusal(lambda items=items: nc.Logs.from_frame(rows, items=items))
        assert "'sku' looks like an id" in told and "added" in told and "--features price,weight,new" in told
    assert "ean" in refusal(lambda: nc.Logs.from_frame(rows, items=table.drop("added").rename({"sku": "ean"})))


@pytest.mark.parametrize("scale", [1e4, 1e9])
def test_a_column_that_dwarfs_the_others_is_refused_however_few_items(scale: float) -> None:
    items = pl.DataFrame(
        {"action": [0, 1, 2], "x": [1.0, 0.0, 1.0], "y": [0.5, 1.0, 0.0], "big": [scale, 2.5 * scale, 1]}
    )
    frame = pl.DataFrame({"user": [1, 1, 2], "action": [0, 1, 2], "reward": [1.0, 2.0, 3.0]})
    told = refusal(lambda: nc.Logs.from_frame(frame, items=items))
    assert "column 'big' is about" in told and "times as large" in told and "--features x,y" in told and "scale" in told
    assert nc.Logs.from_frame(frame, items=items.with_columns(pl.col("big") / scale)).dim == 3
    assert nc.Logs.from_frame(frame, items=items.select("action", "big")).dim == 1, "alone it drowns nothing"
    assert nc.Logs.from_frame(frame, items=items.with_columns(big=pl.lit(50.0))).dim == 3


def test_the_columns_that_are_features_are_said_and_chosen(rows: pl.DataFrame, table: pl.DataFrame) -> None:
    plain = nc.Logs.from_frame(rows, items=table.drop("sku", "added"))
    assert plain.feature_names == ("price", "weight", "new")
    assert said(plain, "price, weight, new", "left out: colour", "--features")
    arrays = {name: rows[name].to_numpy() for name in rows.columns}
    for logs in (
        nc.Logs.from_frame(rows, items=table, features=["new", "weight"]),
        nc.Logs.from_arrays(**arrays, items=table, features=["new", "weight"]),
        nc.read_logs(rows.lazy(), items=table, features=("new", "weight")),
    ):
        assert logs.feature_names == ("new", "weight") and logs.item_features is not None
        assert np.array_equal(logs.item_features, table.select("new", "weight").to_numpy().astype(float))
    one = nc.Logs.from_frame(rows, items=table, features="weight")
    assert one.dim == 1 and one.feature_names == ("weight",)


def test_who_names_a_column_gets_it_and_is_told(rows: pl.DataFrame, table: pl.DataFrame) -> None:
    logs = nc.Logs.from_frame(rows, items=table, features=["weight", "new", "added"])
    assert logs.dim == 3 and said(logs, "Feature added", "times as large", "scale")


def test_features_may_be_columns_of_the_logs(rows: pl.DataFrame, tmp_path: Path) -> None:
    wide = rows.with_columns(x=pl.col("reward") * 2, y=pl.col("user") * 0.1)
    wide.write_parquet(tmp_path / "a.parquet")
    for logs in (
        nc.Logs.from_frame(wide, features=["y", "x"]),
        nc.read_logs(tmp_path / "a.parquet", features=["y", "x"]),
    ):
        assert logs.feature_names == ("y", "x") and logs.dim == 2
    chosen = nc.Logs.from_frame(wide.with_columns(features=pl.concat_list("x")), items=np.eye(ITEMS))
    assert chosen.dim == 1 and chosen.feature_names is None


def test_names_that_are_not_there_are_refused(rows: pl.DataFrame, table: pl.DataFrame) -> None:
    told = refusal(lambda: nc.Logs.from_frame(rows, items=table, features=["wieght"]))
    assert "items have no column 'wieght'" in told and "did you mean 'weight'" in told
    assert "no column 'x'" in refusal(lambda: nc.Logs.from_frame(rows, features=["x"]))
    assert "items is an array" in refusal(lambda: nc.Logs.from_frame(rows, items=np.eye(ITEMS), features=["x"]))
    assert "text" in refusal(lambda: nc.Logs.from_frame(rows, items=table, features=["colour"]))
    assert "features=" in refusal(lambda: nc.Logs.from_frame(rows, items=table, features=[]))
    arrays = {name: rows[name].to_numpy() for name in rows.columns}
    assert "no table" in refusal(lambda: nc.Logs.from_arrays(**arrays, features=["x"]))


def test_codes_with_leading_zeros_are_words(rows: pl.DataFrame, tmp_path: Path) -> None:
    lines = [f"{i},{i % 2},{'yes' if i % 3 else 'no'},{i:05d}" for i in range(ITEMS)]
    (tmp_path / "items.csv").write_text("\n".join(["action,x,fresh,code", *lines]))
    logs = nc.Logs.from_frame(rows, items=tmp_path / "items.csv")
    assert logs.feature_names == ("x", "fresh") and said(logs, "left out: code")


def test_an_items_table_with_decimal_commas_and_another_name_for_its_ids(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("movieId;title;x;y\n7;10,000 B.C.;0,5;1\n9;Up;1,25;3\n")
    (tmp_path / "logs.csv").write_text("userId,movieId,rating\n1,7,5\n1,9,3\n")
    logs = nc.read_logs(tmp_path / "logs.csv", items=tmp_path / "items.csv")
    assert logs.action_ids == (7, 9) and logs.item_features is not None
    assert logs.item_features.tolist() == [[0.5, 1.0], [1.25, 3.0]] and logs.feature_names == ("x", "y")


@pytest.fixture(scope="module")
def model(rows: pl.DataFrame, table: pl.DataFrame) -> nc.Model:
    return nc.fit(nc.Logs.from_frame(rows, items=table, features=["weight", "new"]), rank=2, calibrate=False)


def test_a_model_keeps_the_names_of_its_features(model: nc.Model, tmp_path: Path, rows: pl.DataFrame) -> None:
    assert model.feature_names == ("weight", "new")
    model.save(tmp_path / "m.newcomer")
    again = nc.load(tmp_path / "m.newcomer")
    assert again.feature_names == ("weight", "new") and again.id == model.id
    assert nc.fit(nc.Logs.from_frame(rows), rank=1, calibrate=False).feature_names is None


def test_features_are_served_by_name(model: nc.Model, table: pl.DataFrame) -> None:
    policy = nc.PriorUCB(model)
    state = policy.start(2)
    array = table.select("weight", "new").to_numpy().astype(float)[:6]
    right = policy.scores(state, array)
    shuffled = table.select("new", "sku", "weight", "name")[:6]
    ways: list[Any] = [shuffled, {name: shuffled[name].to_numpy() for name in shuffled.columns}, shuffled.to_dicts()]
    pandas = optional("pandas")
    ways.append(pandas.DataFrame(shuffled.to_dict(as_series=False)))
    ways.append(optional("pyarrow").table(shuffled.to_dict(as_series=False)))
    for way in ways:
        assert np.array_equal(policy.scores(state, way), right)
    other = table.select("price", "weight")[:6]
    for way in (other, dict(other.to_dict(as_series=True)), other.to_dicts()):
        told = refusal(lambda way=way: policy.choose(state, way), PolicyError)
        assert "there is no feature 'new'" in told and "weight, new" in told
    policy.update(state, {"new": [1.0, 0.0], "weight": [0.5, 2.0]}, [1.0, 0.0])
    same = policy.start(2)
    policy.update(same, np.array([[0.5, 1.0], [2.0, 0.0]]), [1.0, 0.0])
    assert np.array_equal(policy.scores(state, array), policy.scores(same, array))


def test_a_named_table_needs_no_constant(rows: pl.DataFrame, table: pl.DataFrame) -> None:
    logs = nc.Logs.from_frame(rows, items=table, features=["weight", "new"], intercept=True)
    fitted = nc.fit(logs, rank=2, calibrate=False)
    policy = nc.PopulationMean(fitted)
    named = policy.scores(policy.start(1), table.select("new", "weight"))
    assert np.array_equal(named, policy.scores(policy.start(1), fitted.features(range(ITEMS))))


# What the logs do not reach.


def coverage(logs: nc.Logs) -> Any:
    return nc.fit(logs, rank=1, estimator="sold", calibrate=False).evidence.coverage


def test_dummies_beside_a_constant_move_together() -> None:
    rng = np.random.default_rng(0)
    genre, size = rng.integers(0, 3, 30), rng.integers(0, 2, 30)
    items = pl.DataFrame(
        {
            "action": np.arange(30),
            **{name: (genre == i).astype(float) for i, name in enumerate(("comedy", "drama", "horror"))},
            "length": rng.normal(size=30),
            **{name: (size == i).astype(float) for i, name in enumerate(("long", "short"))},
        }
    )
    user, action = np.repeat(np.arange(200), 8), rng.integers(0, 30, 1600)
    frame = pl.DataFrame({"user": user, "action": action, "reward": rng.normal(size=1600)})
    found = coverage(nc.Logs.from_frame(frame, items=items))
    assert (found.uncovered, found.never, found.collinear, found.one_half) == (1, 0, 1, 0)
    assert found.collinear_groups == (("comedy", "drama", "horror", "long", "short"),)
    assert "always move together (comedy, drama, horror, long, short)" in "; ".join(found.reasons())
    found = coverage(nc.Logs.from_frame(frame, items=items.drop("long", "short"), intercept=True))
    assert found.collinear_groups == (("comedy", "drama", "horror", "the constant"),)
    beside = nc.Logs.from_arrays(
        user=user, reward=frame["reward"].to_numpy(), features=items.drop("action").to_numpy()[action], intercept=True
    )
    found = coverage(beside)
    assert (found.uncovered, found.collinear) == (2, 2), "without a catalogue, the logs tell"
    assert found.collinear_groups == (tuple(f"feature {i}" for i in (0, 1, 2, 4, 5)) + ("the constant",),)


def test_what_the_catalogue_has_and_the_logs_do_not_was_never_seen() -> None:
    rng = np.random.default_rng(0)
    items = pl.DataFrame({"action": [0, 1, 2, 3], "a": [1.0, 0, 1, 2], "b": [0.0, 1, 1, 2], "c": [0.0, 0, 0, 1]})
    items = items.with_columns(d=pl.col("a") + pl.Series([0.0, 0.0, 0.0, 0.5]))
    user, action = np.repeat(np.arange(100), 6), rng.integers(0, 3, 600)
    frame = pl.DataFrame({"user": user, "action": action, "reward": rng.normal(size=600)})
    found = coverage(nc.Logs.from_frame(frame, items=items))
    assert (found.uncovered, found.never, found.collinear, found.one_half) == (2, 2, 0, 0)
    assert found.never_features == ("a", "c", "d")


def test_items_rated_once_were_seen_in_one_half_only() -> None:
    rng = np.random.default_rng(5)
    user, action = np.repeat(np.arange(300), 6), rng.integers(0, 8, 1800).astype(str).astype(object)
    action[[5, 12]] = "rare-a", "rare-b"
    logs = nc.Logs.from_arrays(user=user, action=action, reward=rng.normal(size=1800))
    found = coverage(logs)
    assert (found.uncovered, found.never, found.collinear, found.one_half) == (2, 0, 0, 2)
    assert found.one_half_features == ("rare-a", "rare-b")
    told = refusal(lambda: nc.fit(logs, rank=1, estimator="sold", uncovered="error"))
    assert "seen in one half of the histories only (rare-a, rare-b)" in told


def test_a_feature_that_was_always_zero_was_never_seen() -> None:
    rng = np.random.default_rng(5)
    features = rng.normal(size=(600, 5))
    features[:, 3] = 0.0
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(100), 6), features=features, reward=rng.normal(size=600))
    found = coverage(logs)
    assert (found.never, found.collinear, found.one_half) == (1, 0, 0) and found.never_features == ("feature 3",)


def test_covered_logs_have_nothing_to_tell() -> None:
    found = coverage(Synthetic(dim=5, seed=0).logs(200, 8, seed=0))
    assert found.reasons() == [] and found.uncovered == 0
