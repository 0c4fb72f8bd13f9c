"""Is PriorUCB better than it was at an earlier commit? The same logs and newcomers, served by both.

    python -m experiments.since       # writes results/since.csv

"Then" is the commit before repeats were weighed by the likelihood of their scale, before weak directions and before all
users decided on the rank. Tables, sizes, splits and newcomers are those of the study `repeatability`: Young People and
bfi, their 0/1 versions, whole and in random sub-tables of 16 and 20 questions; the same answer again, half redrawn,
everything redrawn, half of the people redraw. PriorUCB has its defaults, `then` and `now`; newcomers come alone, or
`told` by twenty earlier ones, which PriorUCB of then cannot be. `ratio` is that of mean regrets, now to then, with its
standard error over splits or sub-tables, on which both are paired.

Asked beforehand: alone 2% better on average (mean of log ratios over tables, sizes and cases) and in no case worse by
more than 1% beyond two standard errors; told at least 4% better on average over 0/1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from experiments import markdown, since_play
from experiments.contents import ROOT
from experiments.results_table import Command
from newcomer.arrays import Floats
from newcomer.logs.batch import Batch
from newcomer.logs.reduce import reduce
from newcomer.paper.scale import FULL, QUICK, Scale, Setting
from newcomer.paper.studies import repeatability
from newcomer.paper.studies.comparison import ratio_of_means
from newcomer.paper.studies.earlier_users import EARLIER, deal
from newcomer.paper.studies.people import LIKES, ROUNDS, people_table
from newcomer.paper.worlds.download import find_movielens

THEN, NAME = "fed76fb71eb1", "since.csv"
PLAY = Path(since_play.__file__)
BY = ["people", "size", "case"]


def deal_table(setting: Setting, people: str, size: int, newcomers: int, seed: int) -> dict[str, Any]:
    """The arrays of one table: logs, and in every case the newcomers and twenty earlier ones."""
    world = people_table(setting, people, seed)
    world = world.some(size, seed) if size else world
    steps = world.dim // 2 if size else min(repeatability.LOGGED[people.split()[0]], world.dim // 2)
    names = np.array(world.questions)
    user, action, reward = reduce(world.logs(steps=steps, seed=seed), _rows, lambda a, b: np.hstack([a, b]))
    logged = {"user": user.astype(np.int64), "action": names[action.astype(np.int64)], "reward": reward}
    found: dict[str, Any] = {"cases": np.array(list(LIKES)), **logged}
    for case, settings in LIKES.items():
        place = replace(world, **settings)
        for who, count, stream in (("", newcomers, "newcomer"), ("earlier ", EARLIER, "earlier")):
            dealt = deal(place, count, ROUNDS, seed, stream)
            parts = {"offered": names[dealt.offered], "means": dealt.means, "rewards": dealt.rewards}
            found |= {f"{case} {who}{part}": values for part, values in parts.items()}
    return found


def _rows(batch: Batch) -> Floats:
    """User, place of the action and reward (3, rows)."""
    assert batch.actions is not None
    return np.stack([np.repeat(batch.users.astype(np.float64), batch.lengths), batch.actions, batch.rewards])


def play(folder: Path, beside: Path) -> pl.DataFrame:
    """Mean regrets of all tables of a folder by both codes, which play at the same time."""
    ends = {name: folder / f"{name}.json" for name in ("then", "now")}
    running = [
        subprocess.Popen(
            [sys.executable, str(PLAY), str(folder), str(ends[name])],
            env={**os.environ, "PYTHONPATH": str(code / "src")},
            cwd=folder,
        )
        for name, code in {"then": beside, "now": ROOT}.items()
    ]
    codes = [one.wait() for one in running]
    if any(codes):
        raise SystemExit("a run failed: see above")
    frames = {name: pl.DataFrame(json.loads(path.read_text(encoding="utf-8"))) for name, path in ends.items()}
    then = frames["then"].select("file", "case", then="alone")
    return frames["now"].rename({"alone": "now"}).join(then, on=["file", "case"], how="left", maintain_order="left")


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Means and paired ratios of every table, size and case."""
    told = {key.replace("ratio", "told_ratio"): value for key, value in ratio_of_means("told", "then").items()}
    means = {name: pl.col(name).mean() for name in ("then", "now", "told")}
    return rows.group_by(*BY, maintain_order=True).agg(units=pl.len(), **means, **ratio_of_means("now", "then"), **told)


def verdicts(frame: pl.DataFrame) -> str:
    """What was asked and what came out, and the ratios of every table and case."""
    likes = frame.filter(pl.col("people").str.ends_with("0/1"))
    alone, told = (_mean(frame, "ratio"), _mean(likes, "told_ratio"))
    worse = frame.filter(pl.col("ratio") - 2 * pl.col("ratio_se") > 1.01)
    named = "; ".join(f"{_name(line)} {number(line, 'ratio')}" for line in worse.iter_rows(named=True))
    kinds = {"ratings": frame.join(likes, on=BY, how="anti"), "0/1": likes}
    each = ", ".join(f"{kind} {_percent(_mean(own, 'ratio'))}" for kind, own in kinds.items())
    lines = [
        f"- Alone, over all tables, sizes and cases: {_percent(alone)} on average (2% less was asked; {each}).",
        f"- Worse by more than 1% beyond two standard errors: {named or 'nowhere'} (nowhere was asked).",
        f"- Told by twenty earlier newcomers, on 0/1: {_percent(told)} on average (4% less was asked).",
    ]
    rows = [
        [_name(line), str(line["units"]), number(line, "ratio"), number(line, "told_ratio")]
        for line in frame.iter_rows(named=True)
    ]
    return "\n".join([*lines, "", markdown.table(["regret now / then", "units", "alone", "told"], rows)])


def _mean(frame: pl.DataFrame, column: str) -> float:
    """The mean of log ratios, as a ratio."""
    return float(np.exp(frame[column].log().mean()))  # type: ignore[arg-type]


def _percent(ratio: float) -> str:
    """A ratio of regrets in words.

    >>> _percent(0.967), _percent(1.01)
    ('3.3% less regret', '1.0% more regret')
    """
    return f"{abs(ratio - 1):.1%} {'less' if ratio < 1 else 'more'} regret"


def number(line: dict[str, Any], name: str) -> str:
    """A ratio with its standard error."""
    return f"{line[name]:.3f} (se {line[name + '_se']:.3f})"


def _name(line: dict[str, Any]) -> str:
    size = f", {line['size']} questions" if line["size"] else ""
    return f"{line['people']}{size}, {line['case']}"


def compare(scale: Scale, folder: Path) -> pl.DataFrame:
    """The table, with the code of then in `folder` for as long as it is needed."""
    setting, points = Setting(scale.name, str(find_movielens(None)), ""), repeatability.sweep(scale)
    dealt = folder / "dealt"
    dealt.mkdir()
    for number, point in enumerate(points):
        np.savez(dealt / f"{number:03d}.npz", **deal_table(setting, **point))
    beside = folder / "then"
    subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(beside), THEN], check=True)
    try:
        rows = play(dealt, beside)
    finally:
        subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(beside)], check=True)
    names = pl.DataFrame([{"file": f"{number:03d}", **point} for number, point in enumerate(points)])
    return table(rows.join(names, on="file", how="left", maintain_order="left"))


if __name__ == "__main__":
    command = Command.read()
    with tempfile.TemporaryDirectory() as place:
        found = compare(QUICK if command.quick else FULL, Path(place))
    command.write(found, NAME, float_precision=4)
