"""Reading: from files to validated rows, a bounded chunk at a time, in the order (file name, row).

Before the first row is read, every file is asked what decides how its columns are read: whether ids are integers in
all files, whether decimals are written with a comma, whether steps are Unix times. So what a value means depends on no
chunk, and what was decided is said in `Reader.notes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike

import polars as pl

from newcomer.errors import LogsError
from newcomer.logs.intake.columns import Epoch, Place, unix_note, unix_unit
from newcomer.logs.intake.finding import Paths, find_files
from newcomer.logs.intake.histories import Rows
from newcomer.logs.intake.items import Items
from newcomer.logs.intake.layout import Layout, Renames, extract, resolve
from newcomer.logs.intake.opening import SEPARATORS, Table, translated
from newcomer.logs.intake.texts import has_comma, has_point, integers, is_no_id, numbers_in

CHUNK_BYTES = 16 << 20
CHUNK_ROWS = 1024  # at least
Progress = Callable[[int, int], None]


def read_table(path: str | PathLike[str], *, text: Callable[[Sequence[str]], Sequence[str]]) -> pl.DataFrame:
    """A small table, whole: a column of CSV is integers if all its values are, else numbers, else text.

    Of the names of the columns, `text` returns those that stay text.
    """
    (file,) = find_files(path)
    table = Table.of(file)
    with translated(table.name, table.kind):
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

    tables: tuple[Table, ...]
    layout: Layout
    total: int
    text_ids: dict[str, bool]
    commas: frozenset[str]
    notes: dict[str, None]  # in order, each once; rows add to it as they are read

    @classmethod
    def of(cls, paths: Paths, columns: Renames | None, epoch: Epoch | None) -> Reader:
        """The files at `paths`, the one layout that all of them have, and what they say before their rows are read."""
        tables = tuple(Table.of(file) for file in find_files(paths))
        layout = _common_layout(tables, columns, epoch)
        layout = layout.without_empty(lambda name: _is_empty(tables, name))
        if layout.arm is not None:
            asked = [table.ask(pl.col(layout.arm).unique())[layout.arm] for table in tables]
            layout = layout.with_arms(asked, Place(tables[0].name))
        found = _Answers.of(tables, layout)
        commas = frozenset(table.name for table in tables if _decimal_comma(table, _numeric(layout)))
        unit = None if epoch is not None or found.steps is None else unix_unit(*found.steps)
        notes = [*layout.notes, *_dialect_notes(tables, commas)]
        if unit is not None and found.steps is not None:
            layout = replace(layout, epoch=unit)
            notes.append(unix_note(str(layout.step), unit, found.steps))
        return cls(tables, layout, found.rows, found.text_ids, commas, dict.fromkeys(notes))

    def with_text(self, name: str | None) -> Reader:
        """The same with a column of ids kept as text, if it came as text."""
        return replace(self, text_ids={**self.text_ids, name: True}) if name in self.text_ids else self

    def distinct_actions(self) -> pl.Series:
        """Every distinct action, in no particular order."""
        name, found = self.layout.action, []
        for table in self.tables:
            column = self._typed(table, table.ask(pl.col(str(name)).drop_nulls().unique()))
            found.append(self.layout.action_ids(column, Place(table.name)))
            self._same_kind(str(name), _id_kind(found[0]), _id_kind(found[-1]), table)
        return pl.concat(found)

    def rows(self, items: Items | None, progress: Progress | None = None) -> Iterator[Rows]:
        """Validated rows, chunk after chunk; every file must have the types of the first.

        Chunks bound the memory of reading. They may cut a user in two, which `arrange` mends, but carry on the number
        of the row, so that an error names the row of the file.
        """
        first: Rows | None = None
        done = 0
        for table in self.tables:
            start = 0
            for frame in self._frames(table):
                dim = None if first is None or first.features is None else first.features.shape[1]
                rows = extract(frame, self.layout, items, Place(table.name, start), dim=dim)
                first = first or rows
                self.compare(first, rows, table)
                start += len(rows)
                done += len(rows)
                yield rows
                if progress is not None:
                    progress(done, self.total)

    def _frames(self, table: Table) -> Iterator[pl.DataFrame]:
        """The columns of the layout, typed, in chunks of about `CHUNK_BYTES`."""
        with translated(table.name, table.kind):
            size = max(CHUNK_ROWS, CHUNK_BYTES // self._row_bytes(table))
            for frame in table.scan().select(self.layout.names()).collect_batches(chunk_size=size):
                if len(frame):
                    yield self._typed(table, frame)

    def _typed(self, table: Table, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame whose columns of text are numbers where they should be: this is where CSV turns into numbers.

        Ids stay text if any file holds one that is no integer. A column with a value that is no number stays text as
        well, for `columns` to name the value.
        """
        kept = (self.layout.candidates, self.layout.arm)
        texts = [name for name in frame.columns if table.is_text(name) and name not in kept]
        names = [name for name in texts if not self.text_ids.get(name)]
        return frame.with_columns(self._typed_column(table, frame[name]) for name in names) if names else frame

    def _typed_column(self, table: Table, column: pl.Series) -> pl.Series:
        if column.name in self.text_ids or column.name == self.layout.step:
            return integers(column)
        values, words = numbers_in(column, comma=table.name in self.commas)
        if words:
            self.notes[f"{column.name} holds words: true and yes were read as 1, false and no as 0."] = None
        return values

    def _row_bytes(self, table: Table) -> int:
        """About how large a row is: 64 bytes, features and candidates; lists are measured on the first row."""
        features = self.layout.features
        lists = [name for name in (features, self.layout.candidates) if isinstance(name, str)]
        plain = 64 + (0 if isinstance(features, str) else 8 * len(features or ()))
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

    def compare(self, first: Rows, rows: Rows, table: Table) -> None:
        """Refuse rows of a file that differ in kind from the first rows of all."""
        self._same_kind(self.layout.user, _id_kind(first.users), _id_kind(rows.users), table)
        self._same_kind(str(self.layout.step), _step_kind(first), _step_kind(rows), table)
        dims = [f"{0 if one.features is None else one.features.shape[1]} features" for one in (first, rows)]
        self._same_kind(str(self.layout.features), dims[0], dims[1], table)

    def _same_kind(self, name: str, earlier: str, found: str, table: Table) -> None:
        """Refuse a file whose column differs in kind from that of earlier files."""
        if found != earlier:
            raise LogsError(
                f"{name} holds {found} here and {earlier} in earlier rows",
                where=f"{table.name}, column {name}",
                todo="write all files with the same types",
            )


