"""LOCAL-UCB (the paper's Algorithm 2): optimism over every subspace that the offline data leaves possible.

An action is worth the largest phi^T beta over all (beta, U) with beta in span(U), U within the Frobenius radius of the
estimated basis, beta within a1 of the estimate inside U and within a2 of the estimate in all d dimensions (V-norms), and
|beta| <= R. The paper leaves the computation open; `newcomer.local` solves it to a stated accuracy, and `certificate` proves
how well (docs/local-ucb.md).

Guarantee: with the theoretical widths and a valid radius, regret is O(min(d sqrt(T), k sqrt(T) (1 + sqrt(d T / (k N))))) up
to logarithms, which is minimax optimal; with the practical widths and a plug-in R there is none. A round in which no
(beta, U) meets all constraints plays LinUCB, and `flagged` says so: the radius, or the rank, is then too small for this user.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from newcomer.errors import PolicyError
from newcomer.linear import ridge, scoring_loops
from newcomer.linear.ridge import Ridge
from newcomer.local import rounds, upper_bounds
from newcomer.local.certificate import Certificate, largest_violation
from newcomer.local.problem import Problem, pose, widths
from newcomer.local.rounds import Round
from newcomer.model import Model
from newcomer.policies import base
from newcomer.policies.base import Bools, Floats, Ints, Offer, Random
from newcomer.policies.widths import DEFAULT, Theory, plug_in_bound, resolve


@dataclass(frozen=True)
class LocalUCB:
    """Optimism over subspaces and ellipsoids together.

    `radius` bounds the Frobenius distance of the basis from the truth; the model's calibrated one by default. `reward_bound` is R, the
    bound on |beta|; by default a plug-in, the larger of the largest reward in the logs and |mean| + 3 sd of the prior.
    `widths` is "practical", "theoretical" or the pair (a1, a2).
    """

    model: Model
    _: KW_ONLY
    horizon: int
    radius: float | None = None
    reward_bound: float | None = None
    widths: str | tuple[float, float] = "practical"
    theory: Theory = DEFAULT

    def __post_init__(self) -> None:
        self.model.needs_basis("LocalUCB")
        base.whole(self.horizon, "horizon")
        _at_least(self.radius, "radius", 0.0)
        _at_least(self.reward_bound, "reward_bound", 1e-12)
        self.settings  # noqa: B018  (a model without evidence for a radius is refused here, not in the first round)

    @cached_property
    def settings(self) -> dict[str, float]:
        """What the rounds are solved with: radius (Frobenius), inner (a1), outer (a2) and bound (R)."""
        inner, outer = resolve(self.widths, [self.model.rank, self.model.dim], self.horizon, self.theory)
        kind = "calibrated" if self.model.evidence.calibrated else None
        radius = self.model.radius(kind, norm="frobenius") if self.radius is None else float(self.radius)
        bound = plug_in_bound(self.model) if self.reward_bound is None else float(self.reward_bound)
        return {"radius": radius, "inner": inner, "outer": outer, "bound": bound}

    def start(self, n: int) -> Ridge:
        """The state of n newcomers."""
        return ridge.start(base.newcomers(n), self.model.dim)

    def choose(
        self,
        state: Ridge,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The allowed action (m,) of largest optimistic reward; actions that cannot win are pruned."""
        asked = self._offer(state, actions, mask, users)
        return base.pick(self._scores(state, asked, prune=True), asked)

    def probabilities(
        self,
        state: Ridge,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """One-hot (m, K)."""
        asked = self._offer(state, actions, mask, users)
        return base.one_hot(base.pick(self._scores(state, asked, prune=True), asked), asked)

    def scores(
        self,
        state: Ridge,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """The optimistic rewards (m, K) of all actions, without pruning."""
        asked = self._offer(state, actions, mask, users)
        return base.masked(self._scores(state, asked, prune=False), asked)

    def in_subspace(self, state: Ridge) -> Bools:
        """Whether some allowed subspace (n,) still explains the user, i.e. the round is not one of LinUCB."""
        return ~self.flagged(state)

    def flagged(self, state: Ridge, *, users: ArrayLike | None = None) -> Bools:
        """Users (m,) for whom no (beta, U) meets all constraints, so that LinUCB is played."""
        asked = base.who(self._own(state), users)
        return np.array([not rounds.possible(self._problem(state, int(u))) for u in asked], dtype=np.bool_)

    def update(self, state: Ridge, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None) -> None:
        """Learn from rewards (m,) for features (m, d)."""
        told = base.rewards(self._own(state), features, reward, dim=self.model.dim, users=users)
        ridge.learn(state, told.features, told.reward, told.users)

    def certificate(self, state: Ridge, actions: ArrayLike, *, users: ArrayLike | None = None) -> Certificate:
        """Solve the round of every action, check each point again from the definitions, and bound it from above."""
        asked = self._offer(state, actions, None, users)
        linucb = base.masked(self._linucb(state, asked), asked)
        rows = [
            self._certify(self._problem(state, int(u)), asked.actions[min(i, len(asked.actions) - 1)], linucb[i])
            for i, u in enumerate(asked.users)
        ]
        return Certificate(**{name: np.stack([row[name] for row in rows]) for name in rows[0]})

    def _certify(self, problem: Problem, actions: Floats, linucb: Floats) -> dict[str, Any]:
        found = rounds.solve(problem, actions)
        beta, subspace = rounds.points(problem, found)
        limits = {name: value for name, value in self.settings.items() if name != "bound"}
        cone = (
            upper_bounds.cone_bound(upper_bounds.pencil(problem), actions, squared=problem.outer)
            if problem.tilt > 0
            else found.upper
        )
        return {
            "values": found.values if found.feasible else linucb,
            "upper": np.minimum(found.upper, cone) if found.feasible else np.full(len(actions), np.inf),
            "cone": cone,
            "linucb": linucb,
            "scale": limits["outer"] * widths(problem, actions),
            "beta": beta,
            "subspace": subspace,
            "violation": largest_violation(problem, beta, subspace, **limits),
            "feasible": np.array(found.feasible),
            "impossible": np.array(found.impossible),
            "evaluations": found.evaluations,
        }

    def _own(self, state: Ridge) -> Ridge:
        if base.own(state, Ridge).dim != self.model.dim or not state.complete:
            raise base.foreign(f"a system of dimension {self.model.dim}")
        return state

    def _offer(self, state: Ridge, actions: ArrayLike, mask: ArrayLike | None, users: ArrayLike | None) -> Offer:
        return base.offer(self._own(state), actions, dim=self.model.dim, mask=mask, users=users)

    def _problem(self, state: Ridge, user: int) -> Problem:
        one = state.take([user])
        factor = ridge.unpack(one.factor, one.dim)[0]
        return pose(ridge.precision(one)[0], one.moment[0], self.model.basis, factor=factor, **self.settings)

    def _linucb(self, state: Ridge, asked: Offer) -> Floats:
        out = asked.table()
        width = np.array([self.settings["outer"]])
        scoring_loops.ucb_scores(state.factor, state.mean, asked.users, asked.actions, width, out)
        return out

    def _scores(self, state: Ridge, asked: Offer, *, prune: bool) -> Floats:
        """LinUCB's scores, checked, with LOCAL-UCB's in their place wherever the round has a feasible point."""
        out = self._linucb(state, asked)
        base.masked(out, asked)  # refuses features that are not finite
        for i, user in enumerate(asked.users):
            allowed = asked.mask[i] if asked.mask.size else np.ones(out.shape[1], dtype=np.bool_)
            found = self._round(state, int(user), asked.actions[min(i, len(asked.actions) - 1)][allowed], prune)
            if found.feasible:
                # A pruned action cannot win; any number below the best says so, and keeps the scores finite.
                out[i, allowed] = np.where(found.pruned, np.minimum(found.upper, _below(found)), found.values)
        return out

    def _round(self, state: Ridge, user: int, actions: Floats, prune: bool) -> Round:
        return rounds.solve(self._problem(state, user), np.ascontiguousarray(actions), prune=prune)


def _at_least(value: float | None, name: str, least: float) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= least):
        raise PolicyError(f"{name} must be a number of at least {least:g}, or None, not {value!r}")


def _below(found: Round) -> float:
    """A score safely below the best value of a round."""
    best = float(found.values.max())
    return best - 1e-6 * abs(best) - 1e-12
