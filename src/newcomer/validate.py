"""Arguments as callers pass them, checked: what makes no sense is refused in one sentence that names it.

Every function takes the `kind` of error to raise, because the same mistake belongs to another family where logs are
read than where a policy is made. What they return is of the plain type: an `int` for a NumPy integer, say.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from newcomer.arrays import Floats
from newcomer.errors import NewcomerError, PolicyError, error_in_one_line, error_name_hint

Kind = type[NewcomerError]
Wanted = TypeVar("Wanted")

LARGEST = 2**53  # of whole numbers: beyond it a float64 cannot count
SHOWN = 60  # characters of a wrong value that are shown


def show_invalid_value(value: object) -> str:
    """A wrong value as an error shows it: short, on one line, whatever it is.

    >>> show_invalid_value("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaa'"
    >>> show_invalid_value(np.zeros((2, 3)))
    'an array of float64 (2, 3)'
    """
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {value.shape}"
    try:
        return error_in_one_line(repr(value), SHOWN)
    except Exception:  # noqa: BLE001  (a repr is anybody's code; the error to come matters more)
        return f"a {type(value).__name__}"


def validate_whole(
    value: Any, name: str, *, least: int = 1, most: int = LARGEST, todo: str = "", kind: Kind = PolicyError
) -> int:
    """A whole number of at least `least`.

    >>> validate_whole(0, "horizon")
    Traceback (most recent call last):
        ...
    newcomer.errors.PolicyError: horizon must be a whole number of at least 1, not 0
    """
    fits = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not fits or value < least:
        raise kind(f"{name} must be a whole number of at least {least}, not {show_invalid_value(value)}", todo=todo)
    if value > most:
        raise kind(f"{name} must be a whole number of at most {most:,}, not {show_invalid_value(value)}", todo=todo)
    return int(value)


def validate_number(
    value: Any, name: str, *, least: float = 0.0, finite: bool = True, todo: str = "", kind: Kind = PolicyError
) -> float:
    """A number of at least `least`; an infinite one passes if it need not be finite."""
    fits = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    found = _float(value) if fits else np.nan
    if not found >= least or (finite and found == np.inf):
        raise kind(f"{name} must be a number of at least {least:g}, not {show_invalid_value(value)}", todo=todo)
    return found


def validate_positive(value: Any, name: str, *, todo: str = "", kind: Kind = PolicyError) -> float:
    """A finite number above zero."""
    if validate_number(value, name, todo=todo, kind=kind) == 0:
        raise kind(f"{name} must be above zero", todo=todo)
    return _float(value)


def validate_share(value: Any, name: str, *, least: float = 0.0, todo: str = "", kind: Kind = PolicyError) -> float:
    """A number from 0 to less than 1, or, where `least` is not 0, above 0 and below 1."""
    found = _float(value) if isinstance(value, int | float | np.number) and not isinstance(value, complex) else np.nan
    if isinstance(value, bool) or not (0 <= found < 1 if least == 0 else 0 < found < 1):
        raise kind(f"{name} is {show_invalid_value(value)}", todo=todo or "pass a number from 0 to less than 1")
    return found


def validate_flag(value: Any, name: str, *, kind: Kind = PolicyError) -> bool:
    """True or False, and nothing that only counts as one of them."""
    if not isinstance(value, bool | np.bool_):
        raise kind(f"{name} must be True or False, not {show_invalid_value(value)}")
    return bool(value)


def validate_one_of(value: Any, name: str, choices: Iterable[str], *, kind: Kind = PolicyError) -> str:
    """One of a few words.

    >>> validate_one_of("spectrl", "norm", ["spectral", "frobenius"])
    Traceback (most recent call last):
        ...
    newcomer.errors.PolicyError: norm is 'spectrl': choose one of spectral, frobenius; did you mean 'spectral'?
    """
    known = list(choices)
    if not isinstance(value, str) or value not in known:
        hint = error_name_hint(value, known) if isinstance(value, str) else ""
        raise kind(f"{name} is {show_invalid_value(value)}", todo=f"choose one of {', '.join(known)}{hint}")
    return value


def validate_instance(
    value: Any, wanted: type[Wanted], name: str, *, todo: str = "", kind: Kind = PolicyError
) -> Wanted:
    """Something of the wanted type."""
    if not isinstance(value, wanted):
        raise kind(f"{name} must be a {wanted.__name__}, not {show_invalid_value(value)}", todo=todo)
    return value


def validate_callback(value: Any, name: str, *, kind: Kind = PolicyError) -> None:
    """Something that can be called, or None."""
    if value is not None and not callable(value):
        raise kind(f"{name} must be a function or None, not {show_invalid_value(value)}")


def validate_path(value: Any, name: str, *, kind: Kind = PolicyError) -> Path:
    """A path, by its name or as a Path."""
    text = fspath(value) if isinstance(value, str | PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise kind(f"{name} must be the path of a file, not {show_invalid_value(value)}")
    return Path(text)


def validate_array(values: Any, name: str, *, kind: Kind = PolicyError) -> NDArray[Any]:
    """Values as an array of whatever type they are; ragged lists and masked arrays are refused."""
    if isinstance(values, np.ma.MaskedArray):
        todo = "fill the gaps, or leave these rows out"
        raise kind(f"{name} is a masked array, whose gaps would be taken for values", todo=todo)
    try:
        return np.asarray(values)
    except Exception as problem:  # (whatever `__array__` of something foreign raises)
        raise kind(f"{name} must be a full array, not {show_invalid_value(values)}") from problem


def validate_numbers(values: Any, name: str, *, kind: Kind = PolicyError) -> Floats:
    """Values as a contiguous float64 array, the same one if it is that already; only numbers are taken for numbers.

    >>> validate_numbers([[1, 2], [3, 4]], "features").tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    given = validate_array(values, name, kind=kind)
    if given.dtype.kind not in "biufO":
        raise kind(f"{name} must be numbers in a full array, not {given.dtype}")
    try:
        with np.errstate(over="ignore"):
            converted = given.astype(np.float64, order="C", copy=False)
    except (TypeError, ValueError, OverflowError) as problem:
        raise kind(f"{name} must be numbers in a full array") from problem
    return converted if converted.flags.carray else np.array(converted, order="C")


def _float(value: Any) -> float:
    """A number as a float, infinite if it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf
