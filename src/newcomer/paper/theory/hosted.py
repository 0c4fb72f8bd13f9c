"""The ProBALL idea around any linear policy: one host in the shared subspace, another in all dimensions.

The paper instantiates its idea with LinUCB, and says that it applies to others as well. It does, to every policy of the
contract whose state is a ridge system of its own features: `inner` is a policy of k dimensions and sees U^T phi,
`outer` one of d dimensions and sees phi, both learn from every reward, and round t is ranked by the inner one while
Delta tau sqrt(t) <= d. With LinUCB twice it is ProBALL-UCB (tau' = 0) decision for decision, as a test shows;
ProBALLUCB does not keep the large system before it is needed, and is the one to use.

SupLinUCB (Chu, Li, Reyzin and Schapire 2011) is no such host, and cannot be one of this contract. It keeps a system for
each of log T stages, and a reward goes into the system of the stage at which its action was chosen, or into none. That
stage follows from *all candidates* of the round and from what was eliminated among them; `update` sees the chosen
action and its reward, no candidates, because rewards may come late, twice or never, and a policy that remembered "the
action to update" would break then. What is known at update time, V and phi, does not determine the stage. A caller
could carry the stage along as one more column of the features, but then features would no longer be those of the model.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property

import numpy as np

from newcomer.arrays import Bools, Floats
from newcomer.errors import PolicyError
from newcomer.linear.ridge import Ridge
from newcomer.linear.scoring_loops import project_to_score
from newcomer.linear.state import State
from newcomer.model import Model
from newcomer.policies.base import Contract
from newcomer.policies.calls import Query, Rewards
from newcomer.validate import validate_number


@dataclass
class HostedState(State):
    """The states of both hosts."""

    inner: Ridge
    outer: Ridge


@dataclass(frozen=True, eq=False)
class Hosted(Contract[HostedState]):
    """ProBALL with hosts of your own: `inner` has the rank of the model as its dimension, `outer` the model's.

    `radius` is that of the subspace, the model's by default; `tau` multiplies it. Hosts that draw are refused: their
    ProBALL is ProBALLTS.

    >>> from newcomer.policies.linear import LinUCB
    >>> model = Model(np.eye(2)[:, :1], np.ones(2), np.zeros(2), np.eye(2)[:, :1], noise_variance=1.0)
    >>> policy = Hosted(model, inner=LinUCB(1, horizon=9, widths=1.0), outer=LinUCB(2, horizon=9), radius=0.0)
    >>> policy.scores(policy.start(1), [[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[1.0, 0.0]]
    """

    model: Model
    _: KW_ONLY
    inner: Contract[Ridge] = field(repr=False)
    outer: Contract[Ridge] = field(repr=False)
    tau: float = 1.0
    radius: float | None = None

    def __post_init__(self) -> None:
        self.model.needs_basis("Hosted")
        validate_number(self.tau, "tau")
        validate_number(0.0 if self.radius is None else self.radius, "radius", finite=False)
        for name, host, dim in (("inner", self.inner, self.model.rank), ("outer", self.outer, self.model.dim)):
            if host.sampled or host.dimension != dim or not isinstance(host.init(0), Ridge):
                raise PolicyError(
                    f"{type(host).__name__} cannot be the {name} host",
                    todo=f"pass a policy of dimension {dim} that ranks by scores and keeps one ridge system",
                )

    @cached_property
    def _pull(self) -> float:
        """Delta tau; an infinite radius times 0 is 0."""
        radius = self.model.radius() if self.radius is None else float(self.radius)
        return radius * self.tau if self.tau else 0.0

    def state_settings(self) -> dict[str, str | float]:
        """The hosts and the rule."""
        hosts = {name: str(host.record) for name, host in (("inner", self.inner), ("outer", self.outer))}
        return {**hosts, "radius * tau": self._pull}

    def init(self, n: int) -> HostedState:
        """Nothing known, to either host."""
        return HostedState(self.inner.init(n), self.outer.init(n))

    def in_subspace(self, state: HostedState) -> Bools:
        """Whether Delta tau sqrt(t) <= d for the coming round t of each user (n,)."""
        return np.asarray(self._pull * np.sqrt(state.outer.count + 1) <= self.model.dim)

    def _projected(self, rows: Floats) -> Floats:
        """U^T phi (m, k) of rows (m, d), one after another: a product of all rounds otherwise with their number."""
        out = np.empty((len(rows), self.model.rank))
        project_to_score(np.ascontiguousarray(self.model.basis.T), np.ascontiguousarray(rows), out)
        return out

    def score(self, state: HostedState, query: Query) -> Floats:
        """The scores (m, K) of the host that each user is with."""
        rows = query.actions.reshape(-1, query.actions.shape[-1])
        small = query._replace(actions=self._projected(rows).reshape(*query.actions.shape[:-1], -1))
        within = self.in_subspace(state)[query.users][:, None]
        return np.where(within, self.inner.score(state.inner, small), self.outer.score(state.outer, query))

    def learn(self, state: HostedState, observed: Rewards) -> None:
        """Both hosts learn, each from its own features."""
        self.inner.learn(state.inner, observed._replace(features=self._projected(observed.features)))
        self.outer.learn(state.outer, observed)
