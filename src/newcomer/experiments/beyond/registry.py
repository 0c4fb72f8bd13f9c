"""The studies by id: figure, the computation behind its jobs, and its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from newcomer.experiments.beyond import (
    coverage,
    films,
    local_regret,
    outside,
    ratings,
    ratings_regret,
    robust,
    subspace,
    users,
)
from newcomer.experiments.beyond.common import Verdicts
from newcomer.experiments.figure import Figure
from newcomer.experiments.jobs import Scalar
from newcomer.experiments.places import Setting

Run = Callable[[Setting, Mapping[str, Scalar]], pl.DataFrame]
_MODULES = (subspace, films, users, outside, robust, coverage, ratings, ratings_regret, local_regret)

STUDIES: dict[str, Figure] = {module.NAME: module.FIGURE for module in _MODULES}
RUNS: dict[str, Run] = {module.NAME: module.run for module in _MODULES}
VERDICTS: dict[str, Verdicts] = {module.NAME: module.verdicts for module in _MODULES}
NOTES: dict[str, str] = {module.NAME: module.__doc__ or "" for module in _MODULES}
DETAILS: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {module.NAME: module.details for module in _MODULES}
