"""Which actions there are, and what their features are; and what is found out of a frame before it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

import polars as pl

from newcomer.errors import LogsError
from newcomer.logs.intake.columns import Place, unix_note, unix_unit
from newcomer.logs.intake.frames import is_table, to_polars
from newcomer.logs.intake.items import Items, action_column
from newcomer.logs.intake.layout import Layout
from newcomer.logs.intake.reading import read_table


def looked_at(frame: pl.DataFrame, layout: Layout, *, spare_action: bool) -> Layout:
    """The layout without empty columns, and with the unit of steps that are Unix times by their size."""
    features = "beside" if spare_action else layout.features
    layout = replace(layout, features=features).without_empty(
        lambda name: name != "beside" and frame[name].null_count() == len(frame)
    )
    layout = replace(layout, features=None) if spare_action else layout
    layout = layout if layout.arm is None else layout.with_arms([frame[layout.arm]], Place())
    if layout.step is None or layout.epoch is not None or not frame[layout.step].dtype.is_integer():
        return layout
    steps = frame[layout.step].min(), frame[layout.step].max()
    if not (isinstance(steps[0], int) and isinstance(steps[1], int)):
        return layout
    unit = unix_unit(steps[0], steps[1])
    return layout if unit is None else layout.noting(unix_note(layout.step, unit, (steps[0], steps[1])), epoch=unit)


def catalogue_of(
    items: Any,
    layout: Layout,
    actions: Callable[[], pl.Series],
    features: Sequence[str] | None = None,
    *,
    in_rows: bool,
    text: bool = False,
) -> Items | None:
    """The actions and, unless they are `in_rows`, their features; None for logs that name no actions.

    `actions` gives every action id of the logs; it is called only where no items table lists them. `text` says that ids
    in the logs came as text and stay so: those of a CSV of items then do as well.
    """
    other = layout.action
    if other is None:
        return None
    if in_rows:
        return Items.named(actions())
    if items is None:
        return Items.one_hot(actions())
    if isinstance(items, str | PathLike):
        frame = read_table(items, text=lambda names: [action_column(names, other) or ""] if text else [])
        return Items.from_frame(frame, source=fspath(items), other=other, features=features)
    if is_table(items):
        return Items.from_frame(to_polars(items), other=other, features=features)
    if features is not None:
        todo = "pass a table with named columns as items=, or only the columns that are to be features"
        raise LogsError("features= names columns and items is an array", where="features=", todo=todo)
    return Items.from_array(items)
