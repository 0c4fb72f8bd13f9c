"""Computations that are neither fits nor plays, by name: each takes plain arguments and returns a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from newcomer.experiments import attributes, geometry, insufficiency, logger, samples
from newcomer.experiments.beyond.registry import RUNS
from newcomer.experiments.jobs import Scalar, Table
from newcomer.experiments.places import Setting

TABLES: Mapping[str, Callable[[Setting, Mapping[str, Scalar]], pl.DataFrame]] = {
    "subspace error and radii": samples.subspace_error,
    "insufficiency": insufficiency.run,
    "reward-seeking logger": logger.run,
    "geometry": geometry.run,
    attributes.NAME: attributes.run,
    **RUNS,
}


def perform_table(job: Table, setting: Setting) -> pl.DataFrame:
    """The table of a job."""
    return TABLES[job.name](setting, dict(job.arguments))
