"""Tables as people have them: everything that is wrong is told at once, and gaps, spellings and dates have an option.

Every storage must do the same: rows held in memory, sorted on disk, streamed by user, and read by workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError
from newcomer.logs import reader
from newcomer.logs.text_columns import text_to_iso_dates
from newcomer.logs.workers import WorkerPool
from tests.optional import optional

Read = Callable[..., nc.Logs]


@pytest.fixture(params=["memory", "disk", "grouped", "workers"])
def read(request: pytest.FixtureRequest, crew: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.setattr(reader, "CHUNK_BYTES", 64)
    monkeypatch.setattr(reader, "CHUNK_ROWS", 3)
    how: dict[str, Any] = {
        "memory": {},
        "disk": {"memory": 1},
        "grouped": {"grouped": True},
        "workers": {"engine": crew},
    }[request.param]
    return lambda path, **more: nc.read_logs(path, **how, **more)


def csv(folder: Path, text: str, name: str = "logs.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def told(logs: nc.Logs) -> str:
    return " ".join(logs.advice)


def rewards(logs: nc.Logs) -> dict[Any, list[float]]:
    found = {}
    for batch in logs.batches():
        for i, user in enumerate(batch.users.tolist()):
            found[user] = batch.rewards[batch.offsets[i] : batch.offsets[i + 1]].tolist()
    return found


MESSY = (
    "user,step,action,reward\n"
    "ann,1,tea,1\n"
    "ann,2,,2\n"
    "ann,3,milk,many\n"
    "ann,4,milk,NA\n"
    "ben,1,tea,few\n"
    "ben,x,tea,null\n"
    "ben,3,tea,-\n"
    ",1,milk,inf\n"
    "cas,5,milk,1\n"
    "cas,5,milk,lots\n"
    "cas,7,milk,none at all\n"
)


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path, read: Read) -> None:
    with pytest.raises(LogsError) as caught:
        read(csv(tmp_path, MESSY))
    said = str(caught.value)
    assert said.startswith("6 faults: ") and "\n" not in said
    assert "reward is missing in 3 rows (row 4, row 6, row 7)" in said
    assert "reward is text where numbers belong in 4 rows (row 3: 'many', row 5: 'few', row 10: 'lots')" in said
    assert "reward is not a finite number in 1 row (row 8: inf)" in said
    assert "action is missing in 1 row (row 2)" in said and "user is missing in 1 row (row 8)" in said
    assert "step is text where integers or timestamps" in said and "row 6: 'x'" in said
    assert "--missing drop" in said and "--column step=" in said


def test_the_same_of_frames(tmp_path: Path) -> None:
    frame = pl.read_csv(csv(tmp_path, MESSY), infer_schema=False, null_values=["", "NA", "null", "-"])
    with pytest.raises(LogsError, match=r"6 faults: .*reward is text .* in 4 rows \(row 3: 'many'"):
        nc.Logs.from_frame(frame)
    with pytest.raises(LogsError, match="2 faults: user is missing in 1 row .*reward is not a finite number"):
        nc.Logs.from_arrays(user=np.array(["a", None], dtype=object), action=["x", "y"], reward=[1.0, np.inf])


def test_repeated_steps_are_told_with_the_rest(tmp_path: Path, read: Read) -> None:
    text = "user,step,action,reward\na,1,x,1\na,1,y,2\nb,3,x,\nb,3,y,1\n"
    repeats = r"user 'a' has step 1 more than once \(column step; 2 such steps in all, also user 'b' step 3\)"
    with pytest.raises(LogsError, match=f"2 faults: reward is missing.*{repeats}"):
        read(csv(tmp_path, text))
    with pytest.raises(LogsError, match=r"^user 'a' has step 1 more than once \(column step; 2 such steps in all"):
        read(csv(tmp_path, text.replace("3,x,\n", "3,x,0\n")))


def test_examples_name_their_files(tmp_path: Path, read: Read) -> None:
    one = csv(tmp_path, "user,action,reward\n1,x,\n1,y,2\n", "one.csv")
    two = csv(tmp_path, "user,action,reward\n2,x,lots\n2,y,\n", "two.csv")
    with pytest.raises(LogsError, match=r"reward is missing in 2 rows \(\S*one.csv row 1, \S*two.csv row 2\)"):
        read([one, two])


def test_one_fault_is_told_as_before_with_how_many_there_are(tmp_path: Path, read: Read) -> None:
    path = csv(tmp_path, "user,action,reward\n" + "".join(f"{i},x,{'' if i % 2 else 1}\n" for i in range(12)))
    with pytest.raises(
        LogsError, match=r"reward is missing \(\S*, data row 2, column reward; 6 rows in all, also row 4, row 6\)"
    ):
        read(path)


def test_faults_of_items_are_told_at_once() -> None:
    items = pl.DataFrame({"action": ["a", "b", "b"], "x": [1.0, None, 2.0], "y": [np.inf, 1.0, 2.0]})
    with pytest.raises(LogsError, match="3 faults: action occurs more than once in 1 row .*x is missing.*y is"):
        nc.Logs.from_arrays(user=[1], action=["a"], reward=[1.0], items=items)


def test_incomplete_rows_are_dropped_and_counted(tmp_path: Path, read: Read) -> None:
    text = "user,step,action,reward\n1,1,x,1\n1,2,,2\n1,3,y,NA\n1,,y,4\n1,5,y,5\n2,1,y,null\n2,2,x,-\n2,3,x,8\n3,1,z,\n"
    path = csv(tmp_path, text)
    with pytest.raises(LogsError, match="3 faults"):
        read(path)
    logs = read(path, missing="drop")
    assert rewards(logs) == {1: [1.0, 5.0], 2: [8.0]} and logs.action_ids == ("x", "y")
    assert "6 of 9 rows have a missing value and were left out: reward in 4, step in 1, action in 1." in told(logs)
    whole = read(csv(tmp_path, "user,step,action,reward\n1,1,x,1\n1,5,y,5\n2,3,x,8\n", "whole.csv"))
    assert logs.summary.fingerprint == whole.summary.fingerprint


def test_rows_keep_their_numbers_where_others_are_dropped(tmp_path: Path, read: Read) -> None:
    path = csv(tmp_path, "user,action,reward\n1,x,\n1,x,\n1,x,1\n1,x,\n1,x,oops\n")
    with pytest.raises(LogsError, match=r"text 'oops' .*row 5, column reward"):
        read(path, missing="drop")


def test_nothing_is_left_where_every_row_has_a_gap(tmp_path: Path, read: Read) -> None:
    with pytest.raises(LogsError, match=r"every row has a missing value \(reward, action\)"):
        read(csv(tmp_path, "user,action,reward\n1,x,\n1,,2\n"), missing="drop")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gaps_of_arrays_and_frames_are_dropped(dtype: Any) -> None:
    features = np.array([[1, 2], [np.nan, 1], [3, 4]], dtype=dtype)
    logs = nc.Logs.from_arrays(user=[1, 1, 1], features=features, reward=[1.0, 2.0, np.nan], missing="drop")
    assert rewards(logs) == {1: [1.0]} and "2 of 3 rows" in told(logs)
    frame = pl.DataFrame({"user": [1, 1, 1], "features": [[1.0, 2.0], [None, 1.0], None], "reward": [1, 2, 3]})
    assert rewards(nc.Logs.from_frame(frame, missing="drop")) == {1: [1.0]}
    with pytest.raises(LogsError, match="missing is 'omit': choose one of error, drop"):
        nc.Logs.from_frame(frame, missing="omit")  # type: ignore[arg-type]


def test_numbers_with_blanks_are_numbers(tmp_path: Path, read: Read) -> None:
    path = csv(tmp_path, "user;step;action;reward\n 1; 1;7 ; 0,5\n1 ;2 ; 8; 1 000 \n 2;1;7; yes\n")
    logs = read(path)
    assert rewards(logs) == {1: [0.5, 1000.0], 2: [1.0]} and logs.action_ids == (7, 8)


def test_text_that_is_a_number_is_one_in_every_table() -> None:
    frame = pl.DataFrame({"user": [1, 1, 1], "action": ["a", "b", "a"], "reward": [" 1.5", "2", "1e1 "]})
    assert rewards(nc.Logs.from_frame(frame)) == {1: [1.5, 2.0, 10.0]}


SPELLED = "user,step,action,reward\nann,1,B,1\nann,2,c,2\n ann,3,b,3\nANN,4, B,4\nben,1,B ,5\n"


def test_spellings_are_pointed_out(tmp_path: Path, read: Read) -> None:
    logs = read(csv(tmp_path, SPELLED))
    assert logs.action_ids == (" B", "B", "B ", "b", "c")
    assert "' B' and 'B' and 'B ' and 'b' are likely the same action; tidy_ids=True (--tidy-ids) joins them." in told(
        logs
    )
    assert "' ann' and 'ANN' and 'ann' are likely the same user" in told(logs)


def test_spellings_are_joined(tmp_path: Path, read: Read) -> None:
    logs = read(csv(tmp_path, SPELLED), tidy_ids=True)
    assert logs.tidy_ids and logs.action_ids == ("B", "c") and "likely the same" not in told(logs)
    assert rewards(logs) == {"ann": [1.0, 2.0, 3.0, 4.0], "ben": [5.0]}
    tidy = read(csv(tmp_path, "user,step,action,reward\nann,1,B,1\nann,2,c,2\nann,3,B,3\nann,4,B,4\nben,1,B,5\n"))
    assert logs.summary.fingerprint == tidy.summary.fingerprint


def test_clean_ids_are_not_remarked_on(tmp_path: Path, read: Read) -> None:
    for users in (("ann", "ben"), ("ANN", "BEN"), ("Ann", "Ben"), ("1", "2")):
        text = "user,action,reward\n" + "".join(f"{user},A,1\n{user},B,1\n" for user in users)
        assert "likely" not in told(read(csv(tmp_path, text)))


def test_spellings_of_items_and_candidates_are_joined() -> None:
    items = pl.DataFrame({"action": ["Tea", "Milk"], "x": [1.0, 2.0], "y": [0.0, 1.0]})
    given: dict[str, Any] = {"user": [1, 1], "action": ["tea", " MILK"], "reward": [0.0, 1.0], "items": items}
    with pytest.raises(LogsError, match=r"' MILK' is likely 'Milk': tidy_ids=True \(--tidy-ids\) joins them"):
        nc.Logs.from_arrays(**given)
    logs = nc.Logs.from_arrays(**given, candidates=[["TEA", "milk"], ["milk "]], tidy_ids=True)
    batch = next(logs.batches())
    assert batch.features.tolist() == [[1.0, 0.0], [2.0, 1.0]]
    assert batch.candidates is not None and batch.candidates.actions.tolist() == [0, 1, 1]
    with pytest.raises(LogsError, match="item 'tea' occurs more than once"):
        both = pl.DataFrame({"action": ["Tea", "tea"], "x": [1.0, 2.0]})
        nc.Logs.from_arrays(user=[1], action=["tea"], reward=[0.0], items=both, tidy_ids=True)


def test_a_tidy_model_serves_every_spelling() -> None:
    rng = np.random.default_rng(0)
    names = np.array(["B", " b", "Tea", "milk ", "C"])
    action = names[rng.integers(0, 5, 300)]
    logs = nc.Logs.from_arrays(
        user=np.repeat(np.arange(50), 6), action=action, reward=rng.normal(size=300), tidy_ids=True
    )
    model = nc.Model.from_bytes(nc.fit(logs, rank=1, estimator="sold").to_bytes())
    assert model.tidy_ids and model.action_ids == ("B", "C", "Tea", "milk")
    assert model.codes(["b ", "c", "TEA", " Milk", "gin"]).tolist() == [0, 1, 2, 3, -1]
    assert model.codes(np.array(["b ", "C"])).tolist() == [0, 1]
    policy = nc.PriorUCB(model)
    one, two = policy.start(1), policy.start(1)
    policy.update(one, ids=["tea "], reward=[1.0])
    policy.update(two, ids=["Tea"], reward=[1.0])
    assert one.to_bytes() == two.to_bytes()
    np.testing.assert_array_equal(policy.scores(one, ids=[" TEA", "b"]), policy.scores(two, ids=["Tea", "B"]))
    untidy = replace(model, tidy_ids=False)
    assert untidy.codes(["b", "B"]).tolist() == [-1, 0] and untidy.id != model.id


def test_two_columns_of_one_name_are_refused(tmp_path: Path, read: Read) -> None:
    path = csv(tmp_path, "user;action;reward;reward\n1;2;3;4\n")
    with pytest.raises(LogsError, match=r"there are 2 columns 'reward' \(\S*logs.csv\): give every column a name"):
        read(path)
    assert read(csv(tmp_path, "user,action,reward,,\n1,2,3,,\n", "blank.csv")).summary.rows == 1


def test_two_columns_of_one_name_are_refused_in_pandas() -> None:
    pandas = optional("pandas")
    frame = pandas.DataFrame([[1, 2, 3, 4]], columns=["user", "action", "reward", "reward"])
    with pytest.raises(LogsError, match="there are 2 columns 'reward'"):
        nc.read_logs(frame)


EITHER = "user,step,action,reward\n1,03/02/2020,x,1\n1,04/01/2020,y,2\n2,1/1/2020,x,3\n"


def test_dates_that_can_be_read_two_ways_are_refused(tmp_path: Path, read: Read) -> None:
    path = csv(tmp_path, EITHER)
    with pytest.raises(
        LogsError, match=r"'03/02/2020' can be read two ways .*3 rows in all.*--dates day-first\|month-first"
    ):
        read(path)
    assert rewards(read(path, dates="day-first")) == {1: [2.0, 1.0], 2: [3.0]}
    assert rewards(read(path, dates="month-first")) == {1: [1.0, 2.0], 2: [3.0]}


@pytest.mark.parametrize(("date", "order"), [("13/1/2020", [2.0, 1.0]), ("1/13/2020", [1.0, 2.0])])
def test_one_date_settles_the_others(tmp_path: Path, read: Read, date: str, order: list[float]) -> None:
    settling = csv(tmp_path, f"user,step,action,reward\n3,{date},x,1\n", "more.csv")
    logs = read([csv(tmp_path, EITHER), settling])
    assert rewards(logs)[1] == order
    assert f"read with the {'day' if date.startswith('13') else 'month'} first" in told(logs)


def test_dates_of_frames() -> None:
    frame = pl.DataFrame(
        {"user": [1, 1], "step": ["03.02.20 10:00", "04.01.20"], "action": [1, 2], "reward": [1.0, 2.0]}
    )
    with pytest.raises(LogsError, match="can be read two ways"):
        nc.Logs.from_frame(frame)
    assert rewards(nc.Logs.from_frame(frame, dates="day-first")) == {1: [2.0, 1.0]}
    with pytest.raises(LogsError, match="dates is 'iso'"):
        nc.Logs.from_frame(frame, dates="iso")  # type: ignore[arg-type]
    assert text_to_iso_dates(pl.Series(["3-2-99", "x"]), "month-first").to_list() == ["1999-03-02", "x"]


TEAS = "user,action,reward\n" + "1,tea,1\n1,Tea,0\n2,Tea ,1\n2,TEA,0\n3,Tea,1\n3,rum,1\n"


def test_the_first_error_names_the_spellings_that_are_likely_the_same(tmp_path: Path, read: Read) -> None:
    path = csv(tmp_path, TEAS + "3,rum,\n")
    with pytest.raises(
        LogsError, match=r"reward is missing .*'TEA' and 'Tea' and 'Tea ' and 'tea' are likely.*--tidy-"
    ):
        read(path)
    with pytest.raises(LogsError) as caught:
        nc.Logs.from_frame(pl.read_csv(path))
    assert "are likely the same action; tidy_ids=True (--tidy-ids) joins them" in str(caught.value)
    with pytest.raises(LogsError) as tidy:
        read(path, tidy_ids=True)
    assert "likely" not in str(tidy.value)


def test_joined_spellings_go_by_the_commonest(tmp_path: Path, read: Read) -> None:
    path = csv(tmp_path, TEAS)
    assert read(path, tidy_ids=True).action_ids == ("Tea", "rum")
    assert nc.Logs.from_frame(pl.read_csv(path), tidy_ids=True).action_ids == ("Tea", "rum")


def test_data_rows_are_told_from_lines(tmp_path: Path) -> None:
    path = csv(tmp_path, "user,action,reward\n1,a,x\n1,,2\n")
    with pytest.raises(LogsError, match=r"data rows, without the header"):
        nc.read_logs(path)
    with pytest.raises(LogsError, match=r"logs.csv, data row 2, column reward"):
        nc.read_logs(csv(tmp_path, "user,action,reward\n1,a,2\n1,b,x\n"))
