"""Guards Logs: every way in gives the same histories, whatever the order of rows, files and users or the batch size."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import newcomer as nc
from newcomer.errors import LogsError
from newcomer.evidence import Summary
from newcomer.logs.batch import Batch
from newcomer.logs.reduce import reduce
from newcomer.users import mix_user_hashes
from tests.optional import optional

SETTINGS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def histories(logs: nc.Logs, rows: int | None = None) -> dict[Any, list[tuple[list[float], float, float | None]]]:
    """Slow and obvious: each user's rows as (features, reward, propensity), in time order."""
    found: dict[Any, Any] = {}
    for batch in logs.batches(rows=rows):
        for i, user in enumerate(batch.users.tolist()):
            assert user not in found, "a user was cut"
            found[user] = [_row(batch, j) for j in range(batch.offsets[i], batch.offsets[i + 1])]
    return found


def _row(batch: Batch, j: int) -> tuple[list[float], float, float | None]:
    propensity = None if batch.propensities is None else float(batch.propensities[j])
    return batch.features[j].tolist(), float(batch.rewards[j]), propensity


def expected(frame: pl.DataFrame, matrix: np.ndarray) -> dict[Any, list[tuple[list[float], float, float | None]]]:
    """The definition: sort by step, group by user, look features up."""
    found: dict[Any, Any] = {}
    for row in frame.sort("step", maintain_order=True).iter_rows(named=True):
        found.setdefault(row["user"], []).append((matrix[row["action"]].tolist(), row["reward"], row["propensity"]))
    return found


