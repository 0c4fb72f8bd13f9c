"""The options by which commands read logs: written once, the same words for every command that takes LOGS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.cli import options
from newcomer.cli.progress import Meter

if TYPE_CHECKING:
    from newcomer.logs import Logs
    from newcomer.logs.carrying import Engine

LogsFile = Annotated[
    str, typer.Argument(metavar="LOGS", help="Parquet, CSV or JSON lines: file, folder, quoted glob, pipe, or -.")
]
Items = Annotated[Path | None, typer.Option(metavar="ITEMS", help="Table of actions: features, or names.")]
Features = Annotated[str | None, typer.Option(metavar="A,B,C", help="Columns that are features.")]
Rank = Annotated[str, typer.Option(metavar="auto|K", help="Number of shared directions.")]
Estimator = Annotated[str, typer.Option(metavar="NAME", help="em, sold, or sold-pinv (no ridge).")]
Column = Annotated[list[str] | None, typer.Option(metavar="OURS=THEIRS", help="Rename: user=uid. Repeat.")]
Intercept = Annotated[bool, typer.Option("--intercept", help="Add a constant feature.")]
Clip = Annotated[str | None, typer.Option(metavar="auto|LOW,HIGH", help="Bring rewards within limits.")]
Grouped = Annotated[bool, typer.Option("--grouped", help="Rows of a user are adjacent: no sorting.")]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Sort on disk above this, e.g. 500MB.")]
Epoch = Annotated[str | None, typer.Option(metavar="s|ms|us|ns", help="step holds Unix times in this unit.")]
Missing = Annotated[str, typer.Option(metavar="error|drop", help="Rows that lack a value: refuse, or leave out.")]
TidyIds = Annotated[bool, typer.Option("--tidy-ids", help="Ids that differ in case or blanks are the same.")]
Dates = Annotated[str | None, typer.Option(metavar="day-first|month-first", help="How to read 03/02/2020.")]
RewardTransform = Annotated[
    str | None, typer.Option(metavar="log1p", help="Learn log(1 + reward): counts, money, seconds.")
]
Workers = Annotated[int | None, typer.Option(metavar="N", help="Processes, a core each.")]


DATES = ("day-first", "month-first")


@dataclass(frozen=True)
class Reading:
    """How logs are to be read, as it was typed; what makes no sense is refused before any file is opened."""

    items: Path | None = None
    features: str | None = None
    column: Sequence[str] | None = None
    intercept: bool = False
    clip: str | None = None
    grouped: bool = False
    memory: str | None = None
    epoch: str | None = None
    missing: str = "error"
    tidy_ids: bool = False
    dates: str | None = None
    reward_transform: str | None = None

    def arguments(self) -> dict[str, Any]:
        """The same as arguments of `read_logs`."""
        return {
            "items": self.items,
            "features": None if self.features is None else options.parse_names(self.features),
            "columns": options.parse_columns(self.column or ()),
            "intercept": self.intercept,
            "clip": None if self.clip is None else options.parse_clip(self.clip),
            "grouped": self.grouped,
            "memory": None if self.memory is None else options.parse_size(self.memory),
            "epoch": None if self.epoch is None else options.parse_epoch(self.epoch),
            "missing": options.parse_word(self.missing, "--missing", ("error", "drop")),
            "tidy_ids": self.tidy_ids,
            "dates": None if self.dates is None else options.parse_word(self.dates, "--dates", DATES),
            "reward_transform": self._transform(),
        }

    def _transform(self) -> str | None:
        from newcomer.transforms import TRANSFORMS

        return self.reward_transform and options.parse_word(self.reward_transform, "--reward-transform", TRANSFORMS)

    def read(self, paths: str | list[str], engine: Engine | None = None) -> Logs:
        """The logs, with a bar while they are read."""
        from newcomer import read_logs

        settings = self.arguments()
        with Meter("Reading") as meter:
            return read_logs(paths, progress=meter, engine=engine, **settings)

    def words(self) -> list[str]:
        """The same as words of a command, for commands that are suggested."""
        valued = [("--items", self.items), ("--features", self.features), ("--clip", self.clip)]
        valued += [*(("--column", pair) for pair in self.column or ()), ("--memory", self.memory)]
        valued += [("--epoch", self.epoch), ("--missing", None if self.missing == "error" else self.missing)]
        valued += [("--dates", self.dates), ("--reward-transform", self.reward_transform)]
        said = [word for name, value in valued if value is not None for word in (name, str(value))]
        flags = (("--intercept", self.intercept), ("--grouped", self.grouped), ("--tidy-ids", self.tidy_ids))
        return [*said, *(name for name, on in flags if on)]
