"""Names for the arrays that all rooms pass around, and the algebra that several rooms share.

The aliases say the type of the entries; the shape is said where an array is named, as in "mean (d,)". Throughout, d is
the number of features, k the rank, n a number of users, B the number of buckets that users fall into (see
`newcomer.users`).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Hashes = NDArray[np.uint64]  # of users, actions and features
Entry = TypeVar("Entry", bound=np.generic)


def symmetric_part(matrices: Floats) -> Floats:
    """The symmetric part (A + A^T) / 2 of each of `matrices` (..., d, d).

    >>> symmetric_part(np.array([[0.0, 1.0], [3.0, 0.0]])).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    return (matrices + np.swapaxes(matrices, -1, -2)) / 2


def read_only_array(array: NDArray[Entry]) -> NDArray[Entry]:
    """A view of `array` that nobody can write to; the array itself stays as writable as it was."""
    view = array.view()
    view.setflags(write=False)
    return view
