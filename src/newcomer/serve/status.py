"""The service at a glance: what it holds, which model decides, how fast it is, what went wrong last.

Counting a store reads an index from end to end, so a count that took long is told again for a hundred times as long.
"""

from __future__ import annotations

import json
import time

from newcomer import __version__
from newcomer.serve import shapes, tables
from newcomer.serve.arms import Shares
from newcomer.serve.models import Serving
from newcomer.serve.service import Service
from newcomer.serve.shapes import Report
from newcomer.serve.store import Tx
from newcomer.serve.tables import Counts

WORTH = 0.005  # seconds of a count that are spent each time
PAUSE = 100.0  # times as long as a count took, until the next one


async def status_report(service: Service) -> Report:
    """The service now."""

    async def look(tx: Tx) -> tuple[Serving, Shares, shapes.Models]:
        serving, shares = await service.current(tx)
        return serving, shares, await status_models(tx)

    serving, shares, models = await service.transact(look)
    counted = await status_counts(service)
    return Report(
        ready=service.ready,
        model=serving.model.id,
        generation=serving.generation,
        policy=serving.name,
        store=service.store.name.partition(" ")[0],
        users=counted.users,
        events=counted.events,
        arms=counted.arms,
        started=service.started,
        version=__version__,
        now=time.time(),
        shares=status_shares(shares),
        speed=service.recent.speed(),
        served=[_named(serving, one) for one in service.recent.served()],
        errors=list(service.recent.errors),
        models=models.models,
    )


def _named(serving: Serving, one: shapes.Served) -> shapes.Served:
    """An action with its name, where the model that decides has one."""
    names, known = serving.model.action_names, one.action is not None and serving.model.action_ids is not None
    code = int(serving.model.codes([one.action])[0]) if names and known and one.action is not None else -1
    return shapes.Served(one.action, one.share, names[code] if names and code >= 0 else None)


async def status_counts(service: Service) -> Counts:
    """How much the store holds; a count that took long may be a little old."""
    if service.counted is not None and time.monotonic() < service.counted[0]:
        return service.counted[1]

    async def count(tx: Tx) -> tuple[float, Counts]:
        begun = time.perf_counter()
        found = await tables.count_rows(tx)
        return time.perf_counter() - begun, found

    took, found = await service.store.transact(count)
    service.counted = (time.monotonic() + PAUSE * took, found) if took > WORTH else None
    return found


def status_shares(found: Shares) -> shapes.ArmShares:
    """Shares as the API tells them."""
    return shapes.ArmShares(found.version, found.random, found.control, found.incumbent, found.treated)


async def status_models(tx: Tx) -> shapes.Models:
    """The models of the store."""
    now = await tables.generation_row(tx)
    assert now is not None
    rows = await tx.all(
        "SELECT m.id, m.staged, m.facts, max(g.generation) FROM models m LEFT JOIN generations g"
        " ON g.model = m.id GROUP BY m.id, m.staged, m.facts ORDER BY m.staged"
    )
    entries = [
        shapes.ModelEntry(
            row[0],
            "serving" if row[0] == now[1] else "staged" if row[3] is None else "retired",
            row[1],
            row[3],
            json.loads(row[2]),
        )
        for row in rows
    ]
    return shapes.Models(now[1], now[0], entries)
