"""Files in tests/data/saved, written once by the code of November 2026 (format 3): every later version reads them.

    python -m tests.saved_files --write        only with the code that the files stand for; never to make a test pass

There are two models by EM (one-hot, and with an items table) and one by SOLD, the moments of that one, a state of every
policy after some rewards, the passes of a fit that was interrupted, and `expected.json`: what they said when written.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import newcomer as nc

FOLDER = Path(__file__).parent / "data" / "saved"
MODELS = ("em", "em-items", "sold")


def logs() -> nc.Logs:
    """300 users who met some of 12 actions, with two directions of preference."""
    rng = np.random.default_rng(11)
    factor, means = rng.standard_normal((12, 2)), rng.standard_normal(12)
    users, actions, rewards = [], [], []
    for user in range(300):
        own, z = rng.integers(0, 12, 10), rng.standard_normal(2)
        users += [user] * 10
        actions += own.tolist()
        rewards += (means[own] + factor[own] @ z + 0.5 * rng.standard_normal(10)).tolist()
    return nc.Logs.from_arrays(user=users, action=actions, reward=rewards)


def with_items(model: nc.Model) -> nc.Model:
    """The same population, seen through an items table of 12 actions with 12 features that are not one-hot."""
    turn = np.linalg.qr(np.random.default_rng(5).standard_normal((12, 12)))[0]
    return replace(
        model,
        basis=turn.T @ model.basis,
        mean=turn.T @ model.mean,
        factor=turn.T @ model.factor,
        action_features=np.ascontiguousarray(turn),
        one_hot=False,
    )


def policies(models: dict[str, nc.Model]) -> dict[str, object]:
    """An example of every policy, some of them in two forms."""
    em, items, sold = (models[name] for name in MODELS)
    centers = np.random.default_rng(1).standard_normal((3, 12))
    return {
        "Uniform": nc.Uniform(),
        "PopulationMean": nc.PopulationMean(em),
        "LinUCB": nc.LinUCB(12, horizon=20),
        "LinTS": nc.LinTS(12, horizon=20, votes=20),
        "ProBALLUCB": nc.ProBALLUCB(sold, horizon=20, radius=1.0, tau=4.0),
        "ProBALLUCB-both": nc.ProBALLUCB(sold, horizon=20, radius=1.0, tau=1.5, tau_prime=0.5),
        "ProBALLUCB-savings": nc.ProBALLUCB(sold, horizon=20, radius=1.0, exit="savings", reward_bound=0.6),
        "ProBALLTS": nc.ProBALLTS(sold, horizon=20, radius=1.0, tau=4.0, votes=20),
        "LocalUCB": nc.LocalUCB(sold, horizon=20, radius=0.5, reward_bound=4.0),
        "PriorUCB": nc.PriorUCB(em),
        "PriorUCB-items": nc.PriorUCB(items, level=0.9),
        "PriorTS": nc.PriorTS(em, votes=20),
        "EmpiricalArms": nc.EmpiricalArms(em),
        "MUCB": nc.MUCB(centers, horizon=20),
        "MmUCB": nc.MmUCB(centers, 0.1, horizon=20),
        "MTS": nc.MTS(centers),
        "MmTS": nc.MmTS(centers, variances=0.3, votes=20),
        "MixTS": nc.MixTS(centers, covariances=0.3 * np.eye(12), votes=20),
    }


def features(models: dict[str, nc.Model]) -> np.ndarray:
    return models["em"].features(list(range(12)))


def served(name: str, policy: object, models: dict[str, nc.Model]) -> object:
    """The state of two users after fourteen rewards, some of them for actions that came again."""
    state, rng = policy.start(2), np.random.default_rng(7)
    knows = name.split("-")[0] in ("PriorUCB", "PriorTS", "EmpiricalArms", "PopulationMean")
    rows = features(models)
    for _ in range(14):
        chosen, reward = rng.integers(0, 8, 2), rng.standard_normal(2)
        if knows:
            policy.update(state, ids=chosen, reward=reward)
        else:
            policy.update(state, rows[chosen], reward)
    return state


def said(name: str, policy: object, state: object, models: dict[str, nc.Model]) -> list[list[float]]:
    """What the policy would do next: probabilities of the twelve actions, with fixed seeds."""
    rng = [np.random.default_rng(user) for user in range(2)]
    if name.split("-")[0] in ("PriorUCB", "PriorTS", "EmpiricalArms", "PopulationMean"):
        return policy.probabilities(state, ids=list(range(12)), rng=rng).tolist()
    return policy.probabilities(state, features(models), rng=rng).tolist()


def scores(name: str, policy: object, state: object, models: dict[str, nc.Model]) -> list[list[float]] | None:
    """What a deterministic policy ranks by; None for a sampled one."""
    try:
        if name.split("-")[0] in ("PriorUCB", "EmpiricalArms", "PopulationMean"):
            return policy.scores(state, ids=list(range(12))).tolist()
        return policy.scores(state, features(models)).tolist()
    except nc.PolicyError:
        return None


def interrupted(folder: Path) -> None:
    """Leave behind the first passes of a fit."""
    count = 0

    def stop(_: object) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt

    try:
        nc.fit(logs(), rank=1, null=False, calibrate=False, run=nc.Run(checkpoint=folder, listen=stop))
    except KeyboardInterrupt:
        return


def write() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    em = nc.fit(logs(), null=False, calibrate=False)
    sold = nc.fit(logs(), rank=2, estimator="sold", run=nc.Run(moments=FOLDER / "sold.moments"))
    models = {"em": em, "em-items": with_items(em), "sold": sold}
    expected: dict[str, object] = {"models": {}, "states": {}}
    for name, model in models.items():
        model.save(FOLDER / f"{name}.newcomer")
        expected["models"][name] = {"id": model.id, "rank": model.rank, "mean": model.mean.tolist()}
    for name, policy in policies(models).items():
        state = served(name, policy, models)
        (FOLDER / f"{name}.state").write_bytes(state.to_bytes())
        expected["states"][name] = {
            "scores": scores(name, policy, state, models),
            "probabilities": said(name, policy, state, models),
        }
    interrupted(FOLDER / "checkpoint")
    again = nc.fit(logs(), rank=2, estimator="sold", start=FOLDER / "sold.moments")
    expected["again"] = {"spectrum": again.spectrum.tolist(), "users": again.evidence.logs.users}
    (FOLDER / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__" and "--write" in sys.argv:
    write()
