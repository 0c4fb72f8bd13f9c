"""Which link a fit has: rewards as they are ("gaussian"), or 0/1 rewards through log-odds ("binary").

The Gaussian fit is made first, whatever is asked for: its rank and its directions are where clicks begin
(`newcomer.em.binary`), and the basis, its spectrum and its radius are its own. Asked for "auto", held-out users compare
both (`newcomer.gain.outcomes`) where rewards are 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from newcomer import validate
from newcomer._warm_start import WarmStart
from newcomer.arrays import Bools
from newcomer.em.binary import ClickStart, fit_binary_population
from newcomer.em.fit import FittedPopulation, blend_fitted_populations
from newcomer.em.passes import Passes
from newcomer.errors import LogsError, ModelError
from newcomer.evidence import Summary
from newcomer.logs.logs import Logs
from newcomer.model import Model
from newcomer.population import Population

OUTCOMES = ("auto", "gaussian", "binary")


def has_binary_outcome(summary: Summary) -> bool:
    """Whether all rewards of the logs are 0 or 1, and both occur."""
    mean, variance = summary.mean_reward, summary.reward_deviation**2
    return summary.reward_step == 1.0 and summary.max_reward == 1.0 and abs(mean * (1.0 - mean) - variance) <= 1e-9


def check_outcome(outcome: str, logs: Logs, estimator: str) -> None:
    """Refuse an outcome that makes no sense for these logs, or this estimator, in one sentence."""
    validate.one_of(outcome, "outcome", OUTCOMES, kind=ModelError)
    if outcome != "binary":
        return
    if estimator != "em":
        what = f"estimator='{estimator}' has no logistic link: it is linear in rewards"
        raise ModelError(what, todo="use estimator='em', or outcome='gaussian'")
    if logs.reward_transform is not None:
        raise ModelError("outcome='binary' takes rewards as they are", todo="leave out reward_transform=")
    if not has_binary_outcome(logs.summary):
        found = f"their mean is {logs.summary.mean_reward:.4g}, the largest {logs.summary.max_reward:.4g}"
        raise LogsError(f"outcome='binary' needs rewards of 0 and 1, both of them: {found}", todo="use 'gaussian'")


def tries_binary_outcome(outcome: str, logs: Logs, estimator: str, begun: WarmStart | None) -> bool:
    """Whether a fit of clicks is made; a refit has the outcome of the model it starts from, unless asked otherwise."""
    if outcome != "auto":
        return outcome == "binary"
    fits = estimator == "em" and logs.reward_transform is None and has_binary_outcome(logs.summary)
    return fits and (begun is None or begun.clicks is not None)


@dataclass(frozen=True)
class ClickFit:
    """Populations of log-odds: of everybody, and of parts of the users, each with the buckets of the others."""

    population: Population
    held_out: tuple[tuple[Population, Bools], ...]


def fit_binary_outcome(passes: Passes, people: FittedPopulation, begun: WarmStart | None) -> ClickFit:
    """Fit clicks from the Gaussian populations of a fit, to the users that each of these was fitted to."""
    logs, facts, begin = passes.logs, people.facts, people.origin

    def start(population: Population) -> ClickStart:
        directions = facts.directions if facts.weak is not None and facts.weak.kept else population.rank
        return ClickStart(
            population, directions, begin.table, facts.precision, facts.mean_precision, constant=logs.intercept
        )

    every = np.ones(len(begin.pairs.users), dtype=np.bool_)
    first, apart = (start(people.population), every), [(start(one), ~judged) for one, judged in people.held_out]
    if people.judges is passes:
        found, *others = fit_binary_population(passes, [first, *apart])
    else:
        (found,), others = (
            fit_binary_population(passes, [first]),
            fit_binary_population(people.judges, apart) if apart else [],
        )
    held_out = tuple((one, judged) for one, (_, judged) in zip(others, people.held_out, strict=True))
    if begun is None or not begun.users:
        return ClickFit(found, held_out)
    share = facts.users / (facts.users + begun.users)
    before = begun.clicks or start(begun.population).population(begun.population.rank)
    return ClickFit(
        blend_fitted_populations(before, found, share),
        tuple((blend_fitted_populations(before, one, share), who) for one, who in held_out),
    )


def as_binary_outcome(model: Model, population: Population) -> Model:
    """The model with a population of log-odds in place of its own; basis, spectrum and radius stay those of rewards."""
    return replace(
        model,
        mean=population.mean,
        factor=population.factor,
        noise_variance=population.noise_variance,
        residual_variance=np.zeros(0) if population.by_action is None else population.by_action,
        offsets=np.zeros(0) if population.offsets is None else population.offsets,
        uncertainty=np.zeros(0) if population.uncertainty is None else population.uncertainty,
        error_scales=np.zeros(0),
        outcome="binary",
    )
