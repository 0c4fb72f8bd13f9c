"""Rare clicks of real people: which link should a fit take when held-out users cannot tell?

`python -m experiments.rare_clicks` writes experiments/results/rare-clicks.csv. Logs in which nobody meets an action
twice do not show how much of a click comes again, and the two links begin with different beliefs: under the Gaussian
one a share of an action's variance repeats whatever its rate, under the logistic one an effect on log-odds of the same
size for every action (policies/binary_belief.py), which for rare clicks is a much smaller share.

The rare extremes of two questionnaires are the clicks: the lowest and the highest answer of Young People (20 logged)
and of bfi (12 logged), to the questions that at most `RARE` of the people answer so. Newcomers as in `newcomer
reproduce people`: 40 rounds of ten questions (fewer where a table has fewer), the same answer again, half of it
redrawn, everything redrawn, half of the people redraw, each question once; newcomers alone and after twenty earlier
ones.

What is compared, written down before any of it was run: regret of PriorUCB with `outcome="binary"` over that with
`outcome="gaussian"`, splits 201 to 203. The rule under test: *in a tie take the binary link where clicks are rare*
(rows have 4 p (1 - p) below 1/2 on average), because simulated clicks gain (docs/paper/measured-clicks.md). It is
adopted if real people do not lose by it: the average ratio over cases at most 1, no case above 1.01 beyond two standard
errors unless every answer comes back unchanged, which clicks do not.

It was not adopted.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import newcomer as nc
from experiments import markdown
from experiments.binary_outcome import ratios
from experiments.results_table import Command
from newcomer.paper.scale import Setting
from newcomer.paper.studies.earlier_users import EARLIER, deal, serve
from newcomer.paper.studies.people import LIKES, ONCE, ROUNDS, people_table
from newcomer.worlds.people import People

OUT, POOLED = "rare-clicks.csv", ", pooled"
RARE, SPLITS, NEWCOMERS = 0.15, range(201, 204), 200
TABLES = {"young, highest": 20, "young, lowest": 20, "bfi, highest": 12, "bfi, lowest": 12}  # logged answers


def rare_table(setting: Setting, name: str, seed: int) -> People:
    """Whether the answer was the extreme one, for the questions to which it seldom is."""
    people, extreme = name.split(", ")
    world = people_table(setting, people, seed)
    end = world.table.max() if extreme == "highest" else world.table.min()
    clicks = (world.table == end).astype(np.float64)
    kept = np.flatnonzero((clicks.mean(axis=0) <= RARE) & (clicks.sum(axis=0) >= 2))
    questions = tuple(world.questions[place] for place in kept)
    return replace(
        world, table=clicks[:, kept], questions=questions, choices=min(world.choices, max(2, len(kept) // 2))
    )


def rare_clicks(*, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Regret of each table, split, case and policy; of one table and two splits where it must be quick."""
    setting = Setting("full", str(Path(os.environ["NEWCOMER_DATA"]) / "ml-1m"), "")
    for name, answers in list(TABLES.items())[-1:] if quick else TABLES.items():
        for seed in SPLITS[:2] if quick else SPLITS:
            world = rare_table(setting, name, seed)
            logs = world.logs(steps=min(answers, world.dim // 2), seed=seed)
            models = {link: nc.fit(logs, outcome=link, null=False, calibrate=False) for link in ("gaussian", "binary")}
            print(name, seed, f"{world.dim} questions, rate {world.table.mean():.3f}", flush=True)
            for case, settings in {**LIKES, ONCE: {"repeat": False}}.items():
                place = replace(world, **settings)
                horizon = ROUNDS if place.repeat else place.dim // place.choices
                dealt, earlier = deal(place, NEWCOMERS, horizon, seed), deal(place, EARLIER, horizon, seed, "earlier")
                for link, model in models.items():
                    policies = {link: nc.PriorUCB(model), f"{link}, mean": nc.PopulationMean(model)}
                    for policy, player in policies.items():
                        for pooled in (False, True) if place.repeat and policy == link else (False,):
                            told = player.repeatability(serve(player, earlier)[1]) if pooled else None
                            value = float(serve(player, dealt, told)[0].mean())
                            row = {"place": name, "case": case + (POOLED if pooled else ""), "policy": policy}
                            yield row | {"unit": seed, "value": value, "rank": model.factor.shape[1]}


START = "| case | newcomers |"  # of the table on the page


def with_table(page: str, results: Path) -> str:
    """The page with its table made anew from rare-clicks.csv, if there is such a file."""
    if not (results / OUT).is_file():
        return page
    found = pl.read_csv(results / OUT).filter(policy="binary")
    cells = {
        (row["case"], row["place"]): markdown.number(row["ratio"], row["error"]) for row in found.iter_rows(named=True)
    }
    rows = [
        [case.removesuffix(POOLED), "after twenty earlier ones" if case.endswith(POOLED) else "alone"]
        + [cells[case, name] for name in TABLES]
        for case in dict.fromkeys(case for case, _ in cells)
    ]
    return markdown.replaced(page, START, markdown.table(["case", "newcomers", *TABLES], rows))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    command = Command.read()
    found = ratios(pl.DataFrame(list(rare_clicks(quick=command.quick))))
    with pl.Config(tbl_rows=300, tbl_width_chars=150, fmt_str_lengths=60):
        print(found)
    command.write(found, OUT, float_precision=4)
