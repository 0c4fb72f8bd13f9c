"""The pieces of work that figures are made of: plain records, each with a key.

The key says everything that the result depends on.

* `Fit` is a model from a world's logs;
* `Play` is some newcomers served by one policy;
* `TableJob` is any other computation: the `run` of the figure whose id it names, with plain arguments.

ProBALL stays in the subspace while Delta tau sqrt(t) <= d (tau' = 0), a rule that never looks at rewards. A play
therefore depends on Delta and tau only through the first round outside the subspace. The job says which Delta and tau
were meant (`ExitRule`); its key has that round in their place, so that settings which leave in the same round share
one run. A policy's random numbers are named after its algorithm, not after tau: settings are compared on the same
draws.

The folder in which finished jobs are kept, by content hash.

A finished job is a file named after its key, written whole or not at all, so an interrupted run goes on where it
stopped, and figures that need the same job share it. The key has a hash of the code that the result rests on: after
a change of that code the job is done again. Every job draws from generators of its own, so results do not
depend on who did it.

Calls of very different length, done by worker processes (`newcomer.logs.workers`), and the time that is left.

Jobs differ in cost by a factor of a thousand, so the share of jobs that are done says nothing about the time left.
Each call therefore has a kind, the calls of which take about as long as each other, and a guess of how long that is,
until one of its kind has been timed (`time_left`).
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from newcomer.files import write_file
from newcomer.logs.workers import Work, WorkerPool
from newcomer.model import Model, load
from newcomer.paper import contents
from newcomer.paper.scale import Scale, Setting

FORMAT = 1  # of the results; a change makes all earlier ones stale
KEYS = "0.1.0"  # how keys are made: newcomer's version when that last changed
PLAYS = "newcomer.paper.performing"  # the module that does fits and plays
SLOW = "LOCAL-UCB"  # the policy whose plays take minutes
Scalar = str | int | float | None


@dataclass(frozen=True)
class Fit:
    """A model of `users` histories of `steps` steps.

    A `rank` of 0 lets the fit choose, `ridge` None as well; `calibrate` asks for a calibrated radius.
    """

    world: str
    users: int
    steps: int
    estimator: str
    rank: int
    ridge: float | None = None
    seed: int = 1
    calibrate: bool = False


@dataclass(frozen=True)
class ExitRule:
    """ProBALL's rule: stay in the subspace of R^`dim` while `radius` `tau` sqrt(t) <= `dim`."""

    radius: float
    tau: float
    dim: int

    def first_outside(self, rounds: int) -> int:
        """The first round outside the subspace, `rounds` + 1 if there is none in this horizon.

        The rule is asked round by round, in the arithmetic of the policy itself.

        >>> ExitRule(radius=54.0, tau=0.1, dim=50).first_outside(rounds=200)
        86
        """
        pace = self.radius * self.tau
        return 1 + sum(pace * math.sqrt(t) <= self.dim for t in range(1, rounds + 1))


@dataclass(frozen=True)
class Play:
    """`trials` newcomers served by one policy for `rounds` rounds.

    `exit` is ProBALL's rule for leaving the subspace (None: the policy's default); `truth` gives ProBALL the true
    basis in place of the fitted one; `latent` shows every action through the true basis.
    """

    world: str
    policy: str
    rounds: int
    trials: int
    fit: Fit | None = None
    exit: ExitRule | None = None
    truth: bool = False
    latent: bool = False
    seed: int = 0

    @property
    def left_at(self) -> int | None:
        """The first round outside the subspace, `rounds` + 1 if it is not left; None without a rule."""
        return None if self.exit is None else self.exit.first_outside(self.rounds)


@dataclass(frozen=True)
class TableJob:
    """The computation of a figure, `run`, with these arguments; `module` is where that computation is defined."""

    figure: str
    arguments: tuple[tuple[str, Scalar], ...]
    module: str = ""


Job = Fit | Play | TableJob


def module_behind(job: Job) -> str:
    """The module whose code, with all that it imports, the result of a job rests on.

    >>> module_behind(TableJob("geometry", (("seed", 1),), module="newcomer.paper.figures.geometry"))
    'newcomer.paper.figures.geometry'
    """
    return job.module if isinstance(job, TableJob) else PLAYS


