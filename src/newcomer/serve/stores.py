"""Which store an address names."""

from __future__ import annotations

from newcomer.errors import StoreError
from newcomer.serve.store import Store


def store_of(url: str) -> Store:
    """The store that a URL names: `memory:`, `sqlite:///FILE` or `postgresql://...`."""
    if url == "memory:":
        from newcomer.serve.store_memory import MemoryStore

        return MemoryStore()
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        from newcomer.serve.store_sqlite import SqliteStore

        return SqliteStore(url.removeprefix("sqlite:///"))
    if url.startswith(("postgresql://", "postgres://")):
        from newcomer.serve.store_postgres import PostgresStore

        return PostgresStore(url)
    todo = "pass memory:, sqlite:///FILE (four slashes for a path from the root) or postgresql://..."
    raise StoreError("this is not the address of a store", where=url.partition("@")[2] or url, todo=todo)
