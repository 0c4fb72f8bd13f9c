"""ProBALL-UCB and ProBALL-TS: explore in the shared subspace first, in the full space once that is the better bet.

Kausik, Tan and Tewari, "Leveraging Offline Data in Linear Latent Contextual Bandits", Algorithm 2 and its Thompson
version. With U (d x k) the model's basis, Delta its radius, V = I + sum phi phi^T, b = sum phi r, V_U = U^T V U, round t
is played in the subspace while

    Delta tau sqrt(t) + Delta tau' sqrt(k sum_{s<=t} kappa_s^2 / t) <= d,     kappa_s = |U^T sum phi phi^T|_{V_U^-1},

kappa_1 = 0, which is asked anew each round, so with tau' > 0 the phase may flip back:

    in the subspace   theta = V_U^-1 U^T b;  argmax_a phi^T U theta + alpha_1 |U^T phi|_{V_U^-1}
                      TS: theta ~ N(V_U^-1 U^T b, alpha_1^2 V_U^-1)
    outside           LinUCB or LinTS in all d dimensions with alpha_2

Widths: practical, 0.33 sqrt(dim log(1 + 10 T / dim)) with dim = k and d; or theoretical, alpha_2 = R + C R sqrt(d
log(T / delta)) and alpha_1 = R + tau' R Delta kappa_t + C R sqrt(k log(T / delta)).

Guarantee: with tau = tau' = 1, theoretical widths and a radius that holds, regret is at most of the order of LinUCB's.
It says little for short horizons: with tau = 1, tau' = 0 and a radius of at most 1 the subspace *cannot be left before
t = d^2* (2,500 rounds at d = 50), whatever the rewards. The rule never looks at rewards. The paper's experiments use
tau' = 0 and radii far above 1, and tune tau. That is `exit="literal"`; `exit="savings"` is ours, has no tau, and leaves once
the subspace has cost more than it saved (savings.py, with its guarantee).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from newcomer import array_loops
from newcomer.errors import PolicyError, nearest
from newcomer.linear import scoring_loops
from newcomer.model import Model
from newcomer.policies import base, phases, savings
from newcomer.policies.base import Bools, Floats, Generators, Ints, Offer, Random
from newcomer.policies.phases import Phases
from newcomer.policies.savings import Terms
from newcomer.policies.widths import DEFAULT, Theory, plug_in_bound, resolve

EXITS = ("literal", "savings")


@dataclass(frozen=True, eq=False)
class _Rule:
    """What both versions share: the settings, checked, and the switch between the phases."""

    who: str
    model: Model
    horizon: int
    tau: float
    tau_prime: float
    given_radius: float | None
    given_widths: str | tuple[float, float]
    theory: Theory
    exit: str
    given_bound: float | None

    def check(self) -> None:
        self.model.needs_basis(self.who)
        base.whole(self.horizon, "horizon")
        base.number(self.tau, "tau")
        base.number(self.tau_prime, "tau_prime")
        if not self.radius >= 0:
            raise PolicyError(f"radius must be a number of at least 0, not {self.radius!r}")
        resolve(self.given_widths, [self.model.rank, self.model.dim], self.horizon, self.theory)
        self.check_exit()

    def check_exit(self) -> None:
        if self.exit not in EXITS:
            raise PolicyError(f"exit must be {' or '.join(EXITS)}, not {self.exit!r}{nearest(str(self.exit), EXITS)}")
        if self.given_bound is not None:
            base.number(self.given_bound, "reward_bound", least=1e-12)
        if self.exit == "literal" and self.given_bound is not None:
            raise PolicyError(
                "the literal exit has no use for a reward_bound", todo="pass exit='savings', or leave it out"
            )
        if self.exit == "savings" and (self.tau, self.tau_prime) != (1.0, 0.0):
            raise PolicyError("tau and tau_prime are of the literal exit", todo="leave them out with exit='savings'")

    @cached_property
    def radius(self) -> float:
        return self.model.radius() if self.given_radius is None else self.given_radius

    @cached_property
    def basis(self) -> Floats:
        """U^T (k, d), in memory row by row."""
        return np.array(self.model.basis.T, dtype=np.float64, order="C")

    @cached_property
    def switch(self) -> Floats:
        if self.exit == "savings":
            return savings.rule(self.model.rank, self.model.dim)
        # An infinite radius times a tau of zero is zero: such a policy never leaves.
        weights = [self.radius * weight if weight > 0 else 0.0 for weight in (self.tau, self.tau_prime)]
        return np.array([*weights, self.model.rank, self.model.dim])

    @cached_property
    def taking(self) -> tuple[Callable[..., bool], Floats | Terms]:
        """How rewards are taken in, and what decides about leaving."""
        if self.exit == "literal":
            return phases.learn, self.switch
        bound = plug_in_bound(self.model) if self.given_bound is None else self.given_bound
        # A radius of zero costs nothing, whatever the bound.
        cost = bound * self.radius if self.radius > 0 else 0.0
        return savings.learn, Terms(float(self.widths[0][0]), self.widths[1], cost)

    @cached_property
    def widths(self) -> tuple[Floats, float]:
        """alpha_1 (1,), apart from kappa, and alpha_2."""
        low, high = resolve(self.given_widths, [self.model.rank, self.model.dim], self.horizon, self.theory)
        return np.array([low]), high

    @cached_property
    def settings(self) -> Floats:
        """The switch, then alpha_1 apart from kappa."""
        return np.array([*self.switch, *self.widths[0]])

    @cached_property
    def widens(self) -> bool:
        """Whether alpha_1 grows with kappa."""
        return self.given_widths == "theoretical" and self.tau_prime > 0

    def low_widths(self, state: Phases, users: Ints) -> Floats:
        """alpha_1, (1,) for all alike or (m,)."""
        if not self.widens:
            return self.widths[0]
        kappa, scale = state.kappa[users], self.theory.bound * float(self.switch[1])
        return self.widths[0] + np.where(kappa > 0, scale, 0.0) * kappa

    def start(self, n: int) -> Phases:
        rank, dim, *_ = self.shape
        if self.exit == "savings":
            return savings.start(base.newcomers(n), dim, rank)
        return phases.start(base.newcomers(n), dim, rank, self.switch, bends=self.tau_prime > 0)

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """What `Phases.shape` must be."""
        rank, dim = self.basis.shape
        return rank, dim, rank if self.tau_prime > 0 else 0, int(self.exit == "savings")

    def own(self, state: Phases) -> Phases:
        if type(state) is not Phases or state.shape != self.shape:
            base.own(state, Phases)
            raise base.foreign("this rank, dimension and exit, and tau_prime as it is")
        return state

    def offer(self, state: Phases, actions: ArrayLike, mask: ArrayLike | None, users: ArrayLike | None) -> Offer:
        return base.offer(self.own(state), actions, dim=self.shape[1], mask=mask, users=users)

    def inside(self, state: Phases) -> Bools:
        return phases.inside(self.own(state), self.switch)

    def learn(self, state: Phases, features: ArrayLike, reward: ArrayLike, users: ArrayLike | None) -> None:
        told = base.told(self.own(state), features, reward, dim=self.shape[1], users=users)
        take, decides = self.taking
        if not take(state, self.basis, decides, *told):
            take(state, self.basis, decides, *base.sift(*told))

    def best(self, state: Phases, actions: ArrayLike, mask: ArrayLike | None, users: ArrayLike | None) -> Ints:
        given, asked, free = base.question(self.own(state), actions, dim=self.shape[1], mask=mask, users=users)
        if mask is None and not self.widens and not state.full.factor.shape[1]:
            small, chosen = state.small, np.empty(len(asked), base.INT)
            if scoring_loops.phase_choose(
                self.basis, small.factor, small.mean, small.count, state.squares, self.settings, asked, given, chosen
            ):
                return chosen
        offer = Offer(given, asked, free)
        return base.pick(self.scores(state, offer), offer)

    def scores(self, state: Phases, asked: Offer) -> Floats:
        out = asked.table()
        self._each(scoring_loops.phase_scores, state, asked.users, asked.actions, out)
        return out

    def coefficients(self, state: Phases, users: Ints, rngs: Generators) -> Floats:
        noise = base.normals(rngs, self.model.dim)
        out = np.empty_like(noise)
        self._each(scoring_loops.phase_samples, state, users, noise, out)
        return out

    def means(self, state: Phases, users: Ints) -> Floats:
        low = state.small.mean[users] @ self.basis
        return np.where(phases.inside(state, self.switch)[users, None], low, state.full.mean[users])

    def _each(self, kernel: Callable[..., bool], state: Phases, users: Ints, given: Floats, out: Floats) -> None:
        small, full = state.small, state.full
        if not kernel(
            self.basis,
            (small.factor, small.mean),
            (full.factor, full.mean),
            state.place(self.switch),
            users,
            given,
            self.low_widths(state, users),
            self.widths[1],
            out,
        ):
            raise base.foreign("these settings: a user has left the subspace and has no full system")


@dataclass(frozen=True, eq=False)
class ProBALLUCB:
    """Optimism in the subspace, then in the full space.

    `radius` is Delta, the model's own by default; `widths` is "practical", "theoretical" or (alpha_1, alpha_2);
    `theory` holds R, delta and C of the theoretical widths. `exit` is "literal", the paper's rule with `tau` and
    `tau_prime`, or "savings", which takes `reward_bound` for R, by default LocalUCB's plug-in.
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
        self._rule.check()

    def start(self, n: int) -> Phases:
        """The state of n newcomers."""
        return self._rule.start(n)

    def choose(
        self,
        state: Phases,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The allowed action (m,) of largest optimistic reward in each user's phase."""
        return self._rule.best(state, actions, mask, users)

    def probabilities(
        self,
        state: Phases,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """One-hot (m, K)."""
        asked = self._rule.offer(state, actions, mask, users)
        return base.one_hot(base.pick(self._rule.scores(state, asked), asked), asked)

    def scores(
        self,
        state: Phases,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """Optimistic rewards (m, K) in each user's phase."""
        asked = self._rule.offer(state, actions, mask, users)
        return base.masked(self._rule.scores(state, asked), asked)

    def in_subspace(self, state: Phases) -> Bools:
        """Whether the coming round of each user (n,) is played in the subspace."""
        return self._rule.inside(state)

    def update(self, state: Phases, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None) -> None:
        """Learn from rewards (m,) for features (m, d)."""
        self._rule.learn(state, features, reward, users)

    @cached_property
    def _rule(self) -> _Rule:
        return _Rule(
            "ProBALLUCB",
            self.model,
            self.horizon,
            self.tau,
            self.tau_prime,
            self.radius,
            self.widths,
            self.theory,
            self.exit,
            self.reward_bound,
        )


@dataclass(frozen=True, eq=False)
class ProBALLTS:
    """Thompson sampling in the subspace, then in the full space; the settings are those of ProBALLUCB.

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

    def __post_init__(self) -> None:
        self._rule.check()
        base.whole(self.votes, "votes")

    def start(self, n: int) -> Phases:
        """The state of n newcomers."""
        return self._rule.start(n)

    def choose(
        self,
        state: Phases,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The allowed action (m,) that is best for one draw of the reward vector."""
        return self._draw(state, self._rule.offer(state, actions, mask, users), rng)()

    def probabilities(
        self,
        state: Phases,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """How often each action (m, K) wins in `votes` draws."""
        asked = self._rule.offer(state, actions, mask, users)
        return base.votes(self._draw(state, asked, rng), asked, self.votes)

    def scores(
        self,
        state: Phases,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """Expected rewards (m, K) in each user's phase; a draw, not this, decides."""
        asked = self._rule.offer(state, actions, mask, users)
        out = asked.table()
        array_loops.mean_scores(self._rule.means(state, asked.users), np.arange(len(out)), asked.actions, out)
        return base.masked(out, asked)

    def in_subspace(self, state: Phases) -> Bools:
        """Whether the coming round of each user (n,) is played in the subspace."""
        return self._rule.inside(state)

    def update(self, state: Phases, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None) -> None:
        """Learn from rewards (m,) for features (m, d)."""
        self._rule.learn(state, features, reward, users)

    def sample(self, state: Phases, rng: Random, *, users: ArrayLike | None = None) -> Floats:
        """One draw (m, d) of each user's reward vector from the distribution of its phase."""
        who = base.who(self._rule.own(state), users)
        return self._rule.coefficients(state, who, base.generators(rng, len(who), "ProBALLTS"))

    @cached_property
    def _rule(self) -> _Rule:
        return _Rule(
            "ProBALLTS",
            self.model,
            self.horizon,
            self.tau,
            self.tau_prime,
            self.radius,
            self.widths,
            self.theory,
            self.exit,
            self.reward_bound,
        )

    def _draw(self, state: Phases, asked: Offer, rng: Random) -> Callable[[], Ints]:
        rngs = base.generators(rng, len(asked.users), "ProBALLTS")
        return lambda: base.best_for(self._rule.coefficients(state, asked.users, rngs), asked)
