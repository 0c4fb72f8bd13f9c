"""What is typed, turned into values: ranks, sizes, column names, and how logs are read.

Each parser refuses in one sentence that names the option, before any file is read: `typer.BadParameter` is the error
that ends in exit code 2. The options by which commands read logs stand here once (`with_log_options`), as do the
engines that pass over them: this process alone, several of this machine, or a cluster.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from newcomer.cli import output
from newcomer.cli.output import Meter
from newcomer.errors import error_name_hint
from newcomer.findings import SPELLING

if TYPE_CHECKING:
    from newcomer._warm_start import SavedMoments
    from newcomer.findings import Findings
    from newcomer.logs import Logs
    from newcomer.logs.workers import Engine
    from newcomer.model import Model

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_rank(text: str) -> int | Literal["auto"]:
    """`auto`, or a whole number from 1.

    >>> parse_rank("auto"), parse_rank("3")
    ('auto', 3)
    """
    if text == "auto":
        return "auto"
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise typer.BadParameter(f"the rank is 'auto' or a whole number from 1, not '{text}'", param_hint="--rank")


def parse_size(text: str) -> int:
    """Bytes in `500MB`, `2 GiB` or a plain number.

    >>> parse_size("500MB"), parse_size("2 GiB")
    (500000000, 2147483648)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Z]*)", text.strip().upper())
    if not found or found[2] not in _UNITS:
        raise typer.BadParameter(f"a size is a number with KB, MB or GB, not '{text}'", param_hint="--memory")
    return int(float(found[1]) * _UNITS[found[2]])


def parse_columns(pairs: Sequence[str]) -> dict[str, str | list[str] | None]:
    """`user=uid` pairs: our name of a column = its name in the file.

    Features may name several (`features=a,b`); an optional column is left out with nothing (`step=`).

    >>> parse_columns(["user=uid", "features=a,b", "step="])
    {'user': 'uid', 'features': ['a', 'b'], 'step': None}
    """
    columns: dict[str, str | list[str] | None] = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals) or (not theirs and ours in ("user", "reward")):
            raise typer.BadParameter(f"write OURS=THEIRS, such as user=uid, not '{pair}'", param_hint="--column")
        columns[ours] = theirs.split(",") if ours == "features" and "," in theirs else theirs or None
    return columns


