"""A store that ends with the process: SQLite without a file, for trying things and for tests."""

from __future__ import annotations

import time
from collections.abc import Callable

from newcomer.serve.store_sqlite import SqliteStore


class MemoryStore(SqliteStore):
    """The same tables, statements and transactions; nothing is written to disk."""

    in_memory = True

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__("memory", clock=clock)
        self.name = "memory"
