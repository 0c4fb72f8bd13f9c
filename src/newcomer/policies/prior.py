"""PriorUCB and PriorTS: a newcomer is one more draw from the distribution of users.

What is believed of a user, and how it learns, is in policies/belief.py. Here it is used, with z the user's latent
coordinates:

    PriorUCB   argmax_a  expected reward + half the deviation by which one more reward of a would move it
    PriorTS    argmax_a  reward under a draw of z, narrower the less one more reward would say

**How much to explore.** An uncertain action is worth trying for the information in its reward. With s^2 the posterior
variance of phi^T L z and v that of the rest of the reward, one more reward moves the expectation by
s^2 / sqrt(s^2 + v) (a standard deviation). Where users differ much and rewards are clear this is nearly s; where a
reward is mostly noise, as a single rating is, it is a small part of s, and exploring would cost more than it teaches.
So PriorUCB scores with half of that (with a quarter where rewards have two values), and PriorTS draws with half of the
deviation of z times sqrt(s^2 / (s^2 + v)), averaged over the candidates. Information about the per-action effect alone
(`memory_width`) is worth nothing where actions do not come back, and is not counted. The rules were chosen from lists
that were written down before, by regret on real people and in simulated worlds: docs/explanation/exploration.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import cast

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.model import Model
from newcomer.policies.base import Contract
from newcomer.policies.belief import Belief, PriorState
from newcomer.policies.binary_belief import BinaryBelief
from newcomer.policies.calls import Generators, Query
from newcomer.policies.repeatability import repeatability_of_two_values
from newcomer.validate import validate_number, validate_whole

# Of the deviation by which one more reward would move what is expected, and that where rewards have two values; see
# docs/explanation/exploration.md.
CURIOSITY, CURIOSITY_OF_TWO = 0.5, 0.25


def _belief_of_prior(model: Model, level: float) -> Belief:
    """What is believed of users by the link of the model: `Belief`, or `BinaryBelief`, which has the same calls."""
    gaussian = Belief(model, level)  # which checks both
    return cast(Belief, BinaryBelief(model, level)) if model.outcome == "binary" else gaussian


@dataclass(frozen=True, eq=False)
class PriorUCB(Contract[PriorState]):
    """UCB from the learned prior: starts from the distribution of users, with per-action effects.

    The bonus is `curiosity` times what one more reward could change (default one half; one quarter if rewards have two
    values). A `width` replaces it by that many posterior standard deviations of phi^T L z. `memory_width` counts those
    of the per-action effect, which pays only where actions come again. `level` is the probability with which a user of
    the population is ever flagged as an outlier (0: never; rewards of two values are not tested).

    >>> model = Model(np.eye(2)[:, :1], np.ones(2), np.zeros(2), 2 * np.eye(2)[:, :1], noise_variance=1.0)
    >>> policy = PriorUCB(model, width=1.0)
    >>> policy.scores(policy.start(1), [[1.0, 0.0], [0.0, 1.0]]).round(6).tolist()
    [[2.0, 0.0]]
    """

    model: Model
    _: KW_ONLY
    curiosity: float | None = None
    width: float | None = None
    level: float = 0.1
    memory_width: float = 0.0

    by_ids = True
    shares_rows = True

    def __post_init__(self) -> None:
        if self.curiosity is not None:
            validate_number(self.curiosity, "curiosity")
        if self.width is not None:
            validate_number(self.width, "width")
        validate_number(self.memory_width, "memory_width")
        self.learner  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def learner(self) -> Belief:
        """The prior, conditioned on rewards, and the test of it."""
        return _belief_of_prior(self.model, self.level)

    @cached_property
    def _curiosity(self) -> float:
        """The setting, or the default for the model's rewards."""
        default = CURIOSITY_OF_TWO if repeatability_of_two_values(self.model) else CURIOSITY
        return default if self.curiosity is None else float(self.curiosity)

    def choose_codes(self, state: PriorState, users: Ints, codes: Ints) -> Ints | None:
        """Scores and choice in one compiled loop, unless a width was asked for."""
        if self.width is not None or self.memory_width:
            return None
        return self.learner.choose_codes(state, users, codes, self._curiosity)

    def score(self, state: PriorState, query: Query) -> Floats:
        """Expected reward plus what it is worth to learn more (m, K)."""
        view = self.learner.look_at(state, query)
        if self.width is not None:
            return view.optimistic(self.width, self.memory_width)
        scores = view.curious(self._curiosity)
        return scores + self.memory_width * np.sqrt(view.recalled.left) if self.memory_width else scores


@dataclass(frozen=True, eq=False)
class PriorTS(Contract[PriorState]):
    """Thompson sampling from the learned prior: starts from the distribution of users, with per-action effects.

    Draws of z are `curiosity` times its deviation wide, and the narrower the less one more reward would say; with a
    `scale` they are that many deviations wide. Draws of per-action effects are `memory_scale` deviations wide; `votes`
    draws estimate probabilities; `level` as in PriorUCB.
    """

    model: Model
    _: KW_ONLY
    level: float = 0.1
    curiosity: float = CURIOSITY
    scale: float | None = None
    memory_scale: float = 0.0
    votes: int = 256

    sampled = True
    by_ids = True
    shares_rows = True

    def __post_init__(self) -> None:
        validate_whole(self.votes, "votes")
        validate_number(self.curiosity, "curiosity")
        if self.scale is not None:
            validate_number(self.scale, "scale")
        validate_number(self.memory_scale, "memory_scale")
        self.learner  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def learner(self) -> Belief:
        """The prior, conditioned on rewards, and the test of it."""
        return _belief_of_prior(self.model, self.level)

    def score(self, state: PriorState, query: Query) -> Floats:
        """Expected rewards (m, K)."""
        return self.learner.look_at(state, query).expected()

    def draws(self, state: PriorState, query: Query, rngs: Generators) -> Iterator[Floats]:
        """Rewards (m, K) under draws of each user's posterior."""
        view = self.learner.look_at(state, query)
        scales = self.curiosity * np.sqrt(view.learned_share()) if self.scale is None else np.array([float(self.scale)])
        while True:
            yield view.drawn(rngs, scales, self.memory_scale)
