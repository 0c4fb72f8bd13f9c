"""Who is compared: predictors of rewards, and policies that play. What cannot be had is left out, with the reason.

Each predictor isolates one question. All learn from the same users and are judged by the same held-out ones:

    PriorUCB, posterior            what is served, with and without its bonus for exploration
    posterior without memory       how much of the gain is the per-action effect, and how much is shared directions
    PopulationMean                 is there anything personal to gain at all?
    EmpiricalArms                  would the user's own mean of each action do, with nothing shared?
    ridge                          would the user's own rewards do, with no other users?
    SOLD's subspace                does the subspace help without the mean and the covariance?
    ALS, EASE                      would a recommender that a team already has do?

What attributes of users are worth: before the first interaction and after some, against plain regression on them.

The same held-out users choose among the same rows by PriorUCB with their attributes, by PriorUCB without them,
by the population mean, and by a ridge regression of rewards on products of attributes and features, which knows no
shared directions. All differences are paired.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from operator import add
from typing import Any

import numpy as np

from newcomer._fit import fit
from newcomer.arrays import Floats
from newcomer.em.attributes import (
    MOST,
    AllInformation,
    AttributeTask,
    add_up_attribute_information,
    heldout_attribute_gains,
)
from newcomer.encoding import Column, translate_encoding
from newcomer.errors import NewcomerError
from newcomer.evaluation.cold_start import ByPolicy, ByRidge, Predictor
from newcomer.evaluation.recommenders import recommenders
from newcomer.evaluation.settings import EVALUATION
from newcomer.gain.deals import Deal, UserResults
from newcomer.interval import FEWEST, Interval, interval_in_words
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import reduce
from newcomer.model import Model
from newcomer.policies.baselines import EmpiricalArms, PopulationMean, Uniform
from newcomer.policies.linear import LinTS, LinUCB
from newcomer.policies.prior import PriorTS, PriorUCB
from newcomer.policies.proball import ProBALLTS, ProBALLUCB
from newcomer.population import AttributePrior, Population
from newcomer.records import Shown
from newcomer.users import UserSample, user_bucket_count

OURS, MEAN, ARMS = "PriorUCB", "PopulationMean", "EmpiricalArms"
POSTERIOR, FORGETFUL, SUBSPACE, RIDGE = "posterior", "posterior without memory", "SOLD's subspace", "ridge"


@dataclass(frozen=True, eq=False)
class Predictors:
    """What was made of the logs of one fit; `notes` say what was left out."""

    model: Model
    predictors: dict[str, Predictor]
    recommenders: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def named(self) -> bool:
        """Whether the model knows its actions by their ids."""
        return predictor_knows_actions(self.model)


def predictor_knows_actions(model: Model) -> bool:
    """Whether a model knows its actions by their ids, and so can remember them."""
    return model.one_hot or model.action_features is not None


def predictors_of(logs: Logs, model: Model, *, quick: bool = False) -> Predictors:
    """Everything that is learned from the logs of a fit, beside the model that was fitted to them.

    With `quick`, SOLD is not fitted to many actions: the test of its rank costs more than everything else together.
    """
    notes: list[str] = []
    blind = model.without_attributes()
    found: dict[str, Predictor] = {OURS: ByPolicy(PriorUCB(model)), MEAN: ByPolicy(PopulationMean(blind))}
    if model.attributes:
        found |= {BLIND: ByPolicy(PriorUCB(blind)), ALONE: ByPolicy(PopulationMean(model))}
        regressed = regression_predictor(logs, model)
        if regressed is not None:
            found[REGRESSED] = regressed
        else:
            notes.append("Regression on attributes is left out: attributes and features have too many products.")
    if predictor_knows_actions(model):
        found[ARMS] = ByPolicy(EmpiricalArms(model))
    found[POSTERIOR] = ByPolicy(PriorTS(model))
    if model.persistence != 0.0:
        found[FORGETFUL] = ByPolicy(PriorTS(replace(model, persistence=0.0)))
    flat = model.one_hot and not model.intercept
    if quick and logs.wide:
        notes.append("SOLD's subspace is left out: a quick evaluation does not fit it to so many actions.")
    else:
        found |= _subspace(logs, flat, notes)
    found[RIDGE] = ByRidge(flat)
    others = _recommenders(logs, model, notes)
    found |= {name: ByPolicy(policy) for name, policy in others.items()}
    return Predictors(model, found, others, notes)


def policies_beside_predictors(made: Predictors, horizon: int) -> dict[str, Any]:
    """The policies that can play with this model, for so many rounds."""
    model = made.model
    blind = model.without_attributes()
    found: dict[str, Any] = {OURS: PriorUCB(model), "PriorTS": PriorTS(model), MEAN: PopulationMean(blind)}
    if made.named:
        found[ARMS] = EmpiricalArms(model)
    found["Uniform"] = Uniform()
    if model.dim <= EVALUATION.largest_system:
        found |= {"LinUCB": LinUCB(model.dim, horizon=horizon), "LinTS": LinTS(model.dim, horizon=horizon)}
        if model.rank:
            found["ProBALLUCB"] = ProBALLUCB(model, horizon=horizon)
            found["ProBALLTS"] = ProBALLTS(model, horizon=horizon)
    return found | made.recommenders


def predictors_left_out(made: Predictors) -> list[str]:
    """Why some policies do not play."""
    model, said = made.model, []
    if model.dim > EVALUATION.largest_system:
        said.append(
            f"LinUCB, LinTS and ProBALL are left out: they keep a system of {model.dim:,} dimensions for each user "
            f"(at most {EVALUATION.largest_system} are tried)."
        )
    elif not model.rank:
        said.append("ProBALL is left out: no shared direction was found.")
    return said


def _subspace(logs: Logs, flat: bool, notes: list[str]) -> dict[str, Predictor]:
    """Ridge regression within SOLD's subspace."""
    try:
        basis = np.array(fit(logs, estimator="sold", calibrate=False).basis)
    except NewcomerError as error:
        notes.append(f"SOLD's subspace is left out: {error}")
        return {}
    if not basis.shape[1]:
        notes.append("SOLD's subspace is left out: its test finds no direction.")
        return {}
    return {SUBSPACE: ByRidge(flat, basis)}


