"""The store of a decision service as logs: `sqlite:///FILE` or `postgresql://...` in place of a path.

A store is read while its service runs. Each page of rows is a short transaction of its own that writes nothing, so that
the service waits for nobody: a long one would keep SQLite's write-ahead log from being emptied, and PostgreSQL's tables
from being rewritten, after an erasure. Pages go by the id of the decision, which never changes, and a row that is newer
than the first look is left out, so that each decision comes once. If meanwhile users were erased or merged, the store
is read again. Pages are written as Parquet to a private folder, which the readers of files take from there: memory is
bounded whatever the size of the store.

A row is what `GET /v1/logs` exports (`service_store_row`): decisions and observations with a reward, defaults included,
pending and void ones left out; `candidates` is null where the whole catalogue could be shown, and `propensity` where
the service did not decide. Ids, names and features of actions are those of the models that the store has served,
attributes those of its users.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard
from urllib.parse import quote, urlsplit

import numpy as np
import polars as pl

from newcomer.errors import MissingExtra, ModelError, StoreError
from newcomer.files import unpack_file
from newcomer.logs.disk_store import Scratch, no_disk_room
from newcomer.logs.files import LogFile

SCHEMA = 2  # migrations of a store that this version knows, which are in `newcomer.serve.migrations`
SQLITE, POSTGRES = "sqlite:///", ("postgresql://", "postgres://")
COLUMNS = ("id", "user_id", "at", "model", "arm", "propensity", "action", "features", "candidates", "excluded")
OTHERS = ("slate", "slot", "shadow", "status", "reward")
READ = ("user", "step", "action", "reward", "propensity", "candidates", "arm", "features")
FIRST, LEAST, MOST = 2_000, 50, 50_000  # rows of the first page, and of any
PAGE = 8 << 20  # bytes of a page as it is aimed at
TRIES = 5  # of reading a store whose users are erased or merged meanwhile
TIMEOUT = 10.0  # seconds to wait for a connection
Ids = tuple[int | str, ...]


class StoredRow(NamedTuple):
    """A row of `events`, as far as logs have it; `newcomer.serve.tables.Event` has the same names."""

    id: str
    user: str
    at: float
    model: str
    arm: str
    propensity: float | None
    action: int | str | None
    features: bytes | None
    candidates: Sequence[int | str] | None
    excluded: Sequence[int | str]
    slate: str | None
    slot: int
    shadow: int | str | None
    status: str
    reward: float | None

    @classmethod
    def of(cls, row: Sequence[Any]) -> StoredRow:
        """From the values of `COLUMNS` and `OTHERS`; ids of actions are JSON."""
        values = dict(zip((*COLUMNS, *OTHERS), row, strict=True))
        user = values.pop("user_id")
        for name in ("action", "shadow", "candidates", "excluded"):
            values[name] = None if values[name] is None else json.loads(values[name])
        features = values["features"]
        values |= {"features": None if features is None else bytes(features), "excluded": values["excluded"] or ()}
        return cls(user=user, **values)


def service_store_row(event: Any, catalogues: Mapping[str, Ids]) -> dict[str, Any]:
    """One row of logs, of an event of the service; `catalogues` are the ids of models that were shown in part."""
    candidates = None if event.candidates is None else list(event.candidates)
    if candidates is None and event.excluded and event.model in catalogues:
        out = set(event.excluded)
        candidates = [one for one in catalogues[event.model] if one not in out]
    return {
        "user": event.user,
        "step": _number_of(event.id),
        "action": event.action,
        "reward": event.reward,
        "propensity": event.propensity,
        "candidates": candidates,
        "arm": event.arm,
        "decision": event.id,
        "slate": event.slate,
        "slot": event.slot,
        "shadow": event.shadow,
        "model": event.model,
        "at": event.at,
        "status": event.status,
        "features": None if event.features is None else np.frombuffer(event.features).tolist(),
    }


def _number_of(decision: str) -> int:
    """The place of a decision in the order of commits.

    >>> _number_of("1f-8dc3c09dffd87d11")
    31
    """
    return int(decision.partition("-")[0], 16)


def service_store_table(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Exported rows as columns of one type: ids of actions are text where some are."""
    names = ("action", "shadow")
    text = any(isinstance(one, str) for row in rows for one in (*(row[n] for n in names), *(row["candidates"] or ())))
    kind: Any = pl.String if text else pl.Int64
    if text:
        rows = [
            row
            | {name: None if row[name] is None else str(row[name]) for name in names}
            | {"candidates": None if row["candidates"] is None else [str(one) for one in row["candidates"]]}
            for row in rows
        ]
    kinds: dict[str, Any] = dict.fromkeys(("user", "arm", "decision", "slate", "model", "status"), pl.String)
    kinds |= dict.fromkeys(("step", "slot"), pl.Int64) | dict.fromkeys(("reward", "propensity", "at"), pl.Float64)
    kinds |= {"action": kind, "shadow": kind, "candidates": pl.List(kind), "features": pl.List(pl.Float64)}
    order = (*READ[:-1], "decision", "slate", "slot", "shadow", "model", "at", "status", "features")
    return pl.DataFrame(list(rows), schema={name: kinds[name] for name in order}, orient="row")


