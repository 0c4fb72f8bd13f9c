"""The held-out gain: what serving newcomers would have been worth to users who were held out of the fit.

Each held-out user's own rows are dealt (`newcomer.gain.deals`): K candidates, t observed rows. PriorUCB with the model
of a fit without these users, updated by the t rewards as it would be in service, picks a candidate; so does the
population mean, which knows no user. The difference of the two logged rewards, averaged over several deals of each user
and then over users, is what t interactions are worth in one choice of K. What is measured is what is served.

A per-action effect changes a choice only where an action comes again among the rows of a deal. PriorUCB without it
(what shared directions gain alone) and EmpiricalArms (each action by itself) choose in those deals; in all others the
one is PriorUCB, the other the population mean.

Intervals are those of an average over users like these (Student's t); where users are few they count chance in who was
fitted to as well (`newcomer.interval`). It needs no model of users to be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from newcomer.arrays import Bools, Floats, Hashes, Ints
from newcomer.evidence import Everybody, GainStep, HeldoutGain
from newcomer.gain.deals import (
    Deal,
    PerUser,
    deal_choices,
    deal_rows,
    dealt_actions,
    dealt_rewards,
    start_dealt_users,
)
from newcomer.gain.settings import GAINS
from newcomer.interval import FEWEST, Interval
from newcomer.logs.batch import Batch
from newcomer.logs.reduce import Pass
from newcomer.model import Model
from newcomer.policies.baselines import EmpiricalArms, PopulationMean
from newcomer.policies.prior import PriorUCB
from newcomer.users import FOLDS, UserSample, user_buckets

OURS, DIRECT, MEAN, ARMS, CHANCE, MET = range(6)  # what is kept of each user and step

Apart = Sequence[tuple[Model, Bools]]  # models, each with the buckets (B,) of the users it was not fitted to


@dataclass(frozen=True, eq=False)
class GainPass:
    """What a pass over the logs does to measure the held-out gain: `apart` are models, each with its held-out users.

    A `share` of held-out users judges, with so many `deals` of their rows into `choices` candidates and rows
    known. `length` is that of a usual history.
    """

    apart: tuple[tuple[Model, Bools], ...]
    length: int
    choices: int
    deals: int
    share: float

    @classmethod
    def of(cls, apart: Apart, *, people: int, length: int) -> GainPass | None:
        """For logs of so many `people`; None where too few can be held out, or histories are too short to be dealt.

        As many held-out users judge as `rows` allows: the interval shrinks with the square root of their number.
        """
        judged = heldout_gain_judges(people, len(apart))
        if not apart or length < 2 or people < 2 * len(apart):
            return None
        model, choices = apart[0][0], deal_choices(length)
        dealt = choices + max((t for t in GAINS.steps if t <= length - choices), default=GAINS.steps[0])
        cost = 1.0 if model.one_hot or model.action_features is not None else 1.0 + model.dim / GAINS.written
        most = max(GAINS.least, int(GAINS.rows / (dealt * cost)))
        return cls(tuple(apart), length, choices, heldout_gain_deals(judged), min(1.0, most / max(judged, 1)))

    @property
    def map(self) -> Callable[[Batch], PerUser]:
        """The map of the pass, whose merge is `join_heldout_gains`."""
        return partial(
            heldout_gain_of_batch, apart=self.apart, choices=self.choices, deals=self.deals, share=self.share
        )

    def gain(self, found: PerUser, everybody: Everybody | None = None) -> HeldoutGain | None:
        """The held-out gain from what the pass found; None where too few histories reach one interaction."""
        order = np.argsort(found.hashes, kind="stable")  # a single batch comes as it was
        values, folds = found.values[order], _folds(found.hashes[order], self.apart)
        each = [step for place, t in enumerate(GAINS.steps) for step in _step(t, values[:, :, place], folds)]
        named = all(one.named for one in map(_Rules, (model for model, _ in self.apart)))
        steps = tuple(each if named else [replace(step, over_arms=None) for step in each])
        if not steps:
            return None
        return HeldoutGain(
            self.choices, steps, self.length, _with(everybody, values[:, :, 0], self.choices, len(self.apart))
        )


def measure_heldout_gain(
    run: Pass, apart: Apart, *, people: int, length: int, everybody: Everybody | None = None
) -> HeldoutGain | None:
    """The held-out gain of models, each judged by the users it was not fitted to; None where these are few.

    `run` makes a pass over the logs, which have so many `people`, whose histories usually have this `length`.
    """
    asked = GainPass.of(apart, people=people, length=length)
    return None if asked is None else asked.gain(run(asked.map, join_heldout_gains), everybody)


def heldout_gain_judges(users: int, folds: int) -> int:
    """How many of so many users are held out, all of them in turn by several folds, or a fifth by one."""
    return users if folds > 1 else users // FOLDS


def heldout_gain_deals(people: int) -> int:
    """How often the rows of each of so many held-out users are dealt."""
    return 1 if people > GAINS.many else GAINS.deals


def join_heldout_gains(one: PerUser, other: PerUser) -> PerUser:
    """The merge of the pass."""
    return one + other


def _folds(hashes: Hashes, apart: Apart) -> Ints:
    """The number (n,) of the model that each of the users was judged by."""
    found = np.zeros(len(hashes), dtype=np.int64)
    for number, (_, judged) in enumerate(apart):
        found[judged[user_buckets(hashes, len(judged))]] = number
    return found


def _step(t: int, values: Floats, folds: Ints) -> list[GainStep]:
    """Estimates after t interactions, from the numbers (n, 6) of users; nothing where few histories reach so far."""
    reached = np.isfinite(values[:, OURS])
    known, folds = values[reached], folds[reached]
    if len(known) < FEWEST:
        return []
    gain = Interval.of(known[:, OURS] - known[:, MEAN], folds)
    shared = float((known[:, DIRECT] - known[:, MEAN]).mean())
    return [
        GainStep(
            interactions=t,
            people=gain.people,
            gain=gain.value,
            low=gain.low,
            high=gain.high,
            shared=shared,
            lasting=gain.value - shared if (known[:, MET] > 0).sum() >= FEWEST else None,
            mean=float(known[:, MEAN].mean()),
            chance=float(known[:, CHANCE].mean()),
            error=gain.error,
            reward=Interval.of(known[:, OURS], folds),
            over_arms=Interval.of(known[:, OURS] - known[:, ARMS], folds),
            over_logged=Interval.of(known[:, OURS] - known[:, CHANCE], folds),
        )
    ]


def _with(everybody: Everybody | None, own: Floats, choices: int, fits: int) -> Everybody:
    """What was found by propensities; where that could not be, the population mean's choice among own rows (n, 6)."""
    if everybody is not None and everybody.by == "propensities":
        return everybody
    known = own[np.isfinite(own[:, MEAN])]
    reward, gain = Interval.of(known[:, MEAN]), Interval.of(known[:, MEAN] - known[:, CHANCE]).crossed(fits)
    found = Everybody("own rows", reward, float(known[:, CHANCE].mean()), gain, choices)
    if everybody is None:
        return found
    return replace(everybody, **{name: getattr(found, name) for name in ("by", "reward", "logged", "gain", "choices")})


