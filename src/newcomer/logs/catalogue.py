"""Which actions there are, and what their features are; and what is found out of a frame before it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.errors import LogsError
from newcomer.logs.columns import Place, unix_note, unix_unit
from newcomer.logs.frames import is_table, to_polars
from newcomer.logs.inspection import dates_note
from newcomer.logs.items import Items, action_column, only_names, spellings
from newcomer.logs.reader import read_table
from newcomer.logs.schema import Layout
from newcomer.logs.text_columns import date_questions, dates_found


def inspect_frame(frame: pl.DataFrame, layout: Layout, *, spare_action: bool) -> Layout:
    """The layout without empty columns, and with the unit of steps that are Unix times by their size."""
    features = "beside" if spare_action else layout.features
    layout = replace(layout, features=features).without_empty(
        lambda name: name != "beside" and frame[name].null_count() == len(frame)
    )
    layout = replace(layout, features=None) if spare_action else layout
    layout = layout if layout.arm is None else layout.with_arms([frame[layout.arm]], Place())
    layout = layout.with_levels(
        [frame.schema], lambda name: frame.select(value=pl.col(name).cast(pl.String)).group_by("value").len()
    )
    if layout.step is not None and layout.dates is None and frame[layout.step].dtype == pl.String:
        dates, why = dates_found([frame.select(date_questions(layout.step))])
        settled = dates not in (None, "either")
        layout = layout.noting(*([dates_note(layout.step, str(dates), why)] if settled else []), dates=dates)
    if layout.step is None or layout.epoch is not None or not frame[layout.step].dtype.is_integer():
        return layout
    steps = frame[layout.step].min(), frame[layout.step].max()
    if not (isinstance(steps[0], int) and isinstance(steps[1], int)):
        return layout
    unit = unix_unit(steps[0], steps[1])
    return layout if unit is None else layout.noting(unix_note(layout.step, unit, (steps[0], steps[1])), epoch=unit)


def without_gaps(
    frame: pl.DataFrame, features: NDArray[np.floating] | None, layout: Layout, place: Place
) -> tuple[pl.DataFrame, NDArray[np.floating] | None, Layout, Place]:
    """The rows of a frame, and of the features (rows, d) beside it, that have all their values; the layout says so."""
    gaps = {name: frame.select(one.alias("gap"))["gap"] for name, one in layout.incomplete(frame.schema).items()}
    if features is not None:
        gaps["features"] = pl.Series(np.isnan(features).any(axis=1))
    lost = pl.DataFrame(list(gaps.values()), schema=list(gaps)).select(pl.any_horizontal(pl.all()).alias("gap"))["gap"]
    counts = {name: int(one.sum()) for name, one in gaps.items()}
    layout = layout.dropping(counts, int(lost.sum()), len(frame))
    rows = np.flatnonzero(~lost.to_numpy())
    return frame.filter(~lost), None if features is None else features[rows], layout, replace(place, rows=rows)


def catalogue_of(
    items: Any,
    layout: Layout,
    actions: Callable[[], pl.Series],
    features: Sequence[str] | None = None,
    *,
    in_rows: bool,
    beside: bool = False,
    text: bool = False,
) -> Items | None:
    """The actions and, unless they are `in_rows`, their features; None for logs that name no actions.

    Features of items and columns of rows may stand `beside` one another: rows then have both.

    `actions` gives every action id of the logs; it is called only where no items table lists them. `text` says that ids
    in the logs came as text and stay so: those of a CSV of items then do as well. Spellings that are likely the same
    are noted, or joined where the layout says so.
    """
    found = _catalogue(items, layout, actions, features, in_rows=in_rows and not beside, text=text)
    if found is not None and beside:
        found = replace(found, in_rows=True)
    return None if found is None else replace(found, notes=(*found.notes, *spellings(found)))


def _catalogue(
    items: Any,
    layout: Layout,
    actions: Callable[[], pl.Series],
    features: Sequence[str] | None,
    *,
    in_rows: bool,
    text: bool,
) -> Items | None:
    other, tidy = layout.action, layout.tidy_ids
    if other is None:
        return None
    if in_rows:
        return Items.named(actions(), tidy=tidy)
    if items is None:
        return Items.one_hot(actions(), tidy=tidy)
    if isinstance(items, str | PathLike):
        frame = read_table(items, text=lambda names: [action_column(names, other) or ""] if text else [])
        return _from_table(frame, actions, fspath(items), other, features, tidy=tidy)
    if is_table(items):
        return _from_table(to_polars(items), actions, "items", other, features, tidy=tidy)
    if features is not None:
        todo = "pass a table with named columns as items=, or only the columns that are to be features"
        raise LogsError("features= names columns and items is an array", where="features=", todo=todo)
    return Items.from_array(items)


def _from_table(
    frame: pl.DataFrame,
    actions: Callable[[], pl.Series],
    source: str,
    other: str,
    features: Sequence[str] | None,
    *,
    tidy: bool,
) -> Items:
    """The items of a table; one that has names and no features names the actions of the logs, which are one-hot."""
    if features is None and only_names(frame, other):
        return Items.one_hot(actions(), tidy=tidy).naming(frame, other=other, source=source)
    return Items.from_frame(frame, source=source, other=other, features=features, tidy=tidy)
