"""Layout: which column of a table plays which part, and from a frame of that layout to validated rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from glob import has_magic
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Floats, Ints
from newcomer.encoding import Column
from newcomer.errors import LogsError, nearest
from newcomer.feature_levels import entry_names
from newcomer.logs.candidates import arm_names, arm_numbers, located
from newcomer.logs.columns import (
    KNOWN,
    Epoch,
    Place,
    feature_lists,
    identifiers,
    known_as,
    numbers,
    probabilities,
    times,
)
from newcomer.logs.encoding import encoded, expand_names, learn_levels
from newcomer.logs.histories import Rows
from newcomer.logs.items import Items
from newcomer.logs.text_columns import Dates, is_missing, tidied
from newcomer.transforms import LEAST, NEEDED, Transform, transformed

Missing = Literal["error", "drop"]
Renames = Mapping[str, str | Sequence[str] | None]


@dataclass(frozen=True)
class Layout:
    """Which column of a table plays which part; None for a part that is absent.

    `features` is one column of lists, or several of numbers or text; `levels` are the schemas of those that are text.
    `action` may stand beside features: it then says which actions these were, and their features come from the rows all
    the same. `epoch` is the unit of a step in Unix time, `ties` whether equal integer steps of a user are allowed,
    where the column was recognised, not named. `arms` are the names that occur in the column `arm`. `notes`
    say what was decided without being asked. Rows with missing values are refused or dropped (`missing`), ids tidied or
    not, and `dates` such as 03/02/2020 have the day or the month first ("either": nothing settles it).
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
    ties: bool = False
    notes: tuple[str, ...] = ()
    missing: Missing = "error"
    tidy_ids: bool = False
    dates: Dates | Literal["either"] | None = None
    reward_transform: Transform | None = None
    levels: tuple[Column, ...] = ()

    def names(self) -> list[str]:
        """The columns to read, each once."""
        single = (self.user, self.reward, self.step, self.action, self.propensity, self.candidates, self.arm)
        several = (self.features,) if isinstance(self.features, str) else (self.features or ())
        return list(dict.fromkeys(name for name in (*single, *several) if name is not None))

    @property
    def numeric_features(self) -> list[str]:
        """The columns of numbers among the features."""
        several = self.features if isinstance(self.features, tuple) else ()
        return [name for name in several if name not in {one.name for one in self.levels}]

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """What to call each feature, where each has a column; None of a column of lists."""
        return entry_names(self.features, self.levels) if isinstance(self.features, tuple) else None

    def with_levels(
        self, types: Sequence[Mapping[str, pl.DataType]], counted: Callable[[str], pl.DataFrame], *, where: str = ""
    ) -> Layout:
        """The layout that knows which of its feature columns are levels; `types` are those of each file."""
        if not isinstance(self.features, tuple):
            return self
        levels, notes = learn_levels(self.features, types, counted, action=self.action, where=where)
        return self.noting(*notes, levels=levels)

    def incomplete(self, schema: Mapping[str, pl.DataType]) -> dict[str, pl.Expr]:
        """Of each column that must have one, where it holds no value, by its name and type.

        Beside arms, no candidates are the whole catalogue, and a propensity may be unknown: the arm says who chose.
        """
        numeric = {self.reward, self.propensity, *self.numeric_features}
        free = set() if self.arm is None else {self.candidates, self.propensity}
        return {
            name: is_missing(name, schema[name], number=name in numeric) for name in self.names() if name not in free
        }

    def dropping(self, counts: Mapping[str, int], dropped: int, rows: int) -> Layout:
        """The layout that says how many of its rows are left out, and by how much of which column."""
        if not dropped:
            return self
        if dropped == rows:
            todo = "fill the values in, or leave the column out where it can be"
            named = ", ".join(name for name, count in counts.items() if count)
            raise LogsError(f"every row has a missing value ({named})", todo=todo)
        each = ", ".join(f"{name} in {count:,}" for name, count in counts.items() if count)
        were = "has a missing value and was" if dropped == 1 else "have a missing value and were"
        return self.noting(f"{dropped:,} of {rows:,} rows {were} left out: {each}.")

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


_PARTS = {field.name for field in fields(Layout)} - {
    "arms",
    "epoch",
    "ties",
    "notes",
    "missing",
    "tidy_ids",
    "dates",
    "reward_transform",
    "levels",
}


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
    for part, given in renames.items():
        for name in [given] if isinstance(given, str) else given or ():
            if name not in available and not (part == "features" and has_magic(name)):
                raise _missing(name, available, source, part=part)
    chosen = {part: renames.get(part, part) for part in _PARTS if part in renames or part in available}
    if "arm" not in renames and any(given == "arm" for part, given in chosen.items() if part != "arm"):
        del chosen["arm"]  # many call an action an arm
    notes = _recognise(chosen, available, source)
    if chosen.get("candidates") and not chosen.get("action"):
        notes.append(f"Column {chosen.pop('candidates')} was left out: the logs name no actions.")
    user, reward = (_single(chosen.get(part), part) for part in ("user", "reward"))
    if user is None or reward is None:
        raise _missing("user" if user is None else "reward", available, source, chosen)
    features = _feature_columns(chosen, available, source)
    if features is None and chosen.get("action") is None:
        raise _missing("action", available, source, chosen)
    return Layout(
        user=user,
        reward=reward,
        step=_single(chosen.get("step"), "step"),
        action=_single(chosen.get("action"), "action"),
        features=features,
        propensity=_single(chosen.get("propensity"), "propensity"),
        candidates=_single(chosen.get("candidates"), "candidates"),
        arm=_single(chosen.get("arm"), "arm"),
        epoch=epoch,
        notes=tuple(notes),
    )


