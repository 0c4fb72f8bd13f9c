"""Playing policies against newcomers of a world: every policy meets the same users, action sets and noise.

Each newcomer is drawn from a generator of its own, and each policy has one generator per user, named after the policy.
A row of the result therefore depends on the seed, the policy's name, the user and the round, and on nothing else: not
on the other policies, the number of users, the batch size or the process that played it.

`play` draws newcomers in batches that fit into memory, and lets every policy meet every batch. Within a batch all users
take their t-th decision together: choose for all, look up what the choices pay, update for all.

What the rows of `play` say: regret and reward for each policy, with their uncertainty.

Users are the independent units. A policy's cumulative regret is a mean over users with standard error
s / sqrt(users); two policies are compared on the same users, so their difference is a mean of paired differences with
the t-interval mean -+ t_{users - 1} s / sqrt(users).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtrit

from newcomer.arrays import Bools, Floats, Ints
from newcomer.errors import NewcomerError, PolicyError, error_name_hint
from newcomer.validate import show_invalid_value, validate_callback, validate_share, validate_whole
from newcomer.worlds.world import Episode, Newcomers, world_stream

Progress = Callable[[int, int], None]

CALLS = ("start", "choose", "update")  # that a policy must have
MEMORY = 256 * 2**20  # bytes of episodes held at once when no batch size is given


class Player(Protocol):
    """What `play` needs of a policy; the full contract is `newcomer.testing.check_policy`.

    A policy whose `choose` and `update` take `ids=` besides, the ids (n, K) of the candidates and (n,) of the chosen
    ones, is given them in worlds that have ids.
    """

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
    """Simulate every policy with the same new users; return one row per policy, user and round.

    Parameters
    ----------
    policies : policies by name; the name labels rows and colours and seeds the policy's own randomness.
    world : anything with `dim` and `episode(rng, horizon)`.
    users : number of new users, or a range of their numbers, so that several processes can share them.
    batch : users played side by side; the default keeps 256 MB of episodes in memory. The result is the same.
    progress : called as `progress(done, total)` in user-rounds; None shows a bar on a terminal, False nothing.

    Returns
    -------
    Columns `policy`, `user`, `t` (from 1), `action`, `reward`, `regret` (best mean on offer less the chosen one's, of
    that round) and `in_subspace` (was the choice made in the subspace; null for a policy that does not begin in one).

    >>> from newcomer import LinUCB, Uniform
    >>> from newcomer.worlds import Synthetic
    >>> policies = {"LinUCB": LinUCB(5, horizon=50), "Uniform": Uniform()}
    >>> rows = play(policies, Synthetic(dim=5, noise=0.1), horizon=50, users=4, seed=0, progress=False)
    >>> rows.shape
    (400, 7)
    """
    named = isinstance(policies, Mapping) and len(policies) > 0
    _require(named, "there is no policy to play", "pass a dict of names and policies")
    for name, policy in policies.items():
        fits = isinstance(name, str) and all(callable(getattr(policy, part, None)) for part in CALLS)
        _require(
            fits,
            f"{show_invalid_value(name)}: {show_invalid_value(policy)} is not a policy",
            "pass names and policies",
        )
    _require(isinstance(world, Newcomers), f"{show_invalid_value(world)} is not a world", "see newcomer.worlds")
    numbers = users if isinstance(users, range) else range(validate_whole(users, "users", kind=NewcomerError))
    _require(len(numbers) > 0, "nothing to play", "pass users >= 1 and horizon >= 1")
    horizon = validate_whole(horizon, "horizon", kind=NewcomerError)
    seed = validate_whole(seed, "seed", least=0, most=2**128, kind=NewcomerError)
    batch = None if batch is None else validate_whole(batch, "batch", kind=NewcomerError)
    if progress is not False:
        validate_callback(progress, "progress", kind=NewcomerError)
    played: dict[str, list[pl.DataFrame]] = {name: [] for name in policies}
    with _reporting(progress, len(policies) * len(numbers) * horizon) as advance:
        for group in _newcomers(world, numbers, horizon, seed, batch):
            for name, policy in policies.items():
                rngs = [world_stream(seed, f"policy {name}", user) for user in group.users]
                played[name].append(_rows(name, group, *_rounds(policy, group, rngs, advance)))
    return pl.concat([frame for frames in played.values() for frame in frames])


@dataclass(frozen=True)
class _Newcomers:
    """Some users' episodes, of one shape, all with ids or all without."""

    users: list[int]
    episodes: list[Episode]

    @property
    def horizon(self) -> int:
        """Number of rounds T."""
        return len(self.episodes[0].means)

    def offers(self, t: int) -> tuple[Floats, Bools | None]:
        """Candidates (n, K, d) of round t and, if any user has one, the mask (n, K)."""
        actions = np.stack([episode.actions[t] for episode in self.episodes])
        if all(episode.mask is None for episode in self.episodes):
            return actions, None
        everything = np.ones(actions.shape[1], dtype=bool)
        return actions, np.stack([everything if e.mask is None else e.mask[t] for e in self.episodes])

    def ids(self, t: int) -> NDArray[np.generic] | None:
        """Ids (n, K) of the candidates of round t, if the world has ids."""
        ids = [episode.ids[t] for episode in self.episodes if episode.ids is not None]
        return np.stack(ids) if ids else None

    def attributes(self, policy: Player) -> dict[str, Any]:
        """What is known of the newcomers, where any of it is and the policy takes it."""
        known = [episode.attributes or {} for episode in self.episodes]
        return {"attributes": known} if any(known) and getattr(policy, "takes_attributes", False) else {}

    def outcomes(self, chosen: Ints) -> tuple[Floats, Floats]:
        """Rewards and regrets (n, T) of the choices (n, T)."""
        rounds = np.arange(self.horizon)
        pairs = list(zip(self.episodes, chosen, strict=True))
        rewards = np.stack([episode.rewards[rounds, choices] for episode, choices in pairs])
        regrets = np.stack([episode.best - episode.means[rounds, choices] for episode, choices in pairs])
        return rewards, regrets


