"""Reading: from files to validated rows, a bounded chunk at a time, in the order (file name, row).

Before the first row is read, every file is asked what decides how its columns are read (`FileFacts`). So what a value
means depends on no chunk, and what was decided is said in `Reader.notes`.

Which actions there are, and what their features are; and what is found out of a frame before it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.errors import LogsError
from newcomer.logs.columns import Epoch, Place, unix_time_column_note, unix_time_column_unit
from newcomer.logs.faults import Faults, fault_mentioning, repeated_steps_fault
from newcomer.logs.files import (
    FileFacts,
    Paths,
    TableFile,
    common_log_file_layout,
    find_log_files,
    is_empty_in_log_files,
    log_file_date_layout,
    log_file_dates_note,
    log_file_dialect_notes,
    log_file_has_decimal_comma,
    log_file_step_questions,
    log_file_value_counts,
    numeric_columns_of_log_file,
    same_users_in_log_files_note,
)
from newcomer.logs.frames import frame_to_polars, is_frame
from newcomer.logs.histories import Rows
from newcomer.logs.items import Items, item_action_column, item_spellings_note, only_item_names
from newcomer.logs.schema import LOOKS_LIKE_TIME, LogLayout, Renames, extract_by_schema, find_schema_time
from newcomer.logs.text_columns import (
    text_date_questions,
    text_dates_found,
    text_has_point,
    text_is_no_id,
    text_to_integers,
    text_to_numbers,
)

CHUNK_BYTES = 16 << 20  # of a chunk of rows: large enough that chunks cost little, small beside the memory of a fit
CHUNK_ROWS = 1024  # at least, however long rows are
Progress = Callable[[int, int], None]


def reader_of_small_table(path: str | PathLike[str], *, text: Callable[[Sequence[str]], Sequence[str]]) -> pl.DataFrame:
    """A small table, whole: a column of CSV is integers if all its values are, else numbers, else text.

    Of the names of the columns, `text` returns those that stay text.
    """
    (file,) = find_log_files(path)
    table = TableFile.of(file)
    with table.errors():
        frame = table.scan().collect()
    kept = set(text(table.names))
    names = [name for name in table.names if table.is_text(name) and name not in kept]
    return frame.with_columns(_typed_item(frame[name], comma=table.separator != ",") for name in names)


@dataclass(frozen=True)
class Reader:
    """Files of one layout, to be read any number of times.

    `total` counts their rows; `text_ids` says of every id column that came as text whether it stays text; `commas` are
    the names of files with decimal commas; `notes` what was found out without being asked for, as sentences.
    """

    tables: tuple[TableFile, ...]
    layout: LogLayout
    total: int
    text_ids: dict[str, bool]
    commas: frozenset[str]
    notes: dict[str, None]  # in order, each once; rows add to it as they are read

    @classmethod
    def of(
        cls,
        paths: Paths,
        columns: Renames | None,
        epoch: Epoch | None,
        asked_for: Callable[[LogLayout], LogLayout] = lambda layout: layout,
    ) -> Reader:
        """The files at `paths`, the one layout that all of them have, and what they say before their rows are read.

        `asked_for` puts what the caller wants into the layout.
        """
        tables = tuple(TableFile.of(file) for file in find_log_files(paths))
        layout = asked_for(common_log_file_layout(tables, columns, epoch))
        types = [table.types for table in tables]
        if layout.step is None:
            ask = lambda asked: [table.ask(*asked) for table in tables]
            layout = find_schema_time(layout, list(types[0]), types, ask, columns)
        layout = layout.without_empty(lambda name: is_empty_in_log_files(tables, name))
        if layout.arm is not None:
            asked = [table.ask(pl.col(layout.arm).unique())[layout.arm] for table in tables]
            layout = layout.with_arms(asked, Place(tables[0].name))
        layout = layout.with_levels(types, lambda name: log_file_value_counts(tables, name), where=tables[0].name)
        found = FileFacts.of(tables, layout)
        if found.steps is None and layout.step is not None and layout.dates is None:
            layout = log_file_date_layout(tables, layout)
        layout = found.dropping(layout) if layout.missing == "drop" else layout
        commas = frozenset(
            table.name for table in tables if log_file_has_decimal_comma(table, numeric_columns_of_log_file(layout))
        )
        unit = None if epoch is not None or found.steps is None else unix_time_column_unit(*found.steps)
        notes = [*layout.notes, *log_file_dialect_notes(tables, commas)]
        if unit is not None and found.steps is not None:
            layout = replace(layout, epoch=unit)
            notes.append(unix_time_column_note(str(layout.step), unit, found.steps))
        notes += same_users_in_log_files_note(tables, layout, found.text_ids)
        return cls(tables, layout, found.rows - found.dropped, found.text_ids, commas, dict.fromkeys(notes))

    def with_text(self, name: str | None) -> Reader:
        """The same with a column of ids kept as text, if it came as text."""
        return replace(self, text_ids={**self.text_ids, name: True}) if name in self.text_ids else self

    def distinct_actions(self) -> pl.Series:
        """Every distinct action; the commonest first where spellings are joined, else in no particular order."""
        name, found = self.layout.action, []
        if self.layout.tidy_ids:
            return self._counted_actions()
        for table in self.tables:
            action = pl.col(str(name))
            if self.layout.missing == "drop":
                action = action.filter(~pl.any_horizontal(*self.layout.incomplete(table.types).values()))
            column = self._typed(table, table.ask(action.drop_nulls().unique()))
            found.append(self.layout.action_ids(column, Place(table.name)))
            self._same_kind(str(name), _id_kind(found[0]), _id_kind(found[-1]), table)
        return pl.concat(found)

    def _counted_actions(self) -> pl.Series:
        """Every distinct action, the commonest of all files first."""
        name, found = str(self.layout.action), []
        for table in self.tables:
            with table.errors():
                complete = table.scan()
                if self.layout.missing == "drop":
                    complete = complete.filter(~pl.any_horizontal(*self.layout.incomplete(table.types).values()))
                counted = complete.select(name).drop_nulls().group_by(name).len().collect(engine="streaming")
            ids = self.layout.action_ids(self._typed(table, counted.select(name)), Place(table.name))
            found.append(pl.DataFrame({"id": ids, "len": counted["len"]}))
            self._same_kind(name, _id_kind(found[0]["id"]), _id_kind(ids), table)
        total = pl.concat(found).group_by("id").agg(pl.col("len").sum())
        return total.sort(["len", "id"], descending=[True, False])["id"]

    def rows(self, items: Items | None, progress: Progress | None = None) -> Iterator[Rows]:
        """Validated rows, chunk after chunk; every file must have the types of the first.

        Chunks bound the memory of reading. They may cut a user in two, which `arrange` mends, but carry on the number
        of the row, so that an error names the row of the file.
        """
        first: Rows | None = None
        done, faults = 0, Faults()
        for table in self.tables:
            start = 0
            for frame in self._frames(table):
                dim = None if first is None or first.features is None else first.features.shape[1]
                place = Place(table.name, start, faults=faults, header=table.kind == "csv")
                whole = len(frame)
                if self.layout.missing == "drop":
                    frame, place = _complete_rows_of_reader(frame, self.layout, place)
                start += whole
                if not len(frame):
                    continue
                rows = extract_by_schema(frame, self.layout, items, place, dim=dim)
                if faults:  # the rest is read to tell what else is wrong, and nothing more is handed out
                    continue
                first = first or rows
                self.compare(first, rows, table)
                done += len(rows)
                yield rows
                if progress is not None:
                    progress(done, self.total)
        if faults:
            self._note_repeats(faults)
        faults.refuse()

    @contextmanager
    def telling_all(self, items: Items | None) -> Iterator[None]:
        """For what sees some of the rows at a time: what it refuses is looked for in all of them and reported."""
        try:
            yield
        except LogsError as error:
            first = error
            try:
                for _ in self.rows(items):
                    pass
                faults = Faults()
                self._note_repeats(faults)
                faults.refuse()
            except LogsError as everything:
                first = everything
            users = same_users_in_log_files_note(self.tables, self.layout, self.text_ids)
            times = [note for note in self.layout.notes if LOOKS_LIKE_TIME in note]  # its gaps are no fault, but drop
            raise fault_mentioning(first, [*times, *users, *item_spellings_note(items)]) from error

    def _note_repeats(self, faults: Faults) -> None:
        """Add the integer steps that a user has more than once; only asked for once reading has failed."""
        step, user = self.layout.step, self.layout.user
        whole = step is not None and self.layout.epoch is None and not self.layout.ties
        questions = [log_file_step_questions(table, step, blanks=True) for table in self.tables] if whole else [None]
        if any(asked is None for asked in questions):
            return
        asked = list(zip(self.tables, questions, strict=True))
        if not all(table.ask(*(one or ()))[" whole"][0] for table, one in asked):
            return
        both = [
            table.scan().select(_plain(table, user, self.text_ids), _plain(table, str(step), {}))
            for table in self.tables
        ]
        counted = pl.concat(both).drop_nulls().group_by(user, str(step)).len().filter(pl.col("len") > 1)
        found = counted.sort(user, str(step)).collect(engine="streaming")
        if len(found):
            faults.note(repeated_steps_fault([row[:2] for row in found.head(3).iter_rows()], len(found)))

    def _frames(self, table: TableFile) -> Iterator[pl.DataFrame]:
        """The columns of the layout, typed, in chunks of about `CHUNK_BYTES`."""
        with table.errors():
            size = max(CHUNK_ROWS, CHUNK_BYTES // self._row_bytes(table))
            for frame in table.scan().select(self.layout.names()).collect_batches(chunk_size=size):
                if len(frame):
                    yield self._typed(table, frame)

    def _typed(self, table: TableFile, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame whose columns of text are numbers where they should be: this is where CSV turns into numbers.

        Ids stay text if any file holds one that is no integer. A column with a value that is no number stays text as
        well, for `columns` to name the value.
        """
        levels = (one.name for one in self.layout.levels if one.name != self.layout.action)
        kept = {self.layout.candidates, self.layout.arm, *levels}
        texts = [name for name in frame.columns if table.is_text(name) and name not in kept]
        names = [name for name in texts if not self.text_ids.get(name)]
        return frame.with_columns(self._typed_column(table, frame[name]) for name in names) if names else frame

    def _typed_column(self, table: TableFile, column: pl.Series) -> pl.Series:
        if column.name in self.text_ids or column.name == self.layout.step:
            return text_to_integers(column)
        values, words = text_to_numbers(column, comma=table.name in self.commas)
        if words:
            self.notes[f"{column.name} holds words: true and yes were read as 1, false and no as 0."] = None
        return values

    def _row_bytes(self, table: TableFile) -> int:
        """About how large a row is: 64 bytes, features and candidates; lists are measured on the first row."""
        features = self.layout.features
        lists = [name for name in (features, self.layout.candidates) if isinstance(name, str)]
        plain = 64 + 8 * len(self.layout.feature_names or ())
        if not lists:
            return plain
        return plain + max(64, 2 * int(table.scan().select(lists).head(1).collect().estimated_size()))

    @property
    def bytes_expected(self) -> int:
        """About how large all rows are."""
        return self.total * self._row_bytes(self.tables[0])

    def portable(self) -> Reader:
        """The same for another process, which opens the files by their paths."""
        tables = tuple(replace(table, file=replace(table.file, scratch=None)) for table in self.tables)
        return replace(self, tables=tables)

    def compare(self, first: Rows, rows: Rows, table: TableFile) -> None:
        """Refuse rows of a file that differ in kind from the first rows of all."""
        self._same_kind(self.layout.user, _id_kind(first.users), _id_kind(rows.users), table)
        self._same_kind(str(self.layout.step), _step_kind(first), _step_kind(rows), table)
        dims = [f"{0 if one.features is None else one.features.shape[1]} features" for one in (first, rows)]
        self._same_kind(str(self.layout.features), dims[0], dims[1], table)

    def _same_kind(self, name: str, earlier: str, found: str, table: TableFile) -> None:
        """Refuse a file whose column differs in kind from that of earlier files."""
        if found != earlier:
            raise LogsError(
                f"{name} holds {found} here and {earlier} in earlier rows",
                where=f"{table.name}, column {name}",
                todo="write all files with the same types",
            )


