"""Levels of features: columns of text or categories as indicators, in logs and when a policy is served.

A feature that is text has one entry for each level that enough rows have, 1 where the row has it. A level of few rows,
or one that was never seen, has the average row: the share of rows of each level. Numbers are features as they are and
need no schema. The schema of a column is a `Column` of levels (`newcomer.encoding`): names and shares, which a model
keeps, so that a frame or a dict by name is encoded when it serves as it was when it learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.encoding import Column
from newcomer.errors import PolicyError, nearest


def entry_names(columns: Sequence[str], levels: Sequence[Column]) -> tuple[str, ...]:
    """What to call each feature: the column of a number, `column=level` of an indicator.

    >>> entry_names(["price", "colour"], [Column("colour", "level", levels=("blue", "red"), shares=(0.5, 0.5))])
    ('price', 'colour=blue', 'colour=red')
    """
    known = {one.name: one for one in levels}
    return tuple(entry for name in columns for entry in (known[name].names if name in known else (name,)))


def indicators(column: Column, codes: Ints) -> Floats:
    """The entries (..., width) of levels, given by their places (...) in the column; of -1 the average row.

    >>> indicators(Column("colour", "level", levels=("blue", "red"), shares=(0.75, 0.25)), np.array([1, -1])).tolist()
    [[0.0, 1.0], [0.75, 0.25]]
    """
    table = np.vstack([np.eye(column.width), np.array(column.shares)])
    return np.asarray(table[codes])  # -1 is the last row


def by_entries(
    given: Any, levels: Sequence[Column], actions: Sequence[int | str] | None = None, ids: Any = None
) -> Any:
    """What a policy is given, with a column for each indicator in place of its columns of levels.

    `given` is a frame, a mapping of columns (arrays of any shape) or a list of mappings. What has no names, or has the
    names of the indicators already, is returned as it is. Where the action itself is a feature, its `ids` (...) stand
    for the column: its levels are some of the `actions` of the model.

    >>> colour = Column("colour", "level", levels=("blue", "red"), shares=(0.75, 0.25))
    >>> found = by_entries([{"price": 2.0, "colour": "red"}, {"price": 1.0, "colour": "pink"}], [colour])
    >>> found["colour=blue"].tolist(), found["price"]
    ([0.0, 0.75], [2.0, 1.0])
    """
    if isinstance(given, list | tuple) and given and all(isinstance(row, Mapping) for row in given):
        names = list(dict.fromkeys(name for row in given for name in row))
        given = {name: [row.get(name, np.nan) for row in given] for name in names}
    there = given if isinstance(given, Mapping) else getattr(given, "column_names", getattr(given, "columns", None))
    if there is None:
        return given
    names = [str(name) for name in there]
    table: dict[str, Any] = {name: given[name] for name in names}
    for column in levels:
        if column.name in names:
            entries = indicators(column, _codes(table.pop(column.name), column))
            table |= {name: entries[..., i] for i, name in enumerate(column.names)}
        elif ids is not None and set(column.levels) <= {str(one) for one in actions or ()}:
            entries = indicators(column, _codes(ids, column))
            table |= {name: entries[..., i] for i, name in enumerate(column.names)}
        elif not set(column.names) <= set(names):
            todo = f"the model was fitted with it, as text{nearest(column.name, names)}"
            raise PolicyError(f"there is no feature '{column.name}'", where="features", todo=todo)
    return table


def _codes(values: Any, column: Column) -> Ints:
    """The place (...) of each value among the levels, -1 for one that is not there."""
    place = {level: i for i, level in enumerate(column.levels)}
    given = np.asarray(values.to_list() if hasattr(values, "to_list") else values, dtype=object)
    return np.array([place.get(str(one), -1) for one in given.ravel()], dtype=np.int64).reshape(given.shape)
