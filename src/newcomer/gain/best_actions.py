"""What should everybody get? The best actions by the population mean, and what serving them would gain over what was
logged.

**The best of many** looks better than it is. With y_a the mean reward of the rows of an action, v_a its variance over
users (who have several rows each), and the actions' true means spread by N(mu, tau^2), the variance that is left is

    v_a (1 - B_a) + B_a^2 (Var(mu) + 2 / (A - 3) (y_a - mu)^2),      B_a = v_a / (v_a + tau^2),

with tau^2 such that sum_a (y_a - mu)^2 / (v_a + tau^2) = A - 1: empirical Bayes with Paule and Mandel's (1982) estimate
of tau^2 and Morris's (1983) allowance for its being an estimate. The estimate itself is the population mean of the fit,
which is shrunk in the same way (`newcomer.em.shrinkage`) and is what `PopulationMean` serves: for a posterior
mean it does not matter that the action was picked for being large. Variances of rarely shown actions are pulled
towards that of all.

**Scale.** Where the fit learned a logarithm of the rewards, means and intervals are those of the logarithms, taken back
to the units of the rewards: a typical reward, never below the least one.

**Serving them.** Where propensities can be used (`newcomer.gain.propensities`) the value of always taking the best
candidate b by the population mean is doubly robust, from rows of users who were held out of the fit, with r the reward
of the logged action a, p its propensity, and q the population mean:  q(b) + 1[a = b] / p (r - q(a)). Elsewhere it is
measured on each user's own rows (`newcomer.gain.heldout_gain`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import ndtri

from newcomer.arrays import Bools, Floats, Ints
from newcomer.evidence import BestAction, Everybody, Summary
from newcomer.gain.deals import PerUser
from newcomer.gain.propensities import Menu, inconsistent_propensities, why_no_propensities
from newcomer.gain.settings import GAINS
from newcomer.interval import FEWEST, LEVEL, Interval, ratio_interval
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.model import Model
from newcomer.transforms import expected_sigmoid, untransform_rewards
from newcomer.users import UserSample, user_buckets

ROWS, COUNTED, TOTAL, SQUARES, PRODUCTS, LENGTHS, POWER = range(7)  # sums of an action over users
N, RESULT, WEIGHT, SQUARE, ROBUST, INVERSE, OFFERED = range(7)  # sums of a user over rows


@dataclass(frozen=True)
class ActionSums:
    """What one pass tells: sums (A, 7) by action, and sums (n, 7) of held-out users."""

    actions: Floats
    people: PerUser
    propensities: bool
    candidates: bool

    def __add__(self, other: ActionSums) -> ActionSums:
        both = self.people + other.people
        return ActionSums(self.actions + other.actions, both, self.propensities, self.candidates)


def best_actions_pass(logs: Logs, apart: Sequence[tuple[Model, Bools]]) -> Callable[[Batch], ActionSums]:
    """The map of a pass over all logs, merged by `join_best_action_sums`; `apart` are models with buckets held out."""
    tried = len(logs.action_ids or ()) if logs.by_action else 0
    commons = [(_common(model), judged) for model, judged in apart] if tried else []
    share = min(1.0, GAINS.weighed / max(logs.summary.users, 1))
    return partial(best_action_sums, actions=tried, commons=tuple(commons), share=share)


def _common(model: Model) -> Floats:
    """The population mean (A,) of every action, in the units of the rewards."""
    return untransform_rewards(_expected(model), model.reward_transform)


def _expected(model: Model) -> Floats:
    """The mean reward (A,) of every action over all users, as the model learns rewards: through its link."""
    known = model.catalogue
    if model.outcome != "binary":
        return known.population_mean
    return expected_sigmoid(known.population_mean, (known.loadings**2).sum(axis=1))


def join_best_action_sums(one: ActionSums, other: ActionSums) -> ActionSums:
    """The merge of the pass."""
    return one + other


def best_action_sums(
    batch: Batch, *, actions: int, commons: tuple[tuple[Floats, Bools], ...], share: float
) -> ActionSums:
    """The map of the pass."""
    weighed, sums = batch.propensities is not None, np.zeros((len(batch.users) if commons else 0, OFFERED + 1))
    if weighed:
        drawn = UserSample("best actions", share)(batch.hashes)
        for common, judged in commons:
            who = np.flatnonzero(drawn & judged[user_buckets(batch.hashes, len(judged))])
            sums[who] = weigh_best_actions(batch, who, common)
    counted = sums[:, N] > 0
    people = PerUser(batch.hashes[np.flatnonzero(counted)], sums[counted])
    return ActionSums(best_action_sums_by_action(batch, actions), people, weighed, batch.candidates is not None)


def best_action_sums_by_action(batch: Batch, actions: int) -> Floats:
    """Sums (A, 7) of each action over its users: rows, users, rewards, and products of rows and rewards of a user.

    Rewards are on the scale that is learned on, as the population mean is.
    """
    sums = np.zeros((actions, POWER + 1))
    if not actions or batch.actions is None:
        return sums
    cells = np.repeat(np.arange(len(batch.users)), batch.lengths) * actions + batch.actions
    each, inverse = np.unique(cells, return_inverse=True)
    count, total = np.bincount(inverse), np.bincount(inverse, weights=batch.rewards)
    own = each % actions
    parts = (count, np.ones(len(each)), total, total**2, total * count, count**2)
    for kind, values in enumerate(parts):
        sums[:, kind] = np.bincount(own, weights=values, minlength=actions)
    sums[:, POWER] = np.bincount(batch.actions, weights=batch.rewards**2, minlength=actions)
    return sums


def weigh_best_actions(batch: Batch, who: Ints, common: Floats) -> Floats:
    """Sums (m, 7) over the rows of some users when everybody gets the best candidate by `common` (A,)."""
    assert batch.propensities is not None and batch.actions is not None
    lengths = batch.lengths[who]
    owner = np.repeat(np.arange(len(who)), lengths)
    rows = np.arange(len(owner)) + np.repeat(batch.offsets[who] - (np.cumsum(lengths) - lengths), lengths)
    offer = Menu(np.arange(len(common))).of(batch, rows)
    expected = common[offer.ids] if offer.mask is None else np.where(offer.mask, common[offer.ids], -np.inf)
    best = expected.argmax(axis=-1)
    value = expected[best] if offer.mask is None else np.take_along_axis(expected, best[:, None], 1)[:, 0]
    actions, reward, p = batch.actions[rows], batch.paid[rows], batch.propensities[rows]
    weight = (offer.chosen == best) / p
    robust = value + weight * (reward - common[actions])
    parts = np.broadcast_arrays(1.0, reward, weight, weight**2, robust, 1 / p, offer.size)
    return np.stack([np.bincount(owner, weights=part, minlength=len(who)) for part in parts], axis=1)


def best_actions_told(seen: ActionSums, logs: Logs, model: Model, fits: int) -> Everybody:
    """The best actions, and what serving them gains by propensities; by "own rows" there is nothing yet to tell.

    So many `fits` judged the users who were held out of each.
    """
    named = logs.by_action and logs.action_ids is not None
    sums, common = seen.actions, _expected(model) if named else np.zeros(0)
    best, alike = best_actions(sums, common, model, logs.summary) if named else ((), False)
    scale = _best_action_reward_scale(logs.summary)
    made = partial(Everybody, best=best, actions=int((sums[:, ROWS] > 0).sum()), alike=alike, scale=scale)
    why = why_no_propensities(logs, seen.propensities, seen.candidates, named)
    people = seen.people.values.T
    if not why and people.shape[1]:
        why = inconsistent_propensities(people[N], people[INVERSE], people[OFFERED])
    effective = float(people[WEIGHT].sum() ** 2 / max(people[SQUARE].sum(), 1e-300)) if people.shape[1] else 0.0
    if why or min(people.shape[1], effective) < FEWEST:
        why = why or "Propensities are too small, or users too few: the value rests on fewer than 30 effective rows."
        nothing = Interval.of(np.zeros(0))
        return made("own rows", nothing, nothing.value, nothing, why=why)
    reward, gain = ratio_interval(people[ROBUST], people[N]), ratio_interval(people[ROBUST] - people[RESULT], people[N])
    logged = float(people[RESULT].sum() / people[N].sum())
    return made("propensities", reward, logged, gain.crossed(fits), effective=effective)


def _best_action_reward_scale(summary: Summary) -> str:
    """What the rewards of the best actions are: "mean", "typical" or decided by "heavy tails"."""
    if summary.reward_transform is not None:
        return "typical"
    return "heavy tails" if summary.hiding else "mean"


def best_actions(sums: Floats, common: Floats, model: Model, summary: Summary) -> tuple[tuple[BestAction, ...], bool]:
    """The best by the population mean `common` (A,) of the actions that were logged, and whether all are alike."""
    error, alike = best_action_spread(sums)
    least = -np.inf if summary.least_reward is None else summary.least_reward  # no mean lies below the least reward
    most = summary.max_reward if least >= 0 else np.inf  # nor above the largest, which `max_reward` then is
    order = [a for a in np.argsort(-common, kind="stable").tolist() if sums[a, ROWS] > 0][: GAINS.named_best]
    half = float(ndtri((1 + LEVEL) / 2))
    ids, names = model.action_ids or (), model.action_names
    low = np.maximum(common - half * error, np.minimum(least, common))
    high = np.minimum(common + half * error, np.maximum(most, common))
    ends = untransform_rewards(np.stack([common, low, high], axis=1), model.reward_transform)
    best = [
        BestAction(
            action=ids[a],
            name=str(ids[a] if names is None else names[a]),
            rows=int(sums[a, ROWS]),
            users=int(sums[a, COUNTED]),
            **dict(zip(("mean", "low", "high"), ends[a].tolist(), strict=True)),
        )
        for a in order
    ]
    return tuple(best), alike


def best_action_spread(sums: Floats) -> tuple[Floats, bool]:
    """The posterior deviation (A,) of each action's mean, and whether actions do not differ beyond chance."""
    seen = sums[:, ROWS] > 0
    some = sums[seen]
    mean, variance = some[:, TOTAL] / some[:, ROWS], best_action_variances(some)
    between = paule_mandel_of_actions(mean, variance)
    weights = 1.0 / np.maximum(variance + between, 1e-300)
    shrunk, away = variance * weights, mean - float(weights @ mean) / float(weights.sum())
    doubt = 1.0 / float(weights.sum()) + 2.0 / max(len(mean) - 3, 1) * away**2
    found = np.zeros(len(sums))
    found[seen] = np.sqrt(variance * (1.0 - shrunk) + shrunk**2 * doubt)
    return found, between == 0


