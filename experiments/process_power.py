"""How often the sampled check of exchangeability sees processes that break it, and refuses two that do not.

    python -m experiments.process_power      # forty runs of each; writes results/process-power.csv

Every run has a seed of its own; the level is 0.05.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from experiments.results_table import Command
from newcomer.paper.theory.process_examples import Correlated, FlipAfterRun, HeavyFirst, LatentBandit
from newcomer.paper.theory.process_sampling import exchangeable_sampled
from newcomer.paper.theory.processes import Process

RUNS = 40
# The process, the horizon, and whether it is exchangeable.
CASES: dict[str, tuple[Process, int, bool]] = {
    "AR(1) of 0.5": (Correlated(), 3, False),
    "heavy-tailed first step": (HeavyFirst(), 3, False),
    "a zero after six ones": (FlipAfterRun(), 8, False),
    "AR(1) of 0.1": (Correlated(correlation=0.1), 3, False),
    "a first step of eight degrees of freedom": (HeavyFirst(freedom=8.0), 3, False),
    "a zero after eight ones": (FlipAfterRun(run=8), 10, False),
    "independent normal rewards": (Correlated(correlation=0.0), 3, True),
    "latent bandit": (LatentBandit(), 3, True),
}


def run(runs: int) -> pl.DataFrame:
    """The share of runs that refuse each process."""
    rows = []
    for name, (process, horizon, exchangeable) in CASES.items():
        seen = [not exchangeable_sampled(process, horizon, np.random.default_rng(seed)).holds for seed in range(runs)]
        rows.append({"process": name, "horizon": horizon, "exchangeable": exchangeable, "refused": np.mean(seen)})
        print(f"{name}, H = {horizon}: refused in {np.mean(seen):.0%} of {runs} runs", flush=True)
    return pl.DataFrame(rows).with_columns(runs=pl.lit(runs))


if __name__ == "__main__":
    command = Command.read()
    command.write(run(2 if command.quick else RUNS), "process-power.csv")
