"""MovieLens-1M (Harper and Konstan 2015): the original `::` files as arrays, and the paper's filter.

The filter counts once, on the raw data: users with at least 200 ratings and movies with at least 200 ratings. That
gives the 1589 users and 1426 movies of the paper, with 547,830 ratings; repeating it until nothing changes would not
(1160 x 980). The licence of the data forbids redistribution, so none of it is in this package: see
`newcomer.paper.worlds.download`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Bools, Floats, Ints
from newcomer.errors import LogsError

Strings = NDArray[np.str_]

_ROW = re.compile(rb"\d+::\d+::\d+::\d+")


@dataclass(frozen=True)
class Ratings:
    """Who rated what, in the order of the file.

    `user`, `movie`, `rating` and `time` are (rows,), the first two positions in the tables below. Per user (n,): the id
    `users`, `gender` ("F" or "M") and `age` (lower end of the age group). Per movie (m,): the id `movies`, `titles` and
    `genres`, the genre string as it stands in the file ("Action|Sci-Fi").
    """

    user: Ints
    movie: Ints
    rating: Floats
    time: Ints
    users: Ints
    gender: Strings
    age: Ints
    movies: Ints
    titles: Strings
    genres: Strings

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of users and of movies."""
        return len(self.users), len(self.movies)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the ratings with their users' and movies' ids; titles and persons are left out."""
        digest = hashlib.sha256()
        for column in (self.users[self.user], self.movies[self.movie], self.rating):
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()

    def filtered(self, least: int = 200) -> Ratings:
        """Users and movies with at least `least` ratings each, counted once on all ratings."""
        n, m = self.shape
        users = np.bincount(self.user, minlength=n) >= least
        movies = np.bincount(self.movie, minlength=m) >= least
        kept = self._keep(users, movies)
        if not len(kept.rating):
            raise LogsError("no ratings are left", where=f"least={least}", todo="lower the least number of ratings")
        return kept

    def of_users(self, who: Ints) -> Ratings:
        """The ratings of the users at positions `who`, renumbered in the old order; all movies stay."""
        chosen = np.isin(np.arange(len(self.users)), who)
        return self._keep(chosen, np.ones(len(self.movies), dtype=bool))

    def _keep(self, users: Bools, movies: Bools) -> Ratings:
        """The ratings of these users (n,) and movies (m,), both renumbered without gaps."""
        rows = users[self.user] & movies[self.movie]
        return Ratings(
            user=(np.cumsum(users) - 1)[self.user[rows]],
            movie=(np.cumsum(movies) - 1)[self.movie[rows]],
            rating=self.rating[rows],
            time=self.time[rows],
            users=self.users[users],
            gender=self.gender[users],
            age=self.age[users],
            movies=self.movies[movies],
            titles=self.titles[movies],
            genres=self.genres[movies],
        )


def read_ratings(folder: str | Path) -> Ratings:
    """Read `ratings.dat`, `users.dat` and `movies.dat` (fields separated by `::`, Latin-1) in `folder`."""
    folder = Path(folder)
    people = _fields(folder / "users.dat", 5)
    films = _fields(folder / "movies.dat", 3)
    table = _numbers(folder / "ratings.dat")
    users, movies = _ids(folder / "users.dat", people[0]), _ids(folder / "movies.dat", films[0])
    return Ratings(
        user=_positions(users, table[0], folder / "ratings.dat", "user"),
        movie=_positions(movies, table[1], folder / "ratings.dat", "movie"),
        rating=table[2].astype(np.float64),
        time=table[3],
        users=users,
        gender=np.array(people[1]),
        age=_ids(folder / "users.dat", people[2], unique=False),
        movies=movies,
        titles=np.array(films[1]),
        genres=np.array(films[2]),
    )


def _fields(path: Path, count: int) -> list[tuple[str, ...]]:
    """The columns of a small `::` file."""
    rows = [tuple(line.split("::")) for line in _bytes(path).decode("latin-1").splitlines() if line]
    for number, row in enumerate(rows, start=1):
        if len(row) != count:
            raise LogsError(
                f"expected {count} fields separated by '::'", where=f"{path.name}, line {number}", todo="unpack it anew"
            )
    if not rows:
        raise LogsError("the file is empty", where=path.name, todo="unpack it anew")
    return list(zip(*rows, strict=True))


def _numbers(path: Path) -> Ints:
    """The four integer columns (4, rows) of `ratings.dat`.

    A reader that knows one-byte separators alone sees an empty column between two colons; it is dropped.
    """
    names = [f"column_{index}" for index in range(1, 8)]
    schema = {name: pl.Int64 if index % 2 == 0 else pl.String for index, name in enumerate(names)}
    content = _bytes(path)
    try:
        table = pl.read_csv(content, separator=":", has_header=False, schema=schema, quote_char=None).select(names[::2])
        whole = len(table) > 0 and not sum(table.null_count().row(0))
    except pl.exceptions.PolarsError:
        whole = False
    if not whole:
        line = next((i for i, row in enumerate(content.splitlines(), 1) if not _ROW.fullmatch(row)), 0)
        where = f"{path.name}, line {line}" if line else f"{path.name} is empty"
        raise LogsError("expected four integers separated by '::'", where=where, todo="unpack it anew")
    return np.ascontiguousarray(table.to_numpy().T)


def _bytes(path: Path) -> bytes:
    """A file's content, or one sentence."""
    try:
        return path.read_bytes()
    except OSError as error:
        todo = "pass the folder that holds ratings.dat, users.dat and movies.dat"
        raise LogsError("cannot read a MovieLens file", where=f"{path}: {error.strerror}", todo=todo) from error


def _ids(path: Path, column: tuple[str, ...], *, unique: bool = True) -> Ints:
    """A column of whole numbers; ids must rise, so that their positions can be found by bisection."""
    try:
        ids = np.array(column, dtype=np.int64)
    except ValueError as error:
        raise LogsError("expected whole numbers", where=f"{path.name}: {error}", todo="unpack it anew") from error
    if unique and not np.all(np.diff(ids) > 0):
        raise LogsError("expected ids in rising order", where=path.name, todo="unpack it anew")
    return ids


def _positions(table: Ints, ids: Ints, path: Path, what: str) -> Ints:
    """Where each id stands in the sorted `table`."""
    found = np.minimum(np.searchsorted(table, ids), len(table) - 1)
    stray = np.flatnonzero(table[found] != ids)
    if len(stray):
        raise LogsError(
            f"{what} {ids[stray[0]]} is not in the {what}s file",
            where=f"{path.name}, line {stray[0] + 1}",
            todo="use the three files of one download",
        )
    return found.astype(np.int64)
