"""Joining the estimated distribution of users to a model: its basis, mean, factor and noise, and what to keep as evidence.

The basis spans the leading directions of E[beta beta^T] = m m^T + L L^T. With k directions of difference, that moment has rank k if the
mean lies in their span, m = L a, and k + 1 if it does not. Sampling alone leaves about (1 + |a|^2) d s2 / rows of the variance of rewards
outside the estimated span (the errors of m and of L a); the mean counts as outside if it shows `CLEARLY` times that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from newcomer.model import Model
from newcomer.population.forecast import forecast
from newcomer.population.search import Estimate
from newcomer.subspace import top_eigenvectors

Floats = NDArray[np.float64]

CLEARLY = 4.0


def basis_rank(estimate: Estimate) -> int:
    """Rank of the second moment: that of the factor, and one more if the mean lies outside its span."""
    prior, rows = estimate.prior, float(estimate.pairs.rows.sum())
    dim, rank = prior.factor.shape
    gram = estimate.pairs.gram.sum(axis=0) / rows
    image = gram @ prior.factor
    inside = np.linalg.lstsq(prior.factor.T @ image, image.T @ prior.mean, rcond=None)[0]
    outside = prior.mean - prior.factor @ inside
    chance = (1.0 + float(inside @ inside)) * dim * prior.noise / rows
    return int(rank) + int(rank < dim and float(outside @ gram @ outside) > CLEARLY * chance)


def with_prior(model: Model, estimate: Estimate, rank: int) -> Model:
    """The model with the basis (d, rank) and the distribution of the estimate."""
    prior = estimate.prior
    moment = np.outer(prior.mean, prior.mean) + prior.factor @ prior.factor.T
    return replace(
        model,
        basis=top_eigenvectors(moment, rank)[1],
        mean=prior.mean,
        factor=prior.factor,
        noise_variance=prior.noise,
        estimator="em",
        evidence={**model.evidence, "prior": facts_of(estimate)},
    )


def facts_of(estimate: Estimate) -> dict[str, Any]:
    """Why this prior, and what a newcomer may expect of it, in plain numbers."""
    prior, pairs = estimate.prior, estimate.pairs
    rows = int(pairs.rows.sum())
    return {
        "passes": estimate.passes,
        "likelihood": estimate.likelihood / rows,
        "directions": int(prior.factor.shape[1]),
        "users": int(pairs.users.sum()),
        "rows": rows,
        "forecast": forecast(prior, pairs.gram.sum(axis=0) / rows, pairs.shown.sum(axis=0) / rows).to_dict(),
        **estimate.evidence,
    }