def _feature_columns(chosen: Renames, available: Sequence[str], source: str) -> str | tuple[str, ...] | None:
    """The one column of lists, or the several that names and patterns stand for; these match no other part."""
    given = chosen.get("features") or None
    if given is None or (isinstance(given, str) and given in available):
        return given if given is None or isinstance(given, str) else tuple(given)
    others = {name for part, name in chosen.items() if part != "features" and isinstance(name, str)}
    names = [given] if isinstance(given, str) else given
    exact = [name for name in names if name in available]  # the action, say, may be a feature too
    return expand_names(names, [one for one in available if one not in others or one in exact], where=source)


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
    Where `place` collects faults, a column that has some is no reason not to look at the others.
    """
    if isinstance(layout.features, str):
        lists = frame[layout.features]
        features = place.attempt("", lambda at: feature_lists(lists, at, dim))
    elif layout.features is not None:
        levels = {one.name: one for one in layout.levels}
        several = [
            place.attempt("", encoded, frame[name], levels[name])
            if name in levels
            else place.attempt("", numbers, frame[name])
            for name in layout.features
        ]
        features = np.column_stack([np.zeros(len(frame)) if one is None else one for one in several])
    actions = None
    if layout.action is not None and items is not None:
        ids = place.attempt("action" if features is not None else "", identifiers, frame[layout.action])
        actions = None if ids is None else items.locate(ids, place=place)
    if features is not None and actions is not None and items is not None and items.matrix is not None:
        features = np.column_stack([items.matrix[actions], features])
    steps: tuple[Ints | None, bool] | None = (None, False)
    if layout.step is not None:
        written = frame[layout.step]
        steps = place.attempt("step", lambda at: times(written, at, layout.epoch, layout.dates, ties=layout.ties))
    users = place.attempt("", _users, frame[layout.user], layout.tidy_ids)
    rewards = place.attempt("", _rewards, frame[layout.reward], layout.reward_transform)
    gaps = layout.arm is not None
    shares = None
    if layout.propensity is not None:
        chances = frame[layout.propensity]
        shares = place.attempt("", lambda at: probabilities(chances, at, gaps=gaps))
    arms = None if layout.arm is None else place.attempt("arm", arm_numbers, frame[layout.arm], layout.arms)
    shown = None
    if layout.candidates is not None and actions is not None and items is not None:
        lists = frame[layout.candidates]
        shown = place.attempt("candidates", lambda at: located(lists, actions, items, at, gaps=gaps))
    return Rows(
        users=pl.Series(layout.user, [], dtype=pl.Int64) if users is None else users,
        rewards=np.zeros(0) if rewards is None else rewards,
        actions=actions,
        features=features,
        propensities=shares,
        candidates=shown,
        arms=arms,
        steps=None if steps is None else steps[0],
        timestamps=steps is not None and steps[1],
    )


def _rewards(column: pl.Series, transform: Transform | None, place: Place) -> Floats:
    """Rewards, on the scale that they are learned on."""
    values = numbers(column, place)
    if transform is None:
        return values
    low = values <= LEAST
    told, kind = (lambda row: f"{column.name} {values[row]:g} has no logarithm"), "has no logarithm"
    place.refuse(column.name, low, kind, told, NEEDED, lambda row: float(values[row]))
    return transformed(np.where(np.isfinite(values) & ~low, values, 0.0), transform)


def _users(column: pl.Series, tidy: bool, place: Place) -> pl.Series:
    """Ids of users, tidied where that was asked for."""
    ids = identifiers(column, place)
    if not tidy or ids.dtype != pl.String:
        return ids
    return ids.to_frame().select(tidied(pl.col(ids.name)))[ids.name]


def _or_without(error: LogsError, part: str) -> LogsError:
    """The error for an optional column that cannot be used."""
    todo = f"{error.todo}, or leave the column out: columns={{'{part}': None}} (--column {part}=)"
    return LogsError(error.what, where=error.where, todo=todo)


def _missing(
    name: str, available: Sequence[str], source: str, chosen: Renames | None = None, *, part: str = ""
) -> LogsError:
    """The error for a column that is needed and not there: the nearest that is and has no part yet, what the others
    would be taken for, and how to name it. `part` is what the column was to be, if not its own name.
    """
    part = part or name
    found = ", ".join(available[:12]) + (", ..." if len(available) > 12 else "")
    given = {one: theirs for one, theirs in (chosen or {}).items() if theirs is not None and one != part}
    taken = [one for theirs in given.values() for one in ([theirs] if isinstance(theirs, str) else theirs)]
    hint = nearest(name, [one for one in available if one not in taken])
    theirs = hint.split("'")[1] if hint else "..."
    others = ", ".join(f"{_named(theirs)} as {one}" for one, theirs in sorted(given.items()))
    option = f"columns={{'{part}': {repr(theirs) if hint else theirs}}} or --column {part}={theirs}"
    todo = f"columns are {found}{hint} (name it with {option})" + (f"; recognised are {others}" if others else "")
    return LogsError(f"no column '{name}'", where=source, todo=todo)


def _named(theirs: str | Sequence[str] | None) -> str:
    return theirs if isinstance(theirs, str) else ", ".join(theirs or ())


def _single(name: str | Sequence[str] | None, part: str) -> str | None:
    """The one column of a part that cannot have several."""
    if name is None or isinstance(name, str):
        return name
    raise LogsError(f"'{part}' is one column", where="columns=", todo="name one column; only features may be several")
