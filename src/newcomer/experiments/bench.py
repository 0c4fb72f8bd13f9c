"""Where work is done and kept: results by content hash in a folder, made by processes that share nothing but plain text.

A finished job is a file named after its key, written whole or not at all, so an interrupted run goes on where it stopped and
figures that need the same run share it. Every job draws from generators of its own: the results are the same for any number
of processes. Workers are spawned with one BLAS thread each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

import polars as pl

from newcomer import __version__
from newcomer.experiments.jobs import Fit, Job, Play, Table, from_text, key, perform_fit, perform_play, to_text
from newcomer.experiments.places import Setting
from newcomer.experiments.pool import Crew, Progress
from newcomer.files import write
from newcomer.model import Model, load


@dataclass(frozen=True)
class Bench:
    """A folder of results for one setting; `identity` names scale, data and version in every key."""

    folder: Path
    setting: Setting
    identity: str

    @classmethod
    def at(cls, folder: Path, setting: Setting) -> Bench:
        """The bench in `folder` for the ratings that the setting names."""
        ratings = hashlib.sha256(Path(setting.data, "ratings.dat").read_bytes()).hexdigest()
        return cls(folder, setting, f"{__version__} {setting.scale} {ratings}")

    def place(self, job: Job) -> Path:
        """Where the result of a job is, or will be."""
        ending = "newcomer" if isinstance(job, Fit) else "parquet"
        return self.folder / f"{type(job).__name__.lower()}-{key(job, self.identity)}.{ending}"

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """Jobs that have no result yet, each once, in order."""
        return [job for job in dict.fromkeys(jobs) if not self.place(job).is_file()]

    def rows(self, job: Play | Table) -> pl.DataFrame:
        """The result of a finished job."""
        return pl.read_parquet(self.place(job))

    def model(self, job: Fit) -> Model:
        """The model of a finished fit."""
        return load(self.place(job))

    def radius(self, job: Fit, kind: str) -> float:
        """Delta_off as in the paper's figures: Frobenius, unclipped, coverage taken as known."""
        return self.model(job).radius(kind, norm="frobenius", clip=False, simplified=True)

    def do(self, job: Job) -> None:
        """Do one job here and keep the result."""
        from newcomer.experiments.tables import perform_table

        if isinstance(job, Fit):
            perform_fit(job, self.setting).save(self.place(job))
        elif isinstance(job, Play):
            _keep(perform_play(job, self.setting, self.model(job.fit) if job.fit else None), self.place(job))
        else:
            _keep(perform_table(job, self.setting), self.place(job))

    def do_all(self, jobs: Iterable[Job], crew: Crew, *, progress: Progress) -> None:
        """Let a crew do what is missing."""
        crew.run(_work, [(to_text(job), *self.words) for job in self.missing(jobs)], progress=progress)

    @property
    def words(self) -> tuple[str, str, str]:
        """The bench in plain words, for other processes."""
        return str(self.folder), json.dumps(asdict(self.setting)), self.identity

    @classmethod
    def from_words(cls, folder: str, setting: str, identity: str) -> Bench:
        """The inverse of `words`."""
        return cls(Path(folder), Setting(**json.loads(setting)), identity)


def _work(text: str, folder: str, setting: str, identity: str) -> None:
    """What a worker does: one job."""
    Bench.from_words(folder, setting, identity).do(from_text(text))


def _keep(frame: pl.DataFrame, place: Path) -> None:
    buffer = BytesIO()
    frame.write_parquet(buffer)
    write(place, buffer.getvalue())
