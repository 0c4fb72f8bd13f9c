"""Columns of a table as numbers: what was decided when a table was first seen, kept for everybody who comes later.

A column of numbers or of true and false becomes one entry, centred and in units of its deviation. A column of texts or
categories becomes one entry for each level: 1 for those who have it, less the share of all who do. So an entry of zero
is the average over the users of the table, and a value that is missing, or a level that was never seen, is NaN: the
average, and not sure.

A `Column` holds names of levels, means and deviations, and no value of any user: levels that few users have are not
kept (`few`). It is plain data (`to_json`), so that a model can keep it without whatever read the table.

Levels of features: columns of text or categories as indicators, in logs and when a policy is served.

A feature that is text has one entry for each level that enough rows have, 1 where the row has it. A level of few rows,
or one that was never seen, has the average row: the share of rows of each level. Numbers are features as they are and
need no schema. The schema of a column is a `Column` of levels (`newcomer.encoding`): names and shares, which a model
keeps, so that a frame or a dict by name is encoded when it serves as it was when it learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.errors import ModelError, NewcomerError, PolicyError, error_name_hint
from newcomer.records import Shown
from newcomer.validate import show_invalid_value, validate_one_of

Kind = Literal["number", "boolean", "level"]
TRUTHS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}  # as files of text say them
MOST = 50  # levels of a column that are kept, the commonest
# Users (of an attribute) or rows (of a feature) that a level needs, so that its effect can be learned and nobody is
# known by it; and where there are fewer than MANY in all, since twenty would then be a large part of them.
FEW, FEWER, MANY = 20, 5, 1_000
SCATTERED = 0.5  # share of users or rows in levels of few, from which a column of texts is taken for an id
DISTINCT = 0.95  # share of different values from which whole numbers are taken for an id


@dataclass(frozen=True)
class Column(Shown):
    """How one column becomes entries: `mean` and `deviation` of numbers, or `levels` with the `shares` of users."""

    name: str
    kind: Kind
    mean: float = 0.0
    deviation: float = 1.0
    levels: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        validate_one_of(self.kind, "kind", get_args(Kind), kind=ModelError)
        object.__setattr__(self, "levels", tuple(self.levels))
        object.__setattr__(self, "shares", tuple(float(share) for share in self.shares))
        if not self.deviation > 0 or len(self.levels) != len(self.shares):
            raise ModelError(f"the column '{self.name}' is not described as it should be", todo="make the model again")

    @property
    def width(self) -> int:
        """How many entries it becomes."""
        return len(self.levels) if self.kind == "level" else 1

    @property
    def names(self) -> tuple[str, ...]:
        """What to call each entry."""
        return tuple(f"{self.name}={level}" for level in self.levels) if self.kind == "level" else (self.name,)

    @classmethod
    def of_numbers(cls, name: str, values: Floats, kind: Kind = "number") -> Column:
        """From the values (n,) of everybody, NaN where missing; at least two of them differ.

        >>> Column.of_numbers("age", np.array([20.0, 40.0, np.nan])).encode([30, None, 40]).tolist()
        [[0.0], [nan], [1.0]]
        """
        known = values[np.isfinite(values)]
        return cls(name, kind, float(known.mean()), float(known.std()))

    @classmethod
    def of_levels(cls, name: str, values: Sequence[str | None], few: int) -> Column:
        """From the texts (n,) of everybody; levels of fewer than `few` users are not kept.

        >>> column = Column.of_levels("plan", ["free", "free", "paid", "paid", "gift", None], few=2)
        >>> column.levels, column.encode(["free", "gift"]).round(2).tolist()
        (('free', 'paid'), [[0.6, -0.4], [nan, nan]])
        """
        there = [value for value in values if value is not None]
        names, counts = np.unique(np.array(there, dtype=object).astype(str), return_counts=True)
        order = [i for i in np.argsort(-counts, kind="stable")[:MOST] if counts[i] >= few]
        kept = sorted((str(names[i]), float(counts[i]) / len(there)) for i in order)
        return cls(name, "level", levels=tuple(level for level, _ in kept), shares=tuple(share for _, share in kept))

    def encode(self, values: Sequence[Any]) -> Floats:
        """The entries (n, width) of values (n,); NaN where they are missing, or of a level that is not known."""
        if self.kind != "level":
            return (_numbers(self.name, values)[:, None] - self.mean) / self.deviation
        place = {level: i for i, level in enumerate(self.levels)}
        codes = np.array([place.get(_level(self.name, value) or "", -1) for value in values], dtype=np.int64)
        out = np.eye(self.width)[codes] - np.array(self.shares)
        out[codes < 0] = np.nan
        return np.asarray(out.reshape(len(codes), self.width))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Column:
        """The column that `to_json` described."""
        return cls(**{part.name: data[part.name] for part in fields(cls) if part.name in data})


def fewest_to_encode(n: int) -> int:
    """Users or rows, of n, that a level needs to get an entry of its own.

    >>> fewest_to_encode(500), fewest_to_encode(5000)
    (5, 20)
    """
    return FEW if n >= MANY else FEWER


def encode_columns(columns: Sequence[Column], table: Mapping[str, Sequence[Any]], n: int) -> Floats:
    """The entries (n, p) of all columns; a column that the table lacks is missing for everybody.

    >>> encode_columns([Column("age", "number", 30.0, 10.0)], {"age": [50]}, 1).tolist()
    [[2.0]]
    """
    parts = [one.encode(table[one.name]) if one.name in table else np.full((n, one.width), np.nan) for one in columns]
    return np.concatenate([np.zeros((n, 0)), *parts], axis=1)


def translate_encoding(x: Floats, before: Sequence[Column], after: Sequence[Column]) -> Floats:
    """Entries (n, p) by the columns `before` as entries by the columns `after`, which may come of other logs.

    >>> old, new = Column("age", "number", 30.0, 10.0), Column("age", "number", 20.0, 5.0)
    >>> translate_encoding(np.array([[1.0]]), [old], [new]).tolist()
    [[4.0]]
    """
    table: dict[str, Sequence[Any]] = {}
    wanted = {one.name: one.kind == "level" for one in after}
    end = 0
    for one in before:
        part, end = x[:, end : end + one.width], end + one.width
        if wanted.get(one.name) != (one.kind == "level"):
            continue
        there = np.asarray(np.isfinite(part).all(axis=1))
        if one.kind != "level":
            table[one.name] = np.where(there, part[:, 0] * one.deviation + one.mean, np.nan).tolist()
        else:
            codes = np.argmax(np.where(there[:, None], part, 0.0) + np.array(one.shares), axis=1)
            table[one.name] = [one.levels[code] if told else None for code, told in zip(codes, there, strict=True)]
    return encode_columns(after, table, len(x))


def table_to_encode(given: Any, *, kind: type[NewcomerError] = ModelError) -> tuple[dict[str, list[Any]], int]:
    """Columns by name, and the number of users, of a frame, a dict of columns, or one dict a user.

    >>> table_to_encode([{"age": 20}, {"age": 30, "plan": "paid"}])
    ({'age': [20, 30], 'plan': [None, 'paid']}, 2)
    """
    todo = "pass a frame, a dict of columns, or one dict a user"
    if isinstance(given, Mapping):
        columns = {str(name): _listed(values) for name, values in given.items()}
    elif hasattr(given, "columns") and hasattr(given, "__getitem__"):
        columns = {str(name): _listed(given[name]) for name in given.columns}
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        rows = list(given)
        if not all(isinstance(row, Mapping) for row in rows):
            raise kind(f"attributes are {show_invalid_value(given)}", todo=todo)
        names = dict.fromkeys(str(name) for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}, len(rows)
    else:
        raise kind(f"attributes are {show_invalid_value(given)}", todo=todo)
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise kind("columns of attributes differ in length", todo="pass one value a user in each")
    return columns, lengths.pop() if lengths else 0


def refuse_unencoded_names(
    columns: Sequence[Column], names: Iterable[str], *, kind: type[NewcomerError] = ModelError
) -> None:
    """Refuse a name that is no column's; `user` is the id of a user, and may be there."""
    known = [one.name for one in columns]
    strange = next((name for name in names if name not in known and name != "user"), None)
    if strange is not None:
        todo = error_name_hint(strange, known).lstrip("; ") or f"its attributes are {', '.join(known)}"
        raise kind(f"the model knows no attribute '{strange}'", todo=todo)


