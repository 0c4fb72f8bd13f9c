"""Tables of users: what is encoded how, what is legal, what is refused or pointed out in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.encoding import Column, encode_columns, table_to_encode
from newcomer.errors import LogsError, ModelError
from newcomer.logs.reduce import reduce
from newcomer.logs.workers import WorkerPool

USERS = 120


def rows(text: bool = False) -> pl.DataFrame:
    user = np.repeat(np.arange(USERS), 3)
    frame = pl.DataFrame({"user": user, "action": user % 3 + np.tile([0, 1, 2], USERS), "reward": user % 2 * 1.0})
    return frame.with_columns(pl.format("u{}", "user").alias("user")) if text else frame


def people(text: bool = False, **more: object) -> pl.DataFrame:
    number = np.arange(USERS)
    user = [f"u{i}" for i in number] if text else number
    columns = {"age": number % 50 * 1.0, "plan": np.where(number % 3 == 0, "paid", "free"), "adult": number % 2 == 0}
    return pl.DataFrame({"user": user, **columns, **more})


def test_numbers_booleans_and_levels_are_encoded_around_their_average() -> None:
    logs = nc.Logs.from_frame(rows(), users=people())
    assert logs.people is not None
    assert [(one.name, one.kind, one.width) for one in logs.people.columns] == [
        ("age", "number", 1), ("plan", "level", 2), ("adult", "boolean", 1)
    ]  # fmt: skip
    (batch,) = logs.batches()
    assert batch.attributes is not None and batch.attributes.shape == (USERS, 4)
    np.testing.assert_allclose(batch.attributes.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(batch.attributes[:, 0].std(), 1.0)
    np.testing.assert_allclose(logs.people.covariance, np.cov(batch.attributes.T, bias=True), atol=1e-12)


def test_files_and_frames_of_every_kind_give_the_same(tmp_path: Path) -> None:
    rows().write_csv(tmp_path / "logs.csv")
    people().write_csv(tmp_path / "people.csv")
    people().write_parquet(tmp_path / "people.parquet")
    first = nc.read_logs(tmp_path / "logs.csv", users=people())
    for users in (tmp_path / "people.parquet", str(tmp_path / "people.parquet"), people().to_dict(as_series=False)):
        assert nc.read_logs(tmp_path / "logs.csv", users=users).summary.fingerprint == first.summary.fingerprint
    # A CSV says true and false in text, which are numbers.
    by_csv = nc.read_logs(tmp_path / "logs.csv", users=tmp_path / "people.csv")
    assert by_csv.people is not None and [one.kind for one in by_csv.people.columns] == ["number", "level", "number"]


def test_ids_of_text_and_a_column_of_another_type() -> None:
    logs = nc.Logs.from_frame(rows(text=True), users=people(text=True), attributes=["age"])
    assert logs.people is not None and logs.people.missing == 0 and logs.people.width == 1
    numbered = rows().with_columns(pl.col("user").cast(pl.String))
    other = nc.Logs.from_frame(numbered, users=people())
    assert other.people is not None and other.people.missing == 0


def test_missing_values_and_users_without_a_row_are_legal() -> None:
    some = people().head(100).with_columns(pl.when(pl.col("user") < 50).then(pl.col("age")).alias("age"))
    logs = nc.Logs.from_frame(rows(), users=some)
    (batch,) = logs.batches()
    assert batch.attributes is not None
    assert np.isnan(batch.attributes[60, 0]) and np.isnan(batch.attributes[110]).all()
    assert any("20 of 120 users have no row" in said for said in logs.advice)


@pytest.mark.parametrize("memory", [None, 0])
def test_every_engine_hands_out_the_same(tmp_path: Path, memory: int | None, crew: WorkerPool) -> None:
    file = tmp_path / "logs.csv"
    rows().write_csv(file)
    direct = nc.Logs.from_frame(rows(), users=people())
    total = reduce(direct, total_of, add)
    for settings in ({"memory": memory}, {"grouped": True}):
        logs = nc.read_logs(file, users=people(), **settings)
        np.testing.assert_allclose(reduce(logs, total_of, add), total)
        assert logs.summary.fingerprint == direct.summary.fingerprint
    shared = nc.read_logs(file, users=people(), engine=crew)
    assert shared.engine is crew
    np.testing.assert_allclose(reduce(shared, total_of, add), total)


def total_of(batch: nc.logs.batch.Batch) -> np.ndarray:  # type: ignore[name-defined]
    return np.asarray((batch.attributes * (batch.hashes % np.uint64(97)).astype(float)[:, None]).sum(axis=0))


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a + b


def test_attributes_are_in_the_fingerprint() -> None:
    plain, first = nc.Logs.from_frame(rows()), nc.Logs.from_frame(rows(), users=people())
    other = nc.Logs.from_frame(rows(), users=people().with_columns(pl.col("age").reverse()))
    shuffled = nc.Logs.from_frame(rows(), users=people().sample(fraction=1.0, shuffle=True, seed=1))
    prints = {one.summary.fingerprint for one in (plain, first, other)}
    assert len(prints) == 3 and shuffled.summary.fingerprint == first.summary.fingerprint


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: pl.concat([f, f.head(1)]), "has two rows"),
        (lambda f: f.rename({"user": "person"}), "no column 'user'"),
        (lambda f: f.with_columns(pl.col("user") + 1000), "no user of the logs is in the table"),
        (lambda f: f.with_columns(pl.when(pl.col("user") > 5).then(pl.col("user")).alias("user")), "no user"),
        (lambda f: f.with_columns(pl.lit(float("inf")).alias("age")), "infinite|same for every"),
    ],
)
def test_tables_that_cannot_be_used_are_refused_in_one_sentence(change: object, said: str) -> None:
    with pytest.raises(LogsError, match=said):
        nc.Logs.from_frame(rows(), users=change(people()), attributes=["age"])  # type: ignore[operator]


def test_columns_of_no_use_are_pointed_out_or_refused_where_they_were_chosen() -> None:
    odd = people(zip=[f"z{i}" for i in range(USERS)], country=["NZ"] * USERS, phone=np.arange(USERS) + 10**6)
    logs = nc.Logs.from_frame(rows(), users=odd)
    assert logs.people is not None and [one.name for one in logs.people.columns] == ["age", "plan", "adult"]
    said = " ".join(logs.advice)
    assert "'zip'" in said and "'country'" in said and "'phone'" in said
    for name in ("zip", "country", "phone"):
        with pytest.raises(LogsError, match=f"'{name}'"):
            nc.Logs.from_frame(rows(), users=odd, attributes=[name])
    with pytest.raises(LogsError, match="no attribute 'agee'.*age"):
        nc.Logs.from_frame(rows(), users=odd, attributes=["agee"])
    with pytest.raises(LogsError, match="no table of users"):
        nc.Logs.from_frame(rows(), attributes=["age"])


def test_levels_of_few_users_are_pooled_and_said() -> None:
    rare = people(town=["Ulm"] * 60 + ["Bonn"] * 57 + ["Kiel", "Jena", "Hof"])
    logs = nc.Logs.from_frame(rows(), users=rare, attributes=["town"])
    assert logs.people is not None and logs.people.columns[0].levels == ("Bonn", "Ulm")
    assert any("3 levels of 'town' with few users" in said for said in logs.advice)


def test_attributes_at_serving_may_be_a_frame_columns_or_one_dict_a_user() -> None:
    columns = (Column("age", "number", 30.0, 10.0), Column("plan", "level", levels=("free",), shares=(0.5,)))
    wanted = [[1.0, 0.5], [np.nan, np.nan]]
    frame = pl.DataFrame({"age": [40.0, None], "plan": ["free", "gift"]})
    for given in (frame, frame.to_dict(as_series=False), frame.to_dicts(), frame.to_pandas()):
        table, count = table_to_encode(given)
        np.testing.assert_array_equal(encode_columns(columns, table, count), wanted)
    with pytest.raises(ModelError, match="is a number, not 'old'"):
        encode_columns(columns, {"age": ["old"]}, 1)
    with pytest.raises(ModelError, match="differ in length"):
        table_to_encode({"age": [1, 2], "plan": ["free"]})
    with pytest.raises(ModelError, match="one dict a user"):
        table_to_encode(3)
