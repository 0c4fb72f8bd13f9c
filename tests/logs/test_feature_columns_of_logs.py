"""Features in columns of the logs: patterns, numbers, booleans and text, the same from every source, served by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.cli import main
from newcomer.errors import LogsError, PolicyError
from newcomer.logs import reader
from newcomer.logs.workers import WorkerPool
from newcomer.model import Model

USERS, STEPS = 300, 8
NAMES = ("x_colour=blue", "x_colour=green", "x_colour=red", "x_price", "x_sale")


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    """Users who differ in what they think of each colour; one level is too rare to be kept."""
    rng = np.random.default_rng(0)
    rows, user = USERS * STEPS, np.repeat(np.arange(USERS), STEPS)
    colour = rng.integers(3, size=rows)
    price, sale = rng.normal(size=rows), rng.random(rows) < 0.5
    reward = rng.normal(size=(USERS, 3))[user, colour] + 0.5 * price + 0.3 * rng.normal(size=rows)
    spelled = np.array(["red", "blue", "green"])[colour].astype(object)
    spelled[:3] = "pink"
    columns = {"user": user, "reward": reward, "x_colour": spelled.tolist(), "x_price": price, "x_sale": sale}
    return pl.DataFrame({**columns, "action": rng.choice(["a", "b"], rows).tolist()})


def expected(frame: pl.DataFrame) -> np.ndarray[Any, Any]:
    """The indicators as the words say them: rare levels are the share of each level among all rows."""
    kept = ("blue", "green", "red")
    shares = [float((frame["x_colour"] == level).mean()) for level in kept]  # type: ignore[arg-type]
    rows = [[float(c == level) for level in kept] if c in kept else shares for c in frame["x_colour"]]
    return np.column_stack([rows, frame["x_price"].to_numpy(), frame["x_sale"].to_numpy().astype(float)])


def features(logs: nc.Logs) -> np.ndarray[Any, Any]:
    found = {
        user: x for b in logs.batches() for user, x in zip(b.users, np.split(b.features, b.offsets[1:-1]), strict=True)
    }
    return np.concatenate([found[user] for user in sorted(found)])


@pytest.mark.parametrize("how", ["frame", "memory", "disk", "grouped", "workers", "csv"])
def test_columns_become_features_alike_from_every_source(
    frame: pl.DataFrame, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crew: WorkerPool
) -> None:
    monkeypatch.setattr(reader, "CHUNK_ROWS", 200)
    monkeypatch.setattr(reader, "CHUNK_BYTES", 64)
    half = STEPS * USERS // 2
    for i, part in enumerate((frame[:half], frame[half:])):
        _ = part.write_csv(tmp_path / f"{i}.csv") if how == "csv" else part.write_parquet(tmp_path / f"{i}.parquet")
    ways: dict[str, Any] = {"disk": {"memory": 1}, "grouped": {"grouped": True}, "workers": {"engine": crew}}
    if how == "frame":
        logs = nc.Logs.from_frame(frame, features="x_*", columns={"action": None})
    else:
        logs = nc.read_logs(tmp_path, features="x_*", columns={"action": None}, **ways.get(how, {}))
    assert logs.feature_names == NAMES and logs.action_ids is None
    assert "1 of 4 levels of x_colour, in 3 of 2,400 rows, are rare" in " ".join(logs.advice)
    assert np.array_equal(features(logs), expected(frame)) and (logs.engine is crew) == (how == "workers")


def test_a_model_keeps_names_and_levels_and_is_served_by_name(frame: pl.DataFrame) -> None:
    logs = nc.Logs.from_frame(frame, features=["x_price", "x_colour"], columns={"action": None})
    model = nc.fit(logs)
    assert model.feature_names == ("x_price", *NAMES[:3]) and model.rank >= 3
    again = Model.from_bytes(model.to_bytes())
    assert again.id == model.id and again.feature_levels == model.feature_levels
    menu = pl.DataFrame({"x_colour": ["red", "blue", "mauve"], "x_price": [0.0, 1.0, 2.0], "note": ["a", "b", "c"]})
    shares = model.feature_levels[0].shares
    array = np.array([[0.0, 0, 0, 1], [1.0, 1, 0, 0], [2.0, *shares]])
    policy = nc.PriorUCB(again)
    state = policy.start(1)
    wanted = policy.scores(state, array)
    for given in (menu, menu.to_dicts(), menu.to_dict(as_series=False), pl.DataFrame(array, list(model.feature_names))):
        assert np.allclose(policy.scores(state, given), wanted)
    policy.update(state, menu[:1], [1.0], users=[0])
    assert policy.scores(state, array)[0, 0] > wanted[0, 0]
    with pytest.raises(PolicyError, match="no feature 'x_colour'"):
        policy.choose(state, menu.drop("x_colour"))
    with pytest.raises(PolicyError, match="no feature 'x_price'"):
        policy.choose(state, menu.drop("x_price"))


def test_names_and_patterns(frame: pl.DataFrame) -> None:
    every = nc.Logs.from_frame(frame.drop("action"), features="*")
    assert every.feature_names == NAMES  # not the user, nor the reward
    for features_, said in ((["x_colr"], "did you mean 'x_colour'"), (["y_*"], "no column matches 'y_\\*'")):
        with pytest.raises(LogsError, match=said):
            nc.Logs.from_frame(frame, features=features_)
    odd = frame.rename({"x_price": "price [EUR] *"})
    assert nc.Logs.from_frame(odd, features=["price [EUR] *"]).feature_names == ("price [EUR] *",)


def test_what_is_no_level(frame: pl.DataFrame) -> None:
    ids = frame.with_columns(code=pl.Series([f"c{i}" for i in range(len(frame))]))
    with pytest.raises(LogsError, match="'code' has 2,400 levels in 2,400 rows, most of them in few rows, as an id"):
        nc.Logs.from_frame(ids, features=["code"])
    nearly = frame.with_columns(code=pl.Series(["1.5"] * (len(frame) - 1) + ["oops"]))
    with pytest.raises(LogsError, match="text 'oops' where numbers belong"):
        nc.Logs.from_frame(nearly, features=["code"])
    gap = frame.with_columns(x_colour=pl.when(pl.col("user") != 7).then("x_colour"))
    with pytest.raises(LogsError, match="x_colour is missing"):
        nc.Logs.from_frame(gap, features="x_*")
    assert nc.Logs.from_frame(gap, features="x_*", missing="drop").summary.users == USERS - 1


def test_a_scale_that_dwarfs_the_others_is_pointed_out(frame: pl.DataFrame) -> None:
    large = frame.with_columns(x_price=pl.col("x_price") * 1e4)
    assert "Feature x_price is about" in " ".join(nc.Logs.from_frame(large, features="x_*").advice)


def test_resume_and_refits_know_the_same_features(frame: pl.DataFrame, tmp_path: Path) -> None:
    logs = nc.Logs.from_frame(frame, features="x_*", columns={"action": None})
    model = nc.fit(logs)
    assert nc.fit(logs, start=model).feature_names == NAMES
    other = nc.Logs.from_frame(frame.filter(pl.col("x_colour") != "red"), features="x_*", columns={"action": None})
    with pytest.raises(nc.errors.ModelError, match="other features"):
        nc.fit(other, start=model)


def test_the_action_may_be_a_feature_beside_the_columns_of_its_row(frame: pl.DataFrame, tmp_path: Path) -> None:
    numbered = frame.with_columns(action=(pl.col("action") == "a").cast(pl.Int64) + 6)
    numbered.write_csv(tmp_path / "logs.csv")
    for logs in (
        nc.Logs.from_frame(numbered, features=["action", "x_price"]),
        nc.read_logs(tmp_path / "logs.csv", features=["action", "x_price"]),
    ):
        assert logs.feature_names == ("action=6", "action=7", "x_price") and logs.action_ids == (6, 7)
        first = next(logs.batches())
        assert np.array_equal(first.features[:, 1], first.actions == 1)  # type: ignore[arg-type]
    model = nc.fit(logs)
    policy = nc.PriorUCB(model)
    state = policy.start(1)
    array = np.array([[1.0, 0, 0.5], [0, 1, 0.5]])
    wanted = policy.scores(state, array, ids=[6, 7])
    assert np.allclose(policy.scores(state, {"x_price": [0.5, 0.5]}, ids=[6, 7]), wanted)
    named = {"x_price": [0.5, 0.5], "action": [6, 7]}
    assert np.allclose(policy.scores(state, named), policy.scores(state, array))
    policy.update(state, {"x_price": [0.5]}, [3.0], ids=[6], users=[0])


def test_columns_of_rows_stand_beside_the_features_of_items(frame: pl.DataFrame, tmp_path: Path) -> None:
    items = pl.DataFrame({"action": ["a", "b"], "size": [1.0, -1.0], "weight": [0.5, 2.0]})
    items.write_csv(tmp_path / "items.csv")
    frame.write_parquet(tmp_path / "logs.parquet")
    how: dict[str, Any] = {"features": ["siz*", "x_price"]}
    for logs in (
        nc.Logs.from_frame(frame, items=items, **how),
        nc.read_logs(tmp_path / "logs.parquet", items=tmp_path / "items.csv", **how),
    ):
        assert logs.feature_names == ("size", "x_price") and not logs.by_action
        wanted = np.column_stack([np.where(frame["action"] == "a", 1.0, -1.0), frame["x_price"]])
        assert np.array_equal(features(logs), wanted)
    both = nc.Logs.from_frame(frame, items=items, features=["x_sale"])
    assert both.feature_names == ("size", "weight", "x_sale")
    assert nc.Logs.from_frame(frame, items=items, features=["weight"]).by_action
    policy = nc.PriorUCB(nc.fit(both))
    menu = pl.DataFrame({"x_sale": [1, 0], "weight": [0.5, 2.0], "size": [1.0, -1.0]})
    array = menu.select("size", "weight", "x_sale").to_numpy()
    assert np.allclose(policy.scores(policy.start(1), menu), policy.scores(policy.start(1), array.astype(float)))


def test_the_command_takes_patterns(frame: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame.drop("action").write_csv(tmp_path / "logs.csv")
    out = tmp_path / "m.newcomer"
    assert main.execute_command(["fit", str(tmp_path / "logs.csv"), "--features", "x_*", "--out", str(out)]) == 0
    assert nc.load(out).feature_names == NAMES
    assert main.execute_command(["inspect", str(out)]) == 0
    assert "x_colour=blue" in capsys.readouterr().out


def test_offsets_of_actions_stay_beside_the_columns_of_their_rows() -> None:
    """phi(x, a): what everybody thinks of an action beyond its row is fitted, in both links, and nothing where there is
    nothing."""
    rng = np.random.default_rng(0)
    users, rows, actions = 300, 10, 12
    offsets, m = rng.normal(0, 0.8, actions), np.array([0.5, -0.3])
    user, action = np.repeat(np.arange(users), rows), rng.integers(0, actions, users * rows)
    x = rng.normal(size=(len(user), 2))
    plain = x @ m + (x[:, 0] * rng.normal(size=users)[user]) + 0.5 * rng.normal(size=len(user))
    columns = {"user": user, "action": action, "x_a": x[:, 0], "x_b": x[:, 1]}

    def fitted(reward: Any, **more: Any) -> Model:
        return nc.fit(nc.Logs.from_frame(pl.DataFrame({**columns, "reward": reward}), features="x_*"), **more)

    model = fitted(plain + offsets[action], calibrate=False)
    order = np.argsort(np.asarray(model.action_ids))
    assert model.offsets[order] == pytest.approx(offsets, abs=0.15)
    policy = nc.PriorUCB(model, curiosity=0.0)
    scores = policy.scores(policy.start(1), np.zeros((actions, 2)), ids=list(range(actions)))
    assert scores[0] == pytest.approx(offsets, abs=0.15)
    assert not fitted(plain, calibrate=False).offsets.any()
    clicked = (rng.random(len(user)) < 1 / (1 + np.exp(-2.0 * (plain + offsets[action])))).astype(float)
    binary = fitted(clicked, outcome="binary", calibrate=False)
    assert np.corrcoef(binary.offsets[order], offsets)[0, 1] > 0.95
