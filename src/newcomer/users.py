"""Hashes, buckets and folds of users: the one place that splits people."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


def mix(values: Hashes) -> Hashes:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014): a fixed bijection that scatters 64-bit integers.

    >>> mix(np.array([1], dtype=np.uint64)).tolist()
    [10451216379200822465]
    """
    with np.errstate(over="ignore"):
        z = values + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
