"""The policies of the experiments by the name that rows, legends and random streams know them by.

Priors of mmTS and MixTS, and the epsilon of mmUCB, are not stated in the paper. Here: clusters' shares as weights; mmTS the
variance within a cluster, the same in all directions; MixTS the covariance within a cluster plus a tenth of the pooled
variance on the diagonal; mmUCB once with epsilon = Delta_off (the paper's sentence, with the martingale radius, which is so
large that no model is ever dropped) and once with the reward error that nine users in ten stay within.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import newcomer as nc
from newcomer.clusters import Clusters
from newcomer.errors import NewcomerError, nearest
from newcomer.model import Model


@dataclass(frozen=True)
class Stage:
    """What a policy may be given: feature dimension, horizon, noise, a model, ProBALL's exit; clusters and their error on demand."""

    dim: int
    rounds: int
    noise_sd: float
    model: Model | None
    leaves: int | None
    clusters: Callable[[], Clusters]
    cluster_error: Callable[[], float]

    @property
    def learned(self) -> Model:
        """The model, which this policy needs."""
        if self.model is None:
            raise NewcomerError("this policy needs a model", todo="give its Play a fit")
        return self.model

    @property
    def exit_radius(self) -> float | None:
        """The radius that makes ProBALL leave as told; None is the model's own."""
        from newcomer.experiments.jobs import radius_to_leave

        return None if self.leaves is None else radius_to_leave(self.leaves, self.dim)

    @property
    def paper_epsilon(self) -> float:
        """Delta_off, unclipped, of the martingale bound."""
        return self.learned.radius("martingale", norm="frobenius", clip=False, simplified=True)


def _mm_ucb(s: Stage, epsilon: float) -> Any:
    return nc.MmUCB(s.clusters().centers, epsilon, horizon=s.rounds, noise_sd=s.noise_sd)


def _mm_ts(s: Stage) -> Any:
    found = s.clusters()
    return nc.MmTS(found.centers, variances=found.variances, weights=found.shares, noise_sd=s.noise_sd)


def _mix_ts(s: Stage) -> Any:
    found = s.clusters()
    return nc.MixTS(found.centers, covariances=found.covariances, weights=found.shares, noise_sd=s.noise_sd)


def _m_ts(s: Stage) -> Any:
    found = s.clusters()
    return nc.MTS(found.centers, weights=found.shares, noise_sd=s.noise_sd)


def _prior(name: str, s: Stage) -> Any:
    return getattr(nc, name)(s.learned)


CONTENDERS: Mapping[str, Callable[[Stage], Any]] = {
    "LinUCB": lambda s: nc.LinUCB(s.dim, horizon=s.rounds),
    "LinTS": lambda s: nc.LinTS(s.dim, horizon=s.rounds),
    "ProBALL-UCB": lambda s: nc.ProBALLUCB(s.learned, horizon=s.rounds, radius=s.exit_radius),
    "LOCAL-UCB": lambda s: nc.LocalUCB(s.learned, horizon=s.rounds),
    "ProBALL-TS": lambda s: nc.ProBALLTS(s.learned, horizon=s.rounds, radius=s.exit_radius),
    "mUCB": lambda s: nc.MUCB(s.clusters().centers, horizon=s.rounds, noise_sd=s.noise_sd),
    "mmUCB": lambda s: _mm_ucb(s, s.paper_epsilon),
    "mmUCB, fitted epsilon": lambda s: _mm_ucb(s, s.cluster_error()),
    "mTS": _m_ts,
    "mmTS": _mm_ts,
    "MixTS": _mix_ts,
    "PopulationMean": lambda s: nc.PopulationMean(s.learned),
    "PriorUCB": lambda s: _prior("PriorUCB", s),
    "PriorTS": lambda s: _prior("PriorTS", s),
    "Uniform": lambda s: nc.Uniform(),
}


def available(name: str) -> bool:
    """Whether this version of newcomer has the policy."""
    return name in CONTENDERS and (not name.startswith("Prior") or name in nc.__all__)


def contender(name: str, stage: Stage) -> Any:
    """The policy of this name for this stage."""
    if not available(name):
        raise NewcomerError(f"no policy '{name}' to play{nearest(name, CONTENDERS)}")
    return CONTENDERS[name](stage)