def _plain(table: TableFile, name: str, texts: dict[str, bool]) -> pl.Expr:
    """A column of integers that came as text as integers; others as they are."""
    column = pl.col(name)
    return (
        column.str.strip_chars().cast(pl.Int64, strict=False) if table.is_text(name) and not texts.get(name) else column
    )


def _complete_rows_of_reader(frame: pl.DataFrame, layout: LogLayout, place: Place) -> tuple[pl.DataFrame, Place]:
    """The rows of a frame that have all their values, and where these are."""
    gaps = layout.incomplete(frame.schema).values()
    kept = ~frame.select(pl.any_horizontal(*gaps).alias("gap"))["gap"]
    rows = np.flatnonzero(kept.to_numpy())
    return (frame, place) if len(rows) == len(frame) else (frame.filter(kept), replace(place, rows=rows))


def _typed_item(column: pl.Series, *, comma: bool) -> pl.Series:
    """A column of text of an items table: integers, or numbers, or text; numbers as 007 are no numbers, but codes."""
    frame = column.to_frame()
    if not frame.select(text_is_no_id(column.name).any()).item():
        return text_to_integers(column)
    if column.str.contains(r"^[+-]?0[0-9]+$").any():
        return column
    points = frame.select(text_has_point(column.name).any()).item()
    return text_to_numbers(column, comma=comma and not points)[0]