def _recommenders(logs: Logs, model: Model, notes: list[str]) -> dict[str, Any]:
    """ALS and EASE with a user's own answers, where logs name actions."""
    if not predictor_knows_actions(model):
        notes.append("ALS, EASE and EmpiricalArms are left out: they need logs with actions.")
        return {}
    users = logs.summary.users
    if users > EVALUATION.recommended:
        notes.append(f"ALS and EASE learn from {EVALUATION.recommended:,} of the {users:,} users, drawn by hash.")
        logs = logs.some(UserSample("recommenders", EVALUATION.recommended / users))
    if len(model.action_ids or ()) > EVALUATION.largest_ease:
        most = f"{EVALUATION.largest_ease:,}"
        notes.append(f"EASE is left out: it inverts a matrix of all actions, of which there are more than {most}.")
    made = recommenders(logs, model)
    return {name.split(",")[0]: policy for name, policy in made.items() if policy.own}


BLIND, ALONE, REGRESSED = "PriorUCB without attributes", "attributes alone", "regression on attributes"


@dataclass(frozen=True)
class AttributeStep(Shown):
    """One choice after so many interactions: the gain over the population mean with attributes and `without`, what they
    `added` (paired), and the gain over plain regression on attributes (None where that is too large to be made).
    """

    interactions: int
    people: int
    gain: Interval
    without: Interval
    added: Interval
    over_regression: Interval | None = None


def attribute_predictor_steps(
    judged: UserResults, steps: tuple[int, ...], reward: int, ours: str, mean: str
) -> tuple[AttributeStep, ...]:
    """What attributes were worth after each number of interactions; nothing where the model has none."""
    if BLIND not in judged.names:
        return ()
    found = []
    for place, t in enumerate(steps):
        own, blind, common = (judged.of(name)[:, place, reward] for name in (ours, BLIND, mean))
        people = int(np.isfinite(own).sum())
        if people < FEWEST:
            continue
        gain, without, added = (Interval.of(one, judged.folds) for one in (own - common, blind - common, own - blind))
        other = judged.of(REGRESSED)[:, place, reward] if REGRESSED in judged.names else None
        over = None if other is None else Interval.of(own - other, judged.folds)
        found.append(AttributeStep(t, people, gain, without, added, over))
    return tuple(found)