def heldout_gain_of_batch(
    batch: Batch, *, apart: tuple[tuple[Model, Bools], ...], choices: int, deals: int, share: float
) -> PerUser:
    """Rewards (n, 6, steps) of the users of a batch, by each rule, NaN beyond their histories: the map of a pass."""
    drawn = UserSample("judge", share)(batch.hashes)
    able = drawn & (batch.lengths >= choices + GAINS.steps[0])
    found = np.full((len(batch.users), CHANCE + 2, len(GAINS.steps)), np.nan)
    for model, judged in apart:
        rules = _Rules(model)
        who = np.flatnonzero(able & judged[user_buckets(batch.hashes, len(judged))])
        for some, steps in _chunks(batch, who, choices):
            each = [rules.play(batch, deal_rows(batch, some, choices, steps, number)) for number in range(deals)]
            found[some, :, : each[0].shape[2]] = np.mean(each, axis=0)
    kept = np.isfinite(found[:, OURS, 0])
    return PerUser(batch.hashes[kept], found[kept])


def _chunks(batch: Batch, who: Ints, choices: int) -> Iterator[tuple[Ints, int]]:
    """The users of a batch by the longest of the `steps` that their rows allow, not too many at a time."""
    reach = np.searchsorted(GAINS.steps, batch.lengths[who] - choices, side="right") - 1
    for place, steps in enumerate(GAINS.steps):
        same = who[reach == place]
        room = GAINS.bytes // (8 * batch.dim * (choices + steps)) if batch.coded is None else GAINS.states
        most = max(1, min(GAINS.states, room))
        yield from ((same[first : first + most], steps) for first in range(0, len(same), most))


