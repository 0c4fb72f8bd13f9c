"""Features in columns of the logs: patterns, numbers, booleans and text, the same from every source, served by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError, PolicyError
from newcomer.logs import engine, reader
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
    frame: pl.DataFrame, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CHUNK_ROWS", 200)
    monkeypatch.setattr(reader, "CHUNK_BYTES", 64)
    monkeypatch.setattr(engine, "ENOUGH", 0)
    half = STEPS * USERS // 2
    for i, part in enumerate((frame[:half], frame[half:])):
        _ = part.write_csv(tmp_path / f"{i}.csv") if how == "csv" else part.write_parquet(tmp_path / f"{i}.parquet")
    more: dict[str, Any] = {"disk": {"memory": 1}, "grouped": {"grouped": True}}.get(how, {})
    if how == "frame":
        logs = nc.Logs.from_frame(frame, features="x_*", columns={"action": None})
    elif how == "workers":
        with WorkerPool(2) as pool:
            logs = nc.read_logs(tmp_path, features="x_*", columns={"action": None}, engine=pool)
            assert np.array_equal(features(logs), expected(frame))
    else:
        logs = nc.read_logs(tmp_path, features="x_*", columns={"action": None}, **more)
    assert logs.feature_names == NAMES and logs.action_ids is None
    assert "1 of 4 levels of x_colour, in 3 of 2,400 rows, are rare" in " ".join(logs.advice)
    if how != "workers":
        assert np.array_equal(features(logs), expected(frame))


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


def test_columns_stand_beside_the_action_and_its_offset(frame: pl.DataFrame) -> None:
    shifted = frame.with_columns(reward=pl.col("reward") + (pl.col("action") == "a") * 2.0)
    model = nc.fit(nc.Logs.from_frame(shifted, features="x_*", intercept=True))
    assert model.action_ids == ("a", "b") and model.feature_names == NAMES
    assert 1.5 < model.offsets[0] - model.offsets[1] < 2.5


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
