"""What reading was asked for, checked before the first file is opened: one sentence for what makes no sense.

Logs can take minutes to read, and some options contradict each other only in what they would do to the same column.
So all of them are checked together here, and nothing that reads meets options that do not fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from os import PathLike
from typing import Any, NamedTuple, get_args

import numpy as np

from newcomer.errors import LogsError, error_name_hint
from newcomer.logs.columns import Epoch
from newcomer.logs.feature_columns import expand_feature_column_names
from newcomer.logs.files import TableFile, find_log_files
from newcomer.logs.frames import frame_column_names, is_frame
from newcomer.logs.memory_store import Clip
from newcomer.logs.schema import LogLayout, Missing, Renames
from newcomer.logs.text_columns import Dates
from newcomer.transforms import LEAST, NEEDED, TRANSFORMS, Transform, transform_rewards
from newcomer.validate import show_invalid_value, validate_callback, validate_flag, validate_one_of, validate_whole


class ReadOptions(NamedTuple):
    """What was asked for about the values of a table, checked."""

    missing: Missing = "error"
    tidy_ids: bool = False
    dates: Dates | None = None
    reward_transform: Transform | None = None

    def on(self, layout: LogLayout) -> LogLayout:
        """The layout with these."""
        return replace(layout, **self._asdict())


def check_read_options(
    *,
    intercept: Any,
    grouped: Any = False,
    memory: Any = None,
    epoch: Any = None,
    progress: Any = None,
    missing: Any = "error",
    tidy_ids: Any = False,
    dates: Any = None,
    reward_transform: Any = None,
) -> ReadOptions:
    """Refuse settings of the wrong type, each by its name."""
    for name, value in (("intercept", intercept), ("grouped", grouped), ("tidy_ids", tidy_ids)):
        validate_flag(value, name, kind=LogsError)
    if memory is not None:
        validate_whole(memory, "memory", least=0, kind=LogsError)
    if epoch is not None:
        validate_one_of(epoch, "epoch", get_args(Epoch), kind=LogsError)
    validate_callback(progress, "progress", kind=LogsError)
    validate_one_of(missing, "missing", get_args(Missing), kind=LogsError)
    if dates is not None:
        validate_one_of(dates, "dates", get_args(Dates), kind=LogsError)
    if reward_transform is not None:
        validate_one_of(reward_transform, "reward_transform", TRANSFORMS, kind=LogsError)
    return ReadOptions(missing, bool(tidy_ids), dates, reward_transform)


def clip_read_option(clip: Any, transform: Transform | None = None) -> Clip:
    """The limits of rewards, two finite numbers in order, on the scale that rewards are learned on."""
    if clip is None:
        return None
    if isinstance(clip, str) and clip == "auto":
        return "auto"
    listed = isinstance(clip, Sequence) and not isinstance(clip, str | bytes) and len(clip) == 2
    given = list(clip) if listed or (isinstance(clip, np.ndarray) and clip.shape == (2,)) else [0.0, 0.0]
    low, high = given if all(isinstance(one, int | float | np.number) for one in given) else (0.0, 0.0)
    if not -np.inf < low < high < np.inf:
        todo = "pass two numbers (low, high), low < high, or 'auto'"
        raise LogsError(f"clip is {show_invalid_value(clip)}", where="clip=", todo=todo)
    if transform is None:
        return float(low), float(high)
    if high <= LEAST:
        raise LogsError(f"clip is {show_invalid_value(clip)}", where="clip=", todo=NEEDED)
    low = max(low, np.nextafter(LEAST, 0.0))
    return float(transform_rewards(low, transform)), float(transform_rewards(high, transform))


def feature_names_read_option(features: object) -> tuple[str, ...] | None:
    """The names, if what was passed as features is a name or a sequence of names."""
    if isinstance(features, str):
        return (features,)
    named = isinstance(features, list | tuple) and features and all(isinstance(name, str) for name in features)
    return tuple(features) if named else None  # type: ignore[arg-type]


def _columns_read_option(columns: Any) -> Renames | None:
    """Renames: a mapping of parts of logs to a column, several, or None."""
    if columns is None:
        return None
    todo = "pass a dict such as {'user': 'uid'}"
    if not isinstance(columns, Mapping):
        raise LogsError(f"columns is {show_invalid_value(columns)}", where="columns=", todo=todo)
    for part, given in columns.items():
        if not isinstance(part, str) or (
            given is not None and given != [] and feature_names_read_option(given) is None
        ):
            what = f"columns has {show_invalid_value(part)}: {show_invalid_value(given)}"
            raise LogsError(what, where="columns=", todo=f"{todo}; None leaves a part out")
    return columns


def _item_columns_read_option(items: Any) -> tuple[str, ...]:
    """The columns of an items table; none of an array."""
    if isinstance(items, str | PathLike):
        return tuple(TableFile.of(find_log_files(items)[0]).names)
    return tuple(frame_column_names(items)) if is_frame(items) and hasattr(items, "columns") else ()


class FeatureChoice(NamedTuple):
    """Which columns are to be features: `of_items`, and, among the renamed `columns`, of the logs themselves.

    Where both have some they stand side by side, `beside`: phi(x, a) of the paper's Definition 1, made of the features
    of the action a and of columns x of the row.
    """

    of_items: tuple[str, ...] | None
    columns: Renames | None
    beside: bool = False
    known: tuple[str, ...] = ()  # columns of the items

    @contextmanager
    def resolving(self) -> Iterator[None]:
        """A block that looks names up in the logs: one that neither the items nor the logs have is said to be so."""
        try:
            yield
        except LogsError as error:
            name = next((one for one in self._of_logs() if error.what == f"no column '{one}'"), None)
            if name is None:
                raise
            hint = error_name_hint(name, self.known)
            todo = f"its columns are {', '.join(self.known[:12])}{hint}; of the logs, {error.todo}"
            raise LogsError(
                f"items have no column '{name}', nor have the logs", where=error.where, todo=todo
            ) from error

    def _of_logs(self) -> Sequence[str]:
        named = (self.columns or {}).get("features") if self.beside else None
        return [named] if isinstance(named, str) else named or ()

    @classmethod
    def of(cls, features: Any, items: Any, columns: Any) -> FeatureChoice:
        """From what `read_logs` is given: names are columns of the items if it has them, else of the logs."""
        columns = _columns_read_option(columns)
        if features is None:
            return cls(None, columns)
        names = feature_names_read_option(features)
        if not names:
            todo = "pass the names of columns, as features=['price', 'weight']"
            raise LogsError(f"features= is {show_invalid_value(features)}", where="features=", todo=todo)
        known = () if items is None else _item_columns_read_option(items)
        own = [name for name in names if name in known or any(fnmatchcase(one, name) for one in known)]
        others = tuple(name for name in names if name not in own)
        if items is None or not others or not known:
            of_items = None if items is None else expand_feature_column_names(names, known) if own else names
            return cls(of_items, {**(columns or {}), "features": None if items is not None else names})
        return cls(
            expand_feature_column_names(own, known) if own else None,
            {**(columns or {}), "features": others},
            True,
            known,
        )
