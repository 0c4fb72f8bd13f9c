"""LOCAL-UCB (the paper's Algorithm 2): optimism over every subspace that the offline data leaves possible.

An action is worth the largest phi^T beta over all (beta, U) with beta in span(U), U within the Frobenius radius of the
estimated basis, beta within a1 of the estimate inside U and within a2 of the estimate in all d dimensions (V-norms),
and |beta| <= R. The paper leaves the computation open; `newcomer.local` solves it to a stated accuracy, and
`certificate` proves how well (docs/paper/local-ucb.md).

Guarantee: with the theoretical widths and a valid radius, regret is O(min(d sqrt(T), k sqrt(T) (1 + sqrt(k d T / N))))
up to logarithms (docs/paper/theory.md; the paper claims a second term k times smaller, and
docs/paper/local-ucb.md says what its "minimax optimal" rests on); with the practical widths and a plug-in R there
is none. A round in which no (beta, U) meets all constraints plays LinUCB, and `flagged` says so: the radius, or the
rank, is then too small for this user.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from newcomer.arrays import Bools, Floats, Ints
from newcomer.linear import ridge, scoring_loops
from newcomer.linear.ridge import Ridge
from newcomer.linear.scoring_loops import Ellipsoid
from newcomer.linear.state import one_state_call_at_a_time
from newcomer.local import rounds, upper_bounds
from newcomer.local.problem import Certificate, Problem, largest_problem_violation, pose_problem, problem_widths
from newcomer.model import Model
from newcomer.policies import calls
from newcomer.policies.base import Contract, the_policy_model
from newcomer.policies.calls import Query, Rewards
from newcomer.policies.widths import DEFAULT, Theory, plug_in_width_bound, resolve_widths
from newcomer.validate import validate_number, validate_whole


@dataclass(frozen=True)
class LocalUCB(Contract[Ridge]):
    """LOCAL-UCB of the paper: optimism over all subspaces and reward vectors that offline and online data allow.

    `radius` bounds the Frobenius distance of the basis from the truth; the model's calibrated one by default.
    `reward_bound` is R, the bound on |beta|; by default a plug-in, the larger of the largest reward in the logs and
    |mean| + 3 sd of the prior. `widths` is "practical", "theoretical" or the pair (a1, a2).
    """

    model: Model
    _: KW_ONLY
    horizon: int
    radius: float | None = None
    reward_bound: float | None = None
    widths: str | tuple[float, float] = "practical"
    theory: Theory = DEFAULT

    def __post_init__(self) -> None:
        the_policy_model(self.model).needs_basis("LocalUCB")
        self.model.needs_all_features("LocalUCB")
        validate_whole(self.horizon, "horizon")
        self.settings  # noqa: B018  (a model without evidence for a radius is refused here, not in the first round)

    @cached_property
    def settings(self) -> dict[str, float]:
        """What the rounds are solved with: radius (Frobenius), inner (a1), outer (a2) and bound (R)."""
        dims = [self.model.rank, self.model.dim]
        inner, outer = resolve_widths(self.widths, dims, self.horizon, self.theory, ellipsoids=2)
        kind = "calibrated" if self.model.evidence.calibrated else None
        radius, bound = self.radius, self.reward_bound
        radius = (
            self.model.radius(kind, norm="frobenius")
            if radius is None
            else validate_number(radius, "radius", finite=False)
        )
        least = 1e-12
        bound = (
            plug_in_width_bound(self.model)
            if bound is None
            else validate_number(bound, "reward_bound", least=least, finite=False)
        )
        return {"radius": radius, "inner": inner, "outer": outer, "bound": bound}

    def init(self, n: int) -> Ridge:
        """V = I, b = 0, in all d dimensions: the subspace plays its part in the rounds, not in the state."""
        return ridge.start_ridge(n, self.model.dim)

    def score(self, state: Ridge, query: Query) -> Floats:
        """The optimistic rewards (m, K) of all actions, without pruning."""
        return self._scores(state, query, prune=False)

    def best(self, state: Ridge, query: Query) -> Ints:
        """The allowed action (m,) of largest optimistic reward; actions that cannot win are pruned."""
        return calls.pick_for_call(self._scores(state, query, prune=True), query)

    def in_subspace(self, state: Ridge) -> Bools:
        """Whether some allowed subspace (n,) still explains the user, i.e. the round is not one of LinUCB."""
        return ~self.flagged(state)

    def learn(self, state: Ridge, observed: Rewards) -> None:
        """V += phi phi^T, b += r phi."""
        ridge.learn_ridge(state, observed.features, observed.reward, observed.users)

    @one_state_call_at_a_time
    def flagged(self, state: Ridge, *, users: ArrayLike | None = None) -> Bools:
        """Users (m,) for whom no (beta, U) meets all constraints, so that LinUCB is played."""
        query = self.positions(state, users)
        return np.array([not rounds.round_is_possible(self._problem(state, int(u))) for u in query], dtype=np.bool_)

    @one_state_call_at_a_time
    def certificate(self, state: Ridge, actions: ArrayLike, *, users: ArrayLike | None = None) -> Certificate:
        """Solve the round of every action, check each point again from the definitions, and bound it from above."""
        query = self.query(state, actions, users=users)
        linucb = self._linucb(state, query)
        rows = [
            self._certify(self._problem(state, int(user)), query.block(i), linucb[i])
            for i, user in enumerate(query.users)
        ]
        return Certificate(**{name: np.stack([row[name] for row in rows]) for name in rows[0]})

    def _certify(self, problem: Problem, actions: Floats, linucb: Floats) -> dict[str, Any]:
        """One row of the certificate: value, bounds and the point that attains the value, for each action (K, d)."""
        found = rounds.solve_round(problem, actions)
        beta, subspace = rounds.round_maximisers(problem, found)
        limits = {name: value for name, value in self.settings.items() if name != "bound"}
        cone = (
            upper_bounds.cone_upper_bound(upper_bounds.pencil_of_bounds(problem), actions, squared=problem.outer)
            if problem.tilt > 0
            else found.upper
        )
        return {
            "values": found.values if found.feasible else linucb,
            "upper": np.minimum(found.upper, cone) if found.feasible else np.full(len(actions), np.inf),
            "cone": cone,
            "linucb": linucb,
            "scale": limits["outer"] * problem_widths(problem, actions),
            "beta": beta,
            "subspace": subspace,
            "violation": largest_problem_violation(problem, beta, subspace, **limits),
            "feasible": np.array(found.feasible),
            "impossible": np.array(found.impossible),
            "evaluations": found.evaluations,
        }

    def _problem(self, state: Ridge, user: int) -> Problem:
        """The inner problem of a user's round."""
        one = state.take([user])
        factor = ridge.unpack_ridge(one.factor, one.dim)[0]
        return pose_problem(
            ridge.ridge_precision(one)[0], one.moment[0], self.model.basis, factor=factor, **self.settings
        )

    def _linucb(self, state: Ridge, query: Query) -> Floats:
        """LinUCB's scores (m, K), by which rounds without a feasible point are played; refused if not finite."""
        out, width = query.table(), np.array([self.settings["outer"]])
        scoring_loops.ucb_scores(Ellipsoid(state.factor, state.mean, width), query.users, query.actions, out)
        calls.masked_call_scores(out, query)
        return out

    def _scores(self, state: Ridge, query: Query, *, prune: bool) -> Floats:
        """LinUCB's scores, with LOCAL-UCB's in their place wherever the round has a feasible point."""
        out, mask = self._linucb(state, query), query.allowed()
        for i, user in enumerate(query.users):
            actions = np.ascontiguousarray(query.block(i)[mask[i]])
            found = rounds.solve_round(self._problem(state, int(user)), actions, prune=prune)
            if found.feasible:
                # A pruned action cannot win; any number below the best says so, and keeps the scores finite.
                best = float(found.values.max())
                below = np.minimum(found.upper, best - 1e-6 * abs(best) - 1e-12)
                out[i, mask[i]] = np.where(found.pruned, below, found.values)
        return out
