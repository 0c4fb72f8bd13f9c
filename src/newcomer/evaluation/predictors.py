"""Who is compared: predictors of rewards, and policies that play. What cannot be had is left out, with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from newcomer._fit import fit
from newcomer.errors import NewcomerError
from newcomer.evaluation.attributes import ALONE, BLIND, REGRESSED, regression_of
from newcomer.evaluation.cold_start import ByPolicy, ByRidge, Predictor
from newcomer.evaluation.recommenders import DENSE, recommenders
from newcomer.logs.logs import Logs
from newcomer.model import Model
from newcomer.policies.baselines import PopulationMean, Uniform
from newcomer.policies.empirical_arms import EmpiricalArms
from newcomer.policies.linear import LinTS, LinUCB
from newcomer.policies.prior import PriorTS, PriorUCB
from newcomer.policies.proball import ProBALLTS, ProBALLUCB
from newcomer.users import UserSample

OURS, MEAN, ARMS = "PriorUCB", "PopulationMean", "EmpiricalArms"
POSTERIOR, FORGETFUL, SUBSPACE, RIDGE = "posterior", "posterior without memory", "SOLD's subspace", "ridge"
LARGEST = 400  # dimensions up to which a policy with a d x d system a person plays
RECOMMENDED = 20_000  # users from whom the recommenders learn


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
        return named(self.model)


def named(model: Model) -> bool:
    """Whether a model knows its actions by their ids, and so can remember them."""
    return model.one_hot or model.action_features is not None


def predictors_of(logs: Logs, model: Model) -> Predictors:
    """Everything that is learned from the logs of a fit, beside the model that was fitted to them."""
    notes: list[str] = []
    blind = model.without_attributes()
    found: dict[str, Predictor] = {OURS: ByPolicy(PriorUCB(model)), MEAN: ByPolicy(PopulationMean(blind))}
    if model.attributes:
        found |= {BLIND: ByPolicy(PriorUCB(blind)), ALONE: ByPolicy(PopulationMean(model))}
        regressed = regression_of(logs, model)
        if regressed is not None:
            found[REGRESSED] = regressed
        else:
            notes.append("Regression on attributes is left out: attributes and features have too many products.")
    if named(model):
        found[ARMS] = ByPolicy(EmpiricalArms(model))
    found[POSTERIOR] = ByPolicy(PriorTS(model))
    if model.persistence != 0.0:
        found[FORGETFUL] = ByPolicy(PriorTS(replace(model, persistence=0.0)))
    flat = model.one_hot and not model.intercept
    found |= _subspace(logs, flat, notes)
    found[RIDGE] = ByRidge(flat)
    others = _recommenders(logs, model, notes)
    found |= {name: ByPolicy(policy) for name, policy in others.items()}
    return Predictors(model, found, others, notes)


def policies(made: Predictors, horizon: int) -> dict[str, Any]:
    """The policies that can play with this model, for so many rounds."""
    model = made.model
    blind = model.without_attributes()
    found: dict[str, Any] = {OURS: PriorUCB(model), "PriorTS": PriorTS(model), MEAN: PopulationMean(blind)}
    if made.named:
        found[ARMS] = EmpiricalArms(model)
    found["Uniform"] = Uniform()
    if model.dim <= LARGEST:
        found |= {"LinUCB": LinUCB(model.dim, horizon=horizon), "LinTS": LinTS(model.dim, horizon=horizon)}
        if model.rank:
            found["ProBALLUCB"] = ProBALLUCB(model, horizon=horizon)
            found["ProBALLTS"] = ProBALLTS(model, horizon=horizon)
    return found | made.recommenders


def left_out(made: Predictors) -> list[str]:
    """Why some policies do not play."""
    model, said = made.model, []
    if model.dim > LARGEST:
        said.append(
            f"LinUCB, LinTS and ProBALL do not play: they keep a system of {model.dim:,} dimensions for each person "
            f"(up to {LARGEST} are tried)."
        )
    elif not model.rank:
        said.append("ProBALL does not play: nothing shared was found.")
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
    """ALS and EASE with a person's own answers, where logs name actions."""
    if not named(model):
        notes.append("ALS, EASE and EmpiricalArms are left out: they need logs that name actions.")
        return {}
    users = logs.summary.users
    if users > RECOMMENDED:
        notes.append(f"ALS and EASE learn from {RECOMMENDED:,} of the {users:,} users, drawn by hash.")
        logs = logs.some(UserSample("recommenders", RECOMMENDED / users))
    if len(model.action_ids or ()) > DENSE:
        notes.append(f"EASE is left out: it inverts a matrix of all actions, of which there are more than {DENSE:,}.")
    made = recommenders(logs, model)
    return {name.split(",")[0]: policy for name, policy in made.items() if policy.own}