def key(job: Job, identity: str) -> str:
    """The content hash of a job; `identity` names the kind of key, scale, data and the code behind the job."""
    parts = _parts(job)
    if isinstance(job, Play):
        parts["exit"] = job.left_at
    return hashlib.sha256(f"{FORMAT} {identity} {json.dumps(parts, sort_keys=True)}".encode()).hexdigest()[:24]


def to_text(job: Job) -> str:
    """The job as JSON."""
    return json.dumps(_parts(job), sort_keys=True)


def from_text(text: str) -> Job:
    """The inverse of `to_text`.

    >>> from_text(to_text(TableJob("geometry", (("seed", 1),))))
    TableJob(figure='geometry', arguments=(('seed', 1),), module='')
    """
    parts: dict[str, Any] = json.loads(text)
    kind = parts.pop("kind")
    if kind == "Fit":
        return Fit(**parts)
    if kind == "TableJob":
        arguments = tuple((name, value) for name, value in parts["arguments"])
        return TableJob(parts["figure"], arguments, parts["module"])
    records = {"fit": Fit, "exit": ExitRule}
    return Play(**parts | {name: parts[name] and record(**parts[name]) for name, record in records.items()})


def _parts(job: Job) -> dict[str, Any]:
    return {"kind": type(job).__name__, **asdict(job)}


def kind_of(job: Job) -> str:
    """A text that jobs share if they take about as long: everything but the seed, a play's model and its exit.

    >>> jobs = [TableJob("privacy", (("dim", 40), ("seed", seed))) for seed in (1, 2)]
    >>> kind_of(jobs[0]) == kind_of(jobs[1])
    True
    """
    parts = {name: value for name, value in _parts(job).items() if name not in ("seed", "fit", "exit", "truth")}
    if isinstance(job, TableJob):
        parts["arguments"] = [pair for pair in job.arguments if pair[0] != "seed"]
    return json.dumps(parts, sort_keys=True)


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """The jobs in the order in which they should start.

    What takes minutes comes first, so that no worker is left alone with a long job at the end; then one job of each
    kind, after which the time that the others will take is known.
    """
    seen: set[str] = set()

    def place(job: Job) -> tuple[bool, bool]:
        kind = kind_of(job)
        again = kind in seen
        seen.add(kind)
        return not _slow(job), again

    return sorted(jobs, key=place)


def _slow(job: Job) -> bool:
    if isinstance(job, Fit):  # fits of whole real histories, and fits of parts
        return (job.estimator == "em" and not job.steps) or job.calibrate
    return isinstance(job, Play) and job.policy == SLOW


