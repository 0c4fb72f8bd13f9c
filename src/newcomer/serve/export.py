"""Logs as `newcomer fit` reads them: a row a decision or observation, as Parquet, NDJSON or CSV, in pages by a cursor.

Without a cursor, rows that have a reward and are not void. With one (`since=0` for the first time), every row that
changed after it: a row comes again when its reward or status changes, and readers keep the last one of each decision.
`candidates` is null where the whole catalogue could be shown.
"""

from __future__ import annotations

import asyncio
import io
import json

import polars as pl

from newcomer.logs.service_store import service_store_row, service_store_table
from newcomer.serve import models, tables
from newcomer.serve.service import Service
from newcomer.serve.shapes import Refused
from newcomer.serve.store import Tx
from newcomer.serve.tables import Event

FORMATS = {"parquet": "application/vnd.apache.parquet", "ndjson": "application/x-ndjson", "csv": "text/csv"}
MOST = 100_000  # rows of a page


async def export_logs(
    service: Service, form: str, since: str | None, arm: str | None, limit: int
) -> tuple[bytes, dict[str, str]]:
    """A page of logs, and headers: where to go on, whether there is more, how many users were ever erased."""
    if form not in FORMATS:
        raise Refused(422, "bad_format", f"the format is one of {', '.join(FORMATS)}", "format")
    if since is not None and not (since.isascii() and since.isdigit() and len(since) < 19):
        raise Refused(422, "bad_cursor", "a cursor is a number that an earlier page gave", "since")
    after, most = int(since or 0), max(1, min(limit, MOST))

    async def work(tx: Tx) -> tuple[list[Event], int, dict[str, tuple[int | str, ...]]]:
        found = await tables.changed_rows(tx, after, most, arm, everything=since is not None)
        erasures = int(await tables.meta_row(tx, "erasures") or 0)
        return found, erasures, await _catalogues(tx, service, found)

    events, erasures, catalogues = await service.transact(work)
    body = await asyncio.to_thread(write_export, events, catalogues, form)
    cursor = events[-1].change if events else after
    headers = {"newcomer-cursor": str(cursor), "newcomer-more": str(len(events) == most).lower()}
    return body, headers | {"newcomer-erasures": str(erasures), "content-type": FORMATS[form]}


async def _catalogues(tx: Tx, service: Service, events: list[Event]) -> dict[str, tuple[int | str, ...]]:
    """Ids of the models whose catalogue was shown in part."""
    found = {}
    for name in {one.model for one in events if one.candidates is None and one.excluded}:
        serving = service.loaded
        if serving is not None and serving.model.id == name:
            found[name] = serving.model.action_ids or ()
            continue
        data = await tables.model_file_row(tx, name)
        found[name] = () if data is None else models.load_stored_model(data).action_ids or ()
    return found


def _json_or_none(values: pl.Series | None) -> str | None:
    """A list as JSON; nothing for none."""
    return None if values is None else json.dumps(values.to_list(), ensure_ascii=False)


def write_export(events: list[Event], catalogues: dict[str, tuple[int | str, ...]], form: str) -> bytes:
    """Rows in one of the formats."""
    rows = [service_store_row(one, catalogues) for one in events]
    if form == "ndjson":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "replace")
    frame = service_store_table(rows)
    for name in ("features", "action"):  # a column of nothing would pass for data
        if rows and frame[name].null_count() == len(frame):
            frame = frame.drop(name)
    out = io.BytesIO()
    if form == "parquet":
        frame.write_parquet(out)
    else:
        return csv_of_lists(frame)
    return out.getvalue()


def csv_of_lists(frame: pl.DataFrame) -> bytes:
    """A table as CSV, its lists as JSON, since ids may hold any sign."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    written = [pl.Series(name, [_json_or_none(one) for one in frame[name]], dtype=pl.String) for name in lists]
    return frame.with_columns(written).write_csv().encode()
