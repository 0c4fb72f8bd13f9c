"""Candidates as a state sees them: what is expected of each, and how far one more reward would move that.

For a candidate with loadings g, met before as entry j of the user's memory or not, (policies/action_memory.py)

    expected = population mean + c y + (g - c f)^T E[z],     noise of one more reward = s2 + what is left of se,

with z the latent coordinates of the user in the posterior that the state holds. Outlier users of models with features
are served by a system of all d dimensions in place of that of z.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.linear import scoring_loops
from newcomer.linear.scoring_loops import Ellipsoid
from newcomer.policies import calls
from newcomer.policies.actions import Described
from newcomer.policies.calls import Generators, Query
from newcomer.policies.memory_loops import Recalled

if TYPE_CHECKING:
    from newcomer.policies.belief import Belief, PriorState


@dataclass(frozen=True, eq=False)
class CandidateView:
    """A query, what the prior says of its candidates, and what the users' memories add."""

    belief: Belief
    state: PriorState
    query: Query
    seen: Described
    recalled: Recalled

    @cached_property
    def loadings(self) -> Floats:
        """What a meeting would add, g - c f (m, K, k), in latent coordinates."""
        return self.belief.innovation(
            self.seen.loadings, self.recalled, self.state.memory, self.query.users, latent=True
        )

    @cached_property
    def features(self) -> Floats:
        """The same as features (m, K, d), for outlier users."""
        actions = np.broadcast_to(self.query.actions, (len(self.query.users), *self.query.actions.shape[1:]))
        return self.belief.innovation(actions, self.recalled, self.state.memory, self.query.users, latent=False)

    @cached_property
    def outliers(self) -> Ints:
        """Rows of users served in d dimensions."""
        left = ~self.state.in_subspace[self.query.users] if not self.belief.flat else np.zeros(0, dtype=np.bool_)
        return np.flatnonzero(left)

    @cached_property
    def noise(self) -> Floats:
        """Variance (m, K) of one more reward about what z says of it: noise, and what is unknown of the effect."""
        fresh = (1.0 - self.state.memory.share[self.query.users])[:, None] * self.seen.variance
        return np.asarray(fresh + self.recalled.left)

    def expected(self) -> Floats:
        """Expected rewards (m, K)."""
        return self._by_system(scoring_loops.ucb_scores, np.zeros(1))

    def optimistic(self, width: float, memory_width: float) -> Floats:
        """Expected rewards plus so many deviations of g^T z, and of the per-action effect (m, K)."""
        scores = self._by_system(scoring_loops.ucb_scores, np.array([width]))
        if memory_width:
            scores = scores + memory_width * np.sqrt(self.recalled.left)
        return scores

    def curious(self, weight: float) -> Floats:
        """Expected rewards plus `weight` deviations of how far one more reward would move them (m, K)."""
        return self._by_system(scoring_loops.curious_scores, np.array([weight]), self.noise)

    def learned_share(self) -> Floats:
        """The share (m,) of the variance of one more reward that z explains, on average over candidates."""
        return np.asarray(
            self._by_system(scoring_loops.learned_score_shares, np.ones(1), self.noise, level=False).mean(axis=1)
        )

    def _by_system(self, loop: Callable[..., None], widths: Floats, *more: Floats, level: bool = True) -> Floats:
        """A table (m, K) by a loop over the users' systems: of z or, for outlier users, of all features."""
        out, users, state = self.query.table(), self.query.users, self.state
        loop(Ellipsoid(state.small.factor, state.small.mean, widths), users, self.loadings, *more, out)
        if len(self.outliers):
            rows = self.outliers
            part, x = np.empty((len(rows), out.shape[1])), np.ascontiguousarray(self.features[rows])
            own = [np.ascontiguousarray(one[rows]) for one in more]
            loop(Ellipsoid(state.full.factor, state.full.mean, widths), users[rows], x, *own, part)
            out[rows] = part
        return self._with_levels(out) if level else out

    def drawn(self, rngs: Generators, scales: Floats, memory_scale: float) -> Floats:
        """Rewards (m, K) under one draw of each user's z and, once for each distinct action, of its effect.

        `scales` (m,), or (1,) for all alike: draws are so many times as wide as the posterior of z.
        """
        state, users, rank = self.state, self.query.users, self.loadings.shape[2]
        size = self.belief.model.dim if len(self.outliers) else rank
        noise = calls.call_normals(rngs, size)
        drawn = np.empty((len(users), rank))
        system = Ellipsoid(state.small.factor, state.small.mean, scales)
        scoring_loops.score_samples(system, users, np.ascontiguousarray(noise[:, :rank]), drawn)
        out = np.einsum("mak,mk->ma", self.loadings, drawn)
        for row in self.outliers:
            one, who = np.empty((1, size)), users[row : row + 1]
            own = scales if len(scales) == 1 else scales[row : row + 1]
            system = Ellipsoid(state.full.factor, state.full.mean, own)
            scoring_loops.score_samples(system, who, np.ascontiguousarray(noise[row : row + 1]), one)
            out[row] = self.features[row] @ one[0]
        if memory_scale and self.belief.remembers:
            own = calls.call_normals(rngs, out.shape[1])
            keys = self.seen.keys
            first = (keys[:, :, None] == keys[:, None, :]).argmax(axis=2)  # equal actions share their draw
            out += memory_scale * np.sqrt(self.recalled.left) * np.take_along_axis(own, first, axis=1)
        return self._with_levels(out)

    def _with_levels(self, personal: Floats) -> Floats:
        """Rewards (m, K): the personal part, the population mean and the effects; not finite where features are not."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(personal + self.seen.population_mean + self.recalled.level)
