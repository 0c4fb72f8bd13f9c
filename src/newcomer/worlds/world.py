"""What a world is: where newcomers come from, and `check_world`, which tries the promises on any world, ours or yours.

A world draws newcomers. One newcomer is an `Episode`: the candidates of every round and the outcome of *every*
candidate, so that all policies are compared on the same users, the same action sets and the same noise. Anything with
`dim` and `episode` can be played: a synthetic world, or a replay of logged ratings whose means are its rewards.

Writing a world's logs as Parquet in a stream, so that logs of any size need the memory of a few blocks of users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

from newcomer.arrays import Bools, Floats, Ints
from newcomer.errors import NewcomerError
from newcomer.files import file_errors_told
from newcomer.records import Shown, freeze_record

if TYPE_CHECKING:
    from newcomer.logs import Logs


USERS, HORIZON, STEPS = 6, 200, 4  # of what check_world draws


@dataclass(frozen=True)
class Episode(Shown):
    """One newcomer over T rounds of K candidates.

    `actions` (T, K, d) are the candidates' features, `means` (T, K) their expected rewards, from which regret is
    counted, `rewards` (T, K) what choosing each would have paid. `mask` (T, K), if given, is False where a candidate is
    not on offer. `ids` (T, K), if given, say which actions the candidates are, as the world's logs name them; a
    policy that remembers actions knows them by these. `attributes`, if given, are what is known of the newcomer, by
    name, for policies that take them.
    """

    actions: Floats
    means: Floats
    rewards: Floats
    mask: Bools | None = None
    ids: NDArray[np.generic] | None = None
    attributes: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        freeze_record(self)

    @property
    def best(self) -> Floats:
        """Largest expected reward on offer in each round, (T,)."""
        offered = self.means if self.mask is None else np.where(self.mask, self.means, -np.inf)
        return np.asarray(offered.max(axis=1))


@dataclass(frozen=True)
class LogRows:
    """Some users' log rows, users in order and each user's rows in time order.

    `user`, `step` and `reward` are (rows,), `features` (rows, d); `action` (rows,) indexes the catalogue, if any.
    """

    user: Ints
    step: Ints
    features: Floats
    reward: Floats
    action: Ints | None = None


@runtime_checkable
class Newcomers(Protocol):
    """What `play` needs of a world."""

    @property
    def dim(self) -> int:
        """Feature dimension d."""

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One newcomer for `horizon` rounds; everything random comes from `rng`."""


@runtime_checkable
class World(Newcomers, Protocol):
    """A world that has logs of earlier users too."""

    def logs(self, users: int, steps: int, seed: int) -> Logs:
        """Histories of `users` earlier users; the first n are the same for any number of users."""


def world_stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """An independent generator for one purpose and one index (a user, a block), the same whatever else is drawn.

    >>> [int(world_stream(0, "newcomer", user).integers(1000)) for user in (3, 4, 3)]
    [513, 349, 513]
    """
    if seed < 0:
        raise NewcomerError("a seed must not be negative", where=f"seed={seed}", todo="pass 0 or a positive integer")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(crc32(purpose.encode()), *index)))


