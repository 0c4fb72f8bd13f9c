"""What everybody who serves users asks of a policy, whether or not it derives from `Contract`.

Learner: what keeps the state of a policy, apart from how the policy chooses by it.

Policies of one family (UCB and Thompson sampling from the same posterior) choose differently and learn alike: each has
a learner of the same class, `policy.learner`, to which `Contract` passes on everything that is not a choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from newcomer.arrays import Bools, Floats, Ints
from newcomer.errors import PolicyError
from newcomer.linear.state import State
from newcomer.policies.calls import Random, Rewards
from newcomer.policies.repeatability import Repeatability


@runtime_checkable
class Policy(Protocol):
    """What `nc.play`, the service and `newcomer.testing.check_policy` ask of a policy; its state is its own affair."""

    def start(self, n: int) -> Any:
        """The state of n newcomers."""

    def choose(
        self,
        state: Any,
        actions: ArrayLike | None = None,
        rng: Random = None,
        *,
        ids: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The chosen action (m,) of each row."""

    def probabilities(
        self,
        state: Any,
        actions: ArrayLike | None = None,
        rng: Random = None,
        *,
        ids: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """The probability (m, K) with which `choose` takes each action."""

    def scores(
        self,
        state: Any,
        actions: ArrayLike | None = None,
        rng: Random = None,
        *,
        ids: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """What the policy ranks by (m, K)."""

    def in_subspace(self, state: Any) -> Bools:
        """Whether each user (n,) is still served in the shared subspace."""

    def update(
        self,
        state: Any,
        features: ArrayLike | None = None,
        reward: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> None:
        """Learn from rewards, in place."""


Kind = TypeVar("Kind", bound=State)


class Learner(Generic[Kind]):
    """The hooks of policies/base.py that concern the state; a policy without a learner supplies the first two."""

    def init(self, n: int) -> Kind:
        """The state of n newcomers, n checked."""
        raise PolicyError("this policy does not say how its state starts", todo="supply init and learn, or a learner")

    def learn(self, state: Kind, observed: Rewards) -> None:
        """Take rewards into the state; at least one row."""
        raise PolicyError("this policy does not say how it learns", todo="supply init and learn, or a learner")

    def learn_plain(self, state: Kind, users: Ints, features: Floats, reward: Floats) -> bool:
        """`learn` in the commonest call by features; see `Contract.learn_plain`."""
        return False

    def learn_codes(self, state: Kind, users: Ints, codes: Ints, reward: Floats, largest: float) -> bool:
        """`learn` in the commonest call by ids; rewards beyond `largest` are left to the long way, which warns."""
        return False

    def in_subspace(self, state: Kind) -> Bools:
        """Whether the coming round of each user (n,) relies on the shared subspace."""
        return np.zeros(len(next(state.arrays())[1]), dtype=np.bool_)

    def state_settings(self) -> Mapping[str, str | float]:
        """Settings, beside the dimension, without which a state means something else; not widths, nor votes."""
        return {}

    def pool_repeatability(self, state: Kind) -> Repeatability | None:
        """What repeated actions say of repeatability; None without per-action effects."""
        return None

    def apply_repeatability(self, state: Kind, given: Repeatability) -> None:
        """Let the users of a new state start with the repeatability of earlier users."""
        what = "this policy does not remember actions, so that nothing comes again"
        raise PolicyError(what, todo="leave out repeatability=")

    def apply_attributes(self, state: Kind, users: Ints, x: Floats) -> None:
        """Let the prior of `users` (m,), each once, be the one given their encoded attributes (m, p)."""
        raise PolicyError("this policy does not use attributes of users", todo="leave out attributes=")


NO_LEARNER: Learner[State] = Learner()
