"""A randomised trial as any team would log it: 3,000 people, four of twelve messages each, drawn by lot. Plain Python.

    python examples/randomised_trial.py [FOLDER]

writes trial.csv, and chosen.csv: the same people, had the messages been picked by somebody who knows what they like.
Nothing of newcomer is used here: this is what comes out of somebody else's system.
"""

from __future__ import annotations

import csv
import math
import random
import sys
from pathlib import Path

PEOPLE, STEPS = 3000, 4
MESSAGES = [f"message {letter}" for letter in "ABCDEFGHIJKL"]


def main(folder: Path) -> None:
    """Write both files."""
    rng = random.Random(1)
    common = [rng.gauss(0, 0.5) for _ in MESSAGES]
    directions = [[rng.gauss(0, 1) for _ in MESSAGES] for _ in range(2)]
    trial, chosen = [], []
    for person in range(PEOPLE):
        taste = [rng.gauss(0, 1) for _ in directions]
        liked = [
            level + sum(t * d[m] for t, d in zip(taste, directions, strict=True)) for m, level in enumerate(common)
        ]
        for rows, odds in ((trial, [1.0] * len(MESSAGES)), (chosen, [math.exp(one) for one in liked])):
            for step in range(STEPS):
                shown = rng.choices(range(len(MESSAGES)), weights=odds)[0]
                minutes = round(5 + liked[shown] + rng.gauss(0, 1.5), 2)
                rows.append([f"p{person}", step, MESSAGES[shown], minutes])
    write(folder / "trial.csv", ["user", "step", "action", "reward", "propensity"], [[*row, 1 / 12] for row in trial])
    write(folder / "chosen.csv", ["user", "step", "action", "reward"], chosen)


def write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    """A CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    print(f"{path.name}: {len(rows):,} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