@dataclass(frozen=True)
class _Answers:
    """What files say before their rows are read: how many rows, which ids stay text, the range of integer steps."""

    rows: int
    text_ids: dict[str, bool]
    steps: tuple[int, int] | None

    @classmethod
    def of(cls, tables: Sequence[Table], layout: Layout) -> _Answers:
        """One look at the columns concerned of every file; the metadata of a Parquet file will often do."""
        ids = [name for name in (layout.user, layout.action) if name is not None]
        rows, lows, highs, whole = 0, [], [], layout.step is not None and layout.epoch is None
        text: dict[str, bool] = {}
        for table in tables:
            asked = [name for name in ids if table.is_text(name)]
            steps = _step_questions(table, layout.step) if whole else None
            answer = table.ask(pl.len().alias(" rows"), *(is_no_id(name).any() for name in asked), *(steps or ()))
            rows += int(answer[" rows"][0])
            text |= {name: text.get(name, False) or bool(answer[name][0]) for name in asked}
            whole = whole and (steps is not None) and (not answer[" rows"][0] or bool(answer[" whole"][0]))
            if whole and answer[" low"][0] is not None:
                lows.append(int(answer[" low"][0]))
                highs.append(int(answer[" high"][0]))
        return cls(rows, text, (min(lows), max(highs)) if whole and lows else None)


