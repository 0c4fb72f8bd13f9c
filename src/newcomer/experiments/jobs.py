"""The pieces of work that figures are made of: plain records, each with a key that says everything its result depends on.

* `Fit`: a model from a world's logs;
* `Play`: thirty newcomers with one policy. ProBALL's rule Delta tau sqrt(t) <= d never looks at rewards, so a setting of radius and tau
  is, for a given horizon, nothing but the first round outside the subspace (`leaves`), and settings that share it share a run;
* `Table`: any other computation, a named function of `newcomer.experiments.tables`.

A policy's random numbers are named after its algorithm, not after tau: settings are compared with the same draws.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from newcomer.experiments.contenders import Stage, contender
from newcomer.experiments.places import (
    Seen,
    Setting,
    cluster_error,
    histories,
    kinds_of_users,
    noise_sd,
    true_basis,
    world,
)
from newcomer.fitting import fit
from newcomer.model import Model
from newcomer.simulation import play

FORMAT = 1  # of the results; a change makes all earlier ones stale
Scalar = str | int | float | None


@dataclass(frozen=True)
class Fit:
    """A model of `users` histories of `steps` steps; `rank` 0 lets the fit choose; `calibrate` asks for a calibrated radius."""

    world: str
    users: int
    steps: int
    estimator: str
    rank: int
    ridge: float | None = None
    seed: int = 1
    calibrate: bool = False


@dataclass(frozen=True)
class Play:
    """`trials` newcomers with one policy for `rounds` rounds.

    `leaves` is ProBALL's first round outside the subspace; `truth` gives it the true basis in place of the fitted one;
    `latent` shows every action through the true basis.
    """

    world: str
    policy: str
    rounds: int
    trials: int
    fit: Fit | None = None
    leaves: int | None = None
    truth: bool = False
    latent: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Table:
    """A named computation with plain arguments."""

    name: str
    arguments: tuple[tuple[str, Scalar], ...]


Job = Fit | Play | Table
SLOW = "LOCAL-UCB"


def slow_first(jobs: Iterable[Job]) -> list[Job]:
    """What takes minutes before what takes seconds, so that no worker is left alone with a long job at the end."""
    return sorted(jobs, key=lambda job: not _slow(job))


def _slow(job: Job) -> bool:
    if isinstance(job, Fit):  # whole real histories, and fits of parts
        return (job.estimator == "em" and not job.steps) or job.calibrate
    return isinstance(job, Play) and job.policy == SLOW


def key(job: Job, identity: str) -> str:
    """Content hash of a job; `identity` names scale and data."""
    return hashlib.sha256(f"{FORMAT} {identity} {to_text(job)}".encode()).hexdigest()[:24]


def to_text(job: Job) -> str:
    """The job as JSON."""
    return json.dumps({"kind": type(job).__name__, **asdict(job)}, sort_keys=True)


def from_text(text: str) -> Job:
    """The inverse of `to_text`."""
    parts: dict[str, Any] = json.loads(text)
    kind = parts.pop("kind")
    if kind == "Fit":
        return Fit(**parts)
    if kind == "Table":
        return Table(parts["name"], tuple((name, value) for name, value in parts["arguments"]))
    return Play(**{**parts, "fit": parts["fit"] and Fit(**parts["fit"])})


def first_round_outside(radius: float, tau: float, dim: int, rounds: int) -> int:
    """The round in which ProBALL (tau' = 0) leaves the subspace; `rounds` + 1 if it does not in this horizon."""
    pace = radius * tau
    if pace <= 0:
        return rounds + 1
    return min(math.floor((dim / pace) ** 2), rounds) + 1


def radius_to_leave(leaves: int, dim: int) -> float:
    """A radius with which ProBALL, tau = 1, leaves in exactly that round."""
    return dim / math.sqrt(leaves - 0.5)


def perform_fit(job: Fit, setting: Setting) -> Model:
    """Draw the logs and fit them."""
    logs = histories(world(job.world, setting), job.users, job.steps, job.seed)
    null = job.rank == 0 and job.estimator != "em"
    return fit(
        logs, rank=job.rank or "auto", estimator=job.estimator, ridge=job.ridge, null=null, calibrate=job.calibrate
    )


def perform_play(job: Play, setting: Setting, model: Model | None) -> pl.DataFrame:
    """The rows of `play`."""
    place = world(job.world, setting)
    if job.truth and model is not None:
        model = replace(model, basis=np.ascontiguousarray(true_basis(place)))
    view = Seen(place, true_basis(place)) if job.latent else place
    clusters, error = (partial(of, job.world, setting) for of in (kinds_of_users, cluster_error))
    stage = Stage(view.dim, job.rounds, noise_sd(place), model, job.leaves, clusters, error)  # type: ignore[arg-type]
    policy = contender(job.policy, stage)
    return play({job.policy: policy}, view, horizon=job.rounds, users=job.trials, seed=job.seed, progress=False)
