"""What rewards are learned as: themselves, or their logarithm, for play counts, money and seconds.

Such rewards are never negative and have a long tail: a few of them make up most of the sum of squares, and a fit sees
little else. log(1 + r) brings them to one scale. What is expected on it, taken back by exp(.) - 1, is a *typical*
reward (a median, were the logarithms normal), not the mean. What was paid is always told in the units of the rewards.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from newcomer.arrays import Floats

Transform = Literal["log1p"]
TRANSFORMS: tuple[Transform, ...] = ("log1p",)
LEAST = -1.0  # rewards have to be above it for a logarithm
NEEDED = "log1p needs rewards above -1: leave it out, or leave these rewards out"


def transformed(rewards: Any, transform: Transform | None) -> Floats:
    """Rewards on the scale that is learned on; NaN stays NaN.

    >>> transformed([0.0, 99.0], "log1p").round(2).tolist()
    [0.0, 4.61]
    """
    given = np.asarray(rewards, dtype=np.float64)
    return given if transform is None else np.asarray(np.log1p(given))


def raw(values: Floats, transform: Transform | None) -> Floats:
    """Values of that scale in the units of the rewards; what is expected becomes typical.

    >>> raw(transformed([0.0, 99.0], "log1p"), "log1p").round(9).tolist()
    [0.0, 99.0]
    """
    return values if transform is None else np.asarray(np.expm1(values))
