"""Small ragged histories and batches for tests."""

from __future__ import annotations

import numpy as np

from newcomer.logs.batch import Batch
from newcomer.users import mix


def histories(rng, *, users, dim, lengths=(1, 9), noise=0.3, scale=1.0):
    """A list of (features (H, d), rewards (H,)) with anisotropic features and a rank-2 population."""
    shape = np.linspace(0.4, 1.6, dim)
    basis = rng.standard_normal((dim, 2))
    out = []
    for _ in range(users):
        steps = int(rng.integers(lengths[0], lengths[1] + 1))
        X = scale * shape * rng.standard_normal((steps, dim)) / np.sqrt(dim)
        out.append((X, X @ (basis @ rng.standard_normal(2)) + noise * rng.standard_normal(steps)))
    return out


def batch_of(parts, ids=None):
    """The Batch of a list of histories; ids default to 0, 1, ..."""
    ids = np.arange(len(parts)) if ids is None else np.asarray(ids)
    offsets = np.concatenate([[0], np.cumsum([len(r) for _, r in parts])]).astype(np.int64)
    return Batch(
        users=ids,
        hashes=mix(ids.astype(np.uint64)),
        offsets=offsets,
        own=np.concatenate([X for X, _ in parts]),
        rewards=np.concatenate([r for _, r in parts]),
    )
