"""What files say before their rows are read: what decides how each column is read, found by a few questions.

A question is a Polars expression that is computed as a stream over each file (`TableFile.ask`), so that no file has to
fit into memory: whether ids are integers in all files, whether decimals are written with a comma, whether steps are
whole numbers, how often each level of a feature occurs. What was decided without being asked for becomes a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from newcomer.errors import LogsError
from newcomer.logs.columns import Epoch
from newcomer.logs.files import SEPARATORS, TableFile, translated
from newcomer.logs.schema import Layout, Renames, resolve
from newcomer.logs.text_columns import date_questions, dates_found, has_comma, has_point, is_no_id, spellings_note

MANY_USERS = 5_000_000  # above which ids are not compared for spellings: all of them would be held at once


def common_layout(tables: Sequence[TableFile], columns: Renames | None, epoch: Epoch | None) -> Layout:
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


@dataclass(frozen=True)
class FileFacts:
    """What files say before their rows are read: how many rows, which ids stay text, the range of integer steps."""

    rows: int
    text_ids: dict[str, bool]
    steps: tuple[int, int] | None
    dropped: int = 0  # rows with a missing value, where they are to be dropped
    gaps: dict[str, int] = field(default_factory=dict)  # how many of them each column has

    def dropping(self, layout: Layout) -> Layout:
        """The layout that says how many rows are left out."""
        return layout.dropping(self.gaps, self.dropped, self.rows)

    @classmethod
    def of(cls, tables: Sequence[TableFile], layout: Layout) -> FileFacts:
        """One look at the columns concerned of every file; the metadata of a Parquet file will often do."""
        ids = [name for name in (layout.user, layout.action) if name is not None]
        rows, lows, highs, whole = 0, [], [], layout.step is not None and layout.epoch is None
        text: dict[str, bool] = {}
        dropped, gaps = 0, dict[str, int]()
        for table in tables:
            if layout.missing == "drop":
                missing = layout.incomplete(table.types)
                told = table.ask(
                    pl.any_horizontal(*missing.values()).sum().alias(" any"),
                    *(one.sum().alias(name) for name, one in missing.items()),
                )
                dropped += int(told[" any"][0])
                gaps = {name: gaps.get(name, 0) + int(told[name][0]) for name in missing}
            asked = [name for name in ids if table.is_text(name)]
            steps = step_questions(table, layout.step) if whole else None
            plain = (is_no_id(name, blanks=False).any() for name in asked)
            answer = table.ask(pl.len().alias(" rows"), *plain, *(steps or ()))
            odd = [name for name in asked if answer[name][0]]
            if odd or (steps and not answer[" whole"][0]):  # perhaps only for the blanks
                again = [is_no_id(name).any() for name in odd] + (step_questions(table, layout.step, blanks=True) or [])
                answer = answer.with_columns(table.ask(*(again if steps else again[: len(odd)])))
            rows += int(answer[" rows"][0])
            text |= {name: text.get(name, False) or bool(answer[name][0]) for name in asked}
            whole = whole and (steps is not None) and (not answer[" rows"][0] or bool(answer[" whole"][0]))
            if whole and answer[" low"][0] is not None:
                lows.append(int(answer[" low"][0]))
                highs.append(int(answer[" high"][0]))
        return cls(rows, text, (min(lows), max(highs)) if whole and lows else None, dropped, gaps)


def step_questions(table: TableFile, name: str | None, *, blanks: bool = False) -> list[pl.Expr] | None:
    """Are the steps of a file whole numbers, and from where to where? None if their type says that they are not."""
    if name is None:
        return None
    column = lost = pl.col(str(name))
    if table.is_text(str(name)):
        column = (column.str.strip_chars() if blanks else column).cast(pl.Int64, strict=False)
    elif not table.schema[str(name)].is_integer():
        return None
    return [
        (column.null_count() == lost.null_count()).alias(" whole"),
        column.min().alias(" low"),
        column.max().alias(" high"),
    ]


def is_empty(tables: Sequence[TableFile], name: str) -> bool:
    """Whether no file holds a value of a column. The first row of the first file nearly always tells."""
    with translated(tables[0].name, tables[0].kind):
        first = tables[0].scan().select(name).head(1).collect()
    if len(first) and first[name].null_count() == 0:
        return False
    counts = [table.ask(pl.len().alias("rows"), pl.col(name).count()) for table in tables]
    return sum(int(c["rows"][0]) for c in counts) > 0 and not any(int(c[name][0]) for c in counts)


def value_counts(tables: Sequence[TableFile], name: str) -> pl.DataFrame:
    """The distinct values of a column in all files, as text, with how many rows have each."""
    counts = []
    for table in tables:
        with translated(table.name, table.kind):
            values = table.scan().select(value=pl.col(name).cast(pl.String))
            counts.append(values.group_by("value").len().collect(engine="streaming"))
    return pl.concat(counts).group_by("value").agg(pl.col("len").sum())


def dated(tables: Sequence[TableFile], layout: Layout) -> Layout:
    """The layout that knows how dates such as 03/02/2020 are to be read, where all files together settle it."""
    name = str(layout.step)
    texts = [table for table in tables if table.types[name] == pl.String]
    dates, why = dates_found([table.ask(*date_questions(name)) for table in texts]) if texts else (None, "")
    if dates is None or dates == "either":
        return replace(layout, dates=dates)
    return layout.noting(dates_note(name, dates, why), dates=dates)


def dates_note(name: str, dates: str, why: str) -> str:
    """What is said of dates that something settled."""
    return f"Dates in {name} are read with the {dates.removesuffix('-first')} first: {why} (dates= or --dates chooses)."


def likely_same_users(tables: Sequence[TableFile], layout: Layout, texts: dict[str, bool]) -> list[str]:
    """A note on users whose ids differ in case or blanks alone; those of actions are looked at in the catalogue.

    Ids of one case and without blanks are all that most files have, and cost one look; of very many others nothing is
    said, because all of them would have to be held at a time.
    """
    name = layout.user
    if layout.tidy_ids or not texts.get(name, all(table.types[name] == pl.String for table in tables)):
        return []
    user, plain = pl.col(name), pl.col(name).str.strip_chars()
    cases = {"low": plain.str.to_lowercase(), "high": plain.str.to_uppercase()}
    asked = [(user == one).all().alias(case) for case, one in cases.items()]
    looks = pl.concat([table.ask(*asked, user.approx_n_unique().alias("users")) for table in tables])
    if looks["low"].all() or looks["high"].all() or looks["users"].sum() > MANY_USERS:
        return []
    distinct = pl.concat([table.ask(user.drop_nulls().unique()) for table in tables])[name].unique()
    return spellings_note(distinct, "user")


def numeric_columns(layout: Layout) -> list[str]:
    """The columns of plain numbers."""
    return [name for name in (layout.reward, layout.propensity, *layout.numeric_features) if name is not None]


def decimal_comma(table: TableFile, names: Sequence[str]) -> bool:
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


def dialect_notes(tables: Sequence[TableFile], commas: frozenset[str]) -> list[str]:
    """What was found out about how CSV files are written, of the first file of each sort."""
    notes = {}
    for table in tables:
        if table.kind == "csv" and table.separator != ("\t" if ".tsv" in table.name.lower()[-7:] else ","):
            notes[f"separated by {SEPARATORS[table.separator]}"] = table.name
    said = [f"Columns are {what} ({name})." for what, name in notes.items()]
    return [*said, *(f"Decimals are written with a comma ({name})." for name in sorted(commas)[:1])]
