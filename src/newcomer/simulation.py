"""Playing policies against newcomers of a world: every policy meets the same users, action sets and noise.

Each newcomer is drawn from a generator of its own, and each policy has one generator per user, named after the policy.
A row of the result therefore depends on the seed, the policy's name, the user and the round, and on nothing else: not
on the other policies, the number of users, the batch size or the process that played it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.errors import NewcomerError, PolicyError
from newcomer.worlds.episodes import Episode, Newcomers, stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Progress = Callable[[int, int], None]

MEMORY = 256 * 2**20  # bytes of episodes held at once when no batch size is given


class Player(Protocol):
    """What `play` needs of a policy; the full contract is `newcomer.testing.check_policy`."""

    def start(self, n: int) -> Any:
        """State of n users who have done nothing yet."""

    def choose(
        self, state: Any, actions: Floats, rng: Sequence[np.random.Generator], *, mask: Bools | None = None
    ) -> Ints:
        """One action for each user, (n,), out of actions (n, K, d)."""

    def update(self, state: Any, features: Floats, reward: Floats) -> None:
        """Learn from the chosen features (n, d) and their rewards (n,)."""


def play(
    policies: Mapping[str, Player],
    world: Newcomers,
    *,
    horizon: int,
    users: int | range,
    seed: int,
    batch: int | None = None,
    progress: Progress | Literal[False] | None = None,
) -> pl.DataFrame:
    """Play every policy for every newcomer and return one row for each policy, user and round.

    Parameters
    ----------
    policies : policies by name; the name labels rows and colours and seeds the policy's own randomness.
    world : anything with `dim` and `episode(rng, horizon)`.
    users : how many newcomers, or a range of their numbers, so that several processes can share them out.
    batch : users played side by side; the default keeps 256 MB of episodes in memory. The result is the same.
    progress : called as `progress(done, total)` in user-rounds; None shows a bar on a terminal, False nothing.

    Returns
    -------
    Columns `policy`, `user`, `t` (from 1), `action`, `reward`, `regret` (best mean on offer less the chosen one's, of
    that round) and `in_subspace` (was the choice made in the subspace; null for a policy that does not begin in one).
    """
    group = range(users) if isinstance(users, int) else users
    _require(len(policies) > 0, "there is no policy to play", "pass a dict of names and policies")
    _require(len(group) > 0 and horizon > 0, "nothing to play", "pass users >= 1 and horizon >= 1")
    _require(batch is None or batch > 0, f"a batch of {batch} users cannot be played", "pass batch >= 1 or None")
    played: dict[str, list[pl.DataFrame]] = {name: [] for name in policies}
    with _reporting(progress, len(policies) * len(group) * horizon) as advance:
        for crowd in _crowds(world, group, horizon, seed, batch):
            for name, policy in policies.items():
                rngs = [stream(seed, f"policy {name}", user) for user in crowd.users]
                played[name].append(_rows(name, crowd, *_rounds(policy, crowd, rngs, advance)))
    return pl.concat([frame for frames in played.values() for frame in frames])


@dataclass(frozen=True)
class _Crowd:
    """Some users' episodes, of one shape."""

    users: list[int]
    episodes: list[Episode]

    @property
    def horizon(self) -> int:
        return len(self.episodes[0].means)

    def offers(self, t: int) -> tuple[Floats, Bools | None]:
        """Candidates (n, K, d) of round t and, if any user has one, the mask (n, K)."""
        actions = np.stack([episode.actions[t] for episode in self.episodes])
        if all(episode.mask is None for episode in self.episodes):
            return actions, None
        everything = np.ones(actions.shape[1], dtype=bool)
        return actions, np.stack([everything if e.mask is None else e.mask[t] for e in self.episodes])

    def outcomes(self, chosen: Ints) -> tuple[Floats, Floats]:
        """Rewards and regrets (n, T) of the choices (n, T)."""
        pick = [(episode, np.arange(self.horizon), own) for episode, own in zip(self.episodes, chosen, strict=True)]
        rewards = np.stack([episode.rewards[rounds, own] for episode, rounds, own in pick])
        regrets = np.stack([episode.best - episode.means[rounds, own] for episode, rounds, own in pick])
        return rewards, regrets


