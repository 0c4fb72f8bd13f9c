"""Oracles of what is done by passes where actions are many: everything written out, a user at a time."""

from __future__ import annotations

import numpy as np

from newcomer.users import user_buckets


def histories(logs):
    """Hash of the id, actions and rewards of every user."""
    for batch in logs.batches():
        for i, hashed in enumerate(batch.hashes):
            rows = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
            yield hashed, batch.actions[rows], batch.rewards[rows]


def pair_products(logs, buckets):
    """All eigenvalues and eigenvectors of C^-1/2 P C^-1/2 for the users in some buckets.

    P_ab is the sum over users of H_n / pairs_n times the centred rewards of a and b multiplied, over pairs of rows of
    different actions; centres are means by action over everybody; C_aa = (rows of a + 1) / rows.
    """
    dim = logs.dim
    met, level = np.zeros(dim), np.zeros(dim)
    for _, actions, rewards in histories(logs):
        for a, r in zip(actions, rewards, strict=True):
            met[a] += 1
            level[a] += r
    centre = level / np.maximum(met, 1)
    products, counts, rows, used = np.zeros((dim, dim)), np.zeros(dim), 0, 0
    for hashed, actions, rewards in histories(logs):
        if not buckets[user_buckets(np.array([hashed]), len(buckets))[0]]:
            continue
        rows += len(actions)
        own, pairs = np.zeros((dim, dim)), 0
        for i, a in enumerate(actions):
            counts[a] += 1
            for j, b in enumerate(actions):
                if a != b:
                    own[a, b] += (rewards[i] - centre[a]) * (rewards[j] - centre[b])
                    pairs += 1
        if pairs:
            products += own * len(actions) / pairs
            used += len(actions)
    scale = np.sqrt(rows / (counts + 1))
    values, vectors = np.linalg.eigh(scale[:, None] * products * scale / used)
    return values[::-1], vectors[:, ::-1]