def _id_kind(ids: pl.Series) -> str:
    return "text" if ids.dtype == pl.String else "integers"


def _step_kind(rows: Rows) -> str:
    return "timestamps" if rows.timestamps else "integers"


def reader_inspects_frame(frame: pl.DataFrame, layout: LogLayout, *, spare_action: bool) -> LogLayout:
    """The layout without empty columns, and with the unit of steps that are Unix times by their size."""
    features = "beside" if spare_action else layout.features
    layout = replace(layout, features=features).without_empty(
        lambda name: name != "beside" and frame[name].null_count() == len(frame)
    )
    layout = replace(layout, features=None) if spare_action else layout
    layout = layout if layout.arm is None else layout.with_arms([frame[layout.arm]], Place())
    layout = layout.with_levels(
        [frame.schema], lambda name: frame.select(value=pl.col(name).cast(pl.String)).group_by("value").len()
    )
    if layout.step is not None and layout.dates is None and frame[layout.step].dtype == pl.String:
        dates, why = text_dates_found([frame.select(text_date_questions(layout.step))])
        settled = dates not in (None, "either")
        layout = layout.noting(*([log_file_dates_note(layout.step, str(dates), why)] if settled else []), dates=dates)
    if layout.step is None or layout.epoch is not None or not frame[layout.step].dtype.is_integer():
        return layout
    steps = frame[layout.step].min(), frame[layout.step].max()
    if not (isinstance(steps[0], int) and isinstance(steps[1], int)):
        return layout
    unit = unix_time_column_unit(steps[0], steps[1])
    return (
        layout
        if unit is None
        else layout.noting(unix_time_column_note(layout.step, unit, (steps[0], steps[1])), epoch=unit)
    )


