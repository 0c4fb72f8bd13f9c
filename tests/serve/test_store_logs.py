"""A store's address is logs: what is read, from a store that is served and one that is not, and what is refused."""

from __future__ import annotations

import asyncio
import json
import stat
from io import BytesIO

import apsw
import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.cli.main import execute_command
from newcomer.errors import LogsError, MissingExtra, StoreError
from newcomer.logs import service_store
from newcomer.logs.service_store import read_service_store, service_store_address
from newcomer.serve.export import csv_of_lists
from newcomer.serve.migrations import STEPS
from newcomer.serve.service import Config
from newcomer.serve.store_sqlite import SqliteStore
from newcomer.serve.stores import store_of
from tests.serve.running import feature_model, model_of, observations, running

CONFIG = Config(random=0.5, control=0.2)


def serve_some(client, users=6, rounds=3, **asked):
    """Users who get a reward for each decision; returns the answers."""
    found = []
    for user in range(users):
        for t in range(rounds):
            found.append(client.decide(f"u{user}", **asked))
            client.reward(found[-1].decision, float(user + t))
    return found


def frame_of(store):
    return pl.concat([pl.read_parquet(one.path) for one in store.files]).sort("step")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return f"sqlite:///{tmp_path}/s.store" if request.param == "sqlite" else request.getfixturevalue("database")


def test_a_store_that_is_served_is_read_as_it_is_exported(url):
    with running(store_of(url), CONFIG, model_of(ids=range(1, 13))) as service, nc.Client(service.url) as client:
        shown = serve_some(client, attributes=None)
        client.decide("u0")  # pending
        void = client.decide("u1")
        client.reward(void.decision, 9.0)
        client.void(void.decision)
        client.observe("u2", action=3, reward=0.5)
        client.decide("u3", exclude=[1, 2, 3])
        part = client.decide("u3", candidates=[4, 5], top=2)
        for slot in part.slots:
            client.reward(slot.decision, 1.0)
        found = frame_of(read_service_store(url))
        theirs = pl.read_parquet(BytesIO(client.logs(format="parquet"))).sort("step")
        assert client.decide("u9").action is not None  # nobody was stopped by the reader
    names = [name for name in service_store.READ if name in theirs.columns]
    assert found.select(names).equals(theirs.select(names))
    assert len(found) == len(shown) + 3 and found["arm"].to_list().count("observed") == 1
    assert found.filter(arm="observed")["propensity"].to_list() == [None]
    assert found["candidates"].to_list()[-2:] == [[4, 5], [5]] or found["candidates"].to_list()[-2:] == [[4, 5], [4]]
    logs = nc.read_logs(url)
    assert logs.summary.rows == len(found) and logs.action_ids == tuple(range(1, 13))  # also what nobody was shown
    assert set(logs.arms) <= {"control", "observed", "random", "treated"}


def test_lists_of_ids_that_hold_bars_are_written_to_csv():
    rows = pl.DataFrame({"action": ["Action|Sci-Fi"], "candidates": [["Drama", "Action|Sci-Fi"]]})
    row = {"user": "u", "step": 1, "reward": 1.0, "propensity": 0.5, "arm": "random"}
    text = csv_of_lists(rows.with_columns(pl.lit(value).alias(name) for name, value in row.items()))
    logs = nc.read_logs(pl.read_csv(text))
    assert next(logs.batches()).candidates.lengths.tolist() == [2] and logs.action_ids == ("Action|Sci-Fi",)


def test_the_exported_files_are_read_alike(tmp_path):
    url = f"sqlite:///{tmp_path}/s.store"
    with running(store_of(url), CONFIG, model_of()) as service, nc.Client(service.url) as client:
        serve_some(client, users=12)
        serve_some(client, users=3, candidates=[2, 5, 7])
        client.observe("u2", action=3, reward=0.5)
        for form, suffix in (("parquet", "parquet"), ("ndjson", "jsonl"), ("csv", "csv")):
            (tmp_path / f"logs.{suffix}").write_bytes(client.logs(format=form))
    ours = nc.read_logs(url)
    for suffix in ("parquet", "jsonl", "csv"):
        theirs = nc.read_logs(tmp_path / f"logs.{suffix}")
        assert theirs.arms == ours.arms and theirs.summary.rows == ours.summary.rows
        ours_judge, theirs_judge = ours.judges, theirs.judges
        assert ours_judge is not None and theirs_judge is not None
        assert theirs_judge.summary.users == ours_judge.summary.users < ours.summary.users
        batch = next(theirs.batches())
        assert (batch.candidates.lengths == 0).any() and (batch.candidates.lengths == 3).sum() == 9
        assert np.isnan(batch.propensities).sum() == 1


