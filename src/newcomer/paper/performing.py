"""How a fit and a play are done: from the plain record to its result, in the process that calls.

Logs are drawn by the world from the fit's seed, newcomers by `play` from the play's seed, and a policy's own draws
from a stream that is named after the policy: a result depends on nothing but its record and the setting.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl

from newcomer._fit import fit
from newcomer.model import Model
from newcomer.paper.jobs import Fit, Play
from newcomer.paper.named_worlds import (
    Projected,
    cluster_error,
    histories,
    kinds_of_users,
    noise_sd,
    true_basis,
    world_named,
)
from newcomer.paper.players import Stage, player
from newcomer.paper.scale import Setting
from newcomer.simulate import play


def perform_fit(job: Fit, setting: Setting) -> Model:
    """Draw the logs and fit them.

    The null distribution of eigenvalues, by which SOLD chooses a rank, costs many fits and is computed only where the
    rank is left open; EM chooses by held-out users. SOLD is the paper's, symmetrised first; the replay's real histories
    (no `steps`) are ragged, which the paper's is not made for.
    """
    logs = histories(world_named(job.world, setting), job.users, job.steps, job.seed)
    null = job.rank == 0 and job.estimator != "em"
    return fit(
        logs,
        rank=job.rank or "auto",
        estimator=job.estimator,
        ridge=job.ridge,
        literal=job.estimator != "em" and job.steps > 0,
        null=null,
        calibrate=job.calibrate,
    )


def perform_play(job: Play, setting: Setting, model: Model | None) -> pl.DataFrame:
    """The rows of `nc.play` for the one policy of the job; `model` is that of its fit.

    With `truth` the model's basis is replaced and its evidence kept: SOLD's radii with the true subspace. With
    `latent` the policy sees a world of k dimensions; what it knows about clusters is still in all d.
    """
    place = world_named(job.world, setting)
    if job.truth and model is not None:
        model = replace(model, basis=np.ascontiguousarray(true_basis(place)))
    view = Projected(place, true_basis(place)) if job.latent else place
    clusters, error = partial(kinds_of_users, job.world, setting), partial(cluster_error, job.world, setting)
    policy = player(job.policy, Stage(view.dim, job.rounds, noise_sd(place), model, job.exit, clusters, error))
    return play({job.policy: policy}, view, horizon=job.rounds, users=job.trials, seed=job.seed, progress=False)
