"""Components of the variance of rewards: what a newcomer may expect before anybody comes.

Over logged actions, the variance of rewards has three parts: the population mean (phi^T m), what users differ in
(phi^T L z), and noise. With C = E[phi phi^T] and c = E[phi], what users differ in is

    tr(L^T C L)  =  |L^T c|^2  +  tr(L^T C0 L),        C0 = Cov(phi) = C - c c^T,

the variance of a user's level, which moves all actions alike and can change no choice, and that of preferences, which
change the order of actions. The gain of picking the best of a few actions over a random one is proportional to the
square root of the variance between them (for normal scores).

The persistence: the share of the residual that comes again, by users who met an action more than once.

Error scales: how far the people whom a fit has not met are from what it says of them, each person by one number.

A model says how large errors of its predictions should be. For some people they are larger, for some smaller: people
use a scale of answers differently, variances are estimated, nothing is Gaussian. The test of whether a newcomer belongs
to the population (`OutlierTest` of policies/exits.py) must not take that for an outlier. So person u is given a scale
s_u: squared errors are s_u times as large as the model says, and the distribution of s in the population is estimated
from people who were held out of the fit. With h_u rows whose squared errors, in the units of the model, sum to q_u,

    log p(rows | s) = -1/2 [ h_u log s + q_u / s ]  +  what does not depend on s,

and the weights of s on a grid are those of highest likelihood (EM; Kiefer and Wolfowitz 1956, Laird 1978), to which
`BEFORE` people spread over scales up to `USUAL` are added. Larger ones must have been seen: who errs by more than
twice as much as is expected is an outlier, unless people of the logs are like that. Where one scale for all explains
the errors about as well, that is 1: a test that allows for other scales finds outliers a little later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from newcomer.arrays import Bools, Floats
from newcomer.em.likelihood import likelihood_squared_errors
from newcomer.em.pairs import TINY, Pairs
from newcomer.evidence import Forecast, PersistenceFacts
from newcomer.logs.reduce import Pass
from newcomer.one_hot import Square
from newcomer.population import Population


def forecast_variance_components(population: Population, gram: Square, centre: Floats) -> Forecast:
    """The parts of the variance of rewards, for logged actions with C = E[phi phi^T] = `gram` (d, d) and E[phi] (d,).

    >>> population = Population(np.zeros(2), np.array([[1.0], [0.0]]), 0.5)
    >>> forecast_variance_components(population, np.eye(2), np.zeros(2)).personal
    1.0
    """
    mean, factor = population.mean, population.factor
    level, levels = float(centre @ mean), centre @ factor
    return Forecast(
        common=max(float(mean @ (gram @ mean)) - level**2, 0.0),
        personal=float(np.trace(factor.T @ (gram @ factor))),
        noise_variance=population.noise_variance,
        level=float(levels @ levels),
    )


LARGEST_REPEATABILITY = 0.95  # data do not distinguish raters without noise from raters with little


def persistent_variance_share(pairs: Pairs, variances: Floats) -> PersistenceFacts | None:
    """The persistence, by users who met an action again; None where nobody did.

    Of an action with variance v, what does not last has the variance (1 - share) v, and so have deviations of a user's
    rewards from their own mean, over n - 1. So the sum of their squares over the sum of v, each repeat counted once,
    estimates 1 - share whatever the persistence, whatever users like, and however they choose. Its standard error is
    that of a ratio of sums over buckets of users. `repeats` is the number of normal residuals that would tell as much.
    """
    if not pairs.again.sum():
        return None
    expected = pairs.again @ variances
    within, total = pairs.within.sum(axis=1), float(expected.sum())
    ratio = float(within.sum()) / total
    error = float(np.sqrt(np.sum((within - ratio * expected) ** 2))) / total
    normal = float(np.sqrt(2.0 * float(repeat_variance_squares(pairs, variances)))) / total * min(ratio, 1.0)
    error = max(error, normal)
    estimate = min(max(1.0 - ratio, 0.0), LARGEST_REPEATABILITY)
    return PersistenceFacts(2.0 * (min(ratio, 1.0) / max(error, TINY)) ** 2, ratio, estimate, error)


def repeat_variance_squares(pairs: Pairs, variances: Floats) -> float:
    """The sum over repeats of v^2: what the variance of their squared deviations is proportional to."""
    return float(pairs.again.sum(axis=0) @ variances**2)


SCALES = 2.0 ** np.arange(-2.0, 4.5, 0.5)  # of squared errors: a quarter to sixteen times what is expected
USUAL = 4.0  # the largest scale that is believed in before anybody is seen
BEFORE = 0.5  # people, spread over scales up to that, who are believed in before anybody is seen
FEWEST = 10  # people below whom nothing is said
ENOUGH = 6.0  # log-likelihood that scales have to gain over the scale 1 for all
STEPS = 200  # of EM


def error_variance_scales(run: Pass, held_out: Sequence[tuple[Population, Bools]]) -> Floats:
    """Scales and their weights, (2, J), by populations with the buckets (B,) of the people they were not fitted to.

    Nothing, (0,), where people are few or do not differ.
    """
    wider = tuple((_widened(population), judged) for population, judged in held_out)
    found = run(partial(likelihood_squared_errors, held_out=wider), _join) if wider else np.zeros((0, 2))
    found = found[np.isfinite(found).all(axis=1) & (found[:, 0] > 0)]
    weights = variance_scale_weights(found)
    differ = len(found) >= FEWEST and variance_scale_gain(found, weights) > ENOUGH
    return np.stack([SCALES, weights]) if differ else np.zeros(0)


def variance_scale_weights(errors: Floats) -> Floats:
    """Weights (J,) of the `SCALES` by people with rows and sums of squared errors (n, 2).

    >>> people = np.array([[100.0, 100.0]] * 90 + [[100.0, 400.0]] * 10)
    >>> weights = variance_scale_weights(people)
    >>> [round(float(weights[SCALES == scale][0]), 2) for scale in (1, 2, 4)]
    [0.9, 0.0, 0.1]
    """
    logs = _log_likelihoods(errors)
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights, before = np.full(len(SCALES), 1.0 / len(SCALES)), BEFORE * (SCALES <= USUAL) / (SCALES <= USUAL).sum()
    for _ in range(STEPS):
        whose = likely * weights
        whose /= whose.sum(axis=1, keepdims=True)
        weights = (before + whose.sum(axis=0)) / (BEFORE + len(errors))
    return weights


def variance_scale_gain(errors: Floats, weights: Floats) -> float:
    """Log-likelihood of squared errors (n, 2) under weights (J,) of scales, less that of the scale 1 for all."""
    beyond = _log_likelihoods(errors) + 0.5 * errors[:, 1:]
    top = beyond.max(axis=1, keepdims=True)
    return float((top[:, 0] + np.log(np.exp(beyond - top) @ weights)).sum())


def _log_likelihoods(errors: Floats) -> Floats:
    """Of each of n people at each scale (n, J), up to a constant of the person."""
    return np.asarray(-0.5 * (errors[:, :1] * np.log(SCALES) + errors[:, 1:] / SCALES))


def _widened(population: Population) -> Population:
    """The population with the uncertainty of each action among its residual."""
    unsure = np.zeros(1) if population.uncertainty is None else population.uncertainty
    if population.by_action is None:
        return replace(population, noise_variance=population.noise_variance + float(unsure[0]))
    return replace(population, by_action=population.by_action + unsure)


def _join(first: Floats, second: Floats) -> Floats:
    return np.concatenate([first, second])
