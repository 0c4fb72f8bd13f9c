"""Rounds in which the tests of ProBALL's exits play, one user against random unit features."""

from __future__ import annotations

import numpy as np

from tests.helpers import unit
from tests.oracles.policies import practical_width

DIM, RANK, ROUNDS = 6, 2, 60
ALPHAS = (practical_width(RANK, ROUNDS), practical_width(DIM, ROUNDS))


def play_rounds(policy, rounds=ROUNDS, seed=0, on_round=lambda *_: None):
    """One user against random unit features; `on_round(state, actions, history, chosen)` looks on."""
    rng, state, history = np.random.default_rng(seed), policy.start(1), []
    beta = unit(rng, policy.model.dim)
    for t in range(rounds):
        actions = unit(rng, 8, policy.model.dim)
        chosen = int(policy.choose(state, actions, np.random.default_rng([seed, t]))[0])
        on_round(state, actions, history, chosen)
        history.append((actions[chosen], float(actions[chosen] @ beta + 0.5 * rng.standard_normal())))
        policy.update(state, *history[-1])
    return state, history
