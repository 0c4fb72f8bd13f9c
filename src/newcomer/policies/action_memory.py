"""Per-action effects: what one user thinks of one action, beyond everything that is shared.

A reward of action a is phi^T (m + L z) + o_a + e_a + noise: the population mean, a part along shared directions, and a
residual of variance v_a, of which a share repeats. The effect e_a ~ N(0, se) is the same whenever the user meets the
action again; the noise, of variance s2 = v_a - se, is not. After n meetings with (centred) rewards that sum to y and
features that sum to f, both in the coordinates of z, let c = se / (s2 + n se). Then, exactly,

* a candidate with features g is expected to pay (g - c f)^T E[z] + c y beyond its population mean, and its effect is
  known up to the variance s2 se / (s2 + n se);
* one more reward r with features g is, for z, one ordinary reward r - c y of features g - c f with the noise variance
  s2 + s2 se / (s2 + n se).

So an effect costs three numbers for each action met (which, how often, the sum) and changes nothing where no action
comes again. Features of actions of the catalogue are not kept with the user.

**What is the same action?** Ids say so, or, without ids, equal features. Where several actions of the catalogue have
the same features, only ids can tell, and without them nothing is recognised.

**How large is the share?** If the model knows, that. If not, users who meet actions again show it
(policies/repeatability.py). Each user has weights over shares, whose mean is used as if it were known, and everything
learned so far is given the weight that it has under the new share. (Serving with the whole mixture of shares gave the
same regret to 0.3%, at many times the cost.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from newcomer.array_loops import plain
from newcomer.arrays import Bools, Floats, Ints
from newcomer.linear.ridge import Ridge
from newcomer.linear.state import GROWS, LATER, NOBODY, Record, State
from newcomer.policies import memory_loops
from newcomer.policies.memory_loops import MOST, Entries, Predicted, Recalled, Repeats, Shares
from newcomer.policies.repeatability import SHARES, mean_repeatability, repeatability_by_deviations

FIRST = 16  # entries that a memory has room for at first


@dataclass
class ActionMemory(State):
    """What n users remember; M entries and R rows, which grow."""

    saved_as: ClassVar[str] = "Memory"
    keys: Ints = field(metadata=GROWS)  # (n, M)
    counts: Floats = field(metadata=GROWS)  # (n, M)
    totals: Floats = field(metadata=GROWS)  # (n, M)
    slots: Ints = field(metadata=GROWS)  # (n, M)
    fixed: Floats = field(metadata=GROWS)  # (n, M)
    rows: Floats = field(metadata=GROWS)  # (n, R, d)
    used: Ints  # (n,) entries in use
    repeats: Floats  # (n,) meetings beyond the first
    log_likelihood: Floats = field(
        metadata={"saved_as": "told"}
    )  # (n, S) log-likelihood of the user's repeats under each of `SHARES`
    log_prior: Floats = field(
        metadata={"saved_as": "heard"}
    )  # (n, S) log of how much more weight earlier users gave each share than the model does, to begin with
    share: Floats  # (n,) of the residual variance that is taken to repeat
    extra: Floats = field(metadata={"saved_as": "more"})  # (n,) variance of the effect beyond it: of outlier users
    shift: Floats = field(default_factory=lambda: np.zeros((0, 0)), metadata=LATER)  # (n, k) of z by attributes, (n, 0)

    def __post_init__(self) -> None:
        if len(self.shift) != len(self.used):
            self.shift = np.zeros((len(self.used), 0))

    def untouched(self) -> Bools:
        """Of each row (n,) whether its users have met nothing."""
        return np.asarray(self.used == 0)

    def lengths(self) -> dict[str, int]:
        """Entries and rows that somebody uses."""
        width = int(self.used[0]) if len(self.used) == 1 else int(self.used.max(initial=0))
        entries = dict.fromkeys(("keys", "counts", "totals", "slots", "fixed"), width)
        return entries | {"rows": int(self.slots[:, :width].max(initial=-1)) + 1 if self.rows.shape[1] else 0}

    @property
    def entries(self) -> Entries:
        """The arrays as compiled loops take them."""
        return Entries(self.keys, self.counts, self.totals, self.slots, self.fixed, self.used, self.rows)

    @property
    def shares(self) -> Shares:
        """How the residual of each user divides."""
        return Shares(self.share, self.extra)

    def check(self) -> None:
        """Refuse arrays that do not fit together; loops rely on places being inside the arrays."""
        super().check()
        width, n = self.keys.shape, len(self.used)
        self.refuse_unless(len(width) == 2 and self.rows.ndim == 3)
        self.refuse_unless(self.counts.shape == self.totals.shape == self.slots.shape == self.fixed.shape == width)
        self.refuse_unless(self.log_likelihood.shape == self.log_prior.shape == (n, len(SHARES)))
        self.refuse_unless(self.used.shape == self.repeats.shape == self.share.shape == self.extra.shape == (n,))
        self.refuse_unless(self.shift.ndim == 2 and _all_memory_arrays_of(np.int64, self.keys, self.slots, self.used))
        parts = (self.counts, self.totals, self.fixed, self.rows, self.repeats, self.log_likelihood, self.log_prior)
        self.refuse_unless(_all_memory_arrays_of(np.float64, *parts, self.share, self.extra, self.shift))
        self.check_values()

    def check_values(self) -> None:
        """Refuse entries and places of features that are not there."""
        self.refuse_unless(
            memory_loops.memory_is_inside_loop(
                self.used, np.require(self.slots, requirements=("C", "W")), self.rows.shape[1]
            )
        )

    @classmethod
    def rebuild(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "", record: Record = NOBODY) -> Self:
        """As of any state; states of before repeats had likelihoods of their scale kept counts and squares (n, 2)."""
        repeats = arrays.get(f"{prefix}repeats")
        if repeats is not None and repeats.ndim == 2 and repeats.shape[1] == 2 and f"{prefix}told" not in arrays:
            log_likelihood = repeatability_by_deviations(repeats)
            now = {"repeats": repeats[:, 0].copy(), "told": log_likelihood, "heard": np.zeros_like(log_likelihood)}
            arrays = {**arrays, **{prefix + name: array for name, array in now.items()}}
        return super().rebuild(arrays, prefix, record)


def _all_memory_arrays_of(kind: type[np.generic], *arrays: NDArray[Any]) -> bool:
    """Whether all arrays are of this type."""
    return all(array.dtype == kind for array in arrays)


def start_action_memory(n: int, dim: int, share: float) -> ActionMemory:
    """n users who have met nothing; features have `dim` entries."""
    keys, slots = np.zeros((2, n, FIRST), dtype=np.int64)
    counts, totals, fixed = np.zeros((3, n, FIRST))
    log_likelihood, log_prior = np.zeros((2, n, len(SHARES)))
    return ActionMemory(
        keys, counts, totals, slots, fixed, np.zeros((n, 0, dim)),
        np.zeros(n, dtype=np.int64), np.zeros(n), log_likelihood, log_prior, np.full(n, share), np.zeros(n),
    )  # fmt: skip


def recall_action_memory(memory: ActionMemory, users: Ints, keys: Ints, variance: Floats, effect: Floats) -> Recalled:
    """What memory says of candidates with these keys, residual variances and further effect variances (m, K)."""
    weight, level, left = np.empty((3, *keys.shape))
    out = Recalled(weight, level, left, np.empty(keys.shape, dtype=np.int64))
    whole = np.require(keys, requirements=("C", "W"))  # arrays of one type for the loop
    memory_loops.recall_memory_loop(memory.entries, memory.shares, users, whole, plain(variance), plain(effect), out)
    return out


def remember_in_action_memory(
    memory: ActionMemory,
    users: Ints,
    keys: Ints,
    targets: Floats,
    features: Floats,
    predicted: Predicted,
    scale: Floats,
    starting: Floats | None,
) -> Ints:
    """Write down one meeting of each of `users` (m,), each of them once; returns those who met an action again.

    `targets` (m,) are rewards less their population mean, `features` (m, d), `scale` that of the rewards. `starting`
    are the model's weights of shares, None if it knows the share: then repeats say nothing.
    """
    make_action_memory_room(memory, users, keys)
    again = np.empty(len(users))
    repeats = Repeats(SHARES if starting is not None else SHARES[:0], scale, memory.log_likelihood)
    memory_loops.remember_in_memory_loop(memory.entries, users, keys, targets, features, predicted, repeats, again)
    memory.repeats[users] += again
    return users[again > 0]


def believe_action_memory(memory: ActionMemory, users: Ints, starting: Floats) -> None:
    """Let the shares of `users` (m,) be what their repeats, and those of earlier users, say."""
    memory.share[users] = mean_repeatability(starting, memory.log_prior[users] + memory.log_likelihood[users])


def make_action_memory_room(memory: ActionMemory, users: Ints, keys: Ints) -> None:
    """Room for one more entry of each user and, for actions outside the catalogue, for one more row of features."""
    width = int(memory.used[users].max(initial=0)) + 1
    if width > memory.keys.shape[1]:
        _widen(memory, max(width, 2 * memory.keys.shape[1], FIRST))
    if (keys < 0).any():
        # Entries are at least as many as rows: only where these might not do are they counted.
        full = min(width, MOST) > memory.rows.shape[1]
        rows = min(int((memory.slots[users] >= 0)[:, :width].sum(axis=1).max(initial=0)) + 1, MOST) if full else 0
        if rows > memory.rows.shape[1]:
            memory.rows = _widened(memory.rows, min(max(rows, 2 * memory.rows.shape[1], FIRST), MOST))


def _widen(memory: ActionMemory, width: int) -> None:
    """Room for so many entries, zeros in the new places: in two blocks, because a user waits for this."""
    count, before = memory.keys.shape
    whole, real = np.zeros((2, count, width), dtype=np.int64), np.zeros((3, count, width))
    whole[0, :, :before], whole[1, :, :before] = memory.keys, memory.slots
    real[0, :, :before], real[1, :, :before], real[2, :, :before] = memory.counts, memory.totals, memory.fixed
    (memory.keys, memory.slots), (memory.counts, memory.totals, memory.fixed) = whole, real


def _widened(array: NDArray[Any], width: int) -> NDArray[Any]:
    """The array with a longer second axis, zeros in the new places."""
    out = np.zeros((len(array), width, *array.shape[2:]), dtype=array.dtype)
    out[:, : array.shape[1]] = array
    return out


def reweigh_action_memory(
    memory: ActionMemory,
    user: int,
    system: Ridge,
    *,
    table: Floats,
    through: Floats,
    variance: Floats,
    effect: Floats,
    before: tuple[float, float] | None,
    least: float = 2.0,
) -> None:
    """Give a user's meetings the weight in `system` that they have under the share and variance that now repeat.

    `before` is what they had, (share, extra), None if they are not in the system yet; the rest as in the loop.
    """
    old = np.array([-1.0, 0.0] if before is None else before)
    new = np.array([memory.share[user], memory.extra[user]])
    known = table, through, variance, effect
    memory_loops.reweigh_memory_loop(memory.entries, user, system.parts, *known, old, new, least)
