"""Layout: which column of a table plays which part, and from a frame of that layout to validated rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Ints
from newcomer.errors import LogsError, nearest
from newcomer.logs.intake.columns import Epoch, Place, feature_lists, identifiers, numbers, probabilities, times
from newcomer.logs.intake.histories import Rows
from newcomer.logs.intake.items import Items
from newcomer.logs.intake.naming import KNOWN, known_as
from newcomer.logs.intake.shown_lists import arm_names, arm_numbers, located

Renames = Mapping[str, str | Sequence[str] | None]


@dataclass(frozen=True)
class Layout:
    """Which column of a table plays which part; None for a part that is absent.

    `features` is one column of lists, or several of numbers. `action` may stand beside features: it then says which
    actions these were, and their features come from the rows all the same. `epoch` is the unit of a step in Unix time.
    `arms` are the names that occur in the column `arm`. `notes` say what was decided without being asked.
    """

    user: str = "user"
    reward: str = "reward"
    step: str | None = None
    action: str | None = None
    features: str | tuple[str, ...] | None = None
    propensity: str | None = None
    candidates: str | None = None
    arm: str | None = None
    arms: tuple[str, ...] = ()
    epoch: Epoch | None = None
    notes: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """The columns to read, each once."""
        single = (self.user, self.reward, self.step, self.action, self.propensity, self.candidates, self.arm)
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
            raise _or_without(error, "action") from error

    def with_arms(self, columns: Sequence[pl.Series], place: Place) -> Layout:
        """The layout with the names of its arms, which are the distinct values of some columns."""
        try:
            return replace(self, arms=arm_names(columns, place))
        except LogsError as error:
            raise _or_without(error, "arm") from error

    def noting(self, *notes: str, **changes: Any) -> Layout:
        """The layout with some changes and what there is to say about them."""
        return replace(self, notes=(*self.notes, *notes), **changes)

    def without_empty(self, is_empty: Callable[[str], bool]) -> Layout:
        """The layout without the columns that logs can do without and that hold no value at all."""
        layout = self
        for part in ("step", "propensity", "candidates", "arm", "features", "action"):
            name = getattr(layout, part)
            spare = {"features": layout.action, "action": layout.features}.get(part, "as always")
            if isinstance(name, str) and spare is not None and is_empty(name):
                layout = layout.noting(f"Column {name} is empty and was left out.", **{part: None})
        return layout


_PARTS = {field.name for field in fields(Layout)} - {"arms", "epoch", "notes"}


def resolve(
    available: Sequence[str], columns: Renames | None, *, source: str = "", epoch: Epoch | None = None
) -> Layout:
    """Find the parts among the available columns: as renamed by `columns`, by their own names, or by common ones.

    >>> resolve(["who", "action", "reward"], {"user": "who"}).names()
    ['who', 'reward', 'action']
    >>> resolve(["userId", "movieId", "rating", "timestamp"], None).names()
    ['userId', 'rating', 'timestamp', 'movieId']
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
    if "arm" not in renames and any(given == "arm" for part, given in chosen.items() if part != "arm"):
        del chosen["arm"]  # many call an action an arm
    notes = _recognise(chosen, available, source)
    if chosen.get("candidates") and not chosen.get("action"):
        notes.append(f"Column {chosen.pop('candidates')} was left out: the logs name no actions.")
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
        candidates=_single(chosen.get("candidates"), "candidates"),
        arm=_single(chosen.get("arm"), "arm"),
        epoch=epoch,
        notes=tuple(notes),
    )


def _recognise(chosen: dict[str, str | Sequence[str] | None], available: Sequence[str], source: str) -> list[str]:
    """Add to the `chosen` parts those that have a common name, and tell which; two for a part needed are refused."""
    recognised, notes = [], []
    for part in KNOWN:
        if part in chosen:
            continue
        taken = {name for given in chosen.values() for name in ([given] if isinstance(given, str) else given or ())}
        found = known_as(part, [name for name in available if name not in taken])
        if len(found) == 1:
            chosen[part] = found[0]
            recognised.append(f"{found[0]} as {part}")
        elif found:
            both = " and ".join(f"'{name}'" for name in found)
            choose = f"columns={{'{part}': '{found[0]}'}} (--column {part}={found[0]})"
            if part in ("user", "reward") or (part == "action" and not chosen.get("features")):
                raise LogsError(f"{both} could each be the {part}", where=source, todo=f"choose with {choose}")
            notes.append(f"{both} could each be the {part}; none of them is used: {choose} chooses.")
    if recognised:
        part = recognised[0].rpartition(" ")[2]
        other = f"columns={{'{part}': ...}} (--column {part}=...)"
        notes.insert(0, f"Columns were recognised by their names: {', '.join(recognised)}; {other} chooses others.")
    return notes


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
    steps, timestamps = (None, False) if layout.step is None else _times(frame[layout.step], place, layout.epoch)
    return Rows(
        users=identifiers(frame[layout.user], place),
        rewards=numbers(frame[layout.reward], place),
        actions=actions,
        features=features,
        propensities=None if layout.propensity is None else probabilities(frame[layout.propensity], place),
        candidates=_shown(frame, layout, actions, items, place),
        arms=None if layout.arm is None else arm_numbers(frame[layout.arm], layout.arms, place),
        steps=steps,
        timestamps=timestamps,
    )


def _shown(
    frame: pl.DataFrame, layout: Layout, actions: NDArray[np.int32] | None, items: Items | None, place: Place
) -> pl.Series | None:
    """What was on offer in each row, if it was logged; the error says how to do without."""
    if layout.candidates is None or actions is None or items is None:
        return None
    try:
        return located(frame[layout.candidates], actions, items, place)
    except LogsError as error:
        raise _or_without(error, "candidates") from error


def _times(column: pl.Series, place: Place, epoch: Epoch | None) -> tuple[Ints, bool]:
    """Steps and whether they are times; the error says how to do without."""
    try:
        return times(column, place, epoch)
    except LogsError as error:
        raise _or_without(error, "step") from error


def _or_without(error: LogsError, part: str) -> LogsError:
    """The error for an optional column that cannot be used."""
    todo = f"{error.todo}, or leave the column out: columns={{'{part}': None}} (--column {part}=)"
    return LogsError(error.what, where=error.where, todo=todo)


def _missing(name: str, available: Sequence[str], source: str) -> LogsError:
    """The error for a column that is needed and not there, with the nearest that is."""
    found = ", ".join(available[:12]) + (", ..." if len(available) > 12 else "")
    hint = nearest(name, available)
    part, theirs = (name if name in _PARTS else "user"), hint.split("'")[1] if hint else "..."
    option = f"columns={{'{part}': {repr(theirs) if hint else theirs}}} or --column {part}={theirs}"
    todo = f"columns are {found}{hint} (name it with {option})"
    return LogsError(f"no column '{name}'", where=source, todo=todo)


def _single(name: str | Sequence[str] | None, part: str) -> str | None:
    """The one column of a part that cannot have several."""
    if name is None or isinstance(name, str):
        return name
    raise LogsError(f"'{part}' is one column", where="columns=", todo="name one column; only features may be several")
