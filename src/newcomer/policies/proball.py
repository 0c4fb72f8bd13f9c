"""ProBALL-UCB and ProBALL-TS: explore in the shared subspace first, in the full space once that is the better bet.

Kausik, Tan and Tewari, "Leveraging Offline Data in Linear Latent Contextual Bandits", Algorithm 2 and its Thompson
version. With U (d x k) the model's basis, Delta its radius, V = I + sum phi phi^T, b = sum phi r, V_U = U^T V U, round
t is played in the subspace until the exit says otherwise (policies/exits.py):

    in the subspace   theta = V_U^-1 U^T b;  argmax_a phi^T U theta + alpha_1 |U^T phi|_{V_U^-1}
                      TS: theta ~ N(V_U^-1 U^T b, alpha_1^2 V_U^-1)
    outside           LinUCB or LinTS in all d dimensions with alpha_2

Widths: practical, 0.33 sqrt(dim log(1 + 10 T / dim)) with dim = k and d; or theoretical, alpha_2 = R + C R sqrt(d log(T
/ delta)) and alpha_1 = R + tau' R Delta kappa_t + C R sqrt(k log(T / delta)), with the kappa_t of the literal exit.

Guarantee: with tau = tau' = 1, theoretical widths and a radius that holds, regret is at most of the order of LinUCB's.
kappa_t is at most sqrt(t - 1), whatever the actions (docs/paper/theory.md), so the theorem's good case is the only one.
It says little for short horizons: with tau = 1, tau' = 0 and a radius of at most 1 the subspace *cannot be left before
t = d^2* (2,500 rounds at d = 50), whatever the rewards. The rule never looks at rewards. The paper's experiments use
tau' = 0 and radii far above 1, and tune tau. That is `exit="literal"`; `exit="savings"` is ours, has no tau, and leaves
once the subspace has cost more than it saved (exits.py, with its guarantee); `exit="containment"` is the paper's
picture, of which the literal rule is a proxy: leave once a ball around the offline set contains LinUCB's ellipsoid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from newcomer.arrays import Bools, Floats, Ints
from newcomer.errors import PolicyError
from newcomer.linear import scoring_loops
from newcomer.linear.state import State, one_state_call_at_a_time
from newcomer.model import Model
from newcomer.policies import calls, two_systems
from newcomer.policies.base import Contract, the_policy_model
from newcomer.policies.calls import Generators, Query, Random, Rewards
from newcomer.policies.exits import Containment, Ledger, Literal, Savings
from newcomer.policies.protocol import Learner
from newcomer.policies.two_systems import TwoSystems
from newcomer.policies.widths import DEFAULT, Theory, plug_in_width_bound, resolve_widths
from newcomer.validate import validate_number, validate_one_of, validate_whole

EXITS = ("literal", "savings", "containment")


@dataclass
class ProBALLState(State):
    """What ProBALL remembers of n users: their systems, and what their exit needs."""

    systems: TwoSystems
    ledger: Ledger

    def __len__(self) -> int:
        return len(self.systems.kept)


@dataclass(frozen=True, eq=False)
class _Plan(Learner[ProBALLState]):
    """What both policies work by, once their settings are checked: the basis U^T (k, d), the widths, the exit."""

    basis: Floats
    low: float  # alpha_1, apart from kappa
    high: float  # alpha_2
    widening: float  # R Delta tau', by which alpha_1 grows with kappa; 0 if it does not
    exit: Literal | Savings | Containment

    def state_settings(self) -> dict[str, str | float]:
        """Who is in the subspace, and what is kept, depends on the exit."""
        return self.exit.settings()

    def init(self, n: int) -> ProBALLState:
        """Nothing known."""
        return ProBALLState(*self.exit.start(n))

    def in_subspace(self, state: ProBALLState) -> Bools:
        """Whether the coming round of each user (n,) is played in the subspace."""
        return state.systems.in_subspace

    def learn(self, state: ProBALLState, observed: Rewards) -> None:
        """Rewards go into the systems, and the exit looks at them."""
        self.exit.learn(state.systems, state.ledger, observed)

    def learn_plain(self, state: ProBALLState, users: Ints, features: Floats, reward: Floats) -> bool:
        """The same, in one compiled loop, where the exit only counts and nobody has left."""
        return self.exit.learn_plain(state.systems, state.ledger, users, features, reward)

    def widths(self, state: ProBALLState, users: Ints) -> tuple[Floats, Floats]:
        """alpha_1, (1,) for all alike or (m,), and alpha_2 (1,)."""
        low = np.array([self.low])
        if self.widening:
            kappa = state.ledger.kappa[users]
            low = self.low + np.where(kappa > 0, self.widening, 0.0) * kappa  # an infinite radius times 0 is 0
        return low, np.array([self.high])


def _plan(policy: ProBALLUCB | ProBALLTS) -> _Plan:
    """Check the settings of a policy and work out what they mean."""
    model = the_policy_model(policy.model)
    shape = model.rank, model.dim
    model.needs_basis(type(policy).__name__)
    model.needs_all_features(type(policy).__name__)
    validate_whole(policy.horizon, "horizon")
    validate_number(policy.tau, "tau")
    validate_number(policy.tau_prime, "tau_prime")
    radius = model.radius() if policy.radius is None else validate_number(policy.radius, "radius", finite=False)
    low, high = resolve_widths(policy.widths, shape, policy.horizon, policy.theory)
    _check_exit(policy)
    basis = np.array(model.basis.T, dtype=np.float64, order="C")
    if policy.exit != "literal":
        bound = plug_in_width_bound(model) if policy.reward_bound is None else float(policy.reward_bound)
        cost = bound * radius if radius > 0 else 0.0  # a radius of zero costs nothing, whatever the bound
        kind = Savings if policy.exit == "savings" else Containment
        return _Plan(basis, low, high, 0.0, kind(low, high, cost, basis))
    # An infinite radius times a tau of zero is zero: such a policy never leaves.
    pull, bend = (radius * weight if weight > 0 else 0.0 for weight in (policy.tau, policy.tau_prime))
    widening = policy.theory.bound * bend if policy.widths == "theoretical" else 0.0
    return _Plan(basis, low, high, widening, Literal(pull, bend, basis))


def _check_exit(policy: ProBALLUCB | ProBALLTS) -> None:
    """Refuse an exit that does not exist, or settings of the other one."""
    name, bound = policy.exit, policy.reward_bound
    validate_one_of(name, "exit", EXITS)
    if bound is not None:
        validate_number(bound, "reward_bound", least=1e-12)
    if name == "literal" and bound is not None:
        todo = "pass exit='savings' or exit='containment', or leave it out"
        raise PolicyError("the literal exit has no use for a reward_bound", todo=todo)
    if name != "literal" and (policy.tau, policy.tau_prime) != (1.0, 0.0):
        raise PolicyError("tau and tau_prime are of the literal exit", todo=f"leave them out with exit={name!r}")


@dataclass(frozen=True, eq=False)
class ProBALLUCB(Contract[ProBALLState]):
    """ProBALL-UCB of the paper: optimism in the subspace, then, once its error could matter, in the full space.

    `radius` is Delta, the model's own by default; `widths` is "practical", "theoretical" or (alpha_1, alpha_2);
    `theory` holds R, delta and C of the theoretical widths. `exit` is "literal", the paper's rule with `tau` and
    `tau_prime`, "savings" or "containment", which take `reward_bound` for R, by default LocalUCB's plug-in.

    >>> model = Model(np.eye(2)[:, :1], np.ones(2), np.zeros(2), np.eye(2)[:, :1], noise_variance=1.0)
    >>> policy = ProBALLUCB(model, horizon=100, radius=1.0, widths=(1.0, 1.0))
    >>> state = policy.start(1)
    >>> policy.scores(state, [[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[1.0, 0.0]]
    >>> for _ in range(4):
    ...     policy.update(state, [1.0, 0.0], 0.0)
    >>> policy.in_subspace(state).tolist()  # Delta tau sqrt(5) > 2
    [False]
    """

    model: Model
    _: KW_ONLY
    horizon: int
    tau: float = 1.0
    tau_prime: float = 0.0
    radius: float | None = None
    widths: str | tuple[float, float] = "practical"
    theory: Theory = DEFAULT
    exit: str = "literal"
    reward_bound: float | None = None

    def __post_init__(self) -> None:
        self.learner  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def learner(self) -> _Plan:
        """The systems, the exit, and the widths that go with them."""
        return _plan(self)

    def score(self, state: ProBALLState, query: Query) -> Floats:
        """Optimistic rewards (m, K), in the subspace or outside, where each user is."""
        plan, out = self.learner, query.table()
        widths = plan.widths(state, query.users)
        two_systems.two_systems_scores(state.systems, plan.basis, widths, query.users, query.actions, out)
        return out

    def choose_plain(self, state: ProBALLState, users: Ints, actions: Floats) -> Ints | None:
        """Scores and choice in one compiled loop, if all users have the same widths."""
        plan, small, full = self.learner, state.systems.small, state.systems.full
        if plan.widening:
            return None
        chosen, in_subspace = np.empty(len(users), calls.INT), state.systems.in_subspace
        fine = scoring_loops.choose_by_pair_scores(
            plan.basis,
            small.factor,
            small.mean,
            plan.low,
            full.factor,
            full.mean,
            plan.high,
            in_subspace,
            users,
            actions,
            chosen,
        )
        return chosen if fine else None


@dataclass(frozen=True, eq=False)
class ProBALLTS(Contract[ProBALLState]):
    """ProBALL-TS of the paper: Thompson sampling in the subspace, then in the full space. Settings as in ProBALLUCB.

    `votes` draws estimate the probabilities.
    """

    model: Model
    _: KW_ONLY
    horizon: int
    tau: float = 1.0
    tau_prime: float = 0.0
    radius: float | None = None
    widths: str | tuple[float, float] = "practical"
    theory: Theory = DEFAULT
    exit: str = "literal"
    reward_bound: float | None = None
    votes: int = 256

    sampled = True

    def __post_init__(self) -> None:
        validate_whole(self.votes, "votes")
        self.learner  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def learner(self) -> _Plan:
        """The systems, the exit, and the widths that go with them."""
        return _plan(self)

    def score(self, state: ProBALLState, query: Query) -> Floats:
        """Expected rewards (m, K), in the subspace or outside, where each user is."""
        return calls.call_mean_rewards(
            two_systems.two_systems_means(state.systems, self.learner.basis, query.users), query
        )

    def draws(self, state: ProBALLState, query: Query, rngs: Generators) -> Iterator[Floats]:
        """phi^T beta (m, K) for a draw of each user's reward vector."""
        while True:
            yield calls.call_mean_rewards(self._coefficients(state, query.users, rngs), query)

    @one_state_call_at_a_time
    def sample(self, state: ProBALLState, rng: Random, *, users: ArrayLike | None = None) -> Floats:
        """One draw (m, d) of each user's reward vector from the distribution of where it is served."""
        who = self.positions(state, users)
        return self._coefficients(state, who, calls.call_generators(rng, len(who), "ProBALLTS"))

    def _coefficients(self, state: ProBALLState, users: Ints, rngs: Generators) -> Floats:
        plan, noise = self.learner, calls.call_normals(rngs, self.model.dim)
        return two_systems.two_systems_samples(state.systems, plan.basis, plan.widths(state, users), users, noise)
