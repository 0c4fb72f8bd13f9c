"""One family of errors: what was wrong, where, and what to do, printed as one sentence."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from os import sep
from pathlib import Path

PACKAGE_NAME = "newcomer"
PACKAGE = str(Path(__file__).parent) + sep
SCREEN = 80 * 20  # characters of an error that are shown: a value of a million characters is nobody's to read


class NewcomerError(ValueError):
    """Anything the caller can mend. `what`, `where` and `todo` are kept apart, and whole, for programs.

    >>> str(NewcomerError("reward is missing", where="logs.csv, row 12", todo="fill it in"))
    'reward is missing (logs.csv, row 12): fill it in'
    """

    def __init__(self, what: str, *, where: str = "", todo: str = "") -> None:
        self.what, self.where, self.todo = what, where, todo
        super().__init__(what)

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return error_in_one_line(f"{self.what}{place}" + (f": {self.todo}" if self.todo else ""))

    def __reduce__(self) -> tuple[object, ...]:
        # The keyword-only parts would be lost when the error crosses a process boundary.
        return _rebuild, (type(self), self.what, self.where, self.todo)


class LogsError(NewcomerError):
    """The logs, or the items table, cannot be used as they are."""


class ModelError(NewcomerError):
    """A model cannot be fitted, read or used."""


class PolicyError(NewcomerError):
    """A policy was configured or called wrongly; its state is unchanged."""


class NoHash(NewcomerError, TypeError):
    """Something that changes was asked for a hash; a TypeError too, as Python expects of it."""


class OutputError(NewcomerError):
    """A file cannot be written where it was asked for."""


class EngineError(NewcomerError):
    """The workers of an engine cannot be reached, or do not live long enough."""


class StoreError(NewcomerError):
    """The service cannot start, or its store cannot be reached, read or written."""


class FitWarning(UserWarning):
    """What was asked for can be fitted, but a setting makes the answer worthless; the sentence says which."""


class MissingExtra(NewcomerError):
    """An optional part of the package is not installed."""

    @classmethod
    def of(cls, extra: str, *, purpose: str) -> MissingExtra:
        """The error for a missing optional dependency group, e.g. `of("report", purpose="charts")`."""
        return cls(f"{purpose} need the extra [{extra}]", todo=install_extra_command(extra))

    @classmethod
    @contextmanager
    def unless_found(cls, extra: str, *, purpose: str) -> Iterator[None]:
        """Imports of ours that lead, however deep, to a library of an extra: one that is missing is this error."""
        try:
            yield
        except ModuleNotFoundError as error:
            if (error.name or PACKAGE_NAME).partition(".")[0] == PACKAGE_NAME:
                raise
            raise cls.of(extra, purpose=purpose) from error


def install_extra_command(extra: str) -> str:
    """How an extra is installed, from a package index or from a clone.

    >>> install_extra_command("serve")
    "pip install 'newcomer[serve]', or from a clone pip install '.[serve]'"
    """
    return f"pip install '{PACKAGE_NAME}[{extra}]', or from a clone pip install '.[{extra}]'"


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside the package that led here, however deep in the package the reason was found."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def error_name_hint(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, or nothing.

    >>> error_name_hint("usr", ["user", "reward"])
    "; did you mean 'user'?"
    """
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def error_in_one_line(text: str, limit: int = SCREEN) -> str:
    """Text as one line of at most `limit` characters, cut in its middle; what would move a cursor is written out.

    >>> error_in_one_line("id 'a\\nb' is unknown"), error_in_one_line("x" * 99, limit=9)
    ("id 'a\\\\nb' is unknown", 'xxx...xxx')
    """
    text = _cut(text, limit)
    if text.isprintable():
        return text
    return _cut("".join(c if c.isprintable() else repr(c)[1:-1] for c in text), limit)


def _cut(text: str, limit: int) -> str:
    """The beginning and the end of a text that is too long: the end often says what to do."""
    half = (limit - 3) // 2
    return text if len(text) <= limit else f"{text[:half]}...{text[-half:]}"


def _rebuild(kind: type[NewcomerError], what: str, where: str, todo: str) -> NewcomerError:
    """The same error in another process."""
    return kind(what, where=where, todo=todo)
