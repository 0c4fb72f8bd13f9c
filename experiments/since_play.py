"""Serve the newcomers of a folder with the newcomer that is installed: `python since_play.py FOLDER OUT.json`.

`experiments.since` starts it with this code and with that of an earlier commit, so it uses nothing but names that both
have. Each file of the folder has the logs of a table, and for each case the newcomers who come (`offered`, `means`,
`rewards`, a row a newcomer, round and candidate) and twenty who came earlier (`earlier offered` and so on).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import newcomer as nc

PARTS = ("offered", "means", "rewards")


def main(folder: Path, out: Path) -> None:
    """Mean regret of every table and case, by PriorUCB as it comes and, where there is that, told by earlier users."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        data = dict(np.load(path))
        logs = nc.Logs.from_arrays(user=data["user"], action=data["action"], reward=data["reward"])
        policy = nc.PriorUCB(nc.fit(logs, null=False, calibrate=False))
        for case in data["cases"]:
            newcomers, earlier = ([data[f"{case} {who}{part}"] for part in PARTS] for who in ("", "earlier "))
            row = {"file": path.stem, "case": str(case), "alone": _serve(policy, *newcomers)[0]}
            if hasattr(policy, "repeatability"):
                told = policy.repeatability(_serve(policy, *earlier)[1])
                row["told"] = _serve(policy, *newcomers, repeatability=told)[0]
            found.append(row)
    out.write_text(json.dumps(found), encoding="utf-8")


def _serve(policy: Any, offered: Any, means: Any, rewards: Any, **start: Any) -> tuple[float, Any]:
    """Mean regret of the newcomers, and the state that they leave."""
    n, who = len(offered), np.arange(len(offered))
    rngs, state, regret = [np.random.default_rng([0, user]) for user in range(n)], policy.start(n, **start), 0.0
    for t in range(offered.shape[1]):
        chosen = policy.choose(state, rng=rngs, ids=offered[:, t])
        regret += float((means[:, t].max(axis=1) - means[who, t, chosen]).mean())
        policy.update(state, ids=offered[who, t, chosen], reward=rewards[who, t, chosen])
    return regret, state


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