def parse_names(text: str, *, option: str = "--features") -> list[str]:
    """Names of columns, as `price,weight`.

    >>> parse_names("price, weight")
    ['price', 'weight']
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise typer.BadParameter(
            f"write names with commas between them, such as price,weight, not '{text}'", param_hint=option
        )
    return names


def parse_clip(text: str) -> tuple[float, float] | Literal["auto"]:
    """`auto`, or the limits of rewards as `LOW,HIGH`.

    >>> parse_clip("auto"), parse_clip("-1,5.5")
    ('auto', (-1.0, 5.5))
    """
    if text == "auto":
        return "auto"
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low, high = 0.0, 0.0
    if not -math.inf < low < high < math.inf:
        raise typer.BadParameter(f"write auto or LOW,HIGH, not '{text}'", param_hint="--clip")
    return low, high


def parse_epoch(text: str) -> Literal["s", "ms", "us", "ns"]:
    """The unit in which Unix times are counted: seconds, milli-, micro- or nanoseconds."""
    units: tuple[Literal["s", "ms", "us", "ns"], ...] = ("s", "ms", "us", "ns")
    for unit in units:
        if text == unit:
            return unit
    raise typer.BadParameter(f"the unit of times is one of {', '.join(units)}, not '{text}'", param_hint="--epoch")


def parse_word(text: str, option: str, choices: Sequence[str]) -> str:
    """One of a few words."""
    if text not in choices:
        raise typer.BadParameter(f"choose one of {', '.join(choices)}, not '{text}'", param_hint=option)
    return text


def parse_estimator(name: str) -> str:
    """One of the estimators that `newcomer.fit` knows; the list is kept there."""
    from newcomer._fit import ESTIMATORS

    if name not in ESTIMATORS:
        hint = error_name_hint(name, ESTIMATORS) or f"; choose one of {', '.join(ESTIMATORS)}"
        raise typer.BadParameter(f"there is no estimator '{name}'{hint}", param_hint="--estimator")
    return name


def parse_outcome(name: str) -> Any:
    """One of the outcomes that `newcomer.fit` knows; the list is kept there."""
    from newcomer.outcome import OUTCOMES

    if name not in OUTCOMES:
        hint = error_name_hint(name, OUTCOMES) or f"; choose one of {', '.join(OUTCOMES)}"
        raise typer.BadParameter(f"there is no outcome '{name}'{hint}", param_hint="--outcome")
    return name


def parse_delta(value: float) -> float:
    """A probability strictly between 0 and 1."""
    if not 0 < value < 1:
        raise typer.BadParameter(f"delta is a probability between 0 and 1, not {value:g}", param_hint="--delta")
    return value


def parse_persistence(value: float) -> float:
    """A share from 0 to less than 1."""
    if not 0 <= value < 1:
        raise typer.BadParameter(
            f"persistence is a share from 0 to less than 1, not {value:g}", param_hint="--persistence"
        )
    return value


def free_path_option(path: Path, *, force: bool, make_folder: bool = False, option: str = "--out") -> Path:
    """The path, if it can be written and nothing would be overwritten; asked before the long work, not after."""
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder", param_hint=option)
    if os.path.lexists(path) and path.exists() and not path.is_file():
        raise typer.BadParameter(f"{path} is a device or a pipe, not a file", param_hint=option)
    if path.exists() and not force:
        raise typer.BadParameter(f"{path} exists: pass --force to overwrite it", param_hint=option)
    if not (make_folder or Path(os.path.realpath(path)).parent.is_dir()):
        raise typer.BadParameter(f"the folder {path.parent} does not exist", param_hint=option)
    _try_to_write(path, option)
    return path


def free_folder_option(folder: Path, *, option: str) -> Path:
    """The folder, if files can be written to it, or to the folder that it will be made in."""
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is a file, not a folder", param_hint=option)
    _try_to_write(folder / "new", option)
    return folder


def _try_to_write(path: Path, option: str = "--out") -> None:
    """Refuse a place where no file can be made, because it is read-only or full."""
    from newcomer.errors import OutputError
    from newcomer.files import probe_file

    place = Path(os.path.realpath(path))
    while not place.parent.is_dir() and place.parent != place:
        place = place.parent
    try:
        probe_file(place)
    except OutputError as error:
        raise typer.BadParameter(
            f"{path} cannot be written: {error.what.partition(': ')[2]}", param_hint=option
        ) from error


def save_as_option_says(model: Model, path: Path) -> None:
    """Save a fitted model; where that fails after all, put it somewhere else and say where, for fits can take hours."""
    from newcomer.errors import OutputError
    from newcomer.files import rescue_file

    try:
        model.save(path)
    except OutputError as error:
        found = rescue_file(path.name, model.to_bytes())
        todo = f"the model was saved as {found} instead" if found else "no other folder takes the model either"
        raise OutputError(error.what, where=error.where, todo=todo) from error


LogsFile = Annotated[
    str, typer.Argument(metavar="LOGS", help="Parquet, CSV, JSON lines: file, folder, glob, -; or sqlite:///FILE.")
]
Items = Annotated[Path | None, typer.Option(metavar="ITEMS", help="Table of actions, with features or names.")]
Features = Annotated[str | None, typer.Option(metavar="A,B,C", help="Columns to use as features.")]
Users = Annotated[Path | None, typer.Option("--users", metavar="PEOPLE", help="Table of users, with attributes.")]
Attributes = Annotated[str | None, typer.Option(metavar="A,B,C", help="Columns of PEOPLE to use; default: all.")]
Rank = Annotated[str, typer.Option(metavar="auto|K", help="Number of shared directions.")]
Estimator = Annotated[str, typer.Option(metavar="NAME", help="em, sold, or sold-pinv (no ridge).")]
Outcome = Annotated[str, typer.Option(metavar="auto|gaussian|binary", help="Link for 0/1 rewards: linear or logistic.")]
Column = Annotated[list[str] | None, typer.Option(metavar="OURS=THEIRS", help="Rename: user=uid. Repeat.")]
Intercept = Annotated[bool, typer.Option("--intercept", help="Add a constant feature.")]
Clip = Annotated[str | None, typer.Option(metavar="auto|LOW,HIGH", help="Clip rewards to limits.")]
Grouped = Annotated[bool, typer.Option("--grouped", help="Rows of a user are adjacent: no sorting.")]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Sort on disk above this size (128MB).")]
Epoch = Annotated[str | None, typer.Option(metavar="s|ms|us|ns", help="step holds Unix times in this unit.")]
Missing = Annotated[str, typer.Option(metavar="error|drop", help="Rows with missing values: refuse or drop them.")]
TidyIds = Annotated[bool, typer.Option("--tidy-ids", help="Join ids that differ in case or blanks only.")]
Dates = Annotated[str | None, typer.Option(metavar="day-first|month-first", help="How to read 03/02/2020.")]
RewardTransform = Annotated[
    str | None, typer.Option(metavar="log1p", help="Learn log(1 + reward), for counts, money, times.")
]
EngineName = Annotated[str, typer.Option(metavar="local|dask", help="Read logs in this process, or on a Dask cluster.")]
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Address of a Dask cluster; default: start one here.")
]
Workers = Annotated[int | None, typer.Option(metavar="N", help="Number of processes; default: 1.")]
AllCores = Annotated[
    int | None, typer.Option("--workers", metavar="N", help="Number of processes; default: all cores.")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of all random draws.")]
Quick = Annotated[bool, typer.Option("--quick", help="Skip the learning curve and the simulation.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


DATES = ("day-first", "month-first")


@dataclass(frozen=True)
class LogReading:
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
    users: Path | None = None
    attributes: str | None = None

    def arguments(self) -> dict[str, Any]:
        """The same as arguments of `read_logs`."""
        return {
            "items": self.items,
            "features": None if self.features is None else parse_names(self.features),
            "columns": parse_columns(self.column or ()),
            "intercept": self.intercept,
            "clip": None if self.clip is None else parse_clip(self.clip),
            "grouped": self.grouped,
            "memory": None if self.memory is None else parse_size(self.memory),
            "epoch": None if self.epoch is None else parse_epoch(self.epoch),
            "missing": parse_word(self.missing, "--missing", ("error", "drop")),
            "tidy_ids": self.tidy_ids,
            "dates": None if self.dates is None else parse_word(self.dates, "--dates", DATES),
            "reward_transform": self._transform(),
            "users": self.users,
            "attributes": None if self.attributes is None else parse_names(self.attributes, option="--attributes"),
        }

    def _transform(self) -> str | None:
        from newcomer.transforms import TRANSFORMS

        return self.reward_transform and parse_word(self.reward_transform, "--reward-transform", TRANSFORMS)

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
        valued += [("--users", self.users), ("--attributes", self.attributes)]
        valued += [("--dates", self.dates), ("--reward-transform", self.reward_transform)]
        said = [word for name, value in valued if value is not None for word in (name, str(value))]
        flags = (("--intercept", self.intercept), ("--grouped", self.grouped), ("--tidy-ids", self.tidy_ids))
        return [*said, *(name for name, on in flags if on)]


READING: dict[str, tuple[Any, Any]] = {
    "items": (Items, None),
    "features": (Features, None),
    "users": (Users, None),
    "attributes": (Attributes, None),
    "column": (Column, None),
    "intercept": (Intercept, False),
    "clip": (Clip, None),
    "grouped": (Grouped, False),
    "memory": (Memory, None),
    "epoch": (Epoch, None),
    "missing": (Missing, "error"),
    "tidy_ids": (TidyIds, False),
    "dates": (Dates, None),
    "reward_transform": (RewardTransform, None),
}  # options by which logs are read: annotation and default


def with_log_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command every option of `READING`; it takes them together, checked, as its argument `how`."""
    own = inspect.signature(command, eval_str=True).parameters
    first, *rest = [one for one in own.values() if one.name != "how"]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in READING.items()
    ]
    ours = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in rest]
    last = [one for one in ours if one.name.startswith("json")]
    ordered = [first, *options[:4], *(one for one in ours if one not in last), *options[4:], *last]

    @wraps(command)
    def run(*given: Any, **named: Any) -> None:
        how = LogReading(**{name: named.pop(name) for name in READING if name in named})
        how.arguments()  # what makes no sense is refused before any file is opened
        command(*given, how=how, **named)

    run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in ordered}
    return run


