"""The layout of logs: which column of a table plays which part, and from a frame of that layout to validated rows.

The time of a row: which column of a table says when a row was logged, where the caller has not named it.

Without a step the rows of a user stand in file order, and every check of an order in time (drift, adaptive logging)
then speaks of the order of a file. `schema.resolve` recognises the common names (timestamp, date). This module looks
further, at names that end like a time (`visit_date`, `sentAt`, `t`, `day`) and at columns of times: one such column
whose values can all be read is taken, and every other case is said in a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from glob import has_magic
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Floats, Ints
from newcomer.encoding import Column, encoded_entry_names
from newcomer.errors import LogsError, error_name_hint
from newcomer.logs.arms import SERVICE, names_of_arms, numbers_of_arms
from newcomer.logs.candidates import locate_candidates
from newcomer.logs.columns import (
    KNOWN,
    Epoch,
    Place,
    first_line_hint,
    identifier_column,
    known_column_names,
    number_column,
    probability_column,
    time_column,
)
from newcomer.logs.feature_columns import (
    encoded_feature_column,
    expand_feature_column_names,
    feature_column_levels,
    feature_list_column,
)
from newcomer.logs.histories import Rows
from newcomer.logs.items import Items
from newcomer.logs.text_columns import Dates, text_date_questions, text_is_missing, tidied_text
from newcomer.transforms import LEAST, NEEDED, Transform, transform_rewards

Missing = Literal["error", "drop"]
LARGEST_REWARD = 1e75  # in size: sums of fourth powers of larger ones overflow
Renames = Mapping[str, str | Sequence[str] | None]


@dataclass(frozen=True)
class LogLayout:
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
        return encoded_entry_names(self.features, self.levels) if isinstance(self.features, tuple) else None

    def with_levels(
        self, types: Sequence[Mapping[str, pl.DataType]], counted: Callable[[str], pl.DataFrame], *, where: str = ""
    ) -> LogLayout:
        """The layout that knows which of its feature columns are levels; `types` are those of each file."""
        if not isinstance(self.features, tuple):
            return self
        levels, notes = feature_column_levels(self.features, types, counted, action=self.action, where=where)
        return self.noting(*notes, levels=levels)

    @property
    def by_service(self) -> bool:
        """Whether rows have the arms of the decision service, and no others."""
        return bool(self.arms) and SERVICE.issuperset(self.arms)

    def incomplete(self, schema: Mapping[str, pl.DataType]) -> dict[str, pl.Expr]:
        """Of each column that must have one, where it holds no value, by its name and type.

        Beside arms of the service, no candidates are the whole catalogue, and a propensity may be unknown: the arm says
        who chose.
        """
        numeric = {self.reward, self.propensity, *self.numeric_features}
        free = {self.candidates, self.propensity} if self.by_service else set()
        return {
            name: text_is_missing(name, schema[name], number=name in numeric)
            for name in self.names()
            if name not in free
        }

    def dropping(self, counts: Mapping[str, int], dropped: int, rows: int) -> LogLayout:
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
            return identifier_column(frame[self.action], place)
        except LogsError as error:
            if self.features is None:
                raise
            raise _or_without(error, "action") from error

    def with_arms(self, columns: Sequence[pl.Series], place: Place) -> LogLayout:
        """The layout with the names of its arms, which are the distinct values of some columns."""
        try:
            return replace(self, arms=names_of_arms(columns, place))
        except LogsError as error:
            raise _or_without(error, "arm") from error

    def noting(self, *notes: str, **changes: Any) -> LogLayout:
        """The layout with some changes and what there is to say about them."""
        return replace(self, notes=(*self.notes, *notes), **changes)

    def without_empty(self, is_empty: Callable[[str], bool]) -> LogLayout:
        """The layout without the columns that logs can do without and that hold no value at all."""
        layout = self
        for part in ("step", "propensity", "candidates", "arm", "features", "action"):
            name = getattr(layout, part)
            spare = {"features": layout.action, "action": layout.features}.get(part, "as always")
            if isinstance(name, str) and spare is not None and is_empty(name):
                layout = layout.noting(f"Column {name} is empty and was left out.", **{part: None})
        return layout


_PARTS = {field.name for field in fields(LogLayout)} - {
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


def resolve_schema(
    available: Sequence[str], columns: Renames | None, *, source: str = "", epoch: Epoch | None = None
) -> LogLayout:
    """Find the parts among the available columns: as renamed by `columns`, by their own names, or by common ones.

    >>> resolve_schema(["who", "action", "reward"], {"user": "who"}).names()
    ['who', 'reward', 'action']
    >>> resolve_schema(["userId", "movieId", "rating", "timestamp"], None).names()
    ['userId', 'rating', 'timestamp', 'movieId']
    """
    renames = dict(columns or {})
    for part in renames:
        if part not in _PARTS:
            todo = f"rename only {', '.join(sorted(_PARTS))}{error_name_hint(part, _PARTS)}"
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
        other = "or, where columns describe what was shown, take them with features='x*'"
        raise _missing("action", available, source, chosen, other=other)
    return LogLayout(
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
    return expand_feature_column_names(
        names, [one for one in available if one not in others or one in exact], where=source
    )


def _recognise(chosen: dict[str, str | Sequence[str] | None], available: Sequence[str], source: str) -> list[str]:
    """Add to the `chosen` parts those that have a common name, and tell which; two for a part needed are refused."""
    recognised, notes = [], []
    for part in KNOWN:
        if part in chosen:
            continue
        taken = {name for given in chosen.values() for name in ([given] if isinstance(given, str) else given or ())}
        found = known_column_names(part, [name for name in available if name not in taken])
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


def extract_by_schema(
    frame: pl.DataFrame,
    layout: LogLayout,
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
        features = place.attempt("", lambda at: feature_list_column(lists, at, dim))
    elif layout.features is not None:
        levels = {one.name: one for one in layout.levels}
        several = [
            place.attempt("", encoded_feature_column, frame[name], levels[name])
            if name in levels
            else place.attempt("", number_column, frame[name])
            for name in layout.features
        ]
        features = np.column_stack([np.zeros(len(frame)) if one is None else one for one in several])
    actions = None
    if layout.action is not None and items is not None:
        ids = place.attempt("action" if features is not None else "", identifier_column, frame[layout.action])
        actions = None if ids is None else items.locate(ids, place=place)
    if features is not None and actions is not None and items is not None and items.matrix is not None:
        features = np.column_stack([items.matrix[actions], features])
    steps: tuple[Ints | None, bool] | None = (None, False)
    if layout.step is not None:
        written = frame[layout.step]
        steps = place.attempt("step", lambda at: time_column(written, at, layout.epoch, layout.dates, ties=layout.ties))
    users = place.attempt("", _users, frame[layout.user], layout.tidy_ids)
    rewards = place.attempt("", _rewards, frame[layout.reward], layout.reward_transform)
    gaps = layout.by_service
    shares = None
    if layout.propensity is not None:
        chances = frame[layout.propensity]
        shares = place.attempt("", lambda at: probability_column(chances, at, gaps=gaps))
    arms = None if layout.arm is None else place.attempt("arm", numbers_of_arms, frame[layout.arm], layout.arms)
    shown = None
    if layout.candidates is not None and actions is not None and items is not None:
        lists = frame[layout.candidates]
        shown = place.attempt("candidates", lambda at: locate_candidates(lists, actions, items, at, gaps=gaps))
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
    values = number_column(column, place)
    far = np.abs(values) > LARGEST_REWARD
    told, kind = (
        (lambda row: f"{column.name} {values[row]:g} is beyond {LARGEST_REWARD:g}"),
        f"is beyond {LARGEST_REWARD:g}",
    )
    todo = "remove the row or mend the value"
    place.refuse(column.name, far, kind, told, todo, lambda row: float(values[row]))
    values = np.where(far, 0.0, values) if far.any() else values
    if transform is None:
        return values
    low = values <= LEAST
    told, kind = (lambda row: f"{column.name} {values[row]:g} has no logarithm"), "has no logarithm"
    place.refuse(column.name, low, kind, told, NEEDED, lambda row: float(values[row]))
    return transform_rewards(np.where(np.isfinite(values) & ~low, values, 0.0), transform)


def _users(column: pl.Series, tidy: bool, place: Place) -> pl.Series:
    """Ids of users, tidied where that was asked for."""
    ids = identifier_column(column, place)
    if not tidy or ids.dtype != pl.String:
        return ids
    return ids.to_frame().select(tidied_text(pl.col(ids.name)))[ids.name]


def _or_without(error: LogsError, part: str) -> LogsError:
    """The error for an optional column that cannot be used."""
    todo = f"{error.todo}, or leave the column out: columns={{'{part}': None}} (--column {part}=)"
    return LogsError(error.what, where=error.where, todo=todo)


def _missing(
    name: str,
    available: Sequence[str],
    source: str,
    chosen: Renames | None = None,
    *,
    part: str = "",
    other: str = "",
) -> LogsError:
    """The error for a column that is needed and not there: the nearest that is and has no part yet, what the others
    would be taken for, and how to name it, or the `other` way. `part` is what the column was to be, if not its own
    name.
    """
    part = part or name
    found = ", ".join(available[:12]) + (", ..." if len(available) > 12 else "")
    given = {one: theirs for one, theirs in (chosen or {}).items() if theirs is not None and one != part}
    taken = [one for theirs in given.values() for one in ([theirs] if isinstance(theirs, str) else theirs)]
    hint = error_name_hint(name, [one for one in available if one not in taken])
    theirs = hint.split("'")[1] if hint else "..."
    others = ", ".join(f"{_named(theirs)} as {one}" for one, theirs in sorted(given.items()))
    option = f"columns={{'{part}': {repr(theirs) if hint else theirs}}} or --column {part}={theirs}"
    todo = f"columns are {found}{hint} (name it with {option}{other and ', ' + other})"
    todo += f"; recognised are {others}" if others else ""
    todo += first_line_hint(available) if source else ""
    return LogsError(f"no column '{name}'", where=source, todo=todo)


def _named(theirs: str | Sequence[str] | None) -> str:
    return theirs if isinstance(theirs, str) else ", ".join(theirs or ())


def _single(name: str | Sequence[str] | None, part: str) -> str | None:
    """The one column of a part that cannot have several."""
    if name is None or isinstance(name, str):
        return name
    raise LogsError(f"'{part}' is one column", where="columns=", todo="name one column; only features may be several")


Ask = Callable[[Sequence[pl.Expr]], list[pl.DataFrame]]  # one answer for each file, or for the one frame
LAST_WORDS = {"at", "date", "day", "time", "timestamp", "datetime", "ts", "t", "when", "dt"}
# Dates that belong to a user or to an item, or that say when something else happened.
OTHER_DATES = {
    *("birth", "born", "dob", "release", "released", "publish", "published", "signup", "sign", "register"),
    *("registered", "registration", "join", "joined", "account", "hire", "hired", "expiry", "expire", "expires"),
    *("due", "end", "ended", "closed", "deleted", "first", "last", "week", "of"),
}
_ISO = r"^[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}([T ].*)?$"


LOOKS_LIKE_TIME = "looks like the time of a row"  # words of every note on a column that is not taken as one


@dataclass(frozen=True)
class TimeValues:
    """What a column that may be the time holds: of `rows`, how many are missing, and whether the rest can be read."""

    rows: int
    missing: int
    readable: bool
    two_ways: bool = False  # dates such as 03/02/2020 that nothing settles
    whole: bool = False  # text that is whole numbers


def schema_time_names(names: Iterable[str]) -> list[str]:
    """The names that end like the time of a row.

    >>> schema_time_names(["visit_date", "sentAt", "t", "birth_date", "day_of_week", "reward", "format"])
    ['visit_date', 'sentAt', 't']
    """
    return [name for name in names if _words(name)[-1:] and _is_time(_words(name))]


def find_schema_time(
    layout: LogLayout,
    names: Sequence[str],
    types: Sequence[Mapping[str, pl.DataType]],
    ask: Ask,
    columns: Renames | None,
) -> LogLayout:
    """The layout with the column of times that was recognised, or with a note on what looks like one.

    `types` are those of each file. A `step` that the caller left out with None is not looked for.
    """
    if "step" in (columns or {}):
        return layout
    free = [name for name in names if name not in layout.names()]
    named = [name for name in schema_time_names(free) if not (_may_be_duration(name) and _is_numeric(name, types))]
    found = named or [name for name in free if all(_is_time_type(one.get(name)) for one in types)]
    if not found:
        return layout
    if len(found) > 1:
        return layout.noting(_several(found))
    values = _values(found[0], types, ask, layout)
    if values.whole and _may_be_duration(found[0]):
        return layout
    return _taken(layout, found[0], values)


def _taken(layout: LogLayout, name: str, values: TimeValues) -> LogLayout:
    """The layout with this column as its step, if all of its values can be read as times or steps."""
    looks = f"Column {name} {LOOKS_LIKE_TIME}"
    order = "rows of a user are taken in file order"
    if not values.readable:
        return layout.noting(f"{looks} but cannot be read as one: {order}.")
    if values.two_ways:
        which = "dates='day-first' or 'month-first' (--dates day-first|month-first)"
        return layout.noting(f"{looks} but its dates can be read two ways: {order} unless {which} says which.")
    if values.missing and layout.missing != "drop":
        lacks = f"is missing in {values.missing:,} of {values.rows:,} rows"
        drop = "missing='drop' (--missing drop) leaves those rows out and uses it"
        return layout.noting(f"{looks} and {lacks}: {order}; {drop}.")
    other = "columns={'step': ...} (--column step=...) chooses another, columns={'step': None} (--column step=) none"
    note = f"Column {name} is taken as the time of a row, by its name or type; {other}."
    return layout.noting(note, step=name, ties=True)


def _several(found: Sequence[str]) -> str:
    """The note for a table of which several columns may be the time."""
    both = " and ".join(f"'{name}'" for name in found)
    how = f"columns={{'step': '{found[0]}'}} (--column step={found[0]}) chooses one"
    return f"{both} could each be the time of a row; rows of a user are taken in file order: {how}."


def _values(name: str, types: Sequence[Mapping[str, pl.DataType]], ask: Ask, layout: LogLayout) -> TimeValues:
    """What the column holds in all files: dates or whole numbers throughout, or something else."""
    column, plain = pl.col(name), pl.col(name)
    text = any(one[name] == pl.String for one in types)
    asked = [pl.len().alias(" rows"), column.null_count().alias(" missing")]
    if text:
        plain = column.cast(pl.String).str.strip_chars()
        dates, first, second = text_date_questions(name)
        asked += [dates, first, second, plain.str.contains(_ISO).sum().alias(" iso")]
        asked += [plain.cast(pl.Int64, strict=False).count().alias(" whole")]
    answers = ask(asked)
    total = {key: sum(int(one[key][0] or 0) for one in answers) for key in answers[0].columns}
    rows, missing = total[" rows"], total[" missing"]
    if not text:
        kinds = {one[name] for one in types}
        return TimeValues(rows, missing, missing < rows and all(_is_step_type(kind) for kind in kinds))
    known = rows - missing
    readable = known > 0 and known in (total[" dates"] + total[" iso"], total[" whole"])
    day, month = (max(int(one[key][0] or 0) for one in answers) > 12 for key in (" first", " second"))
    unsettled = total[" dates"] > 0 and layout.dates is None and day == month
    return TimeValues(rows, missing, readable, unsettled, known > 0 and known == total[" whole"])


def _words(name: str) -> list[str]:
    """The words of a name, whether joined by capitals, underscores or blanks."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def _is_time(words: Sequence[str]) -> bool:
    return words[-1] in LAST_WORDS and not OTHER_DATES & set(words)


def _may_be_duration(name: str) -> bool:
    """Whether numbers under this name, such as watch_time, say how long, not when."""
    return _words(name)[-1] == "time" and len(_words(name)) > 1


def _is_numeric(name: str, types: Sequence[Mapping[str, pl.DataType]]) -> bool:
    return any(one[name].is_numeric() for one in types)


def _is_time_type(dtype: pl.DataType | None) -> bool:
    return isinstance(dtype, pl.Datetime) or dtype == pl.Date


def _is_step_type(dtype: pl.DataType) -> bool:
    return _is_time_type(dtype) or isinstance(dtype, pl.Duration) or dtype.is_integer()
