"""Which link a fit has: rewards as they are ("gaussian"), or 0/1 rewards through log-odds ("binary").

The Gaussian fit is made first, whatever is asked for: its rank and its directions are where clicks begin
(`newcomer.em.binary`), and the basis, its spectrum and its radius are its own. Asked for "auto", held-out users compare
both (`newcomer.outcome`) where rewards are 0 and 1.

Gaussian or binary? Held-out users compare two fits of the same 0/1 rewards, by log score and by gain.

Both models know the same rows of a person and are asked about the same candidates (`newcomer.gain.deals`). The log
score of a candidate is r log P + (1 - r) log(1 - P), P what the model expects, kept within `EDGE` of 0 and 1: a normal
distribution may expect less than nothing. The gain is what PriorUCB's choice pays (`newcomer.gain.heldout_gain`).
Differences are paired, person by person. The Gaussian model is simpler and stays, unless the binary one has the clearly
better log score (by `CLEAR` standard errors) and its choices do not pay less (by more than `WORSE` standard errors).
The log score decides because every probability counts in it, the gain only which candidate is best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from newcomer._warm_start import WarmStart
from newcomer.arrays import Bools, Floats, Ints
from newcomer.em.binary import ClickStart, fit_binary_population
from newcomer.em.fit import FittedPopulation, blend_fitted_populations
from newcomer.em.passes import Passes
from newcomer.errors import LogsError, ModelError
from newcomer.evidence import OutcomeFacts, Summary
from newcomer.gain import heldout_gain
from newcomer.gain.deals import PerUser, deal_rows, dealt_actions, inform_dealt_users
from newcomer.gain.heldout_gain import OURS, Apart, GainPass
from newcomer.gain.settings import GAINS
from newcomer.interval import FEWEST, Interval
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.model import Model
from newcomer.policies.prior import PriorTS
from newcomer.population import Population
from newcomer.users import user_buckets
from newcomer.validate import validate_one_of

OUTCOMES = ("auto", "gaussian", "binary")


def has_binary_outcome(summary: Summary) -> bool:
    """Whether all rewards of the logs are 0 or 1, and both occur."""
    mean, variance = summary.mean_reward, summary.reward_deviation**2
    return summary.reward_step == 1.0 and summary.max_reward == 1.0 and abs(mean * (1.0 - mean) - variance) <= 1e-9


def check_outcome(outcome: str, logs: Logs, estimator: str) -> None:
    """Refuse an outcome that makes no sense for these logs, or this estimator, in one sentence."""
    validate_one_of(outcome, "outcome", OUTCOMES, kind=ModelError)
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


CLEAR, WORSE = 2.0, 1.0
EDGE = 1e-3

Run = Callable[[Callable[[Batch], PerUser], Callable[[PerUser, PerUser], PerUser]], PerUser]


def compare_outcomes(run: Run, gaussian: Apart, binary: Apart, *, people: int, length: int) -> OutcomeFacts:
    """Which outcome held-out people call for; the Gaussian where they cannot tell."""
    asked = GainPass.of(gaussian, people=people, length=length)
    if asked is None:
        return OutcomeFacts("gaussian", "auto")
    both = partial(outcome_differences, gaussian=tuple(gaussian), binary=tuple(binary), choices=asked.choices)
    found = run(partial(both, deals=asked.deals, share=asked.share), heldout_gain.join_heldout_gains)
    values = found.values[np.argsort(found.hashes, kind="stable")]
    if len(values) < FEWEST:  # an interval of so few has no ends
        return OutcomeFacts("gaussian", "auto")
    scores, gains = Interval.of(values[:, 0]), Interval.of(values[:, 1])
    better = scores.value > CLEAR * scores.error
    fine = gains.value >= -WORSE * gains.error
    return OutcomeFacts("binary" if better and fine else "gaussian", "auto", scores, gains)


def outcome_differences(
    batch: Batch, *, gaussian: Apart, binary: Apart, choices: int, deals: int, share: float
) -> PerUser:
    """Differences (n, 2) of the people of a batch: log score a reward, and gain; the map of a pass."""
    paid = [
        heldout_gain.heldout_gain_of_batch(batch, apart=tuple(apart), choices=choices, deals=deals, share=share)
        for apart in (gaussian, binary)
    ]
    with np.errstate(invalid="ignore"):
        gain = np.nanmean(paid[1].values[:, OURS] - paid[0].values[:, OURS], axis=1)
    place = {int(one): i for i, one in enumerate(batch.hashes.tolist())}
    who = np.array([place[int(one)] for one in paid[0].hashes.tolist()], dtype=np.int64)
    score = np.zeros(len(who))
    for number in range(deals):
        for sign, apart in ((-1.0, gaussian), (1.0, binary)):
            score += sign / deals * _log_scores(batch, apart, who, choices, number)
    return PerUser(paid[0].hashes, np.column_stack([score, gain]))


def _log_scores(batch: Batch, apart: Apart, who: Ints, choices: int, number: int) -> Floats:
    """The mean log score (n,) of the candidates of one deal of some people, each by the model without them."""
    found = np.zeros(len(who))
    for model, judged in apart:
        policy = PriorTS(model)
        names = None if model.action_ids is None else np.array(model.action_ids)
        mine = judged[user_buckets(batch.hashes[who], len(judged))]
        reach = np.searchsorted(GAINS.steps, batch.lengths[who] - choices, side="right") - 1
        for place, steps in enumerate(GAINS.steps):
            some = np.flatnonzero(mine & (reach == place))
            if not len(some):
                continue
            dealt = deal_rows(batch, who[some], choices, steps, number)
            state = inform_dealt_users(policy, batch, dealt, names)
            features, ids = dealt_actions(policy, batch, dealt.candidates, names)
            p = np.clip(policy.scores(state, features, ids=ids), EDGE, 1.0 - EDGE)
            reward = batch.paid[dealt.candidates]
            found[some] = (reward * np.log(p) + (1.0 - reward) * np.log1p(-p)).mean(axis=1)
    return found
