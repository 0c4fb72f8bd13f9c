"""The policies of the experiments by the name that rows, legends and random streams know them by.

`PLAYERS` is the one list of who can play. A new rival is one line in it: a function from the `Stage`, which holds all
that a policy may know about the world, to the policy.

The paper does not state the priors of mmTS and MixTS, nor the epsilon of mmUCB. Here clusters have their shares as
weights; mmTS has the variance within a cluster, the same in all directions; MixTS the covariance within a cluster
plus a tenth of the pooled variance on the diagonal; mmUCB is played once with epsilon = Delta_off (the paper's
sentence, with the martingale radius, which is so large that no model is ever dropped) and once with the reward error
that nine users in ten stay within.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import newcomer as nc
from newcomer.errors import NewcomerError, error_name_hint
from newcomer.model import Model
from newcomer.paper.jobs import ExitRule
from newcomer.policies.finite_models import Clusters


@dataclass(frozen=True)
class Stage:
    """What a policy may know about the world it plays in.

    Clusters of the users' true reward vectors, and their error in rewards, are computed on demand: few policies ask.
    """

    dim: int
    rounds: int
    noise_sd: float
    model: Model | None
    exit: ExitRule | None
    clusters: Callable[[], Clusters]
    cluster_error: Callable[[], float]

    @property
    def learned(self) -> Model:
        """The model, for a policy that cannot do without."""
        if self.model is None:
            raise NewcomerError("this policy needs a model", todo="give its Play a fit")
        return self.model


def _proball(policy: Callable[..., Any]) -> Callable[[Stage], Any]:
    """How a version of ProBALL is made: with the radius and tau of its rule or, without one, its own defaults.

    The defaults are the model's radius, spectral and clipped, and tau = 1.
    """

    def make(s: Stage) -> Any:
        rule = {} if s.exit is None else {"radius": s.exit.radius, "tau": s.exit.tau}
        return policy(s.learned, horizon=s.rounds, **rule)

    return make


def _mm_ucb(s: Stage, epsilon: float) -> Any:
    return nc.MmUCB(s.clusters().centers, epsilon, horizon=s.rounds, noise_sd=s.noise_sd)


def _mm_ts(s: Stage) -> Any:
    found = s.clusters()
    return nc.MmTS(found.centers, variances=found.variances, weights=found.shares, noise_sd=s.noise_sd)


def _mix_ts(s: Stage) -> Any:
    found = s.clusters()
    return nc.MixTS(found.centers, covariances=found.covariances, weights=found.shares, noise_sd=s.noise_sd)


PLAYERS: Mapping[str, Callable[[Stage], Any]] = {
    "LinUCB": lambda s: nc.LinUCB(s.dim, horizon=s.rounds),
    "LinTS": lambda s: nc.LinTS(s.dim, horizon=s.rounds),
    "ProBALL-UCB": _proball(nc.ProBALLUCB),
    "ProBALL-TS": _proball(nc.ProBALLTS),
    "LOCAL-UCB": lambda s: nc.LocalUCB(s.learned, horizon=s.rounds),
    "mUCB": lambda s: nc.MUCB(s.clusters().centers, horizon=s.rounds, noise_sd=s.noise_sd),
    "mmUCB": lambda s: _mm_ucb(s, paper_radius(s.learned, "martingale")),
    "mmUCB, fitted epsilon": lambda s: _mm_ucb(s, s.cluster_error()),
    "mTS": lambda s: nc.MTS(s.clusters().centers, weights=s.clusters().shares, noise_sd=s.noise_sd),
    "mmTS": _mm_ts,
    "MixTS": _mix_ts,
    "PopulationMean": lambda s: nc.PopulationMean(s.learned),
    "EmpiricalArms": lambda s: nc.EmpiricalArms(s.learned),
    "PriorUCB": lambda s: nc.PriorUCB(s.learned),
    "PriorTS": lambda s: nc.PriorTS(s.learned),
    "Uniform": lambda s: nc.Uniform(),
}


def player(name: str, stage: Stage) -> Any:
    """The policy of this name for this stage."""
    if name not in PLAYERS:
        raise NewcomerError(f"no policy '{name}' to play{error_name_hint(name, PLAYERS)}")
    return PLAYERS[name](stage)


def paper_radius(model: Model, kind: str) -> float:
    """Delta_off as in the paper's figures: in the Frobenius norm, unclipped, with coverage taken as known."""
    return model.radius(kind, norm="frobenius", clip=False, simplified=True)