def _crowds(world: Newcomers, users: range, horizon: int, seed: int, batch: int | None) -> Iterator[_Crowd]:
    """Users in batches, drawn as they are needed."""
    crowd = _Crowd([], [])
    for user in users:
        episode = world.episode(stream(seed, "newcomer", user), horizon)
        _check_episode(episode, crowd.episodes[:1], world.dim, horizon)
        crowd.users.append(user)
        crowd.episodes.append(episode)
        if len(crowd.users) >= (batch or MEMORY // episode.actions.nbytes or 1):
            yield crowd
            crowd = _Crowd([], [])
    if crowd.users:
        yield crowd


def _rounds(
    policy: Player, crowd: _Crowd, rngs: list[np.random.Generator], advance: Callable[[int], None]
) -> tuple[Ints, Bools | None]:
    """Choices (n, T) and, for a policy that begins in a subspace, whether each was made in it (n, T)."""
    n, who = len(rngs), np.arange(len(rngs))
    state = policy.start(n)
    chosen, inside = np.empty((n, crowd.horizon), dtype=np.int64), np.empty((n, crowd.horizon), dtype=bool)
    phase = getattr(policy, "in_subspace", lambda _: np.zeros(n, dtype=bool))
    begins_inside = bool(np.all(phase(state)))
    for t in range(crowd.horizon):
        actions, mask = crowd.offers(t)
        inside[:, t] = phase(state)
        chosen[:, t] = own = _checked_choice(policy.choose(state, actions, rngs, mask=mask), actions)
        policy.update(state, actions[who, own], np.array([e.rewards[t, a] for e, a in zip(crowd.episodes, own)]))
        advance(n)
    return chosen, inside if begins_inside else None


def _rows(name: str, crowd: _Crowd, chosen: Ints, inside: Bools | None) -> pl.DataFrame:
    n, horizon = chosen.shape
    rewards, regrets = crowd.outcomes(chosen)
    unknown = pl.repeat(None, n * horizon, dtype=pl.Boolean, eager=True)
    phases = unknown if inside is None else pl.Series(inside.ravel(), dtype=pl.Boolean)
    return pl.DataFrame(
        {
            "policy": pl.repeat(name, n * horizon, dtype=pl.String, eager=True),
            "user": np.repeat(np.asarray(crowd.users, dtype=np.int64), horizon),
            "t": np.tile(np.arange(1, horizon + 1), n),
            "action": chosen.ravel(),
            "reward": rewards.ravel(),
            "regret": regrets.ravel(),
            "in_subspace": phases,
        }
    )


def _checked_choice(chosen: Ints, actions: Floats) -> Ints:
    n, k = actions.shape[:2]
    fine = np.shape(chosen) == (n,) and np.all((chosen >= 0) & (chosen < k))
    if not fine:
        raise PolicyError(f"a policy must choose one of {k} actions for each of {n} users", where=f"it chose {chosen}")
    return chosen


def _check_episode(episode: Episode, others: list[Episode], dim: int, horizon: int) -> None:
    shape = episode.actions.shape
    fine = len(shape) == 3 and shape[::2] == (horizon, dim) and all(shape == other.actions.shape for other in others)
    fine = fine and shape[:2] == episode.means.shape == episode.rewards.shape
    _require(
        fine, f"an episode has actions of shape {shape}", f"({horizon}, K, {dim}) with one K for all, masked if need be"
    )


@contextmanager
def _reporting(progress: Progress | Literal[False] | None, total: int) -> Iterator[Callable[[int], None]]:
    """A function that counts user-rounds and reports them to a callback, a bar, or nobody."""
    done = 0

    def advance(rounds: int) -> None:
        nonlocal done
        done += rounds
        report(done, total)

    if callable(progress):
        report: Progress = progress
        yield advance
    elif progress is False or not sys.stderr.isatty():
        yield lambda rounds: None
    else:
        with _bar(total) as report:
            yield advance


@contextmanager
def _bar(total: int) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("playing"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("playing", total=total)
        yield lambda done, _: bar.update(task, completed=done)


def _require(holds: bool, what: str, todo: str) -> None:
    if not holds:
        raise NewcomerError(what, todo=todo)