def test_attributes_names_and_features_are_those_of_the_store(tmp_path):
    url = f"sqlite:///{tmp_path}/s.store"
    ids = ("tea", "rum", "gin", "ale")
    model = model_of(4, ids=ids, action_names=("Tea", "Rum", "Gin", "Ale"))
    with running(store_of(url), Config(random=0.0, control=0.0), model) as service, nc.Client(service.url) as client:
        serve_some(client, users=3)
    logs = nc.read_logs(url)
    assert logs.item_names == ("Ale", "Gin", "Rum", "Tea") and logs.action_ids == ("ale", "gin", "rum", "tea")
    assert logs.judges is None and "nobody was served at random" in " ".join(logs.advice)
    url = f"sqlite:///{tmp_path}/f.store"
    with running(store_of(url), CONFIG, feature_model()) as service, nc.Client(service.url) as client:
        for user in range(4):
            shown = client.decide(user, features=[[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
            client.reward(shown.decision, 1.0)
    logs = nc.read_logs(url)
    assert logs.dim == 3 and logs.action_ids is None and logs.summary.users == 4


def test_pages_are_bounded_and_each_decision_comes_once(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/s.store"
    monkeypatch.setattr(service_store, "FIRST", 4)
    monkeypatch.setattr(service_store, "LEAST", 4)
    monkeypatch.setattr(service_store, "PAGE", 1)
    with running(store_of(url), CONFIG, model_of()) as service, nc.Client(service.url) as client:
        shown = serve_some(client, users=5)
        found = read_service_store(url)
        before = service_store._pages
        first = True

        def meddled(connection):
            nonlocal first
            for page in before(connection):
                if first:  # a row that changes, and one that comes, while the store is read
                    client.reward(shown[0].decision, 99.0, correct=True)
                    client.reward(client.decide("late").decision, 1.0)
                    first = False
                yield page

        monkeypatch.setattr(service_store, "_pages", meddled)
        again = read_service_store(url)
    assert len(found.files) > 3 and frame_of(found)["step"].n_unique() == len(frame_of(found)) == 15
    assert len(frame_of(again)) == 15 and "late" not in frame_of(again)["user"].to_list()


def test_users_who_are_erased_meanwhile_are_not_in_the_logs(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/s.store"
    with running(store_of(url), CONFIG, model_of()) as service, nc.Client(service.url) as client:
        serve_some(client, users=5)
        before, gone = service_store._pages, []

        def meddled(connection):
            for page in before(connection):
                if not gone:
                    gone.append(client.erase("u1"))
                yield page

        monkeypatch.setattr(service_store, "_pages", meddled)
        assert "u1" not in frame_of(read_service_store(url))["user"].to_list()


def test_catalogues_of_several_models_stay_apart(tmp_path):
    url = f"sqlite:///{tmp_path}/s.store"
    config = Config(random=1.0, control=0.0)
    with running(store_of(url), config, model_of(4)) as service, nc.Client(service.url) as client:
        serve_some(client, users=4)
        client.promote(client.stage(model_of(6, seed=1).to_bytes()).id)
        client.reward(client.decide("new").decision, 1.0)
    logs = nc.read_logs(url)
    assert logs.action_ids == (1, 2, 3, 4, 5, 6)
    sizes = [n for batch in logs.batches() for n in batch.candidates.lengths.tolist()]
    assert sorted(sizes) == [0] + [4] * 12


def test_what_is_no_store_is_refused(tmp_path, capsys):
    none, other, empty, newer = (f"sqlite:///{tmp_path}/{name}" for name in ("none", "text", "empty", "newer"))
    (tmp_path / "text").write_text("user,action,reward\n" * 100)
    apsw.Connection(str(tmp_path / "empty")).execute("CREATE TABLE a (x)")
    store = SqliteStore(tmp_path / "newer")

    async def made():
        await store.open()
        await store.close()

    asyncio.run(made())
    with pytest.raises(StoreError, match="no decision with a reward yet"):
        nc.read_logs(newer)
    apsw.Connection(str(tmp_path / "newer")).execute(f"PRAGMA user_version={len(STEPS) + 1}")
    cases = {
        none: "no store at this path",
        other: "not a database",
        empty: "not a store of the service",
        newer: "newer version",
    }
    for url, what in cases.items():
        with pytest.raises(StoreError, match=what):
            nc.read_logs(url)
        assert execute_command(["check", url, "--quick"]) == 6
        assert what in capsys.readouterr().err


def test_a_store_is_read_alone():
    with pytest.raises(LogsError, match="a store is no part of a list of files"):
        nc.read_logs(["logs.csv", "sqlite:///s.store"])


def test_the_reader_knows_the_schema_of_the_service():
    assert len(STEPS) == service_store.SCHEMA


def test_no_password_is_told(capsys):
    url = "postgresql://ann:secret@127.0.0.1:1/service"
    assert service_store_address(url) == "postgresql://127.0.0.1:1/service"
    with pytest.raises(StoreError) as error:
        nc.read_logs(url)
    assert "secret" not in str(error.value) and "127.0.0.1:1/service" in str(error.value)
    assert execute_command(["check", url]) == 6
    assert "secret" not in "".join(capsys.readouterr())


def test_without_the_extra_one_sentence_says_so(tmp_path, monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *given, **named):
        if name in ("apsw", "asyncpg"):
            raise ImportError(name)
        return real(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    for url in (f"sqlite:///{tmp_path}/s", "postgresql://host/db"):
        with pytest.raises(MissingExtra, match=r"need the extra \[serve\]"):
            nc.read_logs(url)


def test_commands_read_a_store_in_a_folder_that_cannot_be_written(tmp_path, capsys):
    folder = tmp_path / "kept"
    folder.mkdir()
    url = f"sqlite:///{folder}/s.store"
    with running(store_of(url), CONFIG, model_of()) as service, nc.Client(service.url) as client:
        serve_some(client, users=12)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert execute_command(["check", url, "--quick", "--json"]) == 0
    finally:
        folder.chmod(stat.S_IRWXU)
    told = json.loads(capsys.readouterr().out)
    assert told["logs"] == url and "arms" in [one["name"] for one in told["findings"]]


@pytest.fixture
def learned(url):
    """The address of a store with the observations of 80 users who differ along one direction."""
    with running(store_of(url), CONFIG, model_of()) as service, nc.Client(service.url) as client:
        assert {one["status"] for one in client.observe_batch(observations(80, 6))} == {"recorded"}
    return url


def test_a_store_is_fitted_by_command(learned, tmp_path, capsys):
    out = tmp_path / "next.newcomer"
    assert execute_command(["fit", learned, "--rank", "1", "--out", str(out), "--json"]) == 0
    told, found = json.loads(capsys.readouterr().out), nc.load(out)
    assert (told["rank"], told["dim"]) == (1, 12) and found.action_ids == tuple(range(1, 13))
    whole = nc.fit(nc.read_logs(learned), rank=1)
    assert found.id == whole.id
    with running(store_of(learned), CONFIG, model_of()) as service, nc.Client(service.url) as client:
        client.promote(client.stage(out.read_bytes()).id)
        assert client.decide("somebody").model == found.id


def test_an_interrupted_fit_of_a_store_goes_on_unless_the_store_has(learned, tmp_path):
    journal, asked = tmp_path / "journal", {"rank": 1, "calibrate": False}
    whole = nc.fit(nc.read_logs(learned), **asked)

    def stop(told):
        if told.passes == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nc.fit(nc.read_logs(learned), **asked, run=nc.Run(checkpoint=journal, listen=stop))
    assert nc.fit(nc.read_logs(learned), **asked, run=nc.Run(checkpoint=journal, resume=True)).id == whole.id
    with pytest.raises(KeyboardInterrupt):
        nc.fit(nc.read_logs(learned), **asked, run=nc.Run(checkpoint=journal, listen=stop))
    with running(store_of(learned), CONFIG, model_of()) as service, nc.Client(service.url) as client:
        client.observe("u0", 4.0, action=1)
    with pytest.raises(LogsError, match="cannot be resumed: the logs have changed since"):
        nc.fit(nc.read_logs(learned), **asked, run=nc.Run(checkpoint=journal, resume=True))


def test_a_fit_of_a_store_goes_on_from_the_model_that_it_served_first(tmp_path, capsys):
    rows = observations(60, 6, seed=1)
    first = nc.fit(
        nc.Logs.from_arrays(**{name: [one[name] for one in rows] for name in ("user", "action", "reward")}),
        calibrate=False,
    )
    url, out = f"sqlite:///{tmp_path}/s.store", tmp_path / "next.newcomer"
    with running(store_of(url), CONFIG, first) as service, nc.Client(service.url) as client:
        client.observe_batch(observations(40, 6, seed=2))
        assert execute_command(["fit", url, "--out", str(out)]) == 0
        said = capsys.readouterr().err
        assert f"The fit goes on from {first.id[:12]}" in said and "--from none" in said
        second = nc.load(out)
        assert second.parameters["start"] == first.id and second.parameters["approximate"] is True
        client.promote(client.stage(second.to_bytes()).id)
    same = nc.fit(nc.read_logs(url), start=first, add=True)
    np.testing.assert_allclose(second.mean, same.mean, atol=1e-9)
    assert execute_command(["fit", url, "--json", "--force", "--out", str(out)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert nc.load(out).parameters["start"] == first.id and any("goes on from" in one for one in told["advice"])
    assert execute_command(["fit", url, "--from", "none", "--force", "--out", str(out)]) == 0
    assert "goes on from" not in capsys.readouterr().err and "start" not in nc.load(out).parameters
    assert execute_command(["fit", url, "--rank", "1", "--force", "--out", str(out)]) == 0  # which a refit would keep
    assert "start" not in nc.load(out).parameters
    second.save(tmp_path / "second.newcomer")
    again = ["--from", str(tmp_path / "second.newcomer"), "--force", "--out", str(out)]
    assert execute_command(["fit", url, *again]) == 0
    assert "its rows now count twice" in capsys.readouterr().err


def test_a_fit_of_a_store_says_if_it_cannot_go_on(tmp_path, capsys):
    url, out = f"sqlite:///{tmp_path}/s.store", tmp_path / "next.newcomer"
    with running(store_of(url), CONFIG, model_of()) as service, nc.Client(service.url) as client:
        client.observe_batch(observations(40, 6, seed=2))
    assert execute_command(["fit", url, "--out", str(out)]) == 0
    assert "used the store's rows alone" in capsys.readouterr().err and "start" not in nc.load(out).parameters
