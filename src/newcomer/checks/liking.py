"""Liking: did people log what they like? Then the mean of an action is that of its friends.

If what a user logs is drawn with probability increasing in the user's own reward, rows of one half of a history tell
what the other half has: a user whose rewards for some actions are high has logged more actions like them (x against y),
and rewards rise with how many such actions were logged (y against x). Both products, over halves of shuffled histories,
have mean zero where exposure knows nothing of the user's rewards, also if popular actions are good ones: exposure that
follows the population's mean is harmless. `newcomer.checks.dependence.forward` asks the same in time, along directions
of rewards. Where self-selection is strong these fail, because rewards that are all high show no taste. But then people
who like the same things log the same things: directions of exposure show it. So there are two sets of directions,

    the leading eigenvectors of   sum_u sum_{h != i} w_h w_i f_h f_i^T   within halves,     w = e   and   w = 1,

with f the features of rows, each less its mean and over its deviation, and e the residuals. No product crosses the
halves, so that permuting second halves among users changes no direction, and the test stays exact.

What a person likes about one action alone, beyond everything shared, leaves no such trace, and no test of logs can find
it: `unseen` says so, first of all that is unknowable, and how much it would do.
"""

from __future__ import annotations

import numpy as np

from newcomer.arrays import Floats
from newcomer.checks.chance import pair_test
from newcomer.checks.crowd import LEADING, RANDOM, Crowd, View, halves_of, others_of
from newcomer.checks.dependence import SHIFT, taste_size
from newcomer.checks.drafts import Draft, Limits, in_bins
from newcomer.checks.remedies import LIKED
from newcomer.verdicts import Finding, Picture

NAME = "self-selection"
ROUNDS = 8  # of subspace iteration: the matrices are sums of noise mostly, whose eigenvalues are close
# Lower than those of a logger: with people who chose strongly by liking, and lost several times what tastes gain, the
# effect was 0.2 to 0.4 (experiments/self_selection.py), because rewards that are all high tell little.
LIKING = Limits(0.1, 0.2)


def self_selection(view: View, seed: int) -> Draft | None:
    """Whether what a user logged goes with what the user's other rows say that the user likes; `view` is shuffled."""
    crowd = view.crowd
    views = [
        View.along(crowd, view.order, directions, directions.shape[1])
        for directions in (leading(view, weights) for weights in (crowd.residual, np.ones(len(crowd.residual))))
    ]
    rewards = [np.hstack(half) for half in zip(*(one.sums(one.paid(level=False)) for one in views), strict=True)]
    shown = np.hstack([one.sums(one.z)[0] for one in views]), np.hstack([one.sums(one.due)[1] for one in views])
    before, after = view.sizes
    x, y = np.hstack([rewards[0], shown[0]]), np.hstack([shown[1], rewards[1]])
    # A direction of both sets is met twice, and so is its taste: means over the sets, and over both products.
    weights = np.asarray(2.0 * len(views) * before * after, np.float64)
    found = pair_test(x, y, crowd.window, weights, seed=seed)
    unit = float(np.sqrt(np.mean([taste_size(one, level=False) ** 2 for one in views])))
    if found is None or unit <= 0:
        return None
    what = "What people log moves towards what their other rows say they like by {effect} {unit}"
    picture = _picture(rewards[0] / before[:, None], shown[1] / after[:, None])
    return Draft(NAME, found, 1.0 / unit, SHIFT, LIKING, what, LIKED, picture)


def leading(view: View, weights: Floats) -> Floats:
    """Directions (dim, q) in which weighted features of the rows of a half agree most, `LEADING` at most."""
    crowd, order, halves = view.crowd, view.order, halves_of(view.crowd.window)
    mean, deviation = crowd.usual
    scale = np.where(deviation > 0, 1.0 / np.where(deviation > 0, deviation, 1.0), 0.0)[:, None]
    weight = weights[order][:, None]

    def agreed(basis: Floats) -> Floats:
        seen = weight * (crowd.project(scale * basis) - mean @ (scale * basis))[order]
        back = np.empty_like(seen)
        back[order] = weight * others_of(seen, halves)
        return np.asarray(scale * (crowd.spread_out(back) - np.outer(mean, back.sum(axis=0))))

    size = min(crowd.dim, LEADING + RANDOM)
    basis = np.random.default_rng([crowd.dim, size]).standard_normal((crowd.dim, size))
    for _ in range(ROUNDS):
        basis = np.linalg.qr(agreed(basis))[0]
    inside = basis.T @ agreed(basis)
    vectors = np.linalg.eigh((inside + inside.T) / 2.0)[1]
    return np.asarray(scale * (basis @ vectors[:, ::-1][:, :LEADING]))


def unseen(crowd: Crowd, deviation: float, *, random: bool) -> Finding:
    """Self-selection by what a person likes about one action alone; rewards of the logs have this `deviation`.

    With odds of being logged that rise by exp(s) an sd, s small and an action that few log, the mean over those who
    logged it is s sd above the mean over everybody: normal rewards tilted by exp(s r / sd).
    """
    total = float(crowd.reward.var()) if len(crowd) else 0.0
    size = deviation * float(np.sqrt(crowd.spread / total)) if total > 0 else 0.0
    what = "Whether people logged actions because they like just these, beyond anything shared with others, shows in no"
    what += f" logs. Odds of logging that rise by a factor of e with each {size:.2g} of reward (one sd of what is left)"
    what += " would do it: the mean of an action that few log is then too high by as much."
    advice = "Only random actions rule it out: ask a part of the users about some, and compare the means."
    if random:
        advice = "The logged propensities rule it out, if actions were drawn by them and by nothing else."
    return Finding("unseen self-selection", "unknowable", what, advice, effect=size, unit="reward, mean of an action")


def _picture(rewards: Floats, shown: Floats) -> Picture | None:
    """What one half showed against what the rewards of the other say, along the direction where they agree most."""
    both = rewards.T @ shown
    along = np.linalg.eigh(both + both.T)[1][:, -1]
    labels = {"x_label": "taste by the rewards of one half", "y_label": "what the other half shows, in sd"}
    return in_bins(rewards @ along, shown @ along, title="Do people log what they like?", **labels)
