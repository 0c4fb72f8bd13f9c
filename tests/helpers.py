"""What several tests share: small ragged histories and batches, features, a model, comparisons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from newcomer.logs.batch import Batch
from newcomer.model import Model
from newcomer.one_hot import OneHot
from newcomer.users import mix_user_hashes

HANDED_OVER = {"None", "float", "int", "bool"}  # what compiled loops may return to Python


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
        hashes=mix_user_hashes(ids.astype(np.uint64)),
        offsets=offsets,
        row_features=np.concatenate([X for X, _ in parts]),
        rewards=np.concatenate([r for _, r in parts]),
    )


def one_hot_batch_of(parts, actions, ids=None):
    """The Batch of a list of histories (actions met, rewards) whose features are one-hot of so many actions."""
    batch = batch_of([(np.empty((len(r), 0)), r) for _, r in parts], ids)
    return replace(
        batch, row_features=None, table=OneHot(actions), actions=np.concatenate([np.asarray(met) for met, _ in parts])
    )


def unit(rng, *shape):
    """Random rows of length one."""
    rows = rng.standard_normal(shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def plain_model(dim, rank, seed=0):
    """A model with a random subspace, in which users have mean zero and unit variance, and noise of variance one."""
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, rank)))[0]
    return Model(basis, np.ones(dim), np.zeros(dim), basis.copy(), 1.0)


def close(a, b, tolerance=1e-9):
    """Arrays agree, relative to the largest entry of `b` or to one."""
    assert np.abs(a - b).max() <= tolerance * max(1.0, np.abs(b).max())


def learns_at_once_as_in_turn(policy, dim, rows):
    """Three users who all leave the subspace within a batch of `rows` rewards end up as if these came one by one."""
    rng = np.random.default_rng(3)
    features, reward, users = unit(rng, rows, dim), rng.standard_normal(rows), rng.integers(0, 3, rows)
    at_once, in_turn = policy.start(3), policy.start(3)
    policy.update(at_once, features, reward, users=users)
    for phi, r, user in zip(features, reward, users, strict=True):
        policy.update(in_turn, phi, r, users=[user])
    assert at_once.to_bytes() == in_turn.to_bytes()
    assert not policy.in_subspace(at_once).any()


def write_parquet(folder, *, users=240, dim=4, text=False, grouped=False, seed=0, files=3, beta_seed=None):
    """A folder of Parquet files with ragged histories of a population of rank 2, rows in any order unless grouped."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, users)
    user = np.repeat(np.arange(users) + 1000 * seed, lengths)
    features = rng.normal(size=(len(user), dim))
    shared = (rng if beta_seed is None else np.random.default_rng(beta_seed)).normal(size=(2, dim))
    beta = 1.0 + rng.normal(size=(users, 2)) @ shared
    reward = np.einsum("nd,nd->n", features, np.repeat(beta, lengths, axis=0)) + 0.5 * rng.normal(size=len(user))
    frame = pl.DataFrame(
        {
            "user": [f"user-{u}" for u in user] if text else user,
            "step": np.arange(len(user)),
            "features": features,
            "reward": reward,
        }
    )
    folder.mkdir()
    rows = np.arange(len(frame)) if grouped else rng.permutation(len(frame))
    place = np.repeat(np.arange(users), lengths) % files if grouped else rows % files
    for i in range(files):
        frame[rows[place == i]].write_parquet(folder / f"{i}.parquet")
    return folder


def same_moments(a, b, tolerance):
    """Two Moments agree in every array, relative to its largest entry."""
    for left, right in ((a, b), (a.pairs, b.pairs)):
        for name, value in vars(left).items():
            if isinstance(value, np.ndarray | float | int):
                other = np.asarray(getattr(right, name), dtype=float)
                gap = np.abs(np.asarray(value, dtype=float) - other).max(initial=0.0)
                assert gap <= tolerance * np.abs(other).max(initial=0.0), name
