"""Layout: which column of a table plays which part, and from a frame of that layout to validated rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.errors import LogsError, nearest
from newcomer.logs.intake.columns import Epoch, Place, feature_lists, identifiers, numbers, probabilities, times
from newcomer.logs.intake.histories import Rows
from newcomer.logs.intake.items import Items

Renames = Mapping[str, str | Sequence[str] | None]


@dataclass(frozen=True)
class Layout:
    """Which column of a table plays which part; None for a part that is absent.

    `features` is one column of lists, or several of numbers. `action` may stand beside features: it then says which
    actions these were, and their features come from the rows all the same. `epoch` is the unit of a step in Unix time.
    """

    user: str = "user"
    reward: str = "reward"
    step: str | None = None
    action: str | None = None
    features: str | tuple[str, ...] | None = None
    propensity: str | None = None
    epoch: Epoch | None = None

    def names(self) -> list[str]:
        """The columns to read, each once."""
        single = (self.user, self.reward, self.step, self.action, self.propensity)
        several = (self.features,) if isinstance(self.features, str) else (self.features or ())
        return list(dict.fromkeys(name for name in (*single, *several) if name is not None))

    def action_ids(self, frame: pl.DataFrame, place: Place) -> pl.Series:
        """Ids of the actions of a frame; where features make them optional, an error says how to do without."""
        assert self.action is not None
        try:
            return identifiers(frame[self.action], place)
        except LogsError as error:
            if self.features is None:
                raise
            without = f"{error.todo}, or leave the column out: columns={{'action': None}} (--column action=)"
            raise LogsError(error.what, where=error.where, todo=without) from error


# `candidates` and `arm` are legal names for `columns=`; nothing in a history is made of them.
_PARTS = {field.name for field in fields(Layout)} - {"epoch"} | {"candidates", "arm"}


def resolve(
    available: Sequence[str], columns: Renames | None, *, source: str = "", epoch: Epoch | None = None
) -> Layout:
    """Find the parts among the available columns, by the names of the parts or as renamed by `columns`.

    >>> resolve(["uid", "action", "reward"], {"user": "uid"}).names()
    ['uid', 'reward', 'action']
    """
    renames = dict(columns or {})
    for part in renames:
        if part not in _PARTS:
            todo = f"rename only {', '.join(sorted(_PARTS))}{nearest(part, _PARTS)}"
            raise LogsError(f"'{part}' is not a part of logs", where="columns=", todo=todo)
    for given in renames.values():
        for name in [given] if isinstance(given, str) else given or ():
            if name not in available:
                raise _missing(name, available, source)
    chosen = {part: renames.get(part, part) for part in _PARTS if part in renames or part in available}
    user, reward = (_single(chosen.get(part), part) for part in ("user", "reward"))
    if user is None or reward is None:
        raise _missing("user" if user is None else "reward", available, source)
    features = chosen.get("features") or None
    if features is None and chosen.get("action") is None:
        raise _missing("action", available, source)
    return Layout(
        user=user,
        reward=reward,
        step=_single(chosen.get("step"), "step"),
        action=_single(chosen.get("action"), "action"),
        features=features if features is None or isinstance(features, str) else tuple(features),
        propensity=_single(chosen.get("propensity"), "propensity"),
        epoch=epoch,
    )


def extract(
    frame: pl.DataFrame,
    layout: Layout,
    items: Items | None,
    place: Place,
    *,
    dim: int | None = None,
    features: NDArray[np.floating] | None = None,
) -> Rows:
    """Validated rows of a frame: every column becomes an array of numbers here, or one error that says where.

    `features` (rows, d), if given, were an array beside the frame; `dim` is the number of features of earlier rows.
    """
    if isinstance(layout.features, str):
        features = feature_lists(frame[layout.features], place, dim)
    elif layout.features is not None:
        features = np.column_stack([numbers(frame[name], place) for name in layout.features])
    actions = None
    if layout.action is not None and items is not None:
        actions = items.locate(layout.action_ids(frame, place), place=place)
    steps, timestamps = (None, False) if layout.step is None else times(frame[layout.step], place, layout.epoch)
    return Rows(
        users=identifiers(frame[layout.user], place),
        rewards=numbers(frame[layout.reward], place),
        actions=actions,
        features=features,
        propensities=None if layout.propensity is None else probabilities(frame[layout.propensity], place),
        steps=steps,
        timestamps=timestamps,
    )


def _missing(name: str, available: Sequence[str], source: str) -> LogsError:
    """The error for a column that is needed and not there, with the nearest that is."""
    found = ", ".join(available[:12]) + (", ..." if len(available) > 12 else "")
    todo = f"columns are {found}{nearest(name, available)} (rename with columns={{'user': 'uid'}} or --column user=uid)"
    return LogsError(f"no column '{name}'", where=source, todo=todo)


def _single(name: str | Sequence[str] | None, part: str) -> str | None:
    """The one column of a part that cannot have several."""
    if name is None or isinstance(name, str):
        return name
    raise LogsError(f"'{part}' is one column", where="columns=", todo="name one column; only features may be several")
