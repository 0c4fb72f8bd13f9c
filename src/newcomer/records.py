"""How records are shown and compared: one screen of text, a small table in notebooks, and an == that is an answer.

A dataclass that holds arrays would print all of them, and would fail on == with a riddle about the truth of arrays.
One that derives from `Shown` says its fields in short, is equal to another of its type if all fields are, arrays to the
bit, and has a hash to match. What a class defines itself stays; what `@dataclass` would write gives way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

import numpy as np

from newcomer.arrays import read_only_array
from newcomer.errors import error_in_one_line

FEW = 6  # entries of a list that are written out
LONG = 80  # characters of a text that are shown


class Shown:
    """A record that is shown in short and compared by its fields."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # @dataclass leaves alone what a class itself has: so each subclass gets what it would only inherit.
        for name in ("__repr__", "__eq__", "__hash__"):
            if name not in cls.__dict__:
                setattr(cls, name, getattr(cls, name))

    def facts(self) -> Mapping[str, Any]:
        """What there is to know, by name: the fields. In Python's own types, so that `json.dumps` takes it."""
        return {name: _plain_record(value) for name, value in _parts(self)}

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={short_record_text(value)}" for name, value in self._shown().items())
        return error_in_one_line(f"{type(self).__name__}({shown})")

    def _repr_html_(self) -> str:
        return record_as_table(type(self).__name__, self._shown())

    def _shown(self) -> Mapping[str, Any]:
        """What is shown in short: the facts, if a class has its own, or the fields as they are."""
        return dict(_parts(self)) if type(self).facts is Shown.facts else self.facts()

    def __eq__(self, other: object) -> bool:
        # False, not "ask the other one", for what is of another type: some tables would answer with an exception.
        if type(self) is not type(other) or not is_dataclass(self):
            return self is other
        return bool(_record_key(self) == _record_key(other))

    def __hash__(self) -> int:
        return hash(_record_key(self)) if is_dataclass(self) else object.__hash__(self)


def freeze_record(record: Any) -> None:
    """For `__post_init__` of a frozen dataclass: each array becomes a view that cannot be written to.

    The arrays given stay as they were, and so do what they share with the record; who wants it apart copies first.
    """
    for name, value in _parts(record):
        if isinstance(value, np.ndarray) and value.flags.writeable:
            object.__setattr__(record, name, read_only_array(value))


def short_record_text(value: Any) -> str:
    """A value in a few words: of an array its type and shape, of a long list its beginning and its length.

    >>> short_record_text(np.zeros((2, 3))), short_record_text(tuple(range(100))), short_record_text({"a": 0.5})
    ('float64 (2, 3)', '(0, 1, 2, ... 100 in all)', '{a: 0.5}')
    """
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    if isinstance(value, tuple | list):
        some = [short_record_text(one) for one in value[: FEW if len(value) <= FEW else FEW // 2]]
        return f"({', '.join([*some, *([f'... {len(value):,} in all'] if len(value) > FEW else [])])})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {short_record_text(one)}' for name, one in list(value.items())[:FEW])}}}"
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    if is_dataclass(value) and not isinstance(value, type | Shown):
        return f"{type(value).__name__}({', '.join(f'{name}={short_record_text(one)}' for name, one in _parts(value))})"
    if isinstance(value, str):
        return repr(error_in_one_line(value, LONG))
    return f"{value:,}" if type(value) is int else repr(value)


def _plain_record(value: Any) -> Any:
    """A value in Python's own types, such as JSON has: arrays as lists, records as dicts.

    >>> _plain_record({"a": np.int64(3), "b": (np.arange(2), None)})
    {'a': 3, 'b': [[0, 1], None]}
    """
    if isinstance(value, np.ndarray | np.generic):
        return _plain_record(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _plain_record(one) for name, one in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain_record(one) for one in value]
    if isinstance(value, Shown):
        return _plain_record(value.facts())
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain_record(one) for name, one in _parts(value)}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def record_as_table(title: str, facts: Mapping[str, Any]) -> str:
    """Facts as a table of HTML; ids and names in them are text, whatever they look like.

    >>> record_as_table("Model", {"id": "<b>"})
    '<table><caption>Model</caption><tr><th>id</th><td>&lt;b&gt;</td></tr></table>'
    """
    texts = {name: value if isinstance(value, str) else short_record_text(value) for name, value in facts.items()}
    rows = "".join(
        f"<tr><th>{escape(k)}</th><td>{escape(error_in_one_line(text))}</td></tr>" for k, text in texts.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def _record_key(value: Any) -> Any:
    """Something hashable that is equal for equal values, arrays to the bit; a record is the same as its fields.

    >>> _record_key(np.zeros(1)) == _record_key(np.zeros(1)), _record_key(np.zeros(1)) == _record_key(np.zeros(2))
    (True, False)
    """
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tolist() if value.dtype == object else value.tobytes()
    if isinstance(value, Mapping):
        return frozenset((name, _record_key(one)) for name, one in value.items())
    if isinstance(value, tuple | list):
        return tuple(map(_record_key, value))
    if is_dataclass(value) and type(value).__dict__.get("__eq__") is Shown.__eq__:
        return type(value), tuple((name, _record_key(one)) for name, one in _parts(value))
    return value


def _parts(record: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of the fields of a dataclass; nothing else has any."""
    for part in fields(record) if is_dataclass(record) else ():
        yield part.name, getattr(record, part.name)
