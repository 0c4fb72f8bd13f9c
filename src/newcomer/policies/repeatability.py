"""Repeatability: how much of what is personal about a reward comes again when the action does.

Of the residual variance v of an action, beyond what everybody thinks and what shared directions explain, a share s
belongs to this user and this action and comes again; the rest is drawn afresh each time (policies/action_memory.py).
Logs in which nobody meets an action twice cannot show s. Users who meet actions again can, and each of them has weights
over the shares `SHARES`:

    weight of s  ~  weight to begin with  x  product over the user's repeats of p(reward | s, everything before).

**Likelihood of a repeat.** Let p be what is expected of the reward by the population mean and the user's z, with
variance t of the latter, y the mean of n earlier rewards for the action, and c = n s / (1 - s + n s) the weight of
these in what is expected now: mu = p + c (y - p).

* *Two values (clicks).* The reward is 1 with probability mu. That is the beta-binomial model with intraclass
  correlation s, exactly: of a click rate of p, the user's own rate for this action is a draw with variance s p (1 - p).
  Two rewards that are both 0 where p is small say next to nothing, two that are both 1 say much.
* *A scale with steps (stars).* The probability that N(mu, u) falls within half a step of the reward, u = v (1 - s)
  (1 + s / (1 - s + n s)) + (1 - c)^2 t. Equal answers do not separate a share of 0.9 from one of 0.99.
* *Any number.* The density of N(mu, u) at the reward: the exact predictive density where p is known.

No repeat counts for less than `memory_loops.LEAST`, so that one slip does not settle the matter. The mean of s under
the weights is used as if it were known.

**Earlier users show it sooner.** One user meets few actions again, and no start is safe for everybody. The weights that
the next newcomers should begin with are those under which the repeats of m earlier users are likely: with l_u(s) the
product for user u and W the model's own start, which counts as much as `PRIOR_USERS` users,

    w  <-  (PRIOR_USERS W + sum_u w l_u / sum_s w l_u) / (PRIOR_USERS + m),     `ROUNDS` times.

Users keep weights of their own: in a population of which half is consistent and half is not, w has two humps, and each
newcomer's repeats choose between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from newcomer.arrays import Floats
from newcomer.errors import PolicyError
from newcomer.model import Model
from newcomer.records import Shown
from newcomer.validate import show_invalid_value

SHARES = np.append(np.arange(0.0, 1.0, 0.05), 0.99)  # of the residual, that may come again
NOTHING = 0.5  # weight of share 0 to begin with; see docs/explanation/exploration.md
PRIOR_USERS, ROUNDS = 2.0, 50  # of the pooling of users
MOST_OF_IT = 0.8  # of the weight lies within the interval that the sentence names


@dataclass(frozen=True)
class Repeatability(Shown):
    """What users who met actions again say: `weights` of the `shares` of the residual variance that may come again.

    `policy.repeatability(state)` gives one, `policy.start(n, repeatability=...)` lets newcomers begin with it. `users`
    met an action again, `repeats` times in all. It is plain numbers: `to_json()` can be written down anywhere, and
    `start` takes that, too.

    >>> print(Repeatability((0.0, 0.5), (0.25, 0.75), users=20, repeats=310))
    By 310 repeats of 20 users, 38% of the residual variance is repeatable (80% of the weight: 0% to 50%).
    """

    shares: tuple[float, ...]
    weights: tuple[float, ...]
    users: int = 0
    repeats: int = 0

    def __post_init__(self) -> None:
        for name in ("shares", "weights"):
            object.__setattr__(self, name, _numbers(getattr(self, name), name))
        for name in ("users", "repeats"):
            given = getattr(self, name)
            if not isinstance(given, int | np.integer) or isinstance(given, bool) or given < 0:
                raise PolicyError(f"{name} of a repeatability must be a count, not {given!r}")
            object.__setattr__(self, name, int(given))
        fits = len(self.shares) == len(self.weights) > 0 and max(self.shares) <= 1.0
        if not fits or abs(sum(self.weights) - 1.0) > 1e-6:
            raise PolicyError(
                "a repeatability has a weight for each share, and weights that add up to 1",
                where=f"{len(self.shares)} shares, {len(self.weights)} weights with sum {sum(self.weights):.6g}",
                todo="pass what policy.repeatability(state) gave",
            )

    @property
    def mean(self) -> float:
        """The share that comes again, on average over the weights."""
        return float(np.dot(self.shares, self.weights))

    def __str__(self) -> str:
        if len(self.shares) == 1:
            return f"The model knows it: {self.mean:.0%} of the residual variance is repeatable."
        below = np.cumsum(self.weights)
        rest = (1.0 - MOST_OF_IT) / 2
        low, high = (self.shares[min(int(np.searchsorted(below, at)), len(below) - 1)] for at in (rest, 1.0 - rest))
        who = f"By {_counted(self.repeats, 'repeat')} of {_counted(self.users, 'user')}"
        who = who if self.repeats else "Nobody has met an action again yet; to begin with"
        sentence = f"{self.mean:.0%} of the residual variance is repeatable"
        return f"{who}, {sentence} ({MOST_OF_IT:.0%} of the weight: {low:.0%} to {high:.0%})."

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "shares": list(self.shares), "weights": list(self.weights)}


FIELDS = {part.name for part in fields(Repeatability)}


def the_repeatability(given: object) -> Repeatability:
    """What was passed to `start`: a Repeatability, or its JSON."""
    if isinstance(given, Repeatability):
        return given
    if isinstance(given, Mapping) and {"shares", "weights"} <= given.keys() <= FIELDS:
        return Repeatability(**given)
    what = f"repeatability must be what policy.repeatability(state) gave, not {show_invalid_value(given)}"
    raise PolicyError(what, todo="pass that, or its to_json()")


def starting_repeatability(model: Model) -> Floats:
    """Weights of `SHARES` before a user has met anything twice, for a model that does not know how much comes again.

    `NOTHING` is the weight of 0, the rest is spread evenly; what few repeats the logs have multiplies that.

    >>> blank = Model(np.eye(1), np.ones(1), np.ones(1), np.ones((1, 0)), 1.0)
    >>> float(starting_repeatability(blank)[0])
    0.5
    """
    weights = np.full(len(SHARES), (1.0 - NOTHING) / (len(SHARES) - 1))
    weights[0] = NOTHING
    facts = model.evidence.population
    if facts is not None and facts.persistence is not None:
        logged = facts.persistence
        weights = repeatability_after(
            weights, repeatability_by_deviations(np.array([[logged.repeats, logged.repeats * logged.ratio]]))
        )[0]
    return weights


def repeatability_after(weights: Floats, log_likelihood: Floats) -> Floats:
    """Weights (m, S) that begin as (S,) and are multiplied by exp(log_likelihood) (m, S)."""
    logs = np.log(np.maximum(weights, 1e-300)) + log_likelihood
    raw = np.exp(logs - logs.max(axis=1, keepdims=True))
    normal: Floats = raw / raw.sum(axis=1, keepdims=True)
    return normal


def mean_repeatability(weights: Floats, log_likelihood: Floats) -> Floats:
    """The share (m,) that comes again, on average over `repeatability_after`.

    >>> even = np.full(len(SHARES), 1 / len(SHARES))
    >>> deviations = np.array([[0.0, 0.0], [8.0, 8.0], [8.0, 0.4]])
    >>> mean_repeatability(even, repeatability_by_deviations(deviations)).round(2).tolist()
    [0.5, 0.22, 0.9]
    """
    # Not a product with a vector: its sums would depend, in the last bit, on how many users there are.
    mean: Floats = (repeatability_after(weights, log_likelihood) * SHARES).sum(axis=1)
    return mean


def repeatability_by_deviations(repeats: Floats) -> Floats:
    """Log-likelihood (m, S) of counts of repeats and their squared deviations from their own mean / v, (m, 2).

    That is how logs say it, and how states before there were likelihoods of clicks and stars kept it: deviations of
    normal rewards have the variance (1 - s) v whatever the user likes.
    """
    rest = 1.0 - SHARES
    return np.asarray(-0.5 * repeats[:, :1] * np.log(rest) - 0.5 * repeats[:, 1:] / rest)


def pooled_repeatability(weights: Floats, log_likelihood: Floats) -> Floats:
    """Weights (S,) under which the repeats of users with log-likelihoods (m, S) are likely; (S,) begins, and stays in.

    >>> sure = np.where(SHARES > 0.7, 0.0, -9.0)
    >>> even = np.full(len(SHARES), 1 / len(SHARES))
    >>> float(pooled_repeatability(even, np.tile(sure, (30, 1)))[SHARES > 0.7].sum().round(2))
    0.96
    """
    if not len(log_likelihood):
        return weights
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    found = weights
    for _ in range(ROUNDS):
        theirs = likelihood * found
        theirs /= theirs.sum(axis=1, keepdims=True)
        found = (PRIOR_USERS * weights + theirs.sum(axis=0)) / (PRIOR_USERS + len(log_likelihood))
    return found


def repeatability_of_two_values(model: Model) -> bool:
    """Whether the rewards of the logs have two values."""
    _, low, high = repeatability_reward_scale(model)
    return bool(high > low)


def repeatability_reward_scale(model: Model) -> Floats:
    """(step, low, high): the distance of neighbouring rewards, 0 without steps, and the two values where there are two.

    `low` equals `high` where rewards have more values. Two values show in the summary of the logs: rewards on a
    grid of this step are all 0 or 1 step above `low` exactly if their variance is (mean - low) (low + step - mean).
    """
    if model.outcome == "binary":
        return np.array([1.0, 0.0, 1.0])
    step, logs = float(model.reward_step), model.evidence.logs
    if step > 0.0 and logs is not None:
        mean, variance = logs.mean_reward, logs.reward_deviation**2
        for low in (0.0, logs.max_reward - step, -logs.max_reward):
            if abs((mean - low) * (low + step - mean) - variance) <= 1e-9 * step * step:
                return np.array([step, low, low + step])
    return np.array([step, 0.0, 0.0])


def _numbers(given: Any, name: str) -> tuple[float, ...]:
    """A tuple of finite numbers that are not negative."""
    try:
        found = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{name} of a repeatability must be a list of numbers") from error
    if found.ndim != 1 or not np.isfinite(found).all() or (found < 0).any():
        raise PolicyError(f"{name} of a repeatability must be a list of numbers, none of them negative")
    return tuple(found.tolist())


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
