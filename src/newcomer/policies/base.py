"""The contract of policies, and the parts every policy shares: checking a call, breaking ties, randomness, votes.

A policy is a frozen dataclass of hyperparameters; what it learns travels in a state (policies/state.py).

    state = policy.start(n)                                              n newcomers
    policy.choose(state, actions, rng, mask=, users=) -> (m,)            pure: asking twice gives the same answer
    policy.probabilities(state, actions, rng, mask=, users=) -> (m, K)   one-hot if deterministic; votes if sampled
    policy.scores(state, actions, mask=, users=) -> (m, K)               what the policy ranks by; -inf where masked
    policy.in_subspace(state) -> (n,)                                    does it still rely on what users share?
    policy.update(state, features, reward, users=)                       in place, or refused as a whole

`actions` is (m, K, d), or (K, d) for all alike; `mask` is (m, K) or (K,), true where an action may be chosen; `users`
are the positions (m,) of the users asked about, all of them by default. A reward of NaN means nothing yet. Scores
within 1e-12 relative of the best are a tie, which the lowest index wins. `rng` is a Generator, or one per row (m);
with one per user, results do not depend on how users are put into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from newcomer import array_loops
from newcomer.errors import PolicyError
from newcomer.linear import learning_loops, scoring_loops
from newcomer.linear.state import State, positions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Kind = TypeVar("Kind", bound=State)
Generators = Sequence[Generator]
Random = Generator | Sequence[Generator] | None

FLOAT, INT = np.dtype(np.float64), np.dtype(np.int64)
NO_MASK: Bools = np.ones((0, 0), dtype=np.bool_)


@runtime_checkable
class Policy(Protocol):
    """What `nc.play`, the service and `newcomer.testing.check_policy` ask of a policy; `State` is the policy's own."""

    def start(self, n: int) -> Any:
        """The state of n newcomers."""

    def choose(
        self,
        state: Any,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The chosen action (m,) of each row."""

    def probabilities(
        self,
        state: Any,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """The probability (m, K) with which `choose` takes each action."""

    def scores(
        self,
        state: Any,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """What the policy ranks by (m, K)."""

    def in_subspace(self, state: Any) -> Bools:
        """Whether each user (n,) is still served in the shared subspace."""

    def update(self, state: Any, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None) -> None:
        """Learn from rewards, in place."""


class Offer(NamedTuple):
    """A checked question: who may choose among what. One block of actions serves all rows if they share it."""

    actions: Floats  # (m, K, d) or (1, K, d)
    users: Ints  # (m,)
    mask: Bools  # (m, K), or NO_MASK

    def table(self) -> Floats:
        """An empty (m, K) table of scores."""
        return np.empty((len(self.users), self.actions.shape[1]))


class Rewards(NamedTuple):
    """Checked rewards: row i says that user `users[i]` got `reward[i]` for an action with `features[i]`."""

    features: Floats  # (m, d)
    reward: Floats  # (m,)
    users: Ints  # (m,)


def own(state: Kind, kind: type[Kind]) -> Kind:
    """The state, which must be of the kind that the policy's `start` makes."""
    if type(state) is not kind:
        raise PolicyError(f"this policy keeps a {kind.__name__} and was given a {type(state).__name__}")
    return state


def foreign(needed: str) -> PolicyError:
    """The error for a state that another policy, or other settings, started."""
    return PolicyError(f"this state is not one of {needed}", todo="use the state with the policy that started it")


def who(state: State, users: ArrayLike | None) -> Ints:
    """The positions (m,) asked about; all users by default."""
    return _everyone(len(state)) if users is None else positions(users, len(state))


@lru_cache(maxsize=16)
def _everyone(count: int) -> Ints:
    return np.arange(count)


def newcomers(n: int) -> int:
    """The number of users to start with, checked."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise PolicyError(f"start needs a number of users, not {n!r}")
    return int(n)


def offer(
    state: State, actions: ArrayLike, *, dim: int | None, mask: ArrayLike | None = None, users: ArrayLike | None = None
) -> Offer:
    """Check a question to a policy whose features have `dim` entries (None: any number).

    Whether the features are finite is left to `pick` and `masked`, where it shows in the scores without another pass.
    """
    return Offer(*question(state, actions, dim=dim, mask=mask, users=users))


def question(
    state: State, actions: ArrayLike, *, dim: int | None, mask: ArrayLike | None, users: ArrayLike | None
) -> tuple[Floats, Ints, Bools]:
    """The parts of an offer, for loops that can do without one."""
    given, asked = floats(actions, "actions"), _everyone(len(state)) if users is None else positions(users, len(state))
    shared = given.ndim == 2
    if shared:
        given = given[None]
    rows, count, size = given.shape if given.ndim == 3 else (0, 0, 0)
    if count == 0 or (size != dim and dim is not None):
        raise PolicyError(
            f"actions must have shape (m, K, {dim or 'd'}) or (K, {dim or 'd'}) with K >= 1, not {np.shape(actions)}"
        )
    if rows != len(asked) and not shared:
        raise PolicyError(f"actions are for {rows} users and {len(asked)} were asked about")
    return given, asked, NO_MASK if mask is None else allowed(mask, len(asked), count)


def allowed(mask: ArrayLike, rows: int, count: int) -> Bools:
    """A mask as (rows, count) booleans, true where an action may be chosen; every row needs one."""
    given = np.asarray(mask)
    if given.dtype != np.bool_ or given.shape not in ((rows, count), (count,)):
        raise PolicyError(
            f"the mask must be booleans of shape ({rows}, {count}) or ({count},), not {given.dtype} of {given.shape}"
        )
    full = np.array(np.broadcast_to(given, (rows, count)), order="C")
    empty = np.flatnonzero(~full.any(axis=1))
    if empty.size:
        raise PolicyError("no action may be chosen", where=f"mask, row {empty[0]}", todo="leave at least one true")
    return full


def rewards(
    state: State, features: ArrayLike, reward: ArrayLike, *, dim: int | None, users: ArrayLike | None = None
) -> Rewards:
    """Check rewards; rows whose reward is NaN (nothing yet) are left out."""
    return sift(*told(state, features, reward, dim=dim, users=users))


def told(
    state: State, features: ArrayLike, reward: ArrayLike, *, dim: int | None, users: ArrayLike | None = None
) -> tuple[Floats, Floats, Ints]:
    """Features, reward, users of the right shapes, for loops that look at the numbers and ask `sift` if they refuse."""
    x, r = floats(features, "features"), floats(reward, "reward")
    asked = _everyone(len(state)) if users is None else positions(users, len(state))
    if x.ndim == 1:
        x = x[None]
    if r.ndim == 0:
        r = r[None]
    if x.ndim != 2 or len(x) != len(asked) or r.shape != asked.shape or (dim is not None and x.shape[1] != dim):
        raise PolicyError(
            f"features {np.shape(features)} and reward {np.shape(reward)} do not fit {len(asked)} users"
            f" of dimension {dim or 'd'}"
        )
    return x, r, asked


def sift(features: Floats, reward: Floats, users: Ints) -> Rewards:
    """The rewards without those that are NaN; numbers that are not finite or far too large are refused."""
    fault = learning_loops.fault(features, reward)
    if fault > 1:
        raise PolicyError(
            "features and rewards must be finite numbers below 1e100 in size",
            where=f"row {fault - 2}",
            todo="a reward that is not known yet is NaN",
        )
    if fault == 0:
        return Rewards(features, reward, users)
    known = ~np.isnan(reward)
    return Rewards(features[known], reward[known], users[known])


def floats(values: ArrayLike, name: str) -> Floats:
    """Values as a float64 array that kernels take without recompiling: contiguous, aligned, writeable."""
    if type(values) is np.ndarray and values.dtype is FLOAT and values.flags.carray:
        return values
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise PolicyError(f"{name} must be numbers in a full array") from problem
    return array if array.flags.carray else np.array(array, order="C")


def pick(scores: Floats, asked: Offer) -> Ints:
    """The best allowed action (m,) of each row; ties within 1e-12 relative go to the lowest index."""
    chosen = np.empty(len(scores), INT)
    bad = scoring_loops.first_best(scores, asked.mask, chosen)
    if bad >= 0:
        refuse(asked.actions, bad)
    return chosen


def best_for(coefficients: Floats, asked: Offer) -> Ints:
    """The best allowed action (m,) of each row if its reward vector is that row of `coefficients` (m, d)."""
    out = asked.table()
    array_loops.mean_scores(coefficients, np.arange(len(out)), asked.actions, out)
    return pick(out, asked)


def masked(scores: Floats, asked: Offer) -> Floats:
    """The scores, checked, with -inf where an action may not be chosen."""
    if not np.isfinite(scores).all():
        refuse(asked.actions, int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0]))
    return np.where(asked.mask, scores, -np.inf) if asked.mask.size else scores


def refuse(actions: Floats, row: int) -> None:
    """Say which features made the scores of a row infinite."""
    block = actions[min(row, len(actions) - 1)]
    action = int(np.argmin(np.isfinite(block).all(axis=1)))
    raise PolicyError("features must be finite numbers of moderate size", where=f"actions, row {row}, action {action}")


def one_hot(chosen: Ints, asked: Offer) -> Floats:
    """Certain choices as probabilities (m, K)."""
    out = np.zeros((len(chosen), asked.actions.shape[1]))
    out[np.arange(len(chosen)), chosen] = 1.0
    return out


def generators(rng: Random, rows: int, policy: str) -> Generators:
    """One generator per row: the given ones, or the same for all, drawn from in the order of the rows."""
    if isinstance(rng, Generator):
        return [rng] * rows
    if rng is None:
        raise PolicyError(f"{policy} chooses at random", todo="pass rng=numpy.random.default_rng(seed)")
    if not isinstance(rng, Sequence | np.ndarray) or not all(isinstance(one, Generator) for one in rng):
        raise PolicyError("rng must be a numpy Generator, or a list of one Generator per user")
    if len(rng) != rows:
        raise PolicyError(f"rng has {len(rng)} generators for {rows} users")
    return rng


def normals(rngs: Generators, size: int) -> Floats:
    """Standard normal draws (m, size), each row from its own generator."""
    out = np.empty((len(rngs), size))
    for row, rng in zip(out, rngs, strict=True):
        rng.standard_normal(out=row)
    return out


def votes(draw: Callable[[], Ints], asked: Offer, count: int) -> Floats:
    """How often (m, K) each action wins in `count` draws of the choice: the law of a sampled policy, up to noise."""
    out = np.zeros((len(asked.users), asked.actions.shape[1]))
    rows = np.arange(len(out))
    for _ in range(count):
        out[rows, draw()] += 1.0 / count
    return out


def whole(value: int, name: str, *, least: int = 1) -> None:
    """Refuse a hyperparameter that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise PolicyError(f"{name} must be a whole number of at least {least}, not {value!r}")


def number(value: float, name: str, *, least: float = 0.0) -> None:
    """Refuse a hyperparameter that is not a finite number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not least <= value < np.inf:
        raise PolicyError(f"{name} must be a number of at least {least:g}, not {value!r}")
