"""A stand-in for MovieLens-1M in its own file format, for tests and quick runs where the data is not at hand.

Nothing in it comes from the data: ratings are whole numbers 1 to 5 around a latent linear model (a level, how good a
movie is, a few tastes), users rate more of what suits them, ids have gaps, titles have accents (Latin-1) and commas,
genre strings repeat unevenly, and gender and age lean on the tastes, so that every code path that the real files take
is taken.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.worlds.world import world_stream

GENRES = ("Action", "Animation", "Comedy", "Crime", "Drama", "Film-Noir", "Horror", "Musical", "Sci-Fi", "Thriller")
AGES = (1, 18, 25, 35, 45, 50, 56)
TASTES = 4
START = 978_300_000  # seconds since 1970 at which the first user begins


def write_standin(folder: str | Path, *, users: int = 300, movies: int = 260, seed: int = 0) -> Path:
    """Write `ml-1m/` with ratings.dat, users.dat, movies.dat and a README under `folder`; returns `ml-1m/`.

    The usual filter (200 ratings each) keeps most of the default 300 users and 260 movies; a few of each fall below it.
    """
    target = Path(folder) / "ml-1m"
    target.mkdir(parents=True, exist_ok=True)
    rng = world_stream(seed, "stand-in")
    taste = rng.standard_normal((users, TASTES))
    likes = 0.45 * rng.standard_normal((movies, TASTES))
    means = 3.5 + 0.4 * rng.standard_normal(movies) + taste @ likes.T
    people, films = np.cumsum(rng.integers(1, 3, users)), np.cumsum(rng.integers(1, 4, movies))
    _write(target / "users.dat", _people(rng, people, taste))
    _write(target / "movies.dat", _films(rng, films))
    _write(target / "ratings.dat", _ratings(rng, people, films, means))
    _write(target / "README", ["A synthetic stand-in in the format of MovieLens-1M; no MovieLens data."])
    return target


def _people(rng: np.random.Generator, ids: Ints, taste: Floats) -> list[str]:
    """Lines of users.dat: gender leans on the first taste, the age group on the second."""
    gender = np.where(taste[:, 0] + rng.standard_normal(len(ids)) > 0.6, "F", "M")
    rank = np.argsort(np.argsort(taste[:, 1] + rng.standard_normal(len(ids))))
    age = np.array(AGES)[rank * len(AGES) // len(ids)]
    return [f"{i}::{g}::{a}::{i % 21}::{10000 + i}" for i, g, a in zip(ids, gender, age, strict=True)]


def _films(rng: np.random.Generator, ids: Ints) -> list[str]:
    """Lines of movies.dat: one to three genres each, a title with an accent and a comma."""
    lines = []
    for number in ids:
        count = rng.choice([1, 2, 3], p=[0.3, 0.5, 0.2])
        genres = "|".join(sorted(rng.choice(GENRES, size=count, replace=False)))
        lines.append(f"{number}::Café, No. {number} (19{number % 100:02d})::{genres}")
    return lines


def _ratings(rng: np.random.Generator, people: Ints, films: Ints, means: Floats) -> list[str]:
    """Users rate most movies, rather those that suit them; a few users and movies stay below the filter."""
    users, movies = means.shape
    appetite = np.where(np.arange(users) % 25 == 24, 0.3, 1.0)[:, None]
    fame = np.where(np.arange(movies) % 20 == 19, 0.5, 1.0)[None, :]
    shown = rng.random(means.shape) < appetite * fame * np.clip(0.9 + 0.05 * (means - 3.5), 0.5, 0.99)
    values = np.clip(np.rint(means + 0.7 * rng.standard_normal(means.shape)), 1, 5).astype(int)
    lines = []
    for user in range(users):
        seen = rng.permutation(np.flatnonzero(shown[user]))
        times = START + 100_000 * user + np.sort(rng.integers(0, len(seen), len(seen)))
        lines += [f"{people[user]}::{films[j]}::{values[user, j]}::{t}" for j, t in zip(seen, times, strict=True)]
    return lines


def _write(path: Path, lines: list[str]) -> None:
    path.write_bytes(("\n".join(lines) + "\n").encode("latin-1"))