@dataclass(frozen=True, eq=False)
class _Rules:
    """Who chooses: policies of one model."""

    model: Model

    @cached_property
    def named(self) -> bool:
        """Whether the model knows its actions by their ids."""
        return self.model.one_hot or self.model.action_features is not None

    @cached_property
    def names(self) -> Any:
        """The ids of the actions, which rows call by position."""
        return None if self.model.action_ids is None else np.array(self.model.action_ids)

    @cached_property
    def ours(self) -> PriorUCB:
        """As it is served."""
        return PriorUCB(self.model)

    @cached_property
    def direct(self) -> PriorUCB:
        """Without memory of single actions."""
        return PriorUCB(replace(self.model, persistence=0.0))

    @cached_property
    def mean(self) -> PopulationMean:
        """The best for everybody."""
        return PopulationMean(self.model)

    def play(self, batch: Batch, dealt: Deal) -> Floats:
        """Rewards (m, 6, steps) of the choices after each of the `steps` that the deal reaches."""
        rewards = batch.paid[dealt.candidates]
        steps = [t for t in GAINS.steps if t <= dealt.known.shape[1]]
        found = np.empty((len(rewards), CHANCE + 2, len(steps)))
        found[:, OURS] = self._chosen(self.ours, batch, dealt, steps)
        common = self._pick(self.mean, self.mean.start(len(rewards)), batch, dealt)
        found[:, MEAN] = _rewards(rewards, common)[:, None]
        found[:, DIRECT], found[:, ARMS] = found[:, OURS], found[:, MEAN]
        found[:, CHANCE] = rewards.mean(axis=1)[:, None]
        found[:, MET], again = _met(batch, dealt, steps)
        if self.named and again.any():
            some = Deal(dealt.candidates[again], dealt.known[again])
            if self.ours.learner.remembers:
                found[again, DIRECT] = self._chosen(self.direct, batch, some, steps)
            found[again, ARMS] = self._chosen(EmpiricalArms(self.model), batch, some, steps)
        return found

    def _chosen(self, policy: Any, batch: Batch, dealt: Deal, told: list[int]) -> Floats:
        """The rewards (m, steps) of a policy's choices, which learns row after row."""
        rewards, state = batch.paid[dealt.candidates], start_dealt_users(policy, batch, dealt.candidates)
        found = np.empty((len(rewards), len(told)))
        for t in range(told[-1]):
            rows = dealt.known[:, t]
            features, ids = dealt_actions(policy, batch, rows, self.names)
            policy.update(state, features, dealt_rewards(policy, batch)[rows], ids=ids)
            if t + 1 in told:
                found[:, told.index(t + 1)] = _rewards(rewards, self._pick(policy, state, batch, dealt))
        return found

    def _pick(self, policy: Any, state: Any, batch: Batch, dealt: Deal) -> Ints:
        """The position (m,) of the candidate that a policy chooses."""
        features, ids = dealt_actions(policy, batch, dealt.candidates, self.names)
        return np.asarray(policy.choose(state, features, ids=ids))


def _rewards(rewards: Floats, chosen: Ints) -> Floats:
    return np.asarray(np.take_along_axis(rewards, chosen[:, None], axis=1)[:, 0])


def _met(batch: Batch, dealt: Deal, told: list[int]) -> tuple[Floats, Bools]:
    """Whether a candidate is among the first t rows known (m, steps), and whether any action comes twice (m,)."""
    if batch.actions is None:
        return np.zeros((len(dealt.known), len(told))), np.zeros(len(dealt.known), dtype=np.bool_)
    asked, known = batch.actions[dealt.candidates], batch.actions[dealt.known]
    first = (asked[:, :, None] == known[:, None, :]).any(axis=1)  # (m, t)
    met = np.stack([first[:, :t].any(axis=1) for t in told], axis=1)
    ordered = np.sort(np.concatenate([asked, known], axis=1), axis=1)
    return met.astype(np.float64), (np.diff(ordered, axis=1) == 0).any(axis=1)
