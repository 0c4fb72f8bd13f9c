"""SOLD's correction where features are one-hot of many actions: one number an action, and no d x d matrix.

With few actions every entry of the moment is divided by the joint coverage of its two actions
(`newcomer.sold.joint_coverage`). Here joint coverage is taken to be the product of its margins,

    E[d1_a d2_b + d1_b d2_a] / 2  ~  w_a w_b / T,      w_a: pairs of action a with any other,

with T such that all pairs of different actions add up to the sum of w. That is a correction of rows and columns,
S ~ T W^-1 M W^-1 with W = diag(w). Margins of *pairs* are right for
any mixture of history lengths, which products of the means of D are not: long histories have more pairs. What they
leave out is that some actions are met together more often than their margins say (films of a series, of a decade); such
entries come out too large by as much. The diagonal is left out and completed, as for few actions. An action is taken to
have been met once more than it was, so that one which was met once does not outweigh all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from newcomer.arrays import Floats
from newcomer.sold.wide_moments import Products, Weighted, WideMoments, products_of

Run = Callable[[Any, Any], Any]  # makes a pass over the logs, of a map and a merge


@dataclass(frozen=True)
class MarginCorrection:
    """Undoes what coverage did to M, action by action."""

    scale: Floats  # (d,) by which rows and columns of the sum of M are multiplied

    @classmethod
    def of(cls, moments: WideMoments) -> MarginCorrection:
        """From the margins of joint coverage; an action that a half has not met is left out."""
        total = float(moments.margins.sum())
        once = total / max(2.0 * float(moments.gram.sum()), 1.0)  # what one meeting adds to a margin
        met = (moments.coverage > 0).all(axis=0)
        shares = moments.margins / max(total, 1e-300)
        apart = total * (1.0 - float(shares @ shares))  # no pair is of one action, and the others have its share
        return cls(np.where(met, np.sqrt(max(apart, 0.0)) / np.where(met, moments.margins + once, 1.0), 0.0))

    def products(
        self, run: Run, ridge: float | None, weights: Sequence[Floats], blocks: Sequence[Floats]
    ) -> list[Floats]:
        """The corrected moment, without its diagonal, times each block (d, q): one pass for all.

        Buckets of users count by `weights` (B,): ones, signs, or those of a part.
        """
        scaled = [self.scale[:, None] * block for block in blocks]
        asked = tuple(Weighted(weight, block) for weight, block in zip(weights, scaled, strict=True))
        found: Products = run(partial(products_of, ridge=ridge, asked=asked, hollow=True), Products.__add__)
        return [self.scale[:, None] * image for image in found.blocks]
