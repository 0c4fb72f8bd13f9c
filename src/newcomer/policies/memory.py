"""Memory: what a person thinks of this very action, beyond everything that is shared.

A reward of action a is phi^T (m + L z) + o_a + e_a + noise: a common part, a part along shared directions, and a
residual of variance v_a, of which a share lasts. What lasts, e_a ~ N(0, se), comes again whenever the user meets the
action again; the noise, of variance s2 = v_a - se, does not. After n meetings with (centred) rewards that sum to y and
features that sum to f, both in the coordinates of z, let c = se / (s2 + n se). Then, exactly,

* a candidate with features g is expected to pay (g - c f)^T E[z] + c y beyond its common part, and its lasting part is
  known up to the variance s2 se / (s2 + n se);
* one more reward r with features g is, for z, one ordinary reward r - c y of features g - c f with the noise variance
  s2 + s2 se / (s2 + n se).

So memory costs three numbers for each action met (which, how often, the sum) and changes nothing where no action comes
again. Features of actions of the catalogue are not kept with the user.

**What is the same action?** Ids say so, or, without ids, equal features. Where several actions of the catalogue have
the same features, only ids can tell, and without them nothing is recognised.

**How much lasts?** If the model knows, that. If not, the user's own repeats tell: the deviations of n rewards for one
action from their own mean have the variance s2 whatever the user likes, so with Q the sum of their squares / v over
`count` repeats, (1 - share) is Q / count up to noise. Each user starts with weights over shares 0, 0.05, .., 0.95
(`starting_weights`), which repeats multiply by (1 - share)^(-count / 2) exp(-Q / (2 (1 - share))); the mean of the
share under these weights is used as if it were known, and everything learned so far is given the weight that it has
under the new share. (Serving with the whole mixture of shares gave the same regret to 0.3%, at many times the cost.)

On a coarse scale (clicks, stars) equal rewards say less: somebody who would have clicked with a probability of a tenth
does not click twice, most of the time, whatever lasts. So each repeat has a sixth of the distance of neighbouring
rewards added to its deviation (in squares). With that the weights of shares follow the probability that rewards which
were rounded to the scale are equal: on stars (v = 1.2) equal answers speak for a share of 0.75 by 1.9 to 1, for clicks
of probability 0.3 by 1.6 to 1, where densities would have 2.0 for both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from newcomer.array_loops import plain
from newcomer.arrays import Floats, Ints
from newcomer.linear.ridge import Ridge
from newcomer.linear.state import GROWS, State
from newcomer.model import Model
from newcomer.policies import memory_loops
from newcomer.policies.memory_loops import MOST, Entries, Recalled, Shares

SHARES = np.arange(0.0, 1.0, 0.05)  # of the residual, that may last
SCEPTICAL, OPEN = 0.9, 0.5  # weight of "nothing lasts" to begin with: where nothing is shared, and where something is
FIRST = 8  # entries that memory begins with
ROUNDED = 1 / 6  # of the distance of neighbouring rewards: the deviation that equal rewards on a scale count for


@dataclass
class Memory(State):
    """What n users remember; M entries and R rows, which grow."""

    keys: Ints = field(metadata=GROWS)  # (n, M)
    counts: Floats = field(metadata=GROWS)  # (n, M)
    totals: Floats = field(metadata=GROWS)  # (n, M)
    slots: Ints = field(metadata=GROWS)  # (n, M)
    fixed: Floats = field(metadata=GROWS)  # (n, M)
    rows: Floats = field(metadata=GROWS)  # (n, R, d)
    used: Ints  # (n,) entries in use
    repeats: Floats  # (n, 2) meetings beyond the first, and their squared deviations / v
    share: Floats  # (n,) of the residual that is taken to last
    more: Floats  # (n,) variance beyond it that lasts: of strangers

    def __len__(self) -> int:
        return len(self.used)

    @property
    def entries(self) -> Entries:
        """The arrays as compiled loops take them."""
        return Entries(self.keys, self.counts, self.totals, self.slots, self.fixed, self.used, self.rows)

    @property
    def shares(self) -> Shares:
        """How the residual of each user divides."""
        return Shares(self.share, self.more)

    def check(self) -> None:
        """Refuse arrays that do not fit together; loops rely on places being inside the arrays."""
        super().check()
        width = self.keys.shape
        self.refuse_unless(all(part.shape == width for part in (self.counts, self.totals, self.slots, self.fixed)))
        self.refuse_unless(self.keys.ndim == 2 and self.rows.ndim == 3 and self.repeats.shape == (len(self.used), 2))
        self.refuse_unless(all(part.ndim == 1 for part in (self.used, self.share, self.more)))
        self.refuse_unless(all(part.dtype == np.int64 for part in (self.keys, self.slots, self.used)))
        floats = (self.counts, self.totals, self.fixed, self.rows, self.repeats, self.share, self.more)
        self.refuse_unless(all(part.dtype == np.float64 for part in floats))
        self.refuse_unless(bool(np.all((self.used >= 0) & (self.used <= width[1]))))
        self.refuse_unless(bool(np.all((self.slots >= -1) & (self.slots < max(self.rows.shape[1], 1)))))


def start(n: int, dim: int, share: float) -> Memory:
    """n users who have met nothing; features have `dim` entries."""
    keys, slots = np.zeros((2, n, 0), dtype=np.int64)
    counts, totals, fixed = np.zeros((3, n, 0))
    return Memory(
        keys, counts, totals, slots, fixed, np.zeros((n, 0, dim)),
        np.zeros(n, dtype=np.int64), np.zeros((n, 2)), np.full(n, share), np.zeros(n),
    )  # fmt: skip


def recall(memory: Memory, users: Ints, keys: Ints, variance: Floats, lasting: Floats) -> Recalled:
    """What memory says of candidates with these keys, residual variances and further lasting variances, (m, K) each."""
    weight, level, left = np.empty((3, *keys.shape))
    out = Recalled(weight, level, left, np.empty(keys.shape, dtype=np.int64))
    whole = np.require(keys, requirements=("C", "W"))  # arrays of one type for the loop
    memory_loops.recall(memory.entries, memory.shares, users, whole, plain(variance), plain(lasting), out)
    return out


def remember(
    memory: Memory, users: Ints, keys: Ints, targets: Floats, features: Floats, variance: Floats, step: float = 0.0
) -> Ints:
    """Write down one meeting of each of `users` (m,), each of them once; returns those who met an action again.

    `targets` (m,) are rewards less their common part, `features` (m, d), `variance` (m,) the residual variances, `step`
    the distance of neighbouring rewards.
    """
    _make_room(memory, users, keys)
    again = np.empty((len(users), 2))
    memory_loops.remember(memory.entries, users, keys, targets, features, again)
    memory.repeats[users, 0] += again[:, 0]
    memory.repeats[users, 1] += (again[:, 1] + again[:, 0] * (ROUNDED * step) ** 2) / variance
    return users[again[:, 0] > 0]


def _make_room(memory: Memory, users: Ints, keys: Ints) -> None:
    """Room for one more entry of each user and, for actions outside the catalogue, for one more row of features."""
    width = int(memory.used[users].max(initial=0)) + 1
    if width > memory.keys.shape[1]:
        longer = max(width, 2 * memory.keys.shape[1], FIRST)
        for name in ("keys", "counts", "totals", "slots", "fixed"):
            setattr(memory, name, _widened(getattr(memory, name), longer))
    if (keys < 0).any():
        # Entries are at least as many as rows: only where these might not do are they counted.
        full = min(width, MOST) > memory.rows.shape[1]
        rows = min(int((memory.slots[users] >= 0)[:, :width].sum(axis=1).max(initial=0)) + 1, MOST) if full else 0
        if rows > memory.rows.shape[1]:
            memory.rows = _widened(memory.rows, min(max(rows, 2 * memory.rows.shape[1], FIRST), MOST))


def _widened(array: NDArray[Any], width: int) -> NDArray[Any]:
    """The array with a longer second axis, zeros in the new places."""
    out = np.zeros((len(array), width, *array.shape[2:]), dtype=array.dtype)
    out[:, : array.shape[1]] = array
    return out


def starting_weights(model: Model) -> Floats:
    """Weights of `SHARES` before a user has met anything twice, for a model that does not know how much lasts.

    Half of the weight is on "nothing lasts" where users differ along shared directions, nine tenths where nothing is
    shared, the rest spread evenly; what few repeats the logs have multiplies that.

    >>> blank = Model(np.eye(1), np.ones(1), np.ones(1), np.ones((1, 0)), 1.0)
    >>> float(starting_weights(blank)[0])
    0.9
    """
    none = OPEN if np.any(model.factor) else SCEPTICAL
    weights = np.full(len(SHARES), (1.0 - none) / (len(SHARES) - 1))
    weights[0] = none
    facts = model.evidence.population
    if facts is not None and facts.persistence is not None:
        told = facts.persistence
        weights = _told(weights, np.array([[told.repeats, told.repeats * told.ratio]]))[0]
    return weights


def mean_share(weights: Floats, repeats: Floats) -> Floats:
    """The share that lasts (m,), on average over weights (S,) multiplied by what repeats (m, 2) tell.

    >>> even = np.full(20, 0.05)
    >>> mean_share(even, np.array([[0.0, 0.0], [8.0, 8.0], [8.0, 0.4]])).round(2).tolist()
    [0.48, 0.22, 0.9]
    """
    # Not a product with a vector: its sums would depend, in the last bit, on how many users there are.
    told: Floats = (_told(weights, repeats) * SHARES).sum(axis=1)
    return told


def _told(weights: Floats, repeats: Floats) -> Floats:
    """Weights (m, S) after repeats (m, 2): counts, and sums of squared deviations / v."""
    rest = 1.0 - SHARES
    logs = np.log(np.maximum(weights, 1e-300)) - 0.5 * repeats[:, :1] * np.log(rest) - 0.5 * repeats[:, 1:] / rest
    raw = np.exp(logs - logs.max(axis=1, keepdims=True))
    normal: Floats = raw / raw.sum(axis=1, keepdims=True)
    return normal


def reweigh(
    memory: Memory,
    user: int,
    system: Ridge,
    *,
    table: Floats,
    through: Floats,
    variance: Floats,
    outside: float,
    lasting: Floats,
    before: tuple[float, float] | None,
    least: float = 2.0,
) -> None:
    """Give a user's meetings the weight in `system` that they have under the share and the variance that now last.

    `before` is what they had, (share, more), None if they are not in the system yet; the rest as in the loop.
    """
    old = np.array([-1.0, 0.0] if before is None else before)
    new = np.array([memory.share[user], memory.more[user]])
    known = table, through, variance, outside, lasting
    memory_loops.reweigh(memory.entries, user, system.parts, *known, old, new, least)
