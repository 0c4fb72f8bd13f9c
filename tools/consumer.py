"""A program of somebody who installed newcomer: `mypy --strict` must take it, and it must run.

`tools/check_install.py` does both against an installed wheel, so that types of the public names reach their users.
"""

from __future__ import annotations

from typing import assert_type

import numpy as np
import polars as pl
from numpy.typing import NDArray

import newcomer as nc
from newcomer.findings import Findings
from newcomer.worlds import Synthetic


def served(model: nc.Model, actions: NDArray[np.float64]) -> int:
    """One decision for a new user, and what is learned from its reward."""
    policy = nc.PriorUCB(model)
    state = policy.start(1)
    chosen = int(policy.choose(state, actions)[0])
    policy.update(state, actions[[chosen]], reward=np.array([1.0]))
    return chosen


def main() -> None:
    """Fit made-up logs, check them, play, and serve."""
    world = Synthetic.learnable(dim=6, seed=0)
    logs = world.logs(200, 8, seed=0)
    assert_type(logs, nc.Logs)
    model = nc.fit(logs)
    assert_type(model, nc.Model)
    assert_type(model.rank, int)
    assert_type(nc.check(logs, fit=False), Findings)
    rows = nc.play({"PriorUCB": nc.PriorUCB(model), "Uniform": nc.Uniform()}, world, horizon=5, users=3, seed=0)
    assert_type(rows, pl.DataFrame)
    assert_type(nc.summary(rows), pl.DataFrame)
    print(f"newcomer {nc.__version__}: rank {model.rank}, action {served(model, np.eye(6))}")


if __name__ == "__main__":
    main()