@dataclass(frozen=True)
class JobFolder:
    """The results of one setting; `identity` names the kind of key, scale and data in the key of every job.

    `codes` has the hash of the code behind each module that was asked for so far (`newcomer.paper.contents`), which is
    part of the key as well: it takes seconds to find, so worker processes are given it.
    """

    folder: Path
    setting: Setting
    identity: str
    codes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, folder: Path, setting: Setting) -> JobFolder:
        """The results in `folder` for the ratings that the setting names.

        The hash of the ratings is part of every key, and so are the kind of key and the code behind the job:
        results of other data, or of code that may have computed something else, are never taken for these.
        """
        ratings = hashlib.sha256(Path(setting.data, "ratings.dat").read_bytes()).hexdigest()
        return cls(folder, setting, f"{KEYS} {setting.scale} {ratings}")

    @property
    def scale(self) -> Scale:
        """The sizes of this setting."""
        return self.setting.sizes

    def place(self, job: Job) -> Path:
        """Where the result of a job is, or will be."""
        ending = "newcomer" if isinstance(job, Fit) else "parquet"
        identity = f"{self.identity} {self._code(module_behind(job))}"
        return self.folder / f"{type(job).__name__.lower()}-{key(job, identity)}.{ending}"

    def _code(self, module: str) -> str:
        if module not in self.codes:
            self.codes[module] = contents.code([module], {"newcomer": contents.PACKAGE})
        return self.codes[module]

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs that have no result yet, in order; of several with one key the first."""
        wanted: dict[Path, Job] = {}
        for job in jobs:
            wanted.setdefault(self.place(job), job)
        return [job for place, job in wanted.items() if not place.is_file()]

    def rows(self, job: Play | TableJob) -> pl.DataFrame:
        """The result of a finished play or table."""
        return pl.read_parquet(self.place(job))

    def model(self, job: Fit) -> Model:
        """The model of a finished fit."""
        return load(self.place(job))

    def keep(self, job: Job, result: Model | pl.DataFrame) -> None:
        """Write the result of a job to its place, whole or not at all: a model as a model file, rows as Parquet."""
        if isinstance(result, Model):
            result.save(self.place(job))
        else:
            buffer = BytesIO()
            result.write_parquet(buffer)
            write_file(self.place(job), buffer.getvalue())

    @property
    def words(self) -> tuple[str, str, str, str]:
        """The folder in plain words, for other processes, which are given text and no objects."""
        return str(self.folder), json.dumps(asdict(self.setting)), self.identity, json.dumps(self.codes)

    @classmethod
    def from_words(cls, folder: str, setting: str, identity: str, codes: str) -> JobFolder:
        """The inverse of `words`."""
        return cls(Path(folder), Setting(**json.loads(setting)), identity, json.loads(codes))


Progress = Callable[[int, int, float | None], None]  # calls done, calls in all, seconds left or None if unknown
Plain = str | int | float | None


def run(
    pool: WorkerPool,
    work: Callable[..., None],
    calls: Sequence[tuple[Plain, ...]],
    kinds: Sequence[str],
    *,
    progress: Progress,
    guesses: Mapping[str, float] | None = None,
    later: float = 0.0,
) -> None:
    """Call `work` with each of the argument lists, started in their order; returns when all are done.

    `kinds` says of each call which others take about as long, `guesses` how long calls of a kind may take before one
    was timed, and `later` the guessed seconds of what comes after this. `progress` is called for every call that ends.
    """
    begun, waiting, taken = time.perf_counter(), dict(enumerate(kinds)), dict[str, list[float]]()
    for number, seconds in pool.as_done(Work(_timed, calls, work)):
        taken.setdefault(waiting.pop(number), []).append(seconds)
        elapsed = time.perf_counter() - begun
        left = time_left(list(waiting.values()), taken, pool.workers, guesses or {}, later=later, elapsed=elapsed)
        progress(len(calls) - len(waiting), len(calls), left)


def time_left(
    waiting: Sequence[str],
    taken: Mapping[str, Sequence[float]],
    workers: int,
    guesses: Mapping[str, float],
    *,
    later: float = 0.0,
    elapsed: float = 0.0,
) -> float:
    """Seconds until the calls of the kinds `waiting`, and `later` ones, are done, `elapsed` seconds after the start.

    A call is expected to take the mean of its kind or, if none of its kind was timed, its guess (1 without one) times
    the ratio of seconds to guesses so far. All work together, less what `workers` have had time for, is left: calls
    that are under way count with what they have done.

    >>> time_left(["play", "play"], {"play": [3.0, 5.0]}, 2, {}, elapsed=4.0)
    4.0
    >>> time_left(["fit"], {"play": [4.0]}, 1, {"play": 2.0, "fit": 10.0}, elapsed=4.0)
    20.0
    """
    done = sum(sum(own) for own in taken.values())
    guessed = sum(guesses.get(kind, 1.0) * len(own) for kind, own in taken.items())
    pace = done / guessed if guessed else 1.0
    means = {kind: sum(own) / len(own) for kind, own in taken.items()}
    total = sum(means.get(kind, pace * guesses.get(kind, 1.0)) for kind in waiting) + pace * later
    return max((done + total) / workers - elapsed, 0.1 * total / workers)


def guess(job: Job) -> float:
    """About how many seconds of one core a job takes, before any was timed: measured on scaled runs of `main`.

    EM reads its rows about ten times as long as SOLD does, calibrated fits longer still; a round of LOCAL-UCB takes a
    hundred times as long as one of the others, and more if there are more directions.
    """
    if isinstance(job, Fit):
        rows = job.users * (job.steps or 100)
        return 0.2 + rows * (2e-5 if job.estimator != "em" else 3e-4 if job.calibrate else 2e-4)
    if isinstance(job, Play):
        return 0.3 + job.rounds * job.trials * (
            (2e-2 if job.fit and job.fit.rank > 2 else 6e-3) if _slow(job) else 1e-4
        )
    return 10.0


def _timed(work: Callable[..., None], call: tuple[Plain, ...]) -> float:
    """What a worker does for one call; the seconds it took."""
    begun = time.perf_counter()
    work(*call)
    return time.perf_counter() - begun
