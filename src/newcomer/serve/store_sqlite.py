"""A store in one SQLite file, through one writing connection, with many works in each commit.

Works run on the event loop, one after another, between BEGIN and COMMIT; a work that is refused is rolled back to its
savepoint. The commit, which waits for the disk (WAL, synchronous=FULL), is made in a thread of its own. Works that come
meanwhile wait, and share the next commit. Nobody is answered before the commit of their work.

Deleted content is overwritten (`secure_delete`), and after an erasure the write-ahead log is emptied into the file. A
lock on a file beside it keeps a second service off the same store; readers may read it at any time.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from newcomer.errors import MissingExtra, StoreError
from newcomer.serve.migrations import STEPS
from newcomer.serve.store import Result, Row, Work, drive_store

try:
    import apsw
except ImportError as error:
    raise MissingExtra.of("serve", purpose="stores") from error

LONGEST = 0.008  # seconds of works in one commit, before others on the event loop have their turn
BUSY = 2_000  # milliseconds to wait for somebody else who writes
TRIES, PAUSE = 50, 0.1  # of emptying the write-ahead log while somebody reads it
# Errors after which SQLite may have rolled back the whole transaction, or cannot go on.
FATAL: tuple[type[apsw.Error], ...] = (
    apsw.FullError,
    apsw.IOError,
    apsw.NoMemError,
    apsw.BusyError,
    apsw.ReadOnlyError,
    apsw.CorruptError,
)
FATAL += (apsw.NotADBError, apsw.CantOpenError, apsw.LockedError, apsw.ProtocolError, apsw.InterruptError)


@lru_cache(maxsize=1024)
def _in_sqlite(sql: str) -> tuple[str, bool]:
    """A statement in SQLite's words, and whether the time is to be its last value.

    >>> _in_sqlite("SELECT /*NOW*/, id FROM users u WHERE id = $1 /*LOCK*/")
    ('SELECT ?2, id FROM users u WHERE id = ?1 ', True)
    """
    count = max((int(number) for number in re.findall(r"\$(\d+)", sql)), default=0)
    told = re.sub(r"\$(\d+)", r"?\1", sql.replace("/*LOCK*/", "").replace("/*NOW*/", f"?{count + 1}"))
    return told, "/*NOW*/" in sql


class SqliteTx:
    """One work within the transaction of many; its savepoint is set at the first write."""

    def __init__(self, store: SqliteStore) -> None:
        self.store, self.execute, self.clock, self.wrote = store, store.connection.execute, store.clock, False
        self.calls: list[Callable[[], None]] = []

    async def all(self, sql: str, *values: Any) -> Sequence[Row]:
        """The rows of a query."""
        told, timed = _in_sqlite(sql)
        return self.execute(told, (*values, float(self.clock())) if timed else values).fetchall()

    async def run(self, sql: str, *values: Any) -> Sequence[Row]:
        """Write; the rows that the statement returns."""
        if not self.wrote:
            self.wrote = True
            self.execute("SAVEPOINT work")
        told, timed = _in_sqlite(sql)
        return self.execute(told, (*values, float(self.clock())) if timed else values).fetchall()

    async def changes(self, count: int = 1) -> int:
        """The next numbers; the last one given is written once a commit."""
        first = self.store.last_change + 1
        self.store.last_change += count
        return first

    def later(self, call: Callable[[], None]) -> None:
        """Call this when the work has succeeded."""
        self.calls.append(call)


class SqliteStore:
    """A file; see the module."""

    in_memory = False
    alone = True

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path, self.clock, self.name = str(path), clock, f"sqlite {Path(path).name}"
        self.on_loss: Callable[[], None] = lambda: None
        self.last_change = 0
        self._queue: deque[tuple[Work[Any], asyncio.Future[Any]]] = deque()
        self._awake, self._closing = asyncio.Event(), False
        self._runner: asyncio.Task[None] | None = None
        self._disk = ThreadPoolExecutor(1, "newcomer-commit")
        self._lock: int | None = None
        self._cleaning: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the file, alone."""
        if not self.in_memory:
            self._keep_others_out()
        try:
            self.connection = apsw.Connection(":memory:" if self.in_memory else self.path, statementcachesize=256)
            self._prepare()
        except apsw.Error as error:
            self._let_go()
            raise StoreError(f"the store cannot be opened: {error}", where=self.path, todo="check the file") from error
        except StoreError:
            self._let_go()
            raise
        self._runner = asyncio.create_task(self._run())

    def _keep_others_out(self) -> None:
        try:
            self._lock = os.open(f"{self.path}.serving", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._let_go()
            todo = "stop the other one, choose another --store, or use PostgreSQL for several processes"
            raise StoreError("another service has this store open", where=self.path, todo=todo) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"the store cannot be opened: {reason}", where=self.path, todo="check the path") from error

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _prepare(self) -> None:
        """Settings, migrations, and the last number of a change."""
        run = self.connection.execute
        self.connection.set_busy_timeout(BUSY)
        for setting in ("secure_delete=ON", "journal_mode=WAL", "synchronous=FULL", "cache_size=-65536"):
            run(f"PRAGMA {setting}").fetchall()
        if not self.in_memory:
            os.chmod(self.path, 0o600)
            run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # of a process that ended before it had
        taken = int(str(self.connection.pragma("user_version")))
        if taken > len(STEPS):
            raise StoreError("this store is of a newer version", where=self.path, todo="upgrade newcomer")
        for number, step in enumerate(STEPS[taken:], start=taken + 1):
            with self.connection:
                for statement in step:
                    run(statement)
                run(f"PRAGMA user_version={number}")
        self.last_change = int(str(run("SELECT value FROM counter").fetchall()[0][0]))

    async def close(self) -> None:
        """Finish what is queued, empty the write-ahead log, and let the file go."""
        self._closing = True
        self._awake.set()
        if self._cleaning is not None:
            self._cleaning.cancel()
            await asyncio.gather(self._cleaning, return_exceptions=True)
        if self._runner is not None:
            await self._runner
            self._runner = None
            with suppress(apsw.Error):
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            with suppress(apsw.Error):
                self.connection.close()
        self._disk.shutdown()
        self._let_go()

    async def transact(self, work: Work[Result]) -> Result:
        """Queue a work, and wait for the commit that has it."""
        if self._closing or self._runner is None:
            raise StoreError("the store is closed", where=self.name)
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.append((work, done))
        self._awake.set()
        return await done

    async def _run(self) -> None:
        """Commits, one after another, as long as there is work."""
        loop = asyncio.get_running_loop()
        while self._queue or not self._closing:
            if not self._queue:
                self._awake.clear()
                await self._awake.wait()
                continue
            finished: list[tuple[asyncio.Future[Any], Any]] = []
            before = self.last_change
            try:
                wrote = self._attempt(finished)
                if wrote and not self.in_memory:
                    await loop.run_in_executor(self._disk, self._commit)
                else:
                    self._commit()
            except Exception as error:  # noqa: BLE001  (whatever it was, nobody may be answered as if it were written)
                self._abandon(before)
                lost = StoreError(f"the store cannot write: {error}", where=self.name, todo="try again")
                for done, _ in finished:
                    _fail(done, lost)
            else:
                for done, result in finished:
                    _settle(done, result)
            await asyncio.sleep(0)

    def _attempt(self, finished: list[tuple[asyncio.Future[Any], Any]]) -> bool:
        """Do the works that are queued, within a transaction, and a moment; says whether anything was written."""
        self.connection.execute("BEGIN IMMEDIATE" if self._queue else "BEGIN")
        end, wrote, first = time.perf_counter() + LONGEST, False, self.last_change
        while self._queue:
            work, done = self._queue.popleft()
            if done.cancelled():
                continue
            tx, before = SqliteTx(self), self.last_change
            try:
                finished.append((done, None))
                result = drive_store(work(tx))
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001  (a refusal, or a bug: it concerns this work alone)
                self.last_change = before
                if tx.wrote:
                    self.connection.execute("ROLLBACK TO work")
                    self.connection.execute("RELEASE work")
                finished[-1] = (done, error)
            else:
                if tx.wrote:
                    self.connection.execute("RELEASE work")
                wrote = wrote or tx.wrote
                finished[-1] = (done, _Result(result))
                for call in tx.calls:
                    call()
            if time.perf_counter() > end:
                break
        if self.last_change != first:
            self.connection.execute("UPDATE counter SET value = ?1", (self.last_change,))
        return wrote

    def _commit(self) -> None:
        self.connection.execute("COMMIT")

    def _abandon(self, before: int) -> None:
        """Forget a transaction that could not be committed, and everything that relied on it."""
        self.last_change = before
        if not self.connection.get_autocommit():
            with suppress(apsw.Error):
                self.connection.execute("ROLLBACK")
        self.on_loss()

    async def clean(self) -> None:
        """Empty the write-ahead log into the file: what was deleted is overwritten there already.

        While somebody reads an old state of the store that cannot be; after a while it is tried on in the background.
        """
        if self.in_memory or (self._cleaning is not None and not self._cleaning.done()):
            return
        for _ in range(TRIES):
            if not await self._checkpoint():
                return
            await asyncio.sleep(PAUSE)
        self._cleaning = asyncio.create_task(self._clean_later())

    async def _clean_later(self) -> None:
        """Until nobody reads; `close` and the next `open` do it as well."""
        with suppress(StoreError):
            while await self._checkpoint():
                await asyncio.sleep(PAUSE)

    async def _checkpoint(self) -> bool:
        """Between two commits, as a checkpoint needs it."""

        async def nothing(tx: Any) -> None:
            return None

        await self.transact(nothing)
        try:  # the runner is not between BEGIN and COMMIT: it is waiting, or it has not had its turn since
            return bool(self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0])
        except (apsw.BusyError, apsw.LockedError, apsw.SQLError, apsw.ThreadingViolationError):
            return True


class _Result:
    """What a work gave, told apart from an error."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _settle(done: asyncio.Future[Any], result: Any) -> None:
    if done.cancelled():
        return
    if isinstance(result, _Result):
        done.set_result(result.value)
    else:
        done.set_exception(result)


def _fail(done: asyncio.Future[Any], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
