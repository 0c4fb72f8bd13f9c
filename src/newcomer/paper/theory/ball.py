"""The unit ball as the set of actions: every round offers every vector of length at most 1.

The paper's lower bound is about this set, and so is its remark on ProBALL: a score that depends on U^T phi alone and
grows with its length is largest on a unit vector *in the span of U* (`into_span` shows it for any phi).

A policy is asked about finitely many actions, so the ball is approximated from inside, anew each round: many random
unit vectors, and the direction that the policy itself holds for the best, its greedy direction. That one is read off
its scores of the axes: optimism about phi and about -phi is the same, so that (score(e_i) - score(-e_i)) / 2 is the
i-th coordinate of the policy's estimate of beta. What is offered thus depends on the past of the policy and on chance,
never on beta: nothing leaks. Regret is against the best vector of the ball, |beta|.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from newcomer.arrays import Floats
from newcomer.errors import NewcomerError
from newcomer.worlds.world import Episode, world_unit_vectors

if TYPE_CHECKING:
    from newcomer.logs import Logs


class Tastes(Protocol):
    """What a world with actions in the ball is made of: users, their logs, and the noise of rewards."""

    @property
    def dim(self) -> int:
        """Feature dimension d."""

    def newcomer(self, rng: np.random.Generator) -> Floats:
        """The reward vector beta (d,) of a newcomer."""

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Noise of rewards."""

    def logs(self, users: int, steps: int, seed: int) -> Logs:
        """Histories of earlier users."""


class Scoring(Protocol):
    """A policy that ranks by scores."""

    def start(self, n: int) -> Any:
        """State of n users who have done nothing yet."""

    def scores(self, state: Any, actions: Floats) -> Floats:
        """What it ranks by, (1, K)."""

    def choose(self, state: Any, actions: Floats) -> Any:
        """The place (1,) of the action it takes."""

    def update(self, state: Any, features: Floats, reward: Floats) -> None:
        """Learn from chosen features (1, d) and rewards (1,)."""


@dataclass(frozen=True)
class Ball:
    """The users of a world with the unit ball as actions; a round looks at `choices` random unit vectors of it."""

    world: Tastes
    choices: int = 50

    def __post_init__(self) -> None:
        if self.choices < 1:
            raise NewcomerError("a ball needs choices", where=f"choices={self.choices}", todo="choose 1 or more")

    @property
    def dim(self) -> int:
        """Feature dimension d."""
        return self.world.dim

    def logs(self, users: int, steps: int, seed: int) -> Logs:
        """The logs of the world, which draws its actions as it does."""
        return self.world.logs(users, steps, seed)

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """A newcomer for `play`, which needs all outcomes ahead: random unit vectors, regret against the best of them.

        `serve` has the ball itself.
        """
        beta = self.world.newcomer(rng)
        actions = world_unit_vectors(rng, (horizon, self.choices, self.dim))
        means = actions @ beta
        return Episode(actions, means, means + self.world.draw_noise(rng, means.shape))

    def serve(
        self,
        policy: Scoring,
        rng: np.random.Generator,
        horizon: int,
        *,
        estimate: Callable[[Any], Floats] | None = None,
    ) -> Floats:
        """The regret (T,) of each round of one newcomer, against |beta|.

        `estimate` gives the policy's estimate (d,) of beta from its state where its scores are dear; by default it is
        read off its scores.
        """
        beta, state = self.world.newcomer(rng), policy.start(1)
        noise, gained = self.world.draw_noise(rng, (horizon,)), np.empty(horizon)
        guess = estimate or (lambda state: estimated(policy, state, self.dim))
        for t in range(horizon):
            offered = np.concatenate([direction(guess(state))[None], world_unit_vectors(rng, (self.choices, self.dim))])
            taken = offered[int(policy.choose(state, offered)[0])]
            gained[t] = taken @ beta
            policy.update(state, taken[None], np.array([gained[t] + noise[t]]))
        return np.asarray(np.linalg.norm(beta) - gained)


def estimated(policy: Scoring, state: Any, dim: int) -> Floats:
    """The estimate (d,) of beta of a policy whose optimism is the same about an action and its opposite."""
    scores = policy.scores(state, np.concatenate([np.eye(dim), -np.eye(dim)]))[0]
    return np.asarray((scores[:dim] - scores[dim:]) / 2.0)


def into_span(basis: Floats, action: Floats) -> Floats:
    """The unit vector (d,) in the span of a basis (d, k) that has the projection of an action, stretched to length 1.

    For |action| <= 1 the coordinates U^T phi only grow by it.
    """
    return direction(basis @ (basis.T @ action))


def direction(vector: Floats) -> Floats:
    """The unit vector that points there; the first axis if there is nowhere to point."""
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else np.eye(len(vector))[0]
