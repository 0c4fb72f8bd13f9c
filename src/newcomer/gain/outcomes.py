"""Gaussian or binary? Held-out users compare two fits of the same 0/1 rewards, by log score and by gain.

Both models know the same rows of a person and are asked about the same candidates (`newcomer.gain.deals`). The log
score of a candidate is r log P + (1 - r) log(1 - P), P what the model expects, kept within `EDGE` of 0 and 1: a normal
distribution may expect less than nothing. The gain is what PriorUCB's choice pays (`newcomer.gain.heldout_gain`).
Differences are paired, person by person. The Gaussian model is simpler and stays, unless the binary one has the clearly
better log score (by `CLEAR` standard errors) and its choices do not pay less (by more than `WORSE` standard errors).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.evidence import OutcomeFacts
from newcomer.gain import heldout_gain
from newcomer.gain.deals import STEPS, deal_rows, dealt_actions, inform_dealt_users
from newcomer.gain.heldout_gain import OURS, Apart, GainPass
from newcomer.gain.per_user import PerUser
from newcomer.interval import FEWEST, Interval
from newcomer.logs.batch import Batch
from newcomer.policies.prior import PriorTS
from newcomer.users import user_buckets

CLEAR, WORSE = 2.0, 1.0
EDGE = 1e-3

Run = Callable[[Callable[[Batch], PerUser], Callable[[PerUser, PerUser], PerUser]], PerUser]


def compare_outcomes(run: Run, gaussian: Apart, binary: Apart, *, people: int, length: int) -> OutcomeFacts:
    """Which outcome held-out people call for; the Gaussian where they cannot tell."""
    asked = GainPass.of(gaussian, people=people, length=length)
    if asked is None:
        return OutcomeFacts("gaussian", "auto")
    both = partial(outcome_differences, gaussian=tuple(gaussian), binary=tuple(binary), choices=asked.choices)
    found = run(partial(both, deals=asked.deals, share=asked.share), heldout_gain.join_heldout_gains)
    values = found.values[np.argsort(found.hashes, kind="stable")]
    if len(values) < FEWEST:  # an interval of so few has no ends
        return OutcomeFacts("gaussian", "auto")
    scores, gains = Interval.of(values[:, 0]), Interval.of(values[:, 1])
    better = scores.value > CLEAR * scores.error
    fine = gains.value >= -WORSE * gains.error
    return OutcomeFacts("binary" if better and fine else "gaussian", "auto", scores, gains)


def outcome_differences(
    batch: Batch, *, gaussian: Apart, binary: Apart, choices: int, deals: int, share: float
) -> PerUser:
    """Differences (n, 2) of the people of a batch: log score a reward, and gain; the map of a pass."""
    paid = [
        heldout_gain.heldout_gain_of_batch(batch, apart=tuple(apart), choices=choices, deals=deals, share=share)
        for apart in (gaussian, binary)
    ]
    with np.errstate(invalid="ignore"):
        gain = np.nanmean(paid[1].values[:, OURS] - paid[0].values[:, OURS], axis=1)
    place = {int(one): i for i, one in enumerate(batch.hashes.tolist())}
    who = np.array([place[int(one)] for one in paid[0].hashes.tolist()], dtype=np.int64)
    score = np.zeros(len(who))
    for number in range(deals):
        for sign, apart in ((-1.0, gaussian), (1.0, binary)):
            score += sign / deals * _log_scores(batch, apart, who, choices, number)
    return PerUser(paid[0].hashes, np.column_stack([score, gain]))


def _log_scores(batch: Batch, apart: Apart, who: Ints, choices: int, number: int) -> Floats:
    """The mean log score (n,) of the candidates of one deal of some people, each by the model without them."""
    found = np.zeros(len(who))
    for model, judged in apart:
        policy = PriorTS(model)
        names = None if model.action_ids is None else np.array(model.action_ids)
        mine = judged[user_buckets(batch.hashes[who], len(judged))]
        reach = np.searchsorted(STEPS, batch.lengths[who] - choices, side="right") - 1
        for place, steps in enumerate(STEPS):
            some = np.flatnonzero(mine & (reach == place))
            if not len(some):
                continue
            dealt = deal_rows(batch, who[some], choices, steps, number)
            state = inform_dealt_users(policy, batch, dealt, names)
            features, ids = dealt_actions(policy, batch, dealt.candidates, names)
            p = np.clip(policy.scores(state, features, ids=ids), EDGE, 1.0 - EDGE)
            reward = batch.paid[dealt.candidates]
            found[some] = (reward * np.log(p) + (1.0 - reward) * np.log1p(-p)).mean(axis=1)
    return found