def log_options_in_words(logs: str, how: LogReading, found: Findings | None = None) -> str:
    """The logs as a command names them, with the options they were read with; spellings joined where some differ."""
    flags = how.words()
    if found is not None and SPELLING in {one.name for one in found} and not how.tidy_ids:
        flags.append("--tidy-ids")
    return shlex.join(["LOGS" if logs == "-" else options_without_secrets(logs), *flags])


def options_without_secrets(logs: str) -> str:
    """What logs are called: their path, or the address of a store without the name and password that open it."""
    from newcomer.logs.service_store import is_service_store, service_store_address

    return service_store_address(logs) if is_service_store(logs) else logs


ENGINES = ("local", "dask")
SUFFIX = ".moments"  # of the file that --from looks for beside a model of sold


def check_log_options(engine: str, scheduler: str | None, workers: int | None) -> None:
    """Refuse options that contradict each other, before any file is read."""
    if engine not in ENGINES:
        raise typer.BadParameter(f"the engine is one of {', '.join(ENGINES)}, not '{engine}'", param_hint="--engine")
    if scheduler is not None and engine != "dask":
        raise typer.BadParameter("this needs --engine dask", param_hint="--scheduler")
    if scheduler is not None and workers is not None:
        raise typer.BadParameter("the cluster has its own number of workers", param_hint="--workers")
    if workers is not None and workers < 1:
        raise typer.BadParameter(f"there must be at least one worker, not {workers}", param_hint="--workers")


