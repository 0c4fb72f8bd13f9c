"""fit(): from logs to a model, with the reasons for every choice kept in `model.evidence`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from newcomer.errors import LogsError, ModelError, nearest
from newcomer.logs.engine import reduce
from newcomer.logs.logbook import BATCH_BYTES, Logs
from newcomer.model import Model
from newcomer.population.calibration import error_draws, sold_draws
from newcomer.population.refine import basis_rank, with_prior
from newcomer.population.search import Estimate, Passes, Progress, estimate_prior
from newcomer.radius import Ingredients
from newcomer.sold.moments import Moments, merge, moments_of
from newcomer.sold.rank import RankEvidence, RankTest, rank_evidence
from newcomer.subspace import Correction, Coverage, coverage_of, population_mean, second_moment, top_eigenvectors

Floats = NDArray[np.float64]

ESTIMATORS = ("em", "sold", "sold-pinv")
SHOWN = 64  # leading eigenvalues kept as evidence
SMALLEST_NOISE = 1e-9  # of the mean squared reward: a noise variance is never zero


def fit(
    logs: Logs,
    *,
    rank: int | Literal["auto"] = "auto",
    estimator: str = "em",
    ridge: float | None = None,
    literal: bool = False,
    uncovered: Literal["restrict", "error"] = "restrict",
    null: bool = True,
    calibrate: bool = True,
    progress: Callable[[int, int], None] | None = None,
    listen: Callable[[Progress], None] | None = None,
) -> Model:
    """Learn what users have in common.

    Parameters
    ----------
    rank : dimension of the shared subspace, or "auto": as held-out users call for (em), or leading eigenvalues above a
        null of sign flips (sold).
    estimator : "em" (the distribution of users, see `newcomer.population.search`), "sold" (the paper's, with a ridge) or "sold-pinv"
        (its pseudo-inverse version).
    ridge : mu of SOLD; None takes the mean squared norm of the features, so that the scale of features does not matter.
    literal : pool history lengths exactly as the paper does. By default lengths are kept apart, which differs
        only for ragged histories, where pooling is biased.
    uncovered : what to do about directions that no logged action reaches: leave them out, or raise.
    null : keep the null spectrum as evidence (needed for rank "auto" of sold).
    calibrate : measure how sure the basis is by fitting parts of the users apart: the radius of kind "calibrated".
    progress : called with (rows done, rows in all) again and again within each pass over the logs.
    listen : called after each pass of em with how many there were, at which stage, and the log-likelihood a row.

    >>> from newcomer.worlds import Synthetic
    >>> model = fit(Synthetic.learnable(dim=20, seed=1).logs(2000, 10, seed=1))
    >>> model.rank, model.dim
    (2, 20)
    """
    _check(logs, rank, estimator, ridge, null)
    mu, why = _ridge(logs, estimator, ridge)
    moments = reduce(logs, partial(moments_of, ridge=mu), merge, rows=_batch_rows(logs.dim), progress=progress)
    coverage = coverage_of(moments)
    _check_coverage(coverage, logs, uncovered)
    correction = Correction.of(moments, coverage)
    tests = rank_evidence(moments, correction=correction) if null else None
    estimate = estimate_prior(logs, rank=rank, progress=progress, listen=listen) if estimator == "em" else None
    chosen = _chosen(rank, tests, estimate)
    moment = second_moment(moments, literal=literal, correction=correction)
    spectrum, basis = top_eigenvectors(moment, chosen)
    mean = population_mean(moments, coverage=coverage)
    evidence = {
        "logs": asdict(logs.summary),
        "ridge": {"value": mu, "why": why},
        "rank": {"chosen": "auto" if rank == "auto" else "given", "rank": chosen},
        "coverage": _coverage_facts(coverage, logs, spectrum, chosen, moments),
    }
    if tests:
        evidence["rank"] |= {"moment": _facts(tests.moment), "covariance": _facts(tests.covariance)}
    if chosen:
        evidence["radius"] = Ingredients.of(moments, coverage, spectrum, chosen).to_dict()
    if chosen and calibrate:
        if estimate is None:
            draws = sold_draws(moments, correction, chosen)
        else:
            draws = error_draws(Passes(logs, progress, listen, estimate.passes), estimate, chosen)
        evidence["calibrated"] = draws.to_dict()
    model = Model(
        basis=basis,
        spectrum=spectrum,
        mean=mean,
        factor=_factor(moment, mean, basis),
        noise_variance=_noise_variance(moments, moment),
        estimator=estimator,
        parameters={
            "rank": rank if rank == "auto" else int(rank),
            "ridge": mu,
            "literal": literal,
            "uncovered": uncovered,
        },
        evidence=evidence,
        fingerprint=logs.summary.fingerprint,
        action_ids=logs.action_ids,
        intercept=logs.intercept,
    )
    return model if estimate is None else with_prior(model, estimate, chosen)


def _chosen(rank: int | str, tests: RankEvidence | None, estimate: Estimate | None) -> int:
    if rank != "auto":
        return int(rank)
    if estimate is not None:
        return basis_rank(estimate)
    return tests.moment.rank if tests else 0


def _check(logs: Logs, rank: int | str, estimator: str, ridge: float | None, null: bool) -> None:
    if estimator not in ESTIMATORS:
        choices = ", ".join(ESTIMATORS)
        raise ModelError(f"no estimator '{estimator}'", todo=f"choose one of {choices}{nearest(estimator, ESTIMATORS)}")
    if ridge is not None and not 0 < ridge < np.inf:
        raise ModelError(f"ridge is {ridge}", todo="pass a positive number, or estimator='sold-pinv' for none")
    if ridge is not None and estimator == "sold-pinv":
        raise ModelError("the pseudo-inverse version has no ridge", todo="drop ridge= or use estimator='sold'")
    if rank == "auto" and not null and estimator != "em":
        raise ModelError("rank 'auto' is found with the null", todo="leave null=True, or pass a number as rank=")
    if rank != "auto" and not (isinstance(rank, int | np.integer) and 1 <= rank <= logs.dim):
        raise ModelError(f"rank is {rank!r}", todo=f"pass 'auto' or a number from 1 to {logs.dim}, the dimension")
    needed = 2 if rank == "auto" else max(2, int(rank))
    if logs.summary.usable < needed:
        raise LogsError(
            f"{logs.summary.usable} of {logs.summary.users} users have the two rows that a history needs to be split",
            todo=f"rank {rank} takes at least {needed} such users: log more, or lower the rank",
        )


def _batch_rows(dim: int) -> int:
    """Rows of a batch: enough that adding up its d x d sums costs little beside computing them."""
    return max(BATCH_BYTES // (8 * dim), 16 * dim)


def _ridge(logs: Logs, estimator: str, ridge: float | None) -> tuple[float | None, str]:
    if estimator == "sold-pinv":
        return None, "pseudo-inverse: no ridge"
    if ridge is not None:
        return float(ridge), "given"
    norm = logs.summary.mean_squared_norm
    if norm == 0:
        raise LogsError("all features are zero", todo="log features that tell actions apart")
    return norm, "mean squared norm of the features"


def _check_coverage(coverage: Coverage, logs: Logs, uncovered: str) -> None:
    missing = coverage.uncovered.shape[1]
    if uncovered not in ("restrict", "error"):
        raise ModelError(f"uncovered is {uncovered!r}", todo="choose 'restrict' or 'error'")
    if missing == logs.dim:
        raise LogsError(
            f"no direction of the {logs.dim} features is reached by both halves of the histories",
            todo="log more rows, or use fewer features",
        )
    if missing and uncovered == "error":
        raise LogsError(
            f"{missing} of {logs.dim} directions of the features are reached by no logged action",
            todo="log actions that reach them, drop the features, or pass uncovered='restrict'",
        )


def _coverage_facts(coverage: Coverage, logs: Logs, spectrum: Floats, rank: int, moments: Moments) -> dict[str, Any]:
    """lambda_A and lambda_theta of Assumption 2 (the latter by its plug-in), and what was not reached."""
    lambda_theta = float(spectrum[rank - 1]) / moments.reward_max**2 if rank and moments.reward_max else 0.0
    weights = np.abs(coverage.uncovered).max(axis=1) if coverage.uncovered.size else np.zeros(0)
    return {
        "lambda_A": coverage.smallest,
        "lambda_theta": lambda_theta,
        "uncovered": int(coverage.uncovered.shape[1]),
        "uncovered_features": [int(i) for i in np.argsort(-weights, kind="stable")[:10] if weights[i] > 0.5],
    }


def _facts(test: RankTest) -> dict[str, Any]:
    low, high = np.quantile(test.null[:, :SHOWN], [0.025, 0.975], axis=0)
    return {
        "rank": test.rank,
        "level": test.level,
        "spectrum": test.observed[:SHOWN].tolist(),
        "null_low": low.tolist(),
        "null_high": high.tolist(),
        "threshold": test.thresholds[:SHOWN].tolist(),
    }


def _factor(moment: Floats, mean: Floats, basis: Floats) -> Floats:
    """F (d, k) with F F^T the positive part of the covariance S - m m^T within the subspace."""
    inside = basis.T @ (moment - np.outer(mean, mean)) @ basis
    values, vectors = np.linalg.eigh(inside)
    factor: Floats = basis @ (vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0)))
    return factor


def _noise_variance(moments: Moments, moment: Floats) -> float:
    """E[r^2] = sigma^2 + E[phi^T S phi], averaged over odd steps."""
    power = moments.reward_squares / moments.rows
    noise = power - float(np.vdot(moment, moments.gram)) / moments.rows
    return max(noise, SMALLEST_NOISE * power, np.finfo(np.float64).tiny)
