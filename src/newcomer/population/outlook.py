"""The outlook: what serving from the prior would have been worth to people who were kept out of the fit.

Each held-out person's own logged rows are dealt at random: K of them become candidates, t others are what is known of
the person. The prior of a fit without these people, conditioned on the t rewards, picks a candidate; so does the
population's mean, which knows no person. The difference of the two logged rewards, averaged over several deals of each
person and then over people, is what t interactions are worth in one choice of K. No simulator and no propensity is
needed: both choose among the same rows, whose rewards are known.

It needs no model of people to be right. It supposes that newcomers are like the people held out, that they are shown
what the logs show, and that the rows of a history are as good in one order as in another.

Posterior means are computed in the space of rows: with f = L^T phi and v the residual variance, of which a share
lasts,

    expected(c) = common(c) + k(c)^T G^-1 y,   G_ij = f_i . f_j + (1 - share) v (i = j) + (share v + u) (same action),

where u is how uncertain the population is of the action, and k(c) has the covariances of c with the rows known.
`shared` leaves what lasts of single actions out of k(c): what it gains comes from directions alone.

The interval is one of replication: a second group of as many people gets an average gain within it, in 19 of 20 cases
(sqrt(2) standard errors of the mean, Student's t).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import stdtrit

from newcomer.arrays import Bools, Floats, Ints
from newcomer.evidence import Outlook, OutlookStep
from newcomer.logs.batch import Batch
from newcomer.population.record import Population
from newcomer.users import bucket_count, bucket_of, mix

STEPS = (2, 5, 20)  # interactions after which the gain is told
CHOICES = 10  # candidates, or half of a usual history if that is less
FEWEST = 30  # people with whom an average is worth telling
DEALS, MANY, MOST = 4, 5_000, 20_000  # deals of each person; one deal where there are many; people looked at
ROWS = 200_000  # candidates and rows known that are worked on at a time
LEVEL = 0.95

Run = Callable[[Callable[[Batch], "Gains"], Callable[["Gains", "Gains"], "Gains"]], "Gains"]


@dataclass(frozen=True)
class Gains:
    """Sums over people, a row for each number of steps (S, 6), and people in whose deals an action came again (S,).

    Columns: people, gain, its square, gain by shared directions alone, reward by the population's mean, average reward
    of the candidates.
    """

    sums: Floats
    again: Floats

    def __add__(self, other: Gains) -> Gains:
        return Gains(self.sums + other.sums, self.again + other.again)


@dataclass(frozen=True)
class Deal:
    """Rows of m deals: candidates (m, K) and what is known (m, t), as positions in a batch."""

    candidates: Ints
    known: Ints


def measure(run: Run, held_out: Sequence[tuple[Population, Bools]], *, people: int, rows: int) -> Outlook | None:
    """The outlook of populations, each with the buckets (B,) of the people it was not fitted to; None if they are few.

    `run` makes a pass over the logs; `people` and `rows` are how many it will meet in all.
    """
    judged = people // len(held_out) if len(held_out) else 0
    if judged < 2:
        return None
    choices = int(np.clip(rows // max(people, 1) // 2, 2, CHOICES))
    everybody = people if len(held_out) > 1 else judged
    deals, every = (1 if everybody > MANY else DEALS), max(1, -(-everybody // MOST))
    look = partial(look_at, held_out=tuple(held_out), choices=choices, deals=deals, every=every)
    found = run(look, operator.add)
    each = zip(STEPS, found.sums, found.again, strict=True)
    told = [step for t, sums, again in each for step in _step(t, sums, again)]
    return Outlook(choices, tuple(told)) if told else None


def _step(t: int, sums: Floats, again: float) -> list[OutlookStep]:
    """What is told of t interactions; nothing where few histories reach so far."""
    count, gain, squares, shared, mean, chance = sums.tolist()
    if count < FEWEST:
        return []
    average = gain / count
    error = float(np.sqrt(max(squares / count - average**2, 0.0) / (count - 1)))
    half = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * np.sqrt(2.0) * error
    lasting = None if again < FEWEST else (gain - shared) / count
    beside = mean / count, chance / count
    return [OutlookStep(t, int(count), average, average - half, average + half, shared / count, lasting, *beside)]


def look_at(
    batch: Batch, *, held_out: tuple[tuple[Population, Bools], ...], choices: int, deals: int, every: int
) -> Gains:
    """The gains of the people of a batch: the map of a pass."""
    where = bucket_of(batch.hashes, bucket_count(batch.dim))
    drawn = (mix(batch.hashes ^ np.uint64(0x0071_0077)) >> np.uint64(33)) % np.uint64(every) == 0
    total = Gains(np.zeros((len(STEPS), 6)), np.zeros(len(STEPS)))
    for population, judged in held_out:
        who = np.flatnonzero(judged[where] & drawn)
        rows = _Rows.of(batch, population)
        for place, steps in enumerate(STEPS):
            able = who[batch.lengths[who] >= choices + steps]
            most = max(1, ROWS // (deals * (choices + steps)))
            for first in range(0, len(able), most):
                sums, again = _gains(batch, rows, able[first : first + most], choices, steps, deals)
                total.sums[place] += sums
                total.again[place] += again
    return total


def _gains(batch: Batch, rows: _Rows, who: Ints, choices: int, steps: int, deals: int) -> tuple[Floats, int]:
    """Sums over some people, and how many of them met an action again in one of their deals."""
    each = []
    for number in range(deals):
        dealt = deal(batch, who, choices, steps, number)
        expected, shared, again = rows.expected(dealt)
        reward, common = batch.rewards[dealt.candidates], rows.common[dealt.candidates]
        picks = [one.argmax(axis=1)[:, None] for one in (expected, shared, common)]
        chosen = [np.take_along_axis(reward, pick, 1)[:, 0] for pick in picks]
        each.append(np.stack([chosen[0] - chosen[2], chosen[1] - chosen[2], chosen[2], reward.mean(axis=1), again]))
    gain, direct, mean, chance, met = np.mean(each, axis=0)
    sums = [len(who), gain.sum(), (gain**2).sum(), direct.sum(), mean.sum(), chance.sum()]
    return np.array(sums), int((met > 0).sum())


def deal(batch: Batch, who: Ints, choices: int, steps: int, number: int) -> Deal:
    """Deal the rows of some people: which they are depends on the person and the number of the deal alone.

    The candidates of a person are the same for any number of steps.
    """
    lengths = batch.lengths[who]
    ends = np.cumsum(lengths)
    inside = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
    seeds = mix(batch.hashes[who] + np.uint64(number))
    lottery = mix(np.repeat(seeds, lengths) ^ mix(inside.astype(np.uint64)))
    order = np.lexsort((lottery, np.repeat(np.arange(len(who)), lengths)))
    first = (ends - lengths)[:, None] + np.arange(choices + steps)
    taken = inside[order][first] + batch.offsets[who][:, None]
    return Deal(taken[:, :choices], taken[:, choices:])


@dataclass(frozen=True)
class _Rows:
    """What a population says of the rows of a batch: common part (rows,), taste (rows, k), and variances (rows,) of
    what is drawn at each meeting and of what lasts.
    """

    common: Floats
    taste: Floats
    single: Floats
    stays: Floats
    actions: Ints | None
    rewards: Floats

    @classmethod
    def of(cls, batch: Batch, population: Population) -> _Rows:
        """Multiply the features, or the catalogue's where rows name its actions."""
        coded, weights = batch.coded, population.weights
        both = (coded.table @ weights)[coded.actions] if coded is not None else batch.features @ weights
        variance = np.broadcast_to(population.variances, (1,)) if batch.actions is None else population.variances
        named = np.zeros(len(batch.rewards), dtype=np.int64) if len(variance) == 1 else batch.actions
        levels = 0.0 if population.offsets is None else population.levels[named]
        unsure = np.zeros(1) if population.uncertainty is None else population.uncertainty
        stays = population.share * variance[named] + unsure[named if len(unsure) > 1 else np.zeros_like(named)]
        single = (1 - population.share) * variance[named]
        return cls(both[:, 0] + levels, both[:, 1:], single, stays, batch.actions, batch.rewards)

    def expected(self, dealt: Deal) -> tuple[Floats, Floats, Floats]:
        """Expected rewards of the candidates (m, K), those by shared directions alone, and whether one came again."""
        known, asked = dealt.known, dealt.candidates
        taste, error, stays = self.taste[known], self.rewards[known] - self.common[known], self.stays[known]
        lasting = self._lasting(known, known)
        both = np.einsum("mik,mjk->mij", taste, taste) + stays[:, :, None] * lasting
        steps = np.arange(known.shape[1])
        both[:, steps, steps] += self.single[known]
        weights = np.linalg.solve(both, error[..., None])[..., 0]
        level, direct = self.common[asked], np.einsum("mck,mik,mi->mc", self.taste[asked], taste, weights)
        again = self._lasting(asked, known)
        own = np.einsum("mci,mi,mi->mc", again, stays, weights)
        return level + direct + own, level + direct, np.asarray(again.any(axis=(1, 2)), dtype=np.float64)

    def _lasting(self, left: Ints, right: Ints) -> Floats:
        """One where two rows (m, a) and (m, b) are of the same action, or the same row."""
        names = left if self.actions is None else self.actions[left]
        others = right if self.actions is None else self.actions[right]
        return np.asarray(names[:, :, None] == others[:, None, :], dtype=np.float64)
