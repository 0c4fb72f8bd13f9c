"""Twenty fixed fits and games whose numbers a change of the code's shape must not move.

    python -m tests.same_numbers            compare with tests/same_numbers.json, to 1e-9, and print what moved
    python -m tests.same_numbers --write    accept today's numbers (say in the commit why they moved)

Only public names are used, so that the list can be run on any commit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import newcomer as nc
from newcomer.worlds import Synthetic

FILE = Path(__file__).with_suffix(".json")
TOLERANCE = 1e-9


def _world(**changes):
    return Synthetic(**{"dim": 12, "rank": 2, "seed": 3, **changes})


def _ratings(users=300, items=15, seed=5, low=3, high=9):
    """Plain (user, item, reward) rows with a rank-1 taste; nobody meets an item twice."""
    rng = np.random.default_rng(seed)
    taste, means = rng.standard_normal(items), rng.standard_normal(items)
    who, what, reward = [], [], []
    for user in range(users):
        own = rng.permutation(items)[: rng.integers(low, high + 1)]
        z = rng.standard_normal()
        who += [user] * len(own)
        what += own.tolist()
        reward += (means[own] + z * taste[own] + 0.5 * rng.standard_normal(len(own))).tolist()
    return nc.Logs.from_arrays(user=who, action=what, reward=reward)


def _numbers(model):
    """What a model says, as numbers that do not depend on the signs or the rotation of its directions."""
    said = {
        "rank": model.rank,
        "spectrum": model.spectrum[:6].tolist(),
        "mean": model.mean.tolist(),
        "covariance": np.linalg.eigvalsh(model.covariance)[::-1][:4].tolist(),
        "projection": float(np.sum((model.basis @ model.basis.T) * np.arange(model.dim))),
        "noise": model.noise_variance,
    }
    for kind in ("hoeffding", "bernstein", "martingale", "calibrated"):
        try:
            said[kind] = min(model.radius(kind, clip=False, norm="frobenius", simplified=True), 1e12)
        except nc_errors():
            said[kind] = None
    return said


def nc_errors():
    from newcomer.errors import NewcomerError

    return NewcomerError


def _game(policies, world, horizon=60, users=12, seed=4):
    rows = nc.play(policies, world, horizon=horizon, users=users, seed=seed, progress=False)
    out = {}
    for name in policies:
        own = rows.filter(rows["policy"] == name)
        out[name] = {
            "regret": float(own["regret"].sum()),
            "reward": float(own["reward"].sum()),
            "actions": int((own["action"] * (own["t"] % 97)).sum()),
            "inside": None if own["in_subspace"].null_count() else int(own["in_subspace"].sum()),
        }
    return out


def _fitted(estimator="em", **more):
    return nc.fit(_world().logs(600, 10, seed=3), estimator=estimator, **more)


def _finite():
    from newcomer.policies.finite_models import cluster_into_finite_models

    vectors = np.random.default_rng(8).standard_normal((200, 12))
    found = cluster_into_finite_models(vectors, 3, seed=1)
    return {
        "MUCB": nc.MUCB(found.centers, horizon=60),
        "MmUCB": nc.MmUCB(found.centers, 0.3, horizon=60),
        "MTS": nc.MTS(found.centers, weights=found.shares),
        "MmTS": nc.MmTS(found.centers, variances=found.variances, weights=found.shares),
        "MixTS": nc.MixTS(found.centers, covariances=found.covariances, weights=found.shares),
    }


CASES: dict[str, Callable[[], object]] = {
    "fit: em, rows with features": lambda: _numbers(_fitted()),
    "fit: em, rank 3 given": lambda: _numbers(_fitted(rank=3)),
    "fit: em, without calibration": lambda: _numbers(_fitted(calibrate=False, null=False)),
    "fit: em, ragged": lambda: _numbers(nc.fit(_world().logs(700, (2, 14), seed=6))),
    "fit: em, catalogue": lambda: _numbers(nc.fit(_world(items=40).logs(700, 8, seed=7))),
    "fit: em, one-hot": lambda: _numbers(nc.fit(_ratings())),
    "fit: em, nothing shared": lambda: _numbers(nc.fit(_world(scale=1e-3).logs(400, 6, seed=2))),
    "fit: em, far from zero": lambda: _numbers(nc.fit(_world(offset=1.0).logs(500, 8, seed=2))),
    "fit: sold": lambda: _numbers(_fitted("sold")),
    "fit: sold, rank and ridge given": lambda: _numbers(_fitted("sold", rank=2, ridge=1.0)),
    "fit: sold, literal, ragged": lambda: _numbers(
        nc.fit(_world().logs(700, (2, 14), seed=6), estimator="sold", literal=True, rank=2)
    ),
    "fit: sold-pinv, ragged": lambda: _numbers(
        nc.fit(_world().logs(700, (2, 14), seed=6), estimator="sold-pinv", rank=2)
    ),
    "fit: sold, one-hot": lambda: _numbers(nc.fit(_ratings(), estimator="sold", rank=1)),
    "game: prior": lambda: _game({"PriorUCB": nc.PriorUCB(_fitted()), "PriorTS": nc.PriorTS(_fitted())}, _world()),
    "game: strangers": lambda: _game(
        {"PriorUCB": nc.PriorUCB(_fitted()), "PriorTS": nc.PriorTS(_fitted())}, _world(outside=1.0, length=4.0)
    ),
    "game: proball, literal": lambda: _game(
        {
            "stays": nc.ProBALLUCB(_fitted("sold", rank=2), horizon=60, tau=0.0),
            "leaves": nc.ProBALLUCB(_fitted("sold", rank=2), horizon=60, tau=2.0, radius=1.0),
            "bends": nc.ProBALLUCB(_fitted("sold", rank=2), horizon=60, tau=1.0, tau_prime=1.0, radius=1.0),
            "draws": nc.ProBALLTS(_fitted("sold", rank=2), horizon=60, tau=2.0, radius=1.0),
        },
        _world(),
    ),
    "game: proball, savings": lambda: _game(
        {
            "UCB": nc.ProBALLUCB(_fitted(), horizon=60, exit="savings", radius=0.6, reward_bound=3.0),
            "TS": nc.ProBALLTS(_fitted(), horizon=60, exit="savings", radius=0.6, reward_bound=3.0),
        },
        _world(),
    ),
    "game: local": lambda: _game(
        {"LocalUCB": nc.LocalUCB(_fitted(), horizon=20), "tight": nc.LocalUCB(_fitted(), horizon=20, radius=0.05)},
        _world(),
        horizon=20,
        users=4,
    ),
    "game: full space and nobody": lambda: _game(
        {
            "LinUCB": nc.LinUCB(12, horizon=60),
            "LinTS": nc.LinTS(12, horizon=60),
            "PopulationMean": nc.PopulationMean(_fitted()),
            "Uniform": nc.Uniform(),
        },
        _world(offset=0.5),
    ),
    "game: finite models": lambda: _game(_finite(), _world()),
}


def moved(before: object, now: object, tolerance: float, where: str = "") -> list[str]:
    """Places in which two nests of numbers differ by more than `tolerance`, relative to the larger."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(set(before) | set(now))
        return [line for key in keys for line in moved(before.get(key), now.get(key), tolerance, f"{where} {key}")]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        scale = max([abs(value) for value in before + now], default=0.0)
        return [f"{where}: {before} -> {now}"] * any(
            abs(a - b) > tolerance * scale for a, b in zip(before, now, strict=True)
        )
    if isinstance(before, int | float) and isinstance(now, int | float):
        return [f"{where}: {before!r} -> {now!r}"] * (abs(before - now) > tolerance * max(abs(before), abs(now)))
    return [] if before == now else [f"{where}: {before!r} -> {now!r}"]


def main() -> int:
    """Compare, or write."""
    now = {name: make() for name, make in CASES.items()}
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        return 0
    lines = moved(json.loads(FILE.read_text()), now, TOLERANCE)
    print("\n".join(lines) or f"{len(now)} fits and games: the same to {TOLERANCE:g}")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
