"""Who is fitted to, who is held out, and who is looked at: all by hashes of users.

Held-out users are chosen by the buckets of a fit to all users (`newcomer.users.user_folds`), so that what is compared
here is judged by the users who judged that fit.

Judging predictors by users who were in no log that they learned from.

Of each user's rows K are candidates, t others are observed first (`newcomer.gain.deals`). A predictor then
says what it expects of the candidates, and three numbers are kept of each user, averaged over deals: the squared
error, the share of pairs of candidates in the right order, and the reward of the candidate put first. Candidates are
the same for every predictor and every t, so that differences are paired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from newcomer.arrays import Bools, Floats, Hashes, Ints
from newcomer.evaluation.settings import EVALUATION
from newcomer.gain.deals import (
    Deal,
    PerUser,
    Progress,
    UserResults,
    deal_rows,
    dealt_actions,
    gather_dealt_users,
    inform_dealt_users,
)
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.users import Purpose, UserSample, user_buckets


@dataclass(frozen=True)
class InBuckets:
    """Says of hashes whether their users are in some buckets, and among a share of these drawn by lot."""

    buckets: Bools
    seed: int
    share: float = 1.0
    purpose: Purpose = "judge"

    def __call__(self, hashes: Hashes) -> Bools:
        inside = self.buckets[user_buckets(hashes, len(self.buckets))]
        return np.asarray(inside & UserSample(self.purpose, self.share, self.seed)(hashes))


@dataclass(frozen=True)
class Fold:
    """One split: the logs to fit to, and those of users to be judged by."""

    fitted: Bools
    judged: Bools
    seed: int

    def to_fit(self, logs: Logs, share: float = 1.0) -> Logs:
        """The logs of those who are fitted to, or of a share of them; smaller shares are within larger ones."""
        return logs.some(InBuckets(self.fitted, self.seed, share, "learning curve"))

    def held_out(self, logs: Logs, share: float = 1.0) -> Logs:
        """The logs of those who are held out, or of a share of them: users who judged the fit."""
        return logs.some(InBuckets(self.judged, 0, share, "judge"))


def cold_start_shares(users: int, least: int) -> Iterator[float]:
    """An eighth, a quarter and a half, where they leave at least so many users."""
    return (share for share in (0.125, 0.25, 0.5) if users * share >= least)


CHANCE = "chance"
ERROR, ORDER, REWARD = range(3)  # the numbers that are kept


class Predictor(Protocol):
    """Something that expects rewards."""

    def expected(self, batch: Batch, dealt: Deal, names: Any) -> Floats:
        """Scores (m, K) of the candidates, given what is known."""
        ...


@dataclass(frozen=True, eq=False)
class ByPolicy:
    """The scores of a policy after it has learned from the rows known, as in service."""

    policy: Any

    def expected(self, batch: Batch, dealt: Deal, names: Any) -> Floats:
        """Its scores."""
        state = inform_dealt_users(self.policy, batch, dealt, names)
        features, ids = dealt_actions(self.policy, batch, dealt.candidates, names)
        return np.asarray(self.policy.scores(state, features, ids=ids))


@dataclass(frozen=True, eq=False)
class ByRidge:
    """Ridge regression of a user's own rewards on features x, or on B^T x in the span of a basis B (d, k).

    With X the rows known, expected(c) = x_c^T X^T (X X^T + ridge I)^-1 r: as many equations as rows, whatever d is.
    """

    one_hot: bool
    basis: Floats | None = None
    ridge: float = 1.0

    def expected(self, batch: Batch, dealt: Deal, names: Any) -> Floats:
        """Expected rewards; zero of what has nothing to do with any row known."""
        steps = np.arange(dealt.known.shape[1])
        both = self._products(batch, dealt.known, dealt.known)
        both[:, steps, steps] += self.ridge
        weights = np.linalg.solve(both, batch.rewards[dealt.known][..., None])[..., 0]
        return np.asarray(np.einsum("mct,mt->mc", self._products(batch, dealt.candidates, dealt.known), weights))

    def _products(self, batch: Batch, left: Ints, right: Ints) -> Floats:
        """Inner products (m, a, b) of rows (m, a) and (m, b)."""
        if self.one_hot and self.basis is None:
            assert batch.actions is not None
            same = batch.actions[left][:, :, None] == batch.actions[right][:, None, :]
            return np.asarray(same, dtype=np.float64)
        return np.asarray(np.einsum("mik,mjk->mij", self._seen(batch, left), self._seen(batch, right)))

    def _seen(self, batch: Batch, rows: Ints) -> Floats:
        if self.one_hot and self.basis is not None:
            assert batch.actions is not None
            return self.basis[batch.actions[rows]]
        features = batch.take(rows.ravel())
        seen = features if self.basis is None else features @ self.basis
        return seen.reshape(*rows.shape, seen.shape[1])


def judge_cold_start(
    predictors: Mapping[str, Predictor],
    logs: Logs,
    *,
    steps: tuple[int, ...],
    choices: int,
    deals: int = EVALUATION.deals,
    progress: Progress | None = None,
) -> UserResults:
    """What P predictors are worth to the users of some logs: values (n, P + 1, T, 3).

    `CHANCE` is the name of the last: as its reward it has the average of the candidates.
    """
    names = None if logs.action_ids is None else np.array(logs.action_ids)
    look = partial(_look, predictors=tuple(predictors.values()), names=names, steps=steps, choices=choices, deals=deals)
    return UserResults((*predictors, CHANCE), gather_dealt_users(logs, look, progress))


def _look(
    batch: Batch,
    *,
    predictors: tuple[Predictor, ...],
    names: Any,
    steps: tuple[int, ...],
    choices: int,
    deals: int,
) -> PerUser:
    """The numbers of the users of a batch who have any: the map of a pass."""
    people = np.flatnonzero(batch.lengths >= choices + min(steps))
    values = np.full((len(people), len(predictors) + 1, len(steps), 3), np.nan)
    for place, t in enumerate(steps):
        able = np.flatnonzero(batch.lengths[people] >= choices + t)
        most = max(1, EVALUATION.bytes // (8 * batch.dim * (choices + t)))
        for first in range(0, len(able), most):
            some = able[first : first + most]
            dealt = [deal_rows(batch, people[some], choices, t, number) for number in range(deals)]
            for column, one in enumerate(predictors):
                each = [_numbers(one.expected(batch, d, names), batch, d.candidates) for d in dealt]
                values[some, column, place] = _mean_over_deals(each)
            chance = np.mean([batch.paid[d.candidates].mean(axis=1) for d in dealt], axis=0)
            values[some, -1, place, REWARD] = chance
    return PerUser(batch.hashes[people], values)


def _mean_over_deals(each: list[Floats]) -> Floats:
    """The mean (m, 3) over deals; a deal whose candidates have one reward says nothing of order, and is left out."""
    stacked = np.stack(each)
    known = np.isfinite(stacked)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, stacked, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)


def _numbers(scores: Floats, batch: Batch, candidates: Ints) -> Floats:
    """Squared error, share of pairs in the right order and reward of the first, (m, 3), of candidates (m, K).

    Errors are on the scale that is learned on, rewards in their own units.
    """
    rewards, paid = batch.rewards[candidates], batch.paid[candidates]
    best = np.take_along_axis(paid, scores.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.stack([((scores - rewards) ** 2).mean(axis=1), cold_start_concordance(scores, rewards), best], axis=1)


def cold_start_concordance(scores: Floats, rewards: Floats) -> Floats:
    """The share (m,) of pairs of different rewards that the scores put in the right order; equal scores count half.

    >>> cold_start_concordance(np.array([[1.0, 2.0, 3.0]]), np.array([[0.0, 0.0, 1.0]])).tolist()
    [1.0]
    """
    i, j = np.triu_indices(scores.shape[1], 1)
    said, happened = np.sign(scores[:, i] - scores[:, j]), np.sign(rewards[:, i] - rewards[:, j])
    ordered = np.abs(happened).sum(axis=1)
    right = ((1.0 + said * happened) / 2.0 * np.abs(happened)).sum(axis=1)
    return np.where(ordered > 0, right / np.maximum(ordered, 1.0), np.nan)