def _step_questions(table: Table, name: str | None) -> list[pl.Expr] | None:
    """Are the steps of a file whole numbers, and from where to where? None if their type says that they are not."""
    column = pl.col(str(name))
    if table.is_text(str(name)):
        column = column.cast(pl.Int64, strict=False)
    elif not table.schema[str(name)].is_integer():
        return None
    return [
        (column.null_count() == 0).alias(" whole"),
        column.min().alias(" low"),
        column.max().alias(" high"),
    ]


def _common_layout(tables: Sequence[Table], columns: Renames | None, epoch: Epoch | None) -> Layout:
    """The layout of the first file, if every other file has the same columns."""
    layouts = [resolve(table.names, columns, source=table.name, epoch=epoch) for table in tables]
    expected = set(layouts[0].names())
    for table, layout in zip(tables, layouts, strict=True):
        odd = sorted(set(layout.names()) ^ expected)
        if odd:
            here, there = ("missing here", "there in") if odd[0] in expected else ("only here", "not in")
            todo = "write all files with the same columns"
            raise LogsError(f"column '{odd[0]}' is {here}, {there} {tables[0].name}", where=table.name, todo=todo)
    return layouts[0]


def _is_empty(tables: Sequence[Table], name: str) -> bool:
    """Whether no file holds a value of a column. The first row of the first file nearly always tells."""
    with translated(tables[0].name, tables[0].kind):
        first = tables[0].scan().select(name).head(1).collect()
    if len(first) and first[name].null_count() == 0:
        return False
    counts = [table.ask(pl.len().alias("rows"), pl.col(name).count()) for table in tables]
    return sum(int(c["rows"][0]) for c in counts) > 0 and not any(int(c[name][0]) for c in counts)


def _numeric(layout: Layout) -> list[str]:
    """The columns of plain numbers."""
    several = layout.features if isinstance(layout.features, tuple) else ()
    return [name for name in (layout.reward, layout.propensity, *several) if name is not None]


def _decimal_comma(table: Table, names: Sequence[str]) -> bool:
    """Whether a CSV writes decimals with a comma; where others have a point, 1.234 might be a thousand: refused.

    Between commas a comma in a number must stand in quotes, and is more likely to mark thousands.
    """
    asked = [name for name in names if table.is_text(name)]
    if table.kind != "csv" or table.separator == "," or not asked:
        return False
    answer = table.ask(
        *(has_comma(name).any() for name in asked), *(has_point(name).any().name.suffix(" points") for name in asked)
    )
    found = [name for name in asked if answer[name][0]]
    for name in asked if found else ():
        if answer[f"{name} points"][0]:
            todo = "write all numbers with a point, or all with a comma"
            where = f"{table.name}, column {name}"
            raise LogsError(f"{name} has points where {found[0]} has decimal commas", where=where, todo=todo)
    return bool(found)


def _dialect_notes(tables: Sequence[Table], commas: frozenset[str]) -> list[str]:
    """What was found out about how CSV files are written, of the first file of each sort."""
    notes = {}
    for table in tables:
        if table.kind == "csv" and table.separator != ("\t" if ".tsv" in table.name.lower()[-7:] else ","):
            notes[f"separated by {SEPARATORS[table.separator]}"] = table.name
    said = [f"Columns are {what} ({name})." for what, name in notes.items()]
    return [*said, *(f"Decimals are written with a comma ({name})." for name in sorted(commas)[:1])]


def _typed_item(column: pl.Series, *, comma: bool) -> pl.Series:
    """A column of text of an items table: integers, or numbers, or text; numbers as 007 are no numbers, but codes."""
    frame = column.to_frame()
    if not frame.select(is_no_id(column.name).any()).item():
        return integers(column)
    if column.str.contains(r"^[+-]?0[0-9]+$").any():
        return column
    points = frame.select(has_point(column.name).any()).item()
    return numbers_in(column, comma=comma and not points)[0]


def _id_kind(ids: pl.Series) -> str:
    return "text" if ids.dtype == pl.String else "integers"


def _step_kind(rows: Rows) -> str:
    return "timestamps" if rows.timestamps else "integers"