NOTHING = "none"  # what `--from` is given to start from nothing, also where logs are a store


def start_option(name: str | None, estimator: str, old: str | None) -> Model | SavedMoments | None:
    """What `--from` names: a model for em; for sold its moments, a file of that name or one beside the model."""
    path = None if name in (None, NOTHING) else Path(str(name))
    if path is None:
        if old is not None:
            raise typer.BadParameter("this needs --from", param_hint="--old")
        return None
    from newcomer._warm_start import SavedMoments
    from newcomer.model import load

    if estimator == "em":
        return load(path)
    if old is not None:
        raise typer.BadParameter("sold adds to saved moments and takes no old logs", param_hint="--old")
    beside = path if path.suffix == SUFFIX else path.with_suffix(SUFFIX)
    if not beside.exists():
        todo = f"{beside} does not exist: save moments with --moments {beside.name} when {path.name} is fitted"
        raise typer.BadParameter(todo, param_hint="--from")
    return SavedMoments.load(beside)


def start_of_store(url: str, logs: Logs, begin: Any) -> tuple[Model | None, str]:
    """Where a fit to the rows of a store starts, `begin` if that was asked for, and a sentence about it.

    Without being asked it goes on from the model that the store served first, if the logs are read as its logs were.
    """
    from newcomer._warm_start import warm_start
    from newcomer.errors import ModelError
    from newcomer.logs.service_store import models_of_service_store
    from newcomer.model import Model

    served, file = models_of_service_store(url)
    if begin is not None:
        said = "the store served this model after another one: if it was fitted to the store, its rows now count twice"
        return begin, f"--from: {said}" if getattr(begin, "id", "") in served[1:] else ""
    if file is None:
        return None, ""
    try:
        first = Model.from_bytes(file)
        warm_start(first, logs, add=True)
    except ModelError as error:
        return (
            None,
            f"This fit used the store's rows alone, without the model that the store served first: {error}",
        )
    known = "the model that this store served first, whose logs the store does not have"
    return first, f"The fit goes on from {first.id[:12]}, {known}; --from {NOTHING} fits the store alone."


@contextmanager
def read_logs_by_options(
    logs: str | list[str],
    how: LogReading,
    *,
    engine: str = "local",
    scheduler: str | None = None,
    workers: int | None = None,
    json: bool,
) -> Iterator[Logs]:
    """The logs that a command works on, with the workers that pass over them until the block is left.

    Advice goes to the screen before the long work: a column that was guessed wrong is better known now. With `json` it
    is a part of the object that is printed last.
    """
    check_log_options(engine, scheduler, workers)
    with engine_option(engine, scheduler, workers) as hands:
        read = how.read(logs, hands)
        if not json:
            output.print_advice(read.advice)
        yield read


@contextmanager
def engine_option(engine: str, scheduler: str | None, workers: int | None) -> Iterator[Engine | None]:
    """The workers that were asked for, ended when the block is left; None where this process will do."""
    if engine == "dask":
        from newcomer.logs.dask import Dask

        with Dask(scheduler, workers=workers) as cluster:
            yield cluster
    elif workers is not None and workers > 1:
        from newcomer.logs.workers import WorkerPool

        with WorkerPool(workers) as pool:
            yield pool
    else:
        yield None