def reader_rows_without_gaps(
    frame: pl.DataFrame, features: NDArray[np.floating] | None, layout: LogLayout, place: Place
) -> tuple[pl.DataFrame, NDArray[np.floating] | None, LogLayout, Place]:
    """The rows of a frame, and of the features (rows, d) beside it, that have all their values; the layout says so."""
    gaps = {name: frame.select(one.alias("gap"))["gap"] for name, one in layout.incomplete(frame.schema).items()}
    if features is not None:
        gaps["features"] = pl.Series(np.isnan(features).any(axis=1))
    lost = pl.DataFrame(list(gaps.values()), schema=list(gaps)).select(pl.any_horizontal(pl.all()).alias("gap"))["gap"]
    counts = {name: int(one.sum()) for name, one in gaps.items()}
    layout = layout.dropping(counts, int(lost.sum()), len(frame))
    rows = np.flatnonzero(~lost.to_numpy())
    return frame.filter(~lost), None if features is None else features[rows], layout, replace(place, rows=rows)


def reader_catalogue(
    items: Any,
    layout: LogLayout,
    actions: Callable[[], pl.Series],
    features: Sequence[str] | None = None,
    *,
    in_rows: bool,
    beside: bool = False,
    text: bool = False,
) -> Items | None:
    """The actions and, unless they are `in_rows`, their features; None for logs that name no actions.

    Features of items and columns of rows may stand `beside` one another: rows then have both.

    `actions` gives every action id of the logs; it is called only where no items table lists them. `text` says that ids
    in the logs came as text and stay so: those of a CSV of items then do as well. Spellings that are likely the same
    are noted, or joined where the layout says so.
    """
    found = _catalogue(items, layout, actions, features, in_rows=in_rows and not beside, text=text)
    if found is not None and beside:
        found = replace(found, in_rows=True)
    return None if found is None else replace(found, notes=(*found.notes, *item_spellings_note(found)))


def _catalogue(
    items: Any,
    layout: LogLayout,
    actions: Callable[[], pl.Series],
    features: Sequence[str] | None,
    *,
    in_rows: bool,
    text: bool,
) -> Items | None:
    other, tidy = layout.action, layout.tidy_ids
    if other is None:
        return None
    if in_rows:
        return Items.named(actions(), tidy=tidy)
    if items is None:
        return Items.one_hot(actions(), tidy=tidy)
    if isinstance(items, str | PathLike):
        frame = reader_of_small_table(
            items, text=lambda names: [item_action_column(names, other) or ""] if text else []
        )
        return _from_table(frame, actions, fspath(items), other, features, tidy=tidy)
    if is_frame(items):
        return _from_table(frame_to_polars(items), actions, "items", other, features, tidy=tidy)
    if features is not None:
        todo = "pass a table with named columns as items=, or only the columns that are to be features"
        raise LogsError("features= names columns and items is an array", where="features=", todo=todo)
    return Items.from_array(items)


def _from_table(
    frame: pl.DataFrame,
    actions: Callable[[], pl.Series],
    source: str,
    other: str,
    features: Sequence[str] | None,
    *,
    tidy: bool,
) -> Items:
    """The items of a table; one that has names and no features names the actions of the logs, which are one-hot."""
    if features is None and only_item_names(frame, other):
        return Items.one_hot(actions(), tidy=tidy).naming(frame, other=other, source=source)
    return Items.from_frame(frame, source=source, other=other, features=features, tidy=tidy)
