"""The folder in which finished jobs are kept, by content hash.

A finished job is a file named after its key, written whole or not at all, so an interrupted run goes on where it
stopped, and figures that need the same job share it. Every job draws from generators of its own, so results do not
depend on who did it.
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
from newcomer.experiments.jobs import Fit, Job, Play, Table, key
from newcomer.experiments.scale import Scale, Setting
from newcomer.files import write
from newcomer.model import Model, load


@dataclass(frozen=True)
class JobFolder:
    """The results of one setting; `identity` names version, scale and data in the key of every job."""

    folder: Path
    setting: Setting
    identity: str

    @classmethod
    def at(cls, folder: Path, setting: Setting) -> JobFolder:
        """The results in `folder` for the ratings that the setting names.

        The hash of the ratings is part of every key, and so is the version of newcomer: results of other data, or of a
        release that may have computed something else, are never taken for these.
        """
        ratings = hashlib.sha256(Path(setting.data, "ratings.dat").read_bytes()).hexdigest()
        return cls(folder, setting, f"{__version__} {setting.scale} {ratings}")

    @property
    def scale(self) -> Scale:
        """The sizes of this setting."""
        return self.setting.sizes

    def place(self, job: Job) -> Path:
        """Where the result of a job is, or will be."""
        ending = "newcomer" if isinstance(job, Fit) else "parquet"
        return self.folder / f"{type(job).__name__.lower()}-{key(job, self.identity)}.{ending}"

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs that have no result yet, in order; of several with one key the first."""
        wanted: dict[Path, Job] = {}
        for job in jobs:
            wanted.setdefault(self.place(job), job)
        return [job for place, job in wanted.items() if not place.is_file()]

    def rows(self, job: Play | Table) -> pl.DataFrame:
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
            write(self.place(job), buffer.getvalue())

    @property
    def words(self) -> tuple[str, str, str]:
        """The folder in plain words, for other processes, which are given text and no objects."""
        return str(self.folder), json.dumps(asdict(self.setting)), self.identity

    @classmethod
    def from_words(cls, folder: str, setting: str, identity: str) -> JobFolder:
        """The inverse of `words`."""
        return cls(Path(folder), Setting(**json.loads(setting)), identity)