def same(a: Summary, b: Summary) -> bool:
    """Equal counts and fingerprint; moments up to rounding."""
    exact = ("users", "rows", "dim", "usable", "too_short", "ties", "fingerprint", "max_reward")
    close = ("mean_squared_norm", "mean_reward", "reward_deviation")
    return all(getattr(a, n) == getattr(b, n) for n in exact) and all(
        np.isclose(getattr(a, n), getattr(b, n), rtol=1e-12, atol=1e-12) for n in close
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[pl.DataFrame, np.ndarray]:
    """Ragged histories with integer or text users, far apart or dense, rows in any order, and item features."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, size=draw(st.integers(1, 12)))
    kind = draw(st.sampled_from(["dense", "sparse", "text"]))
    ids = rng.choice(10**15 if kind == "sparse" else 40, size=len(lengths), replace=False) - 7
    step = np.concatenate([rng.choice(50, size=n, replace=False) for n in lengths])
    users = np.repeat(ids, lengths)
    frame = pl.DataFrame(
        {
            "user": [f"ü{user}" for user in users] if kind == "text" else users,
            "step": step,
            "action": rng.integers(0, 5, size=len(users)),
            "reward": rng.normal(size=len(users)).round(6),
            "propensity": rng.uniform(0.1, 1.0, size=len(users)).round(6),
        }
    )
    return frame[rng.permutation(len(frame))], rng.normal(size=(5, draw(st.integers(1, 4)))).round(6)


def items_frame(matrix: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame({"action": np.arange(len(matrix)), "features": matrix})


def wide(matrix: np.ndarray) -> pl.DataFrame:
    columns = {f"x{j}": matrix[:, j] for j in range(matrix.shape[1])}
    return pl.DataFrame(
        {"action": np.arange(len(matrix)), "name": [f"item {i}" for i in range(len(matrix))], **columns}
    )


@SETTINGS
@given(table=tables(), files=st.integers(1, 3), rows=st.integers(1, 30))
def test_every_way_in_gives_the_same_histories(
    table: tuple[pl.DataFrame, np.ndarray], files: int, rows: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    frame, matrix = table
    folder = tmp_path_factory.mktemp("logs")
    wide(matrix).write_csv(folder / "items.csv")
    items_frame(matrix).write_parquet(folder / "items.parquet")
    for i, part in enumerate(np.array_split(np.arange(len(frame)), files)):
        frame[part].write_parquet(folder / f"p{i}.parquet")
        frame[part].write_csv(folder / f"p{i}.csv")
    frame.sort("user").write_parquet(folder / "grouped.parquet")
    parquet = [folder / f"p{i}.parquet" for i in range(files)]
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    ways = {
        "arrays": nc.Logs.from_arrays(**columns, items=matrix),
        "frame": nc.Logs.from_frame(frame, items=items_frame(matrix)),
        "own features": nc.Logs.from_frame(frame.with_columns(features=pl.Series(matrix[frame["action"]]))),
        "parquet": nc.read_logs(parquet, items=folder / "items.parquet"),
        "reversed files": nc.read_logs(parquet[::-1], items=folder / "items.csv"),
        "csv": nc.read_logs(str(folder / "p*.csv"), items=folder / "items.csv"),
        "spilled": nc.read_logs(parquet, items=matrix, memory=64),
        "grouped": nc.read_logs(folder / "grouped.parquet", items=wide(matrix), grouped=True),
    }
    truth = expected(frame, matrix)
    for name, logs in ways.items():
        assert histories(logs, rows) == truth, name
        assert same(logs.summary, ways["arrays"].summary), name


def test_summary_counts_what_the_definition_counts() -> None:
    logs = nc.Logs.from_arrays(user=[1, 2, 1, 3, 3, 3], features=np.eye(6) * 2, reward=[1, -4, 0, 0, 1, 2])
    s = logs.summary
    assert (s.users, s.rows, s.dim, s.usable, s.too_short, s.ties) == (3, 6, 6, 2, 1, 0)
    assert (s.mean_squared_norm, s.mean_reward, s.max_reward) == (4.0, 0.0, 4.0)
    assert s.reward_deviation == pytest.approx(np.std([1, -4, 0, 0, 1, 2]))
    assert "1 of 3 users has a single row" in " ".join(logs.advice)


@SETTINGS
@given(table=tables(), seed=st.integers(0, 1000))
def test_fingerprint_ignores_the_order_of_rows_and_nothing_else(
    table: tuple[pl.DataFrame, np.ndarray], seed: int
) -> None:
    frame, matrix = table
    rng = np.random.default_rng(seed)

    def fingerprint(frame: pl.DataFrame, matrix: np.ndarray = matrix) -> str:
        return nc.Logs.from_frame(frame, items=matrix).summary.fingerprint

    first = fingerprint(frame)
    assert fingerprint(frame[rng.permutation(len(frame))]) == first
    row = pl.int_range(pl.len()) == int(rng.integers(len(frame)))
    assert fingerprint(frame.with_columns(pl.when(row).then(pl.col("reward") + 1e-9).otherwise("reward"))) != first
    assert fingerprint(frame.with_columns(propensity=pl.col("propensity") / 2)) != first
    assert fingerprint(frame.with_columns(pl.col("user").cast(pl.String) + "x")) != first
    assert fingerprint(frame, matrix + 1e-9) != first
    assert nc.Logs.from_frame(frame, items=matrix, intercept=True).summary.fingerprint != first


def test_fingerprint_sees_the_order_within_a_user() -> None:
    forth = nc.Logs.from_arrays(user=[1, 1, 2], features=[[1.0], [2.0], [3.0]], reward=[0, 1, 2])
    back = nc.Logs.from_arrays(user=[1, 1, 2], features=[[2.0], [1.0], [3.0]], reward=[1, 0, 2])
    assert forth.summary.fingerprint != back.summary.fingerprint


def test_user_hashes_are_fixed_by_the_id_alone() -> None:
    numbers = next(nc.Logs.from_arrays(user=[-3, 9, 9], features=[[1.0]] * 3, reward=[0, 0, 0]).batches())
    assert numbers.hashes.tolist() == mix_user_hashes(np.array([-3, 9]).view(np.uint64)).tolist()
    text = next(nc.Logs.from_arrays(user=["é", "a"], features=[[1.0]] * 2, reward=[0, 0]).batches())
    oracle = {name: int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") for name in ("a", "é")}
    assert dict(zip(text.users.tolist(), text.hashes.tolist(), strict=True)) == oracle


def test_plain_logs_are_one_hot_in_the_order_of_ids(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("user,action,reward\nann,tea,1\nben,milk,0\nann,rum,0.5\n")
    logs = nc.read_logs(path)
    assert logs.action_ids == ("milk", "rum", "tea") and logs.one_hot and logs.item_names is None
    assert histories(logs)["ann"] == [([0, 0, 1], 1.0, None), ([0, 1, 0], 0.5, None)]
    assert next(logs.batches()).actions.tolist() == [2, 1, 0]
    assert logs.advice == ["1 of 2 users has a single row, too short to learn from."]


def test_items_give_names_ids_and_features_in_column_order(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("movie,title,zeta,name,alpha\n5,x,1,Five,2\n3,y,3,Three,4\n")
    frame = pl.DataFrame({"user": [1, 1], "movie": [3, 5], "reward": [1.0, 2.0]})
    logs = nc.Logs.from_frame(frame, items=path, columns={"action": "movie"})
    assert (logs.action_ids, logs.item_names, logs.dim) == ((5, 3), ("Five", "Three"), 2)
    assert logs.item_features is not None and logs.item_features.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert histories(logs) == {1: [([3.0, 4.0], 1.0, None), ([1.0, 2.0], 2.0, None)]}


def test_intercept_is_the_last_feature_and_counts_in_the_norm() -> None:
    for given_items in (None, [[2.0], [3.0]]):
        features = {"features": [[2.0], [3.0]]} if given_items is None else {"action": [0, 1], "items": given_items}
        logs = nc.Logs.from_arrays(user=[1, 1], reward=[5, 5], intercept=True, **features)
        assert logs.dim == 2 and logs.intercept
        assert next(logs.batches()).features.tolist() == [[2.0, 1.0], [3.0, 1.0]]
        assert logs.summary.mean_squared_norm == (4 + 9) / 2 + 1


def test_intercept_is_advised_only_where_it_would_help() -> None:
    rng = np.random.default_rng(0)
    user, plain = np.repeat(np.arange(50), 4), rng.normal(size=(200, 3))
    shares = rng.dirichlet([1, 1, 1], size=200)  # sums to one: the constant is in the span

    def advised(features: np.ndarray, reward: np.ndarray, **more: bool) -> bool:
        return any(
            "intercept" in line
            for line in nc.Logs.from_arrays(user=user, features=features, reward=reward, **more).advice
        )

    noise = rng.normal(size=200)
    assert advised(plain, noise + 3)
    assert not advised(plain, noise)
    assert not advised(shares, noise + 3)
    assert not advised(plain, noise + 3, intercept=True)


def test_own_features_win_over_items_and_say_so() -> None:
    frame = pl.DataFrame({"user": [1, 1], "action": [0, 1], "features": [[1.0], [2.0]], "reward": [0.0, 1.0]})
    logs = nc.Logs.from_frame(frame, items=[[7.0, 7.0], [8.0, 8.0]])
    assert logs.dim == 1 and any("items= was not used" in line for line in logs.advice)
    assert nc.Logs.from_frame(frame, items=[[7.0, 7.0], [8.0, 8.0]], columns={"features": None}).dim == 2


def test_actions_are_kept_beside_features_and_change_nothing_else(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    user, action = np.repeat(np.arange(40), 5), rng.choice(["tea", "rum", "milk"], size=200)
    frame = pl.DataFrame(
        {"user": user, "action": action, "features": rng.normal(size=(200, 4)), "reward": rng.normal(size=200)}
    )
    frame.write_parquet(tmp_path / "logs.parquet")
    plain = nc.Logs.from_frame(frame.drop("action"))
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    for logs in (
        nc.Logs.from_frame(frame),
        nc.Logs.from_arrays(**columns),
        nc.read_logs(tmp_path / "logs.parquet"),
        nc.read_logs(tmp_path / "logs.parquet", memory=64),
        nc.read_logs(tmp_path / "logs.parquet", grouped=True),
    ):
        assert same(logs.summary, plain.summary) and logs.dim == 4 and not logs.one_hot and not logs.by_action
        assert logs.action_ids == ("milk", "rum", "tea") and plain.action_ids is None
        assert logs.item_features is None and plain.item_features is None
        found = {}
        for batch in logs.batches(rows=30):
            assert batch.coded is None and batch.dim == 4 and batch.actions is not None
            named = np.split(np.array(logs.action_ids)[batch.actions], batch.offsets[1:-1])
            found |= dict(zip(batch.users.tolist(), map(list, named), strict=True))
        assert found == {one: list(action[user == one]) for one in range(40)}
        assert histories(logs) == histories(plain)
    named = nc.fit(nc.Logs.from_frame(frame), rank=1, estimator="sold")
    assert np.array_equal(named.covariance, nc.fit(plain, rank=1, estimator="sold").covariance)


def test_an_action_column_that_cannot_be_used_says_how_to_do_without() -> None:
    frame = pl.DataFrame({"user": [1, 1], "action": [None, 0.5], "features": [[1.0], [2.0]], "reward": [0.0, 1.0]})
    with pytest.raises(LogsError, match=r"columns=\{'action': None\}"):
        nc.Logs.from_frame(frame)
    assert nc.Logs.from_frame(frame, columns={"action": None}).action_ids is None


def test_equal_times_keep_file_then_row_order_and_are_counted(tmp_path: Path) -> None:
    at = datetime(2024, 5, 1)
    late, early = at + timedelta(seconds=1), at
    pl.DataFrame({"user": [1, 1], "step": [late, early], "action": [0, 1], "reward": [3.0, 1.0]}).write_parquet(
        tmp_path / "a.parquet"
    )
    pl.DataFrame({"user": [1, 2], "step": [early, early], "action": [0, 1], "reward": [2.0, 9.0]}).write_parquet(
        tmp_path / "b.parquet"
    )
    for memory in (None, 1):
        logs = nc.read_logs([tmp_path / "b.parquet", tmp_path / "a.parquet"], memory=memory)
        assert [reward for _, reward, _ in histories(logs)[1]] == [1.0, 2.0, 3.0]
        assert logs.summary.ties == 2
        assert any("2 of 4 rows share user and time" in line for line in logs.advice)


@pytest.mark.parametrize("text", ["2024-05-01 10:00:00", "2024-05-01T10:00:00", "2024-05-01"])
def test_times_written_as_text_in_csv_are_times(tmp_path: Path, text: str) -> None:
    path = tmp_path / "times.csv"
    path.write_text(f"user,step,action,reward\n1,{text},0,1\n1,{text},1,2\n1,{text.replace('2024', '2023')},1,3\n")
    logs = nc.read_logs(path)
    assert [reward for _, reward, _ in histories(logs)[1]] == [3.0, 1.0, 2.0] and logs.summary.ties == 2


def test_unix_times_are_times_when_the_unit_is_named() -> None:
    logs = nc.Logs.from_arrays(user=[1, 1, 1], step=[7, 7, 3], action=[0, 1, 2], reward=[1, 2, 0], epoch="s")
    assert logs.summary.ties == 2
    assert next(logs.batches()).rewards.tolist() == [0, 1, 2]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "D"])
def test_numpy_times_of_every_unit(unit: str) -> None:
    step = np.array([2, 1, 0]).astype(f"M8[{unit}]")
    logs = nc.Logs.from_arrays(user=[1, 1, 1], step=step, features=[[1.0]] * 3, reward=[2, 1, 0])
    assert next(logs.batches()).rewards.tolist() == [0, 1, 2]


def test_steps_too_spread_to_pack_into_one_number_still_sort() -> None:
    rng = np.random.default_rng(3)
    user, step = rng.integers(0, 9, 500), rng.permutation(500).astype(np.int64) * (2**62 // 500) - 2**61
    logs = nc.Logs.from_arrays(user=user, step=step, features=np.ones((500, 1)), reward=step / 2**40)
    assert all(rewards == sorted(rewards) for rewards in ([r for _, r, _ in h] for h in histories(logs).values()))


def test_batches_hold_about_the_rows_asked_for_and_at_least_a_user() -> None:
    user = np.repeat(np.arange(30), np.arange(1, 31))
    logs = nc.Logs.from_arrays(user=user, features=np.ones((len(user), 2)), reward=np.arange(len(user)))
    for rows in (1, 7, 40, 10**6):
        sizes = [(len(batch.users), len(batch.rewards)) for batch in logs.batches(rows=rows)]
        assert all(n <= rows or users == 1 for users, n in sizes) and sum(n for _, n in sizes) == len(user)
    assert np.concatenate([batch.rewards for batch in logs.batches(rows=7)]).tolist() == list(range(len(user)))


def test_float32_features_stay_compact_and_exact() -> None:
    features = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    logs = nc.Logs.from_arrays(user=np.arange(20) // 4, features=features, reward=np.zeros(20))
    batch = next(logs.batches())
    assert batch.features.dtype == np.float64 and (batch.features == features).all()


@pytest.mark.parametrize("memory", [None, 1])
def test_arrays_of_a_batch_are_contiguous_read_only_and_float64(tmp_path: Path, memory: int | None) -> None:
    """Compiled loops take one kind of array; others would be compiled again or refused."""
    columns = {"user": ["a", "a", "b"], "features": [[1.0, 2.0]] * 3, "reward": [1, 2, 3], "propensity": [0.5] * 3}
    pl.DataFrame(columns).write_parquet(tmp_path / "logs.parquet")
    arrays = {**columns, "features": np.asfortranarray(columns["features"])}
    for logs in (nc.read_logs(tmp_path / "logs.parquet", memory=memory), nc.Logs.from_arrays(**arrays)):
        for batch in logs.batches(rows=1):
            for array in (batch.features, batch.rewards, batch.propensities, batch.hashes, batch.offsets, batch.users):
                assert array.flags.c_contiguous and not array.flags.writeable
            assert batch.features.dtype == batch.rewards.dtype == np.float64


@pytest.mark.parametrize("convert", ["pandas", "pyarrow", "lazy"])
def test_tables_of_other_libraries(convert: str) -> None:
    frame = pl.DataFrame(
        {
            "user": ["a", "b", "a"],
            "step": [datetime(2024, 1, 2), datetime(2024, 1, 1), datetime(2024, 1, 1)],
            "features": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
            "reward": [True, False, True],
        }
    )
    other = frame.lazy() if convert == "lazy" else optional(convert)
    if convert == "pandas":
        other = other.DataFrame(frame.to_dict(as_series=False))
    elif convert == "pyarrow":
        other = other.table(frame.to_dict(as_series=False))
    logs = nc.Logs.from_frame(other)
    assert histories(logs) == histories(nc.Logs.from_frame(frame))
    assert histories(logs)["a"] == [([5.0, 6.0], 1.0, None), ([1.0, 2.0], 1.0, None)]


def test_features_may_be_named_columns(tmp_path: Path) -> None:
    path = tmp_path / "wide.tsv"
    path.write_text("uid\tx\ty\treward\n1\t1\t2\t0\n1\t3\t4.5\t1\n")
    logs = nc.read_logs(path, columns={"user": "uid", "features": ["y", "x"]})
    assert histories(logs) == {1: [([2.0, 1.0], 0.0, None), ([4.5, 3.0], 1.0, None)]}


def test_columns_left_out_and_unknown_ones_stay_out_of_the_way(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [1, 1], "action": [0, 1], "reward": [0.0, 1.0]})
    more = frame.with_columns(candidates=pl.Series([[0, 1], [1]]), arm=pl.lit("random"), note=pl.lit(None))
    more.write_parquet(tmp_path / "more.parquet")
    without = nc.read_logs(tmp_path / "more.parquet", columns={"candidates": None, "arm": None})
    assert same(without.summary, nc.Logs.from_frame(frame).summary)


def test_folders_globs_and_lists_name_files_once(tmp_path: Path) -> None:
    for i in range(3):
        pl.DataFrame({"user": [i, i], "action": [0, 1], "reward": [0.0, i]}).write_parquet(tmp_path / f"{i}.parquet")
    (tmp_path / "README.txt").write_text("not logs")
    (tmp_path / "none.parquet").write_bytes(b"")
    (tmp_path / "none.parquet").unlink()
    ways = [tmp_path, str(tmp_path / "*.parquet"), [tmp_path / "0.parquet", str(tmp_path / "[0-2].parquet")]]
    assert len({nc.read_logs(way).summary for way in ways}) == 1


def test_a_file_without_rows_among_others_is_nothing_wrong(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [1, 1], "action": [0, 1], "reward": [0.0, 1.0]})
    frame.write_parquet(tmp_path / "b.parquet")
    frame[:0].write_parquet(tmp_path / "a.parquet")
    assert nc.read_logs(tmp_path).summary.rows == 2


def test_reading_reports_progress(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [1, 1], "action": [0, 1], "reward": [0.0, 1.0]})
    for i in range(2):
        frame.with_columns(user=pl.lit(i)).write_csv(tmp_path / f"{i}.csv")
    seen: list[tuple[int, int]] = []
    for grouped in (False, True):
        nc.read_logs(tmp_path, progress=lambda done, total: seen.append((done, total)), grouped=grouped)
    assert seen == [(2, 4), (4, 4)] * 2


def test_reduce_visits_every_row_once_and_reports() -> None:
    logs = nc.Logs.from_arrays(user=np.arange(100) // 3, features=np.ones((100, 2)), reward=np.arange(100))
    seen: list[tuple[int, int]] = []
    total = reduce(logs, lambda b: b.rewards.sum(), lambda a, b: a + b, rows=10, progress=lambda *at: seen.append(at))
    assert total == sum(range(100)) and seen[-1] == (100, 100) and len(seen) > 5
