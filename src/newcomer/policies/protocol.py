"""What everybody who serves users asks of a policy, whether or not it derives from `Contract`."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from newcomer.arrays import Bools, Floats, Ints
from newcomer.policies.calls import Random


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
