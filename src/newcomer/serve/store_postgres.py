"""A store in PostgreSQL, for several processes: a transaction a work, the row of its user locked from the start.

Changes are numbered by a counter row that is locked until the commit: a plain sequence would let a reader pass over a
number whose transaction commits late. Works are tried again where two transactions could not both go on. Where the
server cannot be reached, a request waits a few seconds at most, then the caller is told to come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from newcomer.errors import MissingExtra, StoreError
from newcomer.serve.migrations import STEPS
from newcomer.serve.store import Result, Row, Work

try:
    import asyncpg
except ImportError as error:
    raise MissingExtra.of("serve", purpose="stores") from error

CONNECTIONS = 8
TIMEOUT = 10.0  # seconds for a statement or a connection
TRIES = 8  # of a work that another transaction got in the way of
MIGRATION_LOCK = 8_321_000  # one process migrates at a time
AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.UniqueViolationError)
UNREACHABLE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncio.TimeoutError, TimeoutError)
FULL_VACUUM = 100_000_000  # bytes of tables that are rewritten after an erasure; larger ones are vacuumed
TABLES = ("users", "events", "reward_parts", "requests", "snapshots", "lift_users")


@lru_cache(maxsize=1024)
def _in_postgres(sql: str) -> str:
    """A statement in PostgreSQL's words.

    >>> _in_postgres("SELECT /*NOW*/, id FROM users u WHERE id = $1 /*LOCK*/")
    'SELECT extract(epoch FROM clock_timestamp())::float8, id FROM users u WHERE id = $1 FOR UPDATE OF u'
    """
    now = "extract(epoch FROM clock_timestamp())::float8"
    return sql.replace("/*LOCK*/", "FOR UPDATE OF u").replace("/*NOW*/", now)


class PostgresTx:
    """A transaction."""

    def __init__(self, connection: Any) -> None:
        self.connection, self.calls = connection, list[Callable[[], None]]()

    async def all(self, sql: str, *values: Any) -> Sequence[Row]:
        """The rows of a query."""
        return await self.connection.fetch(_in_postgres(sql), *values)  # type: ignore[no-any-return]

    async def run(self, sql: str, *values: Any) -> Sequence[Row]:
        """Write; the rows that the statement returns."""
        return await self.all(sql, *values)

    async def changes(self, count: int = 1) -> int:
        """The next numbers; other transactions that change something wait for this one's end from here on."""
        sql = "UPDATE counter SET value = value + $1 WHERE id = 1 RETURNING value"
        return int(await self.connection.fetchval(sql, count)) - count + 1

    def later(self, call: Callable[[], None]) -> None:
        """Call this when the transaction is committed."""
        self.calls.append(call)


class PostgresStore:
    """A database; see the module."""

    alone = False

    def __init__(self, url: str, *, connections: int = CONNECTIONS) -> None:
        parts = urlsplit(url)
        self.url, self.connections = url, connections
        self.name = f"postgresql {parts.hostname or 'local'}{parts.path}"  # never the password
        self.on_loss: Callable[[], None] = lambda: None
        self._pool: Any = None
        self._cleaning: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and migrate."""
        try:
            self._pool = await asyncpg.create_pool(
                self.url,
                min_size=1,
                max_size=self.connections,
                command_timeout=TIMEOUT,
                timeout=TIMEOUT,
                reset=_as_it_is,
            )
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1::bigint)", MIGRATION_LOCK)
                await self._migrate(connection)
        except (*UNREACHABLE, ValueError) as error:
            what = f"the store cannot be opened: {_reason(error)}"
            raise StoreError(what, where=self.name, todo="check the address and that the server runs") from error

    async def _migrate(self, connection: Any) -> None:
        await connection.execute("CREATE TABLE IF NOT EXISTS migrations (step INTEGER PRIMARY KEY)")
        taken = int(await connection.fetchval("SELECT coalesce(max(step), 0) FROM migrations"))
        if taken > len(STEPS):
            raise StoreError("this store is of a newer version", where=self.name, todo="upgrade newcomer")
        for number, step in enumerate(STEPS[taken:], start=taken + 1):
            for statement in step:
                await connection.execute(statement)
            await connection.execute("INSERT INTO migrations (step) VALUES ($1)", number)

    async def close(self) -> None:
        """Let the connections go."""
        if self._cleaning is not None:
            self._cleaning.cancel()
            await asyncio.gather(self._cleaning, return_exceptions=True)
        if self._pool is not None:
            try:
                await asyncio.wait_for(self._pool.close(), TIMEOUT)
            except (TimeoutError, *UNREACHABLE):
                self._pool.terminate()

    async def transact(self, work: Work[Result]) -> Result:
        """Do work in a transaction of its own."""
        for attempt in range(1, TRIES + 1):
            try:
                async with self._pool.acquire(timeout=TIMEOUT) as connection, connection.transaction():
                    tx = PostgresTx(connection)
                    result = await work(tx)
                for call in tx.calls:
                    call()
                return result
            except AGAIN as error:
                if attempt == TRIES:
                    raise StoreError("too many requests for one user at once", where=self.name) from error
                await asyncio.sleep(0.005 * attempt)
            except UNREACHABLE as error:
                raise StoreError(f"the store cannot be reached: {_reason(error)}", where=self.name) from error
        raise AssertionError

    async def clean(self) -> None:
        """Have deleted rows leave the table files, in the background: VACUUM waits for nobody who is served."""
        if self._cleaning is None or self._cleaning.done():
            self._cleaning = asyncio.create_task(self.vacuum())

    async def vacuum(self) -> None:
        """Rewrite small tables, vacuum large ones, and write everything to the files."""
        try:
            async with self._pool.acquire(timeout=TIMEOUT) as connection:
                for table in TABLES:
                    size = await connection.fetchval("SELECT pg_total_relation_size($1::regclass)", table)
                    full = "FULL" if size <= FULL_VACUUM else ""
                    await connection.execute(f"VACUUM {full} {table}", timeout=3600)
                await connection.execute("CHECKPOINT", timeout=3600)
        except UNREACHABLE:
            pass  # the server's own vacuum comes by; docs/how-to/serve.md says what an administrator may do


def _reason(error: BaseException) -> str:
    """What happened, without the address, which may hold a password."""
    return str(error).splitlines()[0] if isinstance(error, asyncpg.PostgresError) else type(error).__name__


async def _as_it_is(connection: Any) -> None:
    """Works change no settings of their connection: there is nothing to ask the server to undo."""
