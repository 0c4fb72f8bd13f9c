"""Does the fit find what users of a small log of clicks share, and nothing where they share nothing?

`python -m experiments.click_worlds` (five minutes on one core) writes experiments/results/click-worlds.csv, a row a
world: the directions found, how certain it is that there are some (standard errors of the linear part of the held-out
gain), the held-out gain per user, and what the fit took. Aims: of the twelve worlds with taste at least nine find a
direction, of the forty without at most two.

A world has 5,000 users with 6 clicks or none each on 6 of 12 actions, drawn at random. The log-odds of a click are
those of a rate between 1% and 8%, by action, and V z for a user with z ~ N(0, I_2): two directions whose entries are
N(0, 0.8^2). Without taste V is zero.
"""

from __future__ import annotations

import time

import numpy as np
import polars as pl

from experiments.results_table import Command
from newcomer.em.fit import FittedPopulation, estimate_population
from newcomer.em.passes import Passes
from newcomer.logs import Logs

TASTE, WITHOUT = 12, 40  # worlds
USERS, ROWS, ACTIONS, RANK, SIZE = 5000, 6, 12, 2, 0.8
LOWEST, HIGHEST = 0.01, 0.08  # rates of clicks
FOUND, FALSE = 9, 2  # aims


def clicks(seed: int, *, taste: bool) -> Logs:
    """The logs of a world."""
    rng = np.random.default_rng([seed, 21])
    base = np.linspace(np.log(LOWEST / (1 - LOWEST)), np.log(HIGHEST / (1 - HIGHEST)), ACTIONS)
    directions = taste * SIZE * rng.standard_normal((ACTIONS, RANK))
    odds = base + rng.standard_normal((USERS, RANK)) @ directions.T
    action = np.argsort(rng.random((USERS, ACTIONS)), axis=1)[:, :ROWS]
    reward = rng.random((USERS, ROWS)) < 1.0 / (1.0 + np.exp(-np.take_along_axis(odds, action, axis=1)))
    user = np.repeat(np.arange(USERS), ROWS)
    return Logs.from_arrays(user=user, action=action.ravel(), reward=reward.ravel().astype(np.float64))


def fitted(seed: int, *, taste: bool) -> FittedPopulation:
    """The population of a world."""
    return estimate_population(Passes(clicks(seed, taste=taste)))


def run(seed: int, *, taste: bool) -> dict[str, str | int | float]:
    """A row of the table."""
    begun = time.process_time()
    facts = fitted(seed, taste=taste).facts
    assert facts.ranks is not None
    told = {"world": "two directions" if taste else "no taste", "seed": seed, "directions": facts.directions}
    ranks = {"certainty": facts.ranks.certainty, "gain": facts.ranks.deficits[0]}
    return told | ranks | {"passes": facts.passes, "cpu_s": time.process_time() - begun}


def verdicts(table: pl.DataFrame) -> list[str]:
    """The aims beside what was found."""
    found = {world: int((rows["directions"] > 0).sum()) for (world,), rows in table.group_by("world")}
    aims = {"two directions": f"at least {FOUND} of {TASTE}", "no taste": f"at most {FALSE} of {WITHOUT}"}
    return [f"{world}: a direction found in {found.get(world, 0)} (aim: {aim})" for world, aim in aims.items()]


if __name__ == "__main__":
    command = Command.read()
    counts = {True: 1, False: 1} if command.quick else {True: TASTE, False: WITHOUT}
    found = pl.DataFrame([run(seed, taste=taste) for taste, count in counts.items() for seed in range(count)])
    print(found, *verdicts(found), sep="\n")
    command.write(found, "click-worlds.csv", float_precision=4)