def world_unit_vectors(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Vectors drawn uniformly from the unit sphere; the last axis is that of coordinates."""
    rows = rng.standard_normal(shape)
    rows /= np.sqrt(np.einsum("...d,...d->...", rows, rows))[..., None]
    return rows


def check_world(world: Newcomers, *, seed: int = 0) -> None:
    """Raise AssertionError, with what is wrong, unless `world` keeps the contract that `play` relies on.

    Checked: shapes and finite float64 values; an episode depends on its generator alone; users differ; an action is
    on offer in every round; rewards are centred at the means; and, if the world has logs, that the first users are the
    same for any number of users.

    >>> from newcomer.worlds import Synthetic
    >>> check_world(Synthetic.learnable())
    """
    assert isinstance(world, Newcomers), "a world needs `dim` and `episode(rng, horizon)`"
    assert isinstance(world.dim, int) and world.dim >= 1, "dim must be a positive integer"
    episodes = [world.episode(world_stream(seed, "check", user), HORIZON) for user in range(USERS)]
    for episode in episodes:
        _check_episode(episode, world.dim, episodes[0].actions.shape[1])
    again = world.episode(world_stream(seed, "check", 0), HORIZON)
    assert _equal(again, episodes[0]), "an episode must depend on its generator alone"
    assert not all(_equal(other, episodes[0]) for other in episodes[1:]), "users must not all be alike"
    noise = np.concatenate([(episode.rewards - episode.means).ravel() for episode in episodes])
    error = float(noise.std()) / np.sqrt(len(noise))
    assert abs(float(noise.mean())) <= 5 * error + 1e-9, "rewards must be centred at their means"
    if isinstance(world, World):
        few, many = (_first_rewards(world, users, seed) for users in (USERS, 2 * USERS))
        assert few == {user: many.get(user) for user in few}, "the first users must not depend on how many there are"


def _check_episode(episode: Episode, dim: int, count: int) -> None:
    """Shapes and types of one episode of `HORIZON` rounds of `count` candidates."""
    shape = (HORIZON, count)
    assert episode.actions.shape == (*shape, dim), f"actions of shape {episode.actions.shape} are not (T, K, {dim})"
    assert episode.means.shape == episode.rewards.shape == shape, "means and rewards must have shape (T, K)"
    for name in ("actions", "means", "rewards"):
        values = getattr(episode, name)
        assert values.dtype == np.float64 and np.isfinite(values).all(), f"{name} must be finite float64 numbers"
    if episode.mask is not None:
        assert episode.mask.shape == shape and episode.mask.dtype == np.bool_, "the mask must be (T, K) booleans"
        assert episode.mask.any(axis=1).all(), "every round must offer an action"
    if episode.ids is not None:
        assert episode.ids.shape == shape, "ids must have shape (T, K)"


def _equal(one: Episode, other: Episode) -> bool:
    """Whether the same candidates would have paid the same."""
    return np.array_equal(one.actions, other.actions) and np.array_equal(one.rewards, other.rewards)


def _first_rewards(world: World, users: int, seed: int) -> dict[object, list[float]]:
    """Each user's rewards in order."""
    found: dict[object, list[float]] = {}
    for batch in world.logs(users, STEPS, seed).batches():
        pieces = np.split(batch.rewards, batch.offsets[1:-1])
        found |= {user.item(): piece.tolist() for user, piece in zip(batch.users, pieces, strict=True)}
    return found


_PART = "_part"  # which file a row goes to; not written


def write_world_rows(parts: Iterable[LogRows], path: str | Path, *, users: int, files: int, grouped: bool) -> None:
    """Write a stream of histories to one file, or to `files` files in the directory `path`.

    Grouped rows stand user by user and no user spans two files. Otherwise each block of users is written in the order
    of time and its rows are spread over all files: what a service that logs as it goes leaves behind.
    """
    if files < 1:
        raise NewcomerError("logs need a file to go to", where=f"files={files}", todo="pass files=1 or more")
    frames = (_frame(part, _parts(part, users, files, grouped), grouped) for part in parts)
    first = next(frames)
    source = register_io_source(_Frames(first, frames), schema=first.schema)
    with file_errors_told(path):
        if files == 1:
            source.drop(_PART).sink_parquet(Path(path))
            return
        target = pl.PartitionBy(
            Path(path), key=_PART, include_key=False, approximate_bytes_per_file=None, file_path_provider=_name
        )
        source.sink_parquet(target, mkdir=True)


def write_world_items(features: Floats, path: str | Path) -> None:
    """Write an items table: `action`, `features`."""
    frame = pl.DataFrame({"action": np.arange(len(features)), "features": _lists(features)})
    with file_errors_told(path):
        frame.write_parquet(Path(path))


def _parts(part: LogRows, users: int, files: int, grouped: bool) -> Ints:
    """The file of each row, in the order in which the rows will be written."""
    position = part.user * files // users if grouped else np.arange(len(part.user)) * files // len(part.user)
    return np.asarray(position, dtype=np.int64)


def _frame(part: LogRows, file: Ints, grouped: bool) -> pl.DataFrame:
    """A block of rows as they will be written, with the file that each goes to."""
    order = slice(None) if grouped else np.lexsort((part.user, part.step))
    columns: dict[str, object] = {"user": part.user[order], "step": part.step[order]}
    if part.action is None:
        columns["features"] = _lists(part.features[order])
    else:
        columns["action"] = part.action[order]
    return pl.DataFrame({**columns, "reward": part.reward[order], _PART: file})


def _lists(features: Floats) -> pl.Series:
    """Features (rows, d) as a column of lists."""
    return pl.Series(features, dtype=pl.Array(pl.Float64, features.shape[1])).arr.to_list()


class _Frames:
    """Hands frames to Polars as it asks for them; Polars may ask for some of the columns."""

    def __init__(self, first: pl.DataFrame, rest: Iterator[pl.DataFrame]) -> None:
        self.first, self.rest = first, rest

    def __call__(
        self, columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch: int | None
    ) -> Iterator[pl.DataFrame]:
        yield self.first.select(columns or pl.all())
        for frame in self.rest:
            yield frame.select(columns or pl.all())


def _name(target: pl.io.partition.FileProviderArgs) -> str:
    """Numbered with leading zeros, so that files sort as their rows do."""
    return f"part-{target.partition_keys.item(0, 0):05d}.parquet"