def _listed(values: Any) -> list[Any]:
    """A column as a list; a single value is a column of one."""
    if hasattr(values, "to_list"):
        return list(values.to_list())
    if hasattr(values, "tolist"):
        found = values.tolist()
        return list(found) if isinstance(found, list) else [found]
    return [values] if isinstance(values, str | bytes) or not isinstance(values, Iterable) else list(values)


def _missing(value: Any) -> bool:
    """Nothing, NaN, or what pandas has for it."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _numbers(name: str, values: Sequence[Any]) -> Floats:
    """Numbers (n,), true and false among them, NaN where missing."""
    out = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if _missing(value):
            continue
        value = TRUTHS.get(value.strip().lower(), value) if isinstance(value, str) else value
        if isinstance(value, str | bytes) or not isinstance(value, int | float | np.number | np.bool_):
            raise ModelError(
                f"the attribute '{name}' is a number, not {show_invalid_value(value)}", todo="pass a number"
            )
        out[i] = float(value)
    if np.isinf(out).any():
        raise ModelError(f"the attribute '{name}' is infinite", todo="pass a number, or None where it is unknown")
    return out


def _level(name: str, value: Any) -> str | None:
    """A level as text, None where it is missing; a whole number is the level that it spells."""
    if _missing(value):
        return None
    if isinstance(value, str | bool | np.bool_ | int | np.integer):
        return str(value)
    raise ModelError(
        f"the attribute '{name}' is a level, not {show_invalid_value(value)}", todo="pass its name as text"
    )


def encoded_entry_names(columns: Sequence[str], levels: Sequence[Column]) -> tuple[str, ...]:
    """What to call each feature: the column of a number, `column=level` of an indicator.

    >>> encoded_entry_names(["price", "colour"], [Column("colour", "level", levels=("blue", "red"), shares=(0.5, 0.5))])
    ('price', 'colour=blue', 'colour=red')
    """
    known = {one.name: one for one in levels}
    return tuple(entry for name in columns for entry in (known[name].names if name in known else (name,)))


def encode_level_indicators(column: Column, codes: Ints) -> Floats:
    """The entries (..., width) of levels, given by their places (...) in the column; of -1 the average row.

    >>> colour = Column("colour", "level", levels=("blue", "red"), shares=(0.75, 0.25))
    >>> encode_level_indicators(colour, np.array([1, -1])).tolist()
    [[0.0, 1.0], [0.75, 0.25]]
    """
    table = np.vstack([np.eye(column.width), np.array(column.shares)])
    return np.asarray(table[codes])  # -1 is the last row


def named_columns(given: Any) -> tuple[Any, list[str] | None]:
    """A frame, a mapping of columns or a list of mappings as something whose columns have names, and these names.

    Entries that a mapping of the list lacks are NaN. What has no names comes back as it is, with None.

    >>> named_columns([{"price": 2.0}, {"price": 1.0, "colour": "red"}])
    ({'price': [2.0, 1.0], 'colour': [nan, 'red']}, ['price', 'colour'])
    """
    if isinstance(given, list | tuple) and given and all(isinstance(row, Mapping) for row in given):
        names = list(dict.fromkeys(name for row in given for name in row))
        given = {name: [row.get(name, np.nan) for row in given] for name in names}
    there = given if isinstance(given, Mapping) else getattr(given, "column_names", getattr(given, "columns", None))
    return given, None if there is None else [str(name) for name in there]


def encode_by_entries(
    given: Any, levels: Sequence[Column], actions: Sequence[int | str] | None = None, ids: Any = None
) -> Any:
    """What a policy is given, with a column for each indicator in place of its columns of levels.

    `given` is a frame, a mapping of columns (arrays of any shape) or a list of mappings. What has no names, or has the
    names of the indicators already, is returned as it is. Where the action itself is a feature, its `ids` (...) stand
    for the column: its levels are some of the `actions` of the model.

    >>> colour = Column("colour", "level", levels=("blue", "red"), shares=(0.75, 0.25))
    >>> found = encode_by_entries([{"price": 2.0, "colour": "red"}, {"price": 1.0, "colour": "pink"}], [colour])
    >>> found["colour=blue"].tolist(), found["price"]
    ([0.0, 0.75], [2.0, 1.0])
    """
    given, names = named_columns(given)
    if names is None:
        return given
    table: dict[str, Any] = {name: given[name] for name in names}
    for column in levels:
        if column.name in names:
            entries = encode_level_indicators(column, _codes(table.pop(column.name), column))
            table |= {name: entries[..., i] for i, name in enumerate(column.names)}
        elif ids is not None and set(column.levels) <= {str(one) for one in actions or ()}:
            entries = encode_level_indicators(column, _codes(ids, column))
            table |= {name: entries[..., i] for i, name in enumerate(column.names)}
        elif not set(column.names) <= set(names):
            todo = f"the model was fitted with it, as text{error_name_hint(column.name, names)}"
            raise PolicyError(f"there is no feature '{column.name}'", where="features", todo=todo)
    return table


def _codes(values: Any, column: Column) -> Ints:
    """The place (...) of each value among the levels, -1 for one that is not there."""
    place = {level: i for i, level in enumerate(column.levels)}
    given = np.asarray(values.to_list() if hasattr(values, "to_list") else values, dtype=object)
    return np.array([place.get(str(one), -1) for one in given.ravel()], dtype=np.int64).reshape(given.shape)