def best_action_variances(sums: Floats) -> Floats:
    """Var(y_a) over users (A,): sum_u (S_u - y_a n_u)^2 / n_a^2, pulled towards the common variance of a row over n_a.

    The users of a rarely shown action tell little of how much they differ.
    """
    rows, users, mean = sums[:, ROWS], sums[:, COUNTED], sums[:, TOTAL] / sums[:, ROWS]
    own = sums[:, SQUARES] - 2 * mean * sums[:, PRODUCTS] + mean**2 * sums[:, LENGTHS]
    free = np.maximum(rows.sum() - len(rows), 1.0)
    unit = max(float((sums[:, POWER] - rows * mean**2).sum()) / free, 0.0)
    own = np.maximum(own, 0.0) / rows**2 * users / np.maximum(users - 1, 1)
    return np.asarray(((users - 1) * own + GAINS.firm * unit / rows) / (users - 1 + GAINS.firm))


def paule_mandel_of_actions(means: Floats, variance: Floats) -> float:
    """tau^2 with sum (y - mu)^2 / (v + tau^2) = A - 1, mu the mean with these weights; 0 where chance explains all.

    >>> between = paule_mandel_of_actions(np.array([0.0, 1.0, 2.0]), np.full(3, 0.25))
    >>> round(between, 6), paule_mandel_of_actions(np.zeros(3), np.ones(3))
    (0.75, 0.0)
    """
    if len(means) < 2:
        return 0.0

    def excess(tau2: float) -> float:
        weights = 1.0 / np.maximum(variance + tau2, 1e-300)
        centre = float(weights @ means) / float(weights.sum())
        return float(weights @ (means - centre) ** 2) - (len(means) - 1)

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, float(means.var()) * len(means) + 1e-300
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2