def attribute_predictor_sentences(steps: tuple[AttributeStep, ...]) -> list[str]:
    """What attributes are worth, in words."""
    if not steps:
        return []
    first = steps[0]
    said = f"Before the first interaction attributes are worth {interval_in_words(first.gain)} over the population mean"
    if first.over_regression is not None:
        said += f", and {interval_in_words(first.over_regression)} over plain regression on them"
    later = [f"{interval_in_words(one.added)} after {one.interactions}" for one in steps[1:]]
    return [f"{said}.", *([f"They add to what interactions tell: {', '.join(later)}."] if later else [])]


@dataclass(frozen=True, eq=False)
class ByRegression:
    """Expected rewards phi^T m + o + phi^T Theta x, whatever is known of a user but attributes x."""

    mean: Floats  # m (d,)
    offsets: Floats | None  # o (A,), None for none
    effects: Floats  # Theta (d, p)
    columns: tuple[Column, ...]
    covariance: Floats

    def expected(self, batch: Batch, dealt: Deal, names: Any) -> Floats:
        """The same after any number of interactions."""
        users = np.searchsorted(batch.offsets, dealt.candidates[:, 0], side="right") - 1
        assert batch.attributes is not None
        x = translate_encoding(batch.attributes[users], batch.attribute_columns, self.columns)
        x = AttributePrior(np.zeros((0, x.shape[1])), self.covariance).completed(x)
        beta = self.mean + x @ self.effects.T
        features = batch.take(dealt.candidates.ravel()).reshape(*dealt.candidates.shape, batch.dim)
        scores = np.einsum("mad,md->ma", features, beta)
        if batch.actions is not None and self.offsets is not None:
            scores = scores + self.offsets[batch.actions[dealt.candidates]]
        return np.asarray(scores)


def regression_predictor(logs: Logs, model: Model) -> ByRegression | None:
    """Ridge regression on attribute x feature, its ridge chosen by held-out users; None where it is too large."""
    people = logs.people
    if people is None or not people.width * logs.dim <= MOST:
        return None
    spread, actions = logs.summary.reward_deviation**2, len(logs.action_ids or ())
    each = np.full(actions, spread) if actions else None  # a variance for each action that rows name
    offsets = np.array(model.offsets) if actions and len(model.offsets) == actions else None
    common = model.mean
    if model.outcome == "binary":  # whose mean is not that of rewards
        common, offsets = _least_squares(logs), None
    mean = Population(common, np.zeros((logs.dim, 0)), spread, each, offsets)
    directions, every = np.eye(logs.dim), np.ones(user_bucket_count(logs.dim), dtype=np.bool_)
    prior = AttributePrior(np.zeros((0, people.width)), people.covariance)
    task = AttributeTask(mean, directions, 0, every)
    look = partial(add_up_attribute_information, tasks=(task,), prior=prior, entries=tuple(range(people.width)))
    found: AllInformation = reduce(logs, look, add)
    sums, shape = found.each[0], (logs.dim, people.width)
    taus = [np.full(shape, tau * max(logs.summary.reward_deviation, 1e-300)) for tau in EVALUATION.effects]
    best = max(taus, key=lambda tau: float(heldout_attribute_gains(sums, tau).sum()))
    precision = sums.precision.sum(axis=0) + np.diag(1.0 / best.ravel() ** 2)
    effects = np.linalg.solve(precision, sums.score.sum(axis=0)).reshape(shape)
    return ByRegression(common, offsets, effects, people.columns, people.covariance)


@dataclass(frozen=True)
class _Products:
    """Sums of phi phi^T (d, d) and of phi r (d,) over rows."""

    gram: Floats
    pull: Floats

    def __add__(self, other: _Products) -> _Products:
        return _Products(self.gram + other.gram, self.pull + other.pull)


def _least_squares(logs: Logs) -> Floats:
    """The mean reward vector (d,) by least squares."""
    found: _Products = reduce(logs, _products, add)
    return np.asarray(np.linalg.lstsq(found.gram, found.pull, rcond=1e-9)[0])


def _products(batch: Batch) -> _Products:
    features = batch.take(np.arange(len(batch.rewards)))
    return _Products(features.T @ features, features.T @ batch.rewards)