def _newcomers(world: Newcomers, users: range, horizon: int, seed: int, batch: int | None) -> Iterator[_Newcomers]:
    """Users in batches, drawn as they are needed."""
    group = _Newcomers([], [])
    for user in users:
        episode = world.episode(world_stream(seed, "newcomer", user), horizon)
        _check_episode(episode, group.episodes[:1], world.dim, horizon)
        group.users.append(user)
        group.episodes.append(episode)
        if len(group.users) >= (batch or MEMORY // episode.actions.nbytes or 1):
            yield group
            group = _Newcomers([], [])
    if group.users:
        yield group


def _rounds(
    policy: Player, group: _Newcomers, rngs: list[np.random.Generator], advance: Callable[[int], None]
) -> tuple[Ints, Bools | None]:
    """Choices (n, T) and, for a policy that begins in a subspace, whether each was made in it (n, T)."""
    n, who = len(rngs), np.arange(len(rngs))
    state = policy.start(n, **group.attributes(policy))
    chosen, inside = np.empty((n, group.horizon), dtype=np.int64), np.empty((n, group.horizon), dtype=bool)
    phase = getattr(policy, "in_subspace", lambda _: np.zeros(n, dtype=bool))
    begins_inside = bool(np.all(phase(state)))
    choose_by_id, update_by_id = _takes_ids(policy.choose), _takes_ids(policy.update)
    for t in range(group.horizon):
        actions, mask = group.offers(t)
        ids = group.ids(t) if choose_by_id or update_by_id else None
        inside[:, t] = phase(state)
        named = {"ids": ids} if choose_by_id and ids is not None else {}
        choice = _checked_choice(policy.choose(state, actions, rngs, mask=mask, **named), actions)
        named = {"ids": ids[who, choice]} if update_by_id and ids is not None else {}
        reward = np.array([episode.rewards[t, action] for episode, action in zip(group.episodes, choice, strict=True)])
        policy.update(state, actions[who, choice], reward, **named)
        chosen[:, t] = choice
        advance(n)
    return chosen, inside if begins_inside else None


def _takes_ids(method: Callable[..., object]) -> bool:
    """Whether `ids=` can be passed: policies from outside may have been written without it."""
    parameters = signature(method).parameters.values()
    return any(parameter.name == "ids" or parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)


def _rows(name: str, group: _Newcomers, chosen: Ints, inside: Bools | None) -> pl.DataFrame:
    """The rows of one policy and group, users one after another and each user's rounds in order."""
    n, horizon = chosen.shape
    rewards, regrets = group.outcomes(chosen)
    unknown = pl.repeat(None, n * horizon, dtype=pl.Boolean, eager=True)
    phases = unknown if inside is None else pl.Series(inside.ravel(), dtype=pl.Boolean)
    return pl.DataFrame(
        {
            "policy": pl.repeat(name, n * horizon, dtype=pl.String, eager=True),
            "user": np.repeat(np.asarray(group.users, dtype=np.int64), horizon),
            "t": np.tile(np.arange(1, horizon + 1), n),
            "action": chosen.ravel(),
            "reward": rewards.ravel(),
            "regret": regrets.ravel(),
            "in_subspace": phases,
        }
    )


def _checked_choice(chosen: Ints, actions: Floats) -> Ints:
    """The choices (n,), if they are positions among the candidates (n, K, d)."""
    n, k = actions.shape[:2]
    fine = np.shape(chosen) == (n,) and np.all((chosen >= 0) & (chosen < k))
    if not fine:
        raise PolicyError(f"a policy must choose one of {k} actions for each of {n} users", where=f"it chose {chosen}")
    return chosen


def _check_episode(episode: Episode, others: list[Episode], dim: int, horizon: int) -> None:
    """Refuse an episode of another shape than (T, K, d), or unlike those of the same group (`others`)."""
    shape = episode.actions.shape
    fine = len(shape) == 3 and shape[::2] == (horizon, dim) and all(shape == other.actions.shape for other in others)
    fine = fine and shape[:2] == episode.means.shape == episode.rewards.shape
    todo = f"({horizon}, K, {dim}) with one K for all, masked if need be"
    _require(fine, f"an episode has actions of shape {shape}", todo)
    named = [one.ids is not None for one in (episode, *others)]
    fine = len(set(named)) == 1 and (episode.ids is None or episode.ids.shape == shape[:2])
    _require(fine, "ids do not go with the candidates", "give every episode ids of shape (T, K), or none")


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
    """A bar on stderr, while there is something to play."""
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


_COLUMNS = ("policy", "user", "t", "reward", "regret", "in_subspace")


def summary(rows: pl.DataFrame, *, reference: str | None = None, window: int = 25, level: float = 0.95) -> pl.DataFrame:
    """One row per policy: regret and reward at the last round.

    Parameters
    ----------
    rows : rows of `play`, every policy with the same users and rounds.
    reference : policy to compare the others with, user by user.
    window : rounds at the end over which `reward` is averaged.
    level : coverage of the intervals of the differences.

    Returns
    -------
    Columns `policy`, `users`, `horizon`; `regret` and `regret_se`, mean cumulative regret and its standard error;
    `reward` and `reward_se`, mean reward of the last `window` rounds; `stayed`, the share of users still in the
    subspace at the end (null where meaningless). With a reference also `difference` = regret less the reference's, its
    interval `difference_low`, `difference_high`, and `ratio` of the two mean regrets. Standard errors and intervals are
    null for a single user.

    >>> rows = pl.DataFrame({"policy": ["a", "a", "b", "b"], "user": [0, 1, 0, 1], "t": [1, 1, 1, 1]})
    >>> rows = rows.with_columns(reward=pl.lit(0.5), regret=pl.Series([1.0, 3.0, 2.0, 5.0]), in_subspace=pl.lit(None))
    >>> summary(rows, reference="a").select("regret", "difference", "ratio").rows()
    [(2.0, 0.0, 1.0), (3.5, 1.5, 1.75)]
    """
    _check(rows, window=window, level=level)
    each = simulated_totals(rows, window=window)
    table = each.group_by("policy", maintain_order=True).agg(
        users=pl.len(),
        horizon=pl.col("horizon").max(),
        **simulated_mean_and_error("regret"),
        **simulated_mean_and_error("reward"),
        stayed=pl.col("stayed").mean(),
    )
    if reference is None:
        return table
    _check_reference(each, reference)
    return table.join(_differences(each, reference, level), on="policy", maintain_order="left")


def simulated_curves(rows: pl.DataFrame, *, window: int = 25) -> pl.DataFrame:
    """One line for each policy and round: the curves that regret figures draw.

    Columns `policy`, `t`; `regret`, `regret_se`: cumulative regret, mean over users and its standard error; `reward`,
    `reward_se`: mean over users of the reward averaged over the last `window` rounds (over fewer at the start);
    `in_subspace`: share of users whose choice was made in the subspace.
    """
    _check(rows, window=window)
    each = rows.sort("policy", "user", "t").with_columns(
        pl.col("regret").cum_sum().over("policy", "user"),
        pl.col("reward").rolling_mean(window, min_samples=1).over("policy", "user"),
    )
    share = pl.col("in_subspace").mean()
    lines = each.group_by("policy", "t").agg(
        **simulated_mean_and_error("regret"), **simulated_mean_and_error("reward"), in_subspace=share
    )
    order = rows.select(pl.col("policy").unique(maintain_order=True)).with_row_index("_order")
    return lines.join(order, on="policy").sort("_order", "t").drop("_order")


def simulated_totals(rows: pl.DataFrame, *, window: int = 25) -> pl.DataFrame:
    """One line for each policy and user: what policies are compared by, user by user.

    Columns `policy`, `user`, `horizon`; `regret` of all rounds, mean `reward` of the last `window`, and whether the
    user `stayed` in the subspace to the end.
    """
    last = pl.col("t") > pl.col("t").max() - window
    return rows.group_by("policy", "user", maintain_order=True).agg(
        horizon=pl.col("t").max(),
        regret=pl.col("regret").sum(),
        reward=pl.col("reward").filter(last).mean(),
        stayed=pl.col("in_subspace").sort_by("t").last(),
    )


def simulated_exits(rows: pl.DataFrame) -> pl.DataFrame:
    """For each policy that has a subspace and each user: `left_at`, the first round outside it, null if never."""
    _check(rows)
    inside = rows.filter(pl.col("in_subspace").is_not_null())
    first = pl.col("t").filter(~pl.col("in_subspace")).min()
    return inside.group_by("policy", "user", maintain_order=True).agg(left_at=first)


def simulated_mean_and_error(column: str) -> dict[str, pl.Expr]:
    """The mean of a column, under its own name, and its standard error s / sqrt(n), with `_se` behind the name.

    >>> pl.DataFrame({"error": [1.0, 3.0]}).select(**simulated_mean_and_error("error")).rows()
    [(2.0, 1.0)]
    """
    value = pl.col(column)
    return {column: value.mean(), f"{column}_se": value.std() / pl.len().sqrt()}


def _differences(totals: pl.DataFrame, reference: str, level: float) -> pl.DataFrame:
    """Regret of each policy less that of the reference, user by user, with the t-interval of the mean."""
    base = totals.filter(pl.col("policy") == reference).select("user", base="regret")
    gap = pl.col("regret") - pl.col("base")
    paired = (
        totals.join(base, on="user")
        .group_by("policy")
        .agg(
            difference=gap.mean(),
            _se=gap.std() / pl.len().sqrt(),
            _users=pl.len(),
            ratio=pl.col("regret").mean() / pl.col("base").mean(),
        )
    )
    users = int(paired["_users"][0])
    half = pl.col("_se") * (float(stdtrit(users - 1, 0.5 + level / 2)) if users > 1 else None)
    bounds = {"difference_low": pl.col("difference") - half, "difference_high": pl.col("difference") + half}
    return paired.select("policy", "difference", **bounds, ratio="ratio")


def _check(rows: pl.DataFrame, *, window: int = 1, level: float = 0.5) -> None:
    if not isinstance(rows, pl.DataFrame):
        raise NewcomerError(f"rows are {show_invalid_value(rows)}", todo="pass the frame that play returned")
    missing = [name for name in _COLUMNS if name not in rows.columns]
    if missing:
        raise NewcomerError(f"rows lack the column '{missing[0]}'", todo="pass the frame that play returned")
    validate_whole(window, "window", kind=NewcomerError)
    validate_share(level, "level", least=1.0, todo="pass a number between 0 and 1", kind=NewcomerError)


def _check_reference(totals: pl.DataFrame, reference: str) -> None:
    """Refuse a policy that was not played, and policies that met different users."""
    names = totals["policy"].unique(maintain_order=True).to_list()
    if not isinstance(reference, str) or reference not in names:
        hint = error_name_hint(reference, names) if isinstance(reference, str) else ""
        what = f"no policy {show_invalid_value(reference)} was played{hint}"
        raise NewcomerError(what, todo=f"choose one of {', '.join(names)}")
    users = totals.group_by("policy").agg(pl.col("user").sort())["user"].to_list()
    if any(met != users[0] for met in users):
        raise NewcomerError("policies were played on different users", todo="compare policies of one call of play")
