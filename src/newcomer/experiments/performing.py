"""How a fit and a play are done: from the plain record to its result, in the process that calls."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl

from newcomer.experiments.jobs import Fit, Play
from newcomer.experiments.named_worlds import (
    Seen,
    cluster_error,
    histories,
    kinds_of_users,
    noise_sd,
    true_basis,
    world_named,
)
from newcomer.experiments.players import Stage, player
from newcomer.experiments.scale import Setting
from newcomer.fitting import fit
from newcomer.model import Model
from newcomer.simulation import play


def perform_fit(job: Fit, setting: Setting) -> Model:
    """Draw the logs and fit them; where SOLD has to choose the rank, its null distribution is computed."""
    logs = histories(world_named(job.world, setting), job.users, job.steps, job.seed)
    null = job.rank == 0 and job.estimator != "em"
    return fit(
        logs, rank=job.rank or "auto", estimator=job.estimator, ridge=job.ridge, null=null, calibrate=job.calibrate
    )


def perform_play(job: Play, setting: Setting, model: Model | None) -> pl.DataFrame:
    """The rows of `nc.play` for the one policy of the job; `model` is that of its fit."""
    place = world_named(job.world, setting)
    if job.truth and model is not None:
        model = replace(model, basis=np.ascontiguousarray(true_basis(place)))
    view = Seen(place, true_basis(place)) if job.latent else place
    clusters, error = partial(kinds_of_users, job.world, setting), partial(cluster_error, job.world, setting)
    policy = player(job.policy, Stage(view.dim, job.rounds, noise_sd(place), model, job.exit, clusters, error))
    return play({job.policy: policy}, view, horizon=job.rounds, users=job.trials, seed=job.seed, progress=False)
