"""MovieLens-1M as the plain CSV that a team would export: user, film, stars, time. Plain Python.

    python examples/ratings_csv.py [FOLDER OF ml-1m]        # writes ratings.csv here

The folder is that of the argument, or ml-1m in NEWCOMER_DATA. Without the data, made up people rate made up films, and
choose the films that they like.
"""

from __future__ import annotations

import csv
import math
import os
import random
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """Write ratings.csv."""
    file = folder / "ratings.dat"
    rows = read(file) if file.is_file() else made_up()
    with Path("ratings.csv").open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([["userId", "movieId", "rating", "timestamp"], *rows])
    told = "MovieLens" if file.is_file() else "made up, for there is no MovieLens here"
    print(f"ratings.csv: {len(rows):,} ratings ({told})")


def read(file: Path) -> list[list[int]]:
    """Rows of ratings.dat: user::film::stars::time."""
    return [[int(part) for part in line.split("::")] for line in file.read_text().splitlines()]


def made_up() -> list[list[int]]:
    """900 people and 60 films; everybody rates 20, mostly those that they like."""
    rng = random.Random(1)
    films = [(rng.gauss(0, 1), rng.gauss(0, 1)) for _ in range(60)]
    rows = []
    for person in range(1, 901):
        taste = rng.gauss(0, 1), rng.gauss(0, 1)
        liked = [0.6 * (taste[0] * a + taste[1] * b) for a, b in films]
        order = sorted(range(60), key=lambda film: -(0.6 * liked[film] - math.log(-math.log(rng.random()))))
        for step, film in enumerate(order[:20]):
            stars = min(5, max(1, round(3.5 + liked[film] + rng.gauss(0, 0.8))))
            rows.append([person, film, stars, 978_300_000 + 60 * step])
    return rows


if __name__ == "__main__":
    place = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.environ.get("NEWCOMER_DATA", ""), "ml-1m")
    main(Path(place))
