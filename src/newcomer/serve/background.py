"""What runs beside requests: getting ready, defaults whose wait is over, retention, and pooling of repeatability."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from newcomer import compile_cache
from newcomer.errors import NewcomerError
from newcomer.serve import tables
from newcomer.serve.lift import advance_lift
from newcomer.serve.rewards import give_default_rewards
from newcomer.serve.service import Service
from newcomer.serve.shapes import Refused
from newcomer.serve.users import retain_users

ROOMS = ("array_loops", "linear", "policies", "local")  # whose loops a decision may need
POOL_EVERY, RETAIN_EVERY, COUNT_EVERY, FORGET_EVERY = 60.0, 3600.0, 10.0, 10.0  # seconds


async def prepare_background(service: Service) -> None:
    """Compile or load the loops, load the model, begin what runs beside requests, and be ready."""
    await asyncio.to_thread(compile_cache.warm_compile_cache, *ROOMS)
    await service.transact(service.serving)
    jobs: list[tuple[Callable[[], Awaitable[Any]], float, float]] = [  # the pauses before the first and the next time
        (lambda: retain_users(service), 0.0, RETAIN_EVERY),
        (service.pool_repeatability, POOL_EVERY, POOL_EVERY),
        (lambda: advance_lift(service), COUNT_EVERY, COUNT_EVERY),  # first come those who wait for a decision
    ]
    if not service.store.alone:
        jobs.append((lambda: forget_with_others(service), 0.0, FORGET_EVERY))
    if service.config.wait is not None:
        jobs.append((lambda: give_default_rewards(service), 0.0, min(1.0, max(service.config.wait / 4, 0.05))))
    service.tasks = [asyncio.create_task(_repeat(*job)) for job in jobs]
    service.ready = True


async def forget_with_others(service: Service) -> None:
    """Have this process forget the states in memory when another process has erased somebody: they are folded again."""
    found = [tuple(row) for row in await service.store.transact(tables.removals)]
    if found != service.removals:
        service.states.clear()
        service.removals = found


async def _repeat(job: Callable[[], Awaitable[Any]], first: float, pause: float) -> None:
    await asyncio.sleep(first)
    while True:
        with suppress(NewcomerError, Refused):  # the store is away, say: next time
            await job()
        await asyncio.sleep(pause)