def is_service_store(path: object) -> TypeGuard[str]:
    """Whether this is the address of a store, and no path.

    >>> is_service_store("sqlite:///service.store"), is_service_store("logs.csv")
    (True, False)
    """
    return isinstance(path, str) and path.startswith((SQLITE, *POSTGRES))


def service_store_address(url: str) -> str:
    """What messages call a store: never the name or the password by which it is opened.

    >>> service_store_address("postgresql://ann:secret@db.example/service?sslmode=require")
    'postgresql://db.example/service'
    """
    if url.startswith(SQLITE):
        return url
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return f"postgresql://{place}{parts.path}"


class Connection(Protocol):
    """A store that is open for reading."""

    def all(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        """The rows of a query, which is a transaction of its own."""

    def schema(self) -> int | None:
        """How many migrations the store has taken; None where this is no store."""

    def close(self) -> None:
        """Let it go."""


class _Sqlite:
    """A file, opened so that nothing can be written through this connection."""

    def __init__(self, url: str) -> None:
        try:
            import apsw
        except ImportError as error:
            raise MissingExtra.of("serve", purpose="stores") from error
        path = Path(url.removeprefix(SQLITE))
        if not path.is_file():
            raise StoreError(
                "there is no store at this path", where=url, todo="check the path (four slashes for the root's)"
            )
        self.url, self.error = url, apsw.Error
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        address = f"file:{quote(str(path.absolute()))}?mode=ro"
        try:
            self.connection = apsw.Connection(address, flags=flags)
            try:
                self.connection.pragma("schema_version")
            except apsw.CantOpenError:  # a folder that cannot be written to, and nobody who serves: nothing can change
                if Path(f"{path}-wal").exists():
                    raise
                self.connection = apsw.Connection(f"{address}&immutable=1", flags=flags)
            self.connection.set_busy_timeout(int(1000 * TIMEOUT))
        except apsw.Error as error:
            raise self._refused(error) from error

    def all(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        try:
            return self.connection.execute(sql.replace("$", "?"), values).fetchall()
        except self.error as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> StoreError:
        reason = "it is not a database" if type(error).__name__ == "NotADBError" else str(error)
        return StoreError(f"the store cannot be read: {reason}", where=self.url, todo="check the file")

    def schema(self) -> int | None:
        found = self.all("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('events', 'users')")
        return int(self.all("PRAGMA user_version")[0][0]) if found[0][0] == 2 else None

    def close(self) -> None:
        self.connection.close()


class _Postgres:
    """A database; its event loop runs in a thread, so that it may be read where another loop runs (a notebook)."""

    def __init__(self, url: str) -> None:
        try:
            import asyncpg
        except ImportError as error:
            raise MissingExtra.of("serve", purpose="stores") from error
        self.name = service_store_address(url)
        self.errors = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError, ValueError)
        self.loop, self.thread = asyncio.new_event_loop(), ThreadPoolExecutor(1, "newcomer-store")
        only_reads = {"default_transaction_read_only": "on", "application_name": "newcomer logs"}
        try:
            self.connection = self._await(asyncpg.connect(url, timeout=TIMEOUT, server_settings=only_reads))
        except StoreError:
            self._end()
            raise

    def _await(self, what: Any) -> Any:
        try:
            return self.thread.submit(self.loop.run_until_complete, what).result()
        except self.errors as error:  # of errors of our own side the text may name the address: only the type is shown
            text = str(error).splitlines()[0] if type(error).__module__.startswith("asyncpg.exceptions") else ""
            reason = text or type(error).__name__
            todo = "check the address and that the server runs"
            raise StoreError(f"the store cannot be read: {reason}", where=self.name, todo=todo) from error

    def all(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        return self._await(self.connection.fetch(sql, *values))  # type: ignore[no-any-return]

    def schema(self) -> int | None:
        if self.all("SELECT to_regclass('events') IS NULL OR to_regclass('migrations') IS NULL")[0][0]:
            return None
        return int(self.all("SELECT coalesce(max(step), 0) FROM migrations")[0][0])

    def close(self) -> None:
        self._await(self.connection.close())
        self._end()

    def _end(self) -> None:
        self.thread.shutdown()
        self.loop.close()


def open_service_store(url: str) -> Connection:
    """A store of this version, or an older one that has what logs need, open for reading."""
    connection: Connection = _Sqlite(url) if url.startswith(SQLITE) else _Postgres(url)
    try:
        taken = connection.schema()
        if taken is None:
            todo = "name the store of `newcomer serve`"
            raise StoreError("this is not a store of the service", where=service_store_address(url), todo=todo)
        if taken > SCHEMA:
            raise StoreError(
                "this store is of a newer version", where=service_store_address(url), todo="upgrade newcomer"
            )
    except StoreError:
        connection.close()
        raise
    return connection


@dataclass(frozen=True)
class Served:
    """The catalogue of the models that a store has served: ids (A,), names and features (A, d) where they have them."""

    ids: Ids = ()
    names: tuple[str, ...] | None = None
    features: Any = None
    feature_names: tuple[str, ...] | None = None
    by_model: Mapping[str, Ids] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, connection: Connection, where: str) -> Served:
        """The union of all generations, the latest first; features are those of the latest generation alone."""
        sql = "SELECT model FROM generations GROUP BY model ORDER BY max(generation) DESC"
        found = [(row[0], _catalogue(connection, row[0], where)) for row in connection.all(sql)]
        if not found:
            return cls()
        by_model = {model: ids for model, (ids, _, _) in found}
        ids, facts, features = found[0][1]
        names = facts.get("action_names")
        if features is None:  # one-hot, or rows bring their own: an action that an older model knew stays known
            ids = tuple(dict.fromkeys(one for _, (own, _, _) in found for one in own))
            known = {one: name for _, (own, f, _) in found[::-1] for one, name in zip(own, f.get("action_names") or ())}
            names = [known.get(one, str(one)) for one in ids] if known else None
        notes = [
            f"The model that decides was fitted with {told}; pass {option} to fit the next one alike."
            for told, option in (
                ("a constant feature", "intercept=True (--intercept)" if facts.get("intercept") else ""),
                (str(facts.get("reward_transform")), _transform_option(facts.get("reward_transform"))),
            )
            if option
        ]
        own = facts.get("feature_names")
        return cls(ids, names and tuple(names), features, own and tuple(own), by_model, tuple(notes))

    @property
    def partial(self) -> dict[str, Ids]:
        """The catalogues that lack an action of another one: where they were shown whole, it was not the whole."""
        return {model: ids for model, ids in self.by_model.items() if ids and set(ids) != set(self.ids)}

    @property
    def table(self) -> pl.DataFrame | None:
        """The items of the logs: names or features of actions; None where there are none."""
        parts: dict[str, Any] = {"action": _one_type(self.ids)}
        if self.names is not None:
            parts["name"] = list(self.names)
        if self.features is not None and self.columns is not None:
            parts |= dict(zip(self.columns, self.features.T, strict=True))
        elif self.features is not None:
            parts["features"] = self.features.tolist()
        return pl.DataFrame(parts) if len(parts) > 1 else None

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns of the table that are features, where features have names that can be columns."""
        names = () if self.features is None else self.feature_names or ()
        return names if names and not {"action", "name", "title", "features"} & set(names) else None


def _transform_option(transform: object) -> str:
    return f"reward_transform={transform!r} (--reward-transform {transform})" if transform else ""


def _catalogue(connection: Connection, model: str, where: str) -> tuple[Ids, dict[str, Any], Any]:
    """Ids, facts, and features (A, d) of a model of the store, without the constant."""
    rows = connection.all("SELECT file FROM models WHERE id = $1", model)
    if not rows:
        return (), {}, None
    try:
        arrays, facts = unpack_file(bytes(rows[0][0]), "model")
    except ModelError as error:
        raise StoreError(f"a model of the store cannot be read: {error}", where=where) from error
    features = arrays.get("action_features")
    if features is not None and facts.get("intercept"):
        features = features[:, :-1]
    return tuple(facts.get("action_ids") or ()), facts, features


def _one_type(ids: Iterable[int | str]) -> list[int] | list[str]:
    """Ids as they are where all are integers, else as text."""
    listed = list(ids)
    return listed if all(isinstance(one, int) for one in listed) else [str(one) for one in listed]  # type: ignore


@dataclass(frozen=True)
class StoreLogs:
    """A store as files: Parquet parts in a private folder, attributes of users (None without), the catalogue, notes."""

    files: tuple[LogFile, ...]
    users: pl.DataFrame | None
    served: Served
    notes: tuple[str, ...]

    def given(self, items: Any, features: Any, users: Any) -> tuple[list[LogFile], Any, Any, Any]:
        """What `read_logs` reads: files, and items, features and users, of the store unless they are passed."""
        if items is None and features is None:
            items, features = self.served.table, self.served.columns
        return list(self.files), items, features, self.users if users is None else users

    @property
    def row_names(self) -> tuple[str, ...] | None:
        """Names of the features that rows bring."""
        return self.served.feature_names if self.served.features is None else None

    def actions(self, seen: pl.Series) -> pl.Series:
        """Every action: those of the rows, and those of the catalogue that no row has."""
        kind = seen.dtype
        known = pl.Series(_one_type(self.served.ids), dtype=None if self.served.ids else kind)
        if pl.String in (kind, known.dtype):
            seen, known = seen.cast(pl.String), known.cast(pl.String)
        return pl.concat([seen, known.rename(seen.name)])


def read_service_store(url: str, room: Callable[[], Scratch] = Scratch) -> StoreLogs:
    """The rows of a store, in a private folder that `room` makes; the store is closed again."""
    with closing(open_service_store(url)) as connection:
        name = service_store_address(url)
        served = Served.of(connection, name)
        for _ in range(TRIES):
            folder = room()
            before = _moved(connection)
            try:
                paths, left = _written(connection, served, folder)
            except OSError as error:
                raise no_disk_room(folder.path, error) from error
            if _moved(connection) == before:
                break
            folder.close()
        else:
            raise StoreError("users are erased and merged while the store is read", where=name, todo="try again")
        if not paths:
            raise StoreError("this store has no decision with a reward yet", where=name, todo="serve users first")
        users = _attributes(connection)
    label = name.rpartition("/")[2].replace("=", "-") or "store"
    files = tuple(LogFile(f"{label} part {i:05}", str(path), folder) for i, path in enumerate(paths))
    return StoreLogs(files, users, served, (*served.notes, *left))


def models_of_service_store(url: str) -> tuple[list[str], bytes | None]:
    """The ids of the models that a store has served, in the order of their first generations, and the first one's file.

    Logs of the first model are not in the store, since it was there before; later ones may have been fitted to it.
    """
    with closing(open_service_store(url)) as connection:
        ids = connection.all("SELECT model FROM generations GROUP BY model ORDER BY min(generation)")
        file = connection.all("SELECT file FROM models WHERE id = $1", ids[0][0]) if ids else []
    return [row[0] for row in ids], bytes(file[0][0]) if file else None


def _moved(connection: Connection) -> tuple[int, int]:
    """Users erased and merged so far."""
    erased = connection.all("SELECT value FROM meta WHERE name = 'erasures'")
    merged = connection.all("SELECT count(*) FROM users WHERE alias_of IS NOT NULL")
    return int(erased[0][0]) if erased else 0, int(merged[0][0])


def _pages(connection: Connection) -> Iterator[list[StoredRow]]:
    """Rows with a reward that are not void, by id; rows that came after the first look are left out."""
    last, after, size = int(connection.all("SELECT value FROM counter")[0][0]), "", FIRST
    sql = (
        f"SELECT {', '.join((*COLUMNS, *OTHERS))} FROM events WHERE id > $1 AND reward IS NOT NULL AND status <> 'void'"
    )
    while True:
        rows = connection.all(f"{sql} ORDER BY id LIMIT $2", after, size)
        if not rows:
            return
        after = rows[-1][0]
        yield [row for row in map(StoredRow.of, rows) if _number_of(row.id) <= last]
        weight = sum(len(row[8] or "") + len(row[7] or "") + 200 for row in rows) / len(rows)
        size = int(np.clip(PAGE / weight, LEAST, MOST))


def _written(connection: Connection, served: Served, folder: Scratch) -> tuple[list[Path], list[str]]:
    """The pages as files, and what had to be left out. All have the same columns and types in the end."""
    paths, kinds, lost = list[Path](), set[Any](), 0
    lacking = {"features": False, "action": False}
    part = served.partial
    known = set(map(str, served.ids)) if served.features is not None else None
    for page in _pages(connection):
        asked = (row.model for row in page if row.excluded or row.model in part)
        longest = max((len(served.by_model.get(model, ())) for model in asked), default=1)
        some = max(LEAST, PAGE // (8 * max(longest, 1)))
        for first in range(0, len(page), some):
            rows = [service_store_row(one, served.by_model) for one in page[first : first + some]]
            for row in rows:  # the catalogue of one model, where the logs have those of several
                row["candidates"] = row["candidates"] or (part.get(row["model"]) if row["action"] is not None else None)
            kept = rows if known is None else [row for row in rows if _is_known(row, known)]
            lost += len(rows) - len(kept)
            if not kept:
                continue
            frame = service_store_table(kept).select(READ)
            for name in lacking:
                lacking[name] |= frame[name].null_count() > 0
            kinds.add(frame["action"].dtype)
            paths.append(folder.path / f"{len(paths):05}.parquet")
            frame.write_parquet(paths[-1])
    said = [f"{lost:,} rows of the store show an action that the model knows no features of, and are left out."]
    dropped = _alike(paths, text=pl.String in kinds, lacking=lacking)
    notes = said if lost else []
    if dropped:
        notes.append(f"{dropped:,} rows of the store lack the features that others bring, and are left out.")
    return [path for path in paths if path.exists()], notes


def _is_known(row: dict[str, Any], known: set[str]) -> bool:
    return str(row["action"]) in known and all(str(one) in known for one in row["candidates"] or ())


def _alike(paths: Sequence[Path], *, text: bool, lacking: dict[str, bool]) -> int:
    """Give all files the same columns: features where rows bring them, actions where all rows have one.

    Returns how many rows are left out for bringing no features where others do.
    """
    counts = [pl.scan_parquet(path).select(pl.col("features", "candidates").count()).collect() for path in paths]
    there = pl.concat(counts).sum().row(0, named=True) if counts else {}
    brings, unused = bool(there.get("features")), {name for name, count in there.items() if not count}
    use = [name for name in READ if name not in unused and (name != "action" or not lacking["action"])]
    cast = [pl.col("action").cast(pl.String)] if text and "action" in use else []
    cast += [pl.col("candidates").cast(pl.List(pl.String))] if text and "candidates" in use else []
    dropped = 0
    for path in paths:
        frame = pl.read_parquet(path)
        whole = len(frame)
        frame = (frame.drop_nulls("features") if brings else frame).select(use).with_columns(cast)
        dropped += whole - len(frame)
        if len(frame):
            frame.write_parquet(path)
        else:
            path.unlink()
    return dropped


def _attributes(connection: Connection) -> pl.DataFrame | None:
    """Attributes of users, a row each; None where clients sent none."""
    rows, after = list[tuple[str, dict[str, Any]]](), ""
    sql = "SELECT id, attributes FROM users WHERE id > $1 AND attributes IS NOT NULL AND alias_of IS NULL"
    while page := connection.all(f"{sql} ORDER BY id LIMIT $2", after, MOST):
        rows += [(row[0], json.loads(row[1])) for row in page]
        after = page[-1][0]
    names = dict.fromkeys(name for _, own in rows for name in own if name != "user")
    if not names:
        return None
    columns = {name: _column([own.get(name) for _, own in rows]) for name in names}
    return pl.DataFrame({"user": [user for user, _ in rows], **columns})


def _column(values: list[Any]) -> pl.Series:
    """Values of one attribute: flags, numbers, or else text."""
    there = [one for one in values if one is not None]
    if all(isinstance(one, bool) for one in there):
        return pl.Series(values, dtype=pl.Boolean)
    if all(isinstance(one, int | float) for one in there):
        return pl.Series([None if one is None else float(one) for one in values], dtype=pl.Float64)
    return pl.Series([one if one is None or isinstance(one, str) else json.dumps(one) for one in values])
