"""Checking a call to a policy: which users, what is on offer, which rewards came, which generators draw.

A call becomes a `Query` or `Rewards`, plain tuples of arrays that compiled loops take without another look: float64
or int64, contiguous, of shapes that fit. Whether the features of a question are finite is not looked at here: it shows
in the scores, where `pick_for_call` and `masked_call_scores` see it without another pass over the features. Rewards are
looked at, because they change the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, TypeGuard

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from newcomer import array_loops
from newcomer.arrays import Bools, Floats, Ints
from newcomer.encoding import named_columns
from newcomer.errors import PolicyError, error_name_hint
from newcomer.linear import learning_loops, scoring_loops
from newcomer.linear.state import state_positions
from newcomer.transforms import LEAST, Transform, transform_rewards
from newcomer.validate import show_invalid_value, validate_array, validate_numbers, validate_whole

Ids = NDArray[Any]  # of whole numbers or of text
Generators = Sequence[Generator]
Random = Generator | Sequence[Generator] | None

FLOAT, INT = np.dtype(np.float64), np.dtype(np.int64)
NUMBERS = frozenset({float, int})
NO_MASK: Bools = np.ones((0, 0), dtype=np.bool_)
MODERATE = 1e9  # size of features that make no score infinite


class Query(NamedTuple):
    """A checked question: which of these actions for each of these users? m users, K actions, d features."""

    actions: Floats  # (m, K, d), or (1, K, d) if all users have the same
    users: Ints  # (m,), positions in the state
    mask: Bools  # (m, K), true where an action may be chosen, or NO_MASK
    ids: Ids | None = None  # (m, K), which actions these are, if the caller said
    codes: Ints | None = None  # (m, K), their places in the catalogue of the policy's model, -1 for unknown ones

    def table(self) -> Floats:
        """An empty (m, K) table of scores."""
        return np.empty((len(self.users), self.actions.shape[1]))

    def block(self, row: int) -> Floats:
        """The actions (K, d) of a row."""
        block: Floats = self.actions[min(row, len(self.actions) - 1)]
        return block

    def allowed(self) -> Bools:
        """The mask (m, K), written out if there is none."""
        return self.mask if self.mask.size else np.ones((len(self.users), self.actions.shape[1]), dtype=np.bool_)


class Rewards(NamedTuple):
    """Checked rewards: row i says that user `users[i]` got `reward[i]` for an action with `features[i]`."""

    features: Floats  # (m, d)
    reward: Floats  # (m,)
    users: Ints  # (m,)
    ids: Ids | None = None  # (m,), which actions these were, if the caller said
    codes: Ints | None = None  # (m,), their places in the catalogue of the policy's model, -1 for unknown ones

    def rows(self, which: Ints | Bools) -> Rewards:
        """Some of the rows."""
        ids, codes = (None if part is None else part[which] for part in (self.ids, self.codes))
        return Rewards(self.features[which], self.reward[which], self.users[which], ids, codes)

    def columns(self) -> tuple[Ids | None, Ints | None]:
        """Ids and codes as those of one candidate a row (m, 1)."""
        ids, codes = self.ids, self.codes
        return None if ids is None else ids[:, None], None if codes is None else codes[:, None]


@lru_cache(maxsize=16)
def everyone_of_call(count: int) -> Ints:
    """The positions of all users."""
    return np.arange(count)


def newcomers_of_call(n: int) -> int:
    """The number of users to start with, checked."""
    return validate_whole(n, "the number of users", least=0)


def is_plain_call(values: object) -> TypeGuard[Floats]:
    """Whether values are an array that compiled loops take without recompiling: float64, contiguous, writeable."""
    return type(values) is np.ndarray and values.dtype is FLOAT and values.flags.carray


def plain_call_actions(actions: object, dim: int | None) -> Floats | None:
    """Actions (m, K, d) as they are, actions (K, d) as (1, K, d), if they are plain and d is `dim`; else None."""
    if not is_plain_call(actions):
        return None
    given = actions if actions.ndim == 3 else actions[None]
    return given if given.ndim == 3 and given.shape[1] and given.shape[2] == dim else None


def plain_call_rewards(reward: object) -> Floats | None:
    """Rewards (m,) as a plain array, from one or from a list of numbers; None where that takes a closer look."""
    if type(reward) is list and NUMBERS.issuperset(map(type, reward)):
        return np.array(reward, dtype=np.float64)
    return reward if is_plain_call(reward) and reward.ndim == 1 else None


def call_floats(values: ArrayLike, name: str) -> Floats:
    """Values as a plain array."""
    return values if is_plain_call(values) else validate_numbers(values, name)


def call_features_by_name(given: Any, wanted: Sequence[str], *, constant: bool) -> Any:
    """Features (..., d) of a frame or mapping of columns, or of a list of mappings, in the order of the names.

    What has no names is returned as it is, and cannot be checked. With `constant`, a last feature of 1 is added.

    >>> given = {"weight": [2.0, 4.0], "price": [1.0, 3.0], "sku": [7, 8]}
    >>> call_features_by_name(given, ["price", "weight"], constant=True).tolist()
    [[1.0, 2.0, 1.0], [3.0, 4.0, 1.0]]
    """
    given, known = named_columns(given)
    if known is None:
        return given
    missing = next((name for name in wanted if name not in known), None)
    if missing is not None:
        todo = f"the model was fitted with {', '.join(wanted[:12])}{error_name_hint(missing, known)}"
        raise PolicyError(f"there is no feature '{missing}'", where="features", todo=todo)
    columns = [call_floats(given[name], name) for name in wanted]
    return np.stack([*columns, *([np.ones_like(columns[0])] if constant else [])], axis=-1)


def call_features_with_constant(features: Floats, dim: int | None) -> Floats:
    """Features (..., d), with a last one of 1 added to those (..., d - 1) that lack it.

    >>> call_features_with_constant(np.array([[2.0], [3.0]]), 2).tolist()
    [[2.0, 1.0], [3.0, 1.0]]
    """
    if dim is None or features.ndim == 0 or features.shape[-1] != dim - 1:
        return features
    return np.concatenate([features, np.ones((*features.shape[:-1], 1))], axis=-1)


def call_action_names(ids: ArrayLike) -> Ids:
    """Ids of actions as an array of whole numbers or of text.

    >>> call_action_names(["film-7", "film-12"]).tolist()
    ['film-7', 'film-12']
    """
    given = ids if type(ids) is np.ndarray else validate_array(ids, "ids")
    if given.dtype == object and all(isinstance(one, str) for one in given.flat):
        given = given.astype(str)
    if given.dtype.kind not in "iuU" and given.size:
        raise PolicyError(f"ids must be whole numbers or text, not {given.dtype}")
    return given


def check_call_candidates(ids: Ids | None, rows: int) -> None:
    """Refuse ids that cannot be the candidates of a query by ids alone: (K,) for all rows, or (rows, K)."""
    if ids is None:
        return  # what is missing is said where features would be looked for
    if ids.ndim == 0:
        raise PolicyError(f"ids must be a list, not {show_invalid_value(ids.item())}", todo="put a single id in a list")
    if ids.size == 0 and rows:
        raise PolicyError("there are no ids to choose from", todo="pass ids= of at least one action")
    if ids.ndim > 2 or (ids.ndim == 2 and len(ids) != rows):
        what = f"ids of shape {ids.shape} are not those of candidates for {_counted(rows, 'user')}"
        raise PolicyError(what, todo="pass (K,) for all alike, or a row of ids for each user")


def check_call_observed(ids: Ids | None, rewards: int, rows: int) -> None:
    """Refuse ids that cannot be the actions of so many rewards, one for each of the `rows` users."""
    if ids is not None and not (ids.ndim < 2 and ids.size == rewards == rows):
        counts = f"{_counted(ids.size, 'id')} and {_counted(rewards, 'reward')} for {_counted(rows, 'user')}"
        raise PolicyError(f"there are {counts}", todo="pass one id and one reward for each of users=")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def query_of_call(
    count: int,
    dim: int | None,
    actions: ArrayLike,
    ids: Ids | None = None,
    mask: ArrayLike | None = None,
    users: ArrayLike | None = None,
    codes: Ints | None = None,
) -> Query:
    """Check a question to a policy that knows `count` users and takes features of `dim` entries (None: any number).

    >>> query_of_call(3, 2, [[1.0, 0.0], [0.0, 1.0]], users=[2]).table().shape
    (1, 2)
    """
    given = call_floats(actions, "actions")
    who = everyone_of_call(count) if users is None else state_positions(users, count)
    shape = given.shape
    if len(shape) != 3 or shape[0] != len(who) or shape[1] == 0 or (shape[2] != dim and dim is not None):
        given = _shared(given, dim, len(who))
    if ids is None and mask is None:
        return Query(given, who, NO_MASK)
    shape = len(who), given.shape[1]
    which = None if ids is None else _broadcast(ids, shape, "the ids")
    places = None if codes is None else _broadcast(codes, shape, "the ids")
    return Query(given, who, NO_MASK if mask is None else _allowed(mask, shape), which, places)


def _shared(actions: Floats, dim: int | None, rows: int) -> Floats:
    """Actions (K, d) that serve all rows, as (1, K, d); anything else that is not (rows, K, d) is refused."""
    d, block = dim or "d", actions[None] if actions.ndim == 2 else actions
    if block.ndim != 3 or block.shape[1] == 0 or (block.shape[2] != dim and dim is not None):
        raise PolicyError(f"actions must have shape (m, K, {d}) or (K, {d}) with K >= 1, not {actions.shape}")
    if block is actions:
        raise PolicyError(f"actions are for {len(actions)} users and {rows} were named")
    return block


def _broadcast(given: NDArray[Any], shape: tuple[int, int], name: str) -> NDArray[Any]:
    """An array of shape (m, K), or (K,) for all rows alike, as (m, K)."""
    if given.shape not in (shape, shape[1:]):
        raise PolicyError(f"{name} must have shape {shape} or {shape[1:]}, not {given.shape}")
    return np.broadcast_to(given, shape)


def _allowed(mask: ArrayLike, shape: tuple[int, int]) -> Bools:
    """A mask as (m, K) booleans, true where an action may be chosen; every row needs one."""
    given = validate_array(mask, "the mask")
    if given.dtype != np.bool_:
        raise PolicyError(f"the mask must be booleans, not {given.dtype}")
    full = np.array(_broadcast(given, shape, "the mask"), order="C")
    empty = np.flatnonzero(~full.any(axis=1))
    if empty.size:
        raise PolicyError("no action may be chosen", where=f"mask, row {empty[0]}", todo="leave at least one true")
    return full


def rewards_of_call(
    count: int,
    dim: int | None,
    features: ArrayLike,
    reward: ArrayLike,
    ids: Ids | None = None,
    users: ArrayLike | None = None,
    codes: Ints | None = None,
) -> Rewards:
    """Check rewards for a policy that knows `count` users; rows whose reward is NaN (nothing yet) are left out.

    >>> rewards_of_call(2, 1, [[1.0], [2.0]], [0.5, float("nan")]).users.tolist()
    [0]
    """
    x, r = call_floats(features, "features"), call_floats(reward, "reward")
    who = everyone_of_call(count) if users is None else state_positions(users, count)
    rows = len(who)
    if x.shape != (rows, dim) or r.shape != (rows,):
        x, r = x[None] if x.ndim == 1 else x, r[None] if r.ndim == 0 else r  # a single reward may come as it is
        if x.ndim != 2 or len(x) != rows or r.shape != (rows,) or (x.shape[1] != dim and dim is not None):
            shapes = f"features {np.shape(features)} and reward {np.shape(reward)}"
            raise PolicyError(f"{shapes} do not fit {rows} users of dimension {dim or 'd'}")
    if ids is not None:
        ids, codes = np.atleast_1d(ids), None if codes is None else np.atleast_1d(codes)
        if ids.shape != (rows,):
            raise PolicyError(f"there are ids of shape {ids.shape} for {rows} rewards")
    status = learning_loops.learning_faults(x, r)
    if status == learning_loops.ALL_FINE:
        return Rewards(x, r, who, ids, codes)
    if status == learning_loops.SOME_MISSING:
        return Rewards(x, r, who, ids, codes).rows(~np.isnan(r))
    what = "features and rewards must be finite numbers below 1e100 in size"
    raise PolicyError(what, where=f"row {status}", todo="a reward that is not known yet is NaN")


def transformed_call_rewards(reward: ArrayLike, transform: Transform) -> Floats:
    """Rewards on the scale that a model learns on; NaN, which means nothing yet, stays NaN."""
    given = call_floats(reward, "reward")
    low = given <= LEAST
    if low.any():
        what = f"reward {given[low].flat[0]:g} has no logarithm, and the model was fitted with reward_transform='log1p'"
        raise PolicyError(what, where=f"row {int(np.argmax(low))}", todo="pass rewards above -1, as the logs have them")
    return transform_rewards(given, transform)


def click_call_rewards(reward: ArrayLike) -> Floats:
    """Rewards of a model of clicks, from 0 to 1; NaN, which means nothing yet, stays NaN."""
    given = call_floats(reward, "reward")
    wrong = (given < 0.0) | (given > 1.0)
    if wrong.any():
        what = f"reward {given[wrong].flat[0]:g} is no click, and the model has outcome 'binary'"
        todo = "pass rewards from 0 to 1, or fit with outcome='gaussian'"
        raise PolicyError(what, where=f"row {int(np.argmax(wrong))}", todo=todo)
    return given


def call_rows_each_once(observed: Rewards) -> Iterator[Rewards]:
    """The rows in groups in which no user occurs twice; the rows of a user come in their order, in successive groups.

    For what must be taken in one reward at a time, but may be taken in for many users at once.

    >>> observed = rewards_of_call(3, 1, np.ones((4, 1)), [1.0, 2.0, 3.0, 4.0], users=[2, 0, 2, 2])
    >>> [part.reward.tolist() for part in call_rows_each_once(observed)]
    [[1.0, 2.0], [3.0], [4.0]]
    """
    users = observed.users
    if len(users) == 1 or bool((users[1:] > users[:-1]).all()):
        yield observed
        return
    order = np.argsort(users, kind="stable")
    turn = np.empty_like(order)  # the how-manieth row of its user each row is
    turn[order] = np.arange(len(users)) - np.searchsorted(users[order], users[order])
    for t in range(turn.max() + 1):
        yield observed.rows(turn == t)


def pick_for_call(scores: Floats, query: Query) -> Ints:
    """The best allowed action (m,) of each row of scores (m, K); ties within 1e-12 relative go to the lowest index.

    >>> pick_for_call(np.array([[1.0, 3.0, 3.0]]), query_of_call(1, 1, [[0.0], [0.0], [0.0]])).tolist()
    [1]
    """
    given = _fitting(scores, query)
    chosen = np.empty(len(given), INT)
    bad = scoring_loops.first_best_scores(given, query.mask, chosen)
    if bad != scoring_loops.ALL_FINITE:
        _refuse(query, bad)
    return chosen


def masked_call_scores(scores: Floats, query: Query) -> Floats:
    """The scores (m, K), checked, with -inf where an action may not be chosen."""
    given = _fitting(scores, query)
    finite = np.isfinite(given).all(axis=1)
    if not finite.all():
        _refuse(query, int(np.argmin(finite)))
    return np.where(query.mask, given, -np.inf) if query.mask.size else given


def _fitting(scores: Floats, query: Query) -> Floats:
    """What a policy's `score` or `draws` gave, as a plain array (m, K); another shape is refused."""
    given, shape = call_floats(scores, "scores"), (len(query.users), query.actions.shape[1])
    if given.shape != shape:
        what = f"the policy gave scores of shape {given.shape} for {shape[0]} users and {shape[1]} actions"
        raise PolicyError(what, todo=f"return {shape}, a score for each user and action, from score and draws")
    return given


def _refuse(query: Query, row: int) -> NoReturn:
    """Say which features made the scores of a row infinite, or that the policy did."""
    block = query.block(row)
    if bool((np.abs(block) <= MODERATE).all()):
        what = "the policy gave a score that is no finite number"
        raise PolicyError(what, where=f"row {row}", todo="return finite numbers from score and draws")
    action = int(np.argmin(np.isfinite(block).all(axis=1)))
    raise PolicyError("features must be finite numbers of moderate size", where=f"actions, row {row}, action {action}")


def call_mean_rewards(coefficients: Floats, query: Query) -> Floats:
    """phi^T beta (m, K) if the reward vector of row i is row i of `coefficients` (m, d); one row serves all."""
    out = query.table()
    rows = everyone_of_call(len(out)) if len(coefficients) == len(out) else np.zeros(len(out), dtype=np.int64)
    array_loops.mean_scores(coefficients, rows, query.actions, out)
    return out


def call_generators(rng: Random, rows: int, policy: str) -> Generators:
    """One generator per row: the given ones, or the same for all, drawn from in the order of the rows."""
    if isinstance(rng, Generator):
        return [rng] * rows
    if rng is None:
        raise PolicyError(f"{policy} chooses at random", todo="pass rng=numpy.random.default_rng(seed)")
    several = isinstance(rng, Sequence) or (isinstance(rng, np.ndarray) and rng.ndim == 1)
    if not several or not all(isinstance(one, Generator) for one in rng):
        raise PolicyError("rng must be a numpy Generator, or a list of one Generator per user")
    if len(rng) != rows:
        raise PolicyError(f"rng has {len(rng)} generators for {rows} users")
    return rng


def call_normals(rngs: Generators, size: int) -> Floats:
    """Standard normal draws (m, size), each row from its own generator."""
    out = np.empty((len(rngs), size))
    for row, rng in zip(out, rngs, strict=True):
        rng.standard_normal(out=row)
    return out


def call_choice_shares(choices: Iterable[Ints], query: Query, count: int) -> Floats:
    """How often (m, K) each action is among `count` choices (m,) of each row: probabilities, up to noise."""
    out = np.zeros((len(query.users), query.actions.shape[1]))
    rows = np.arange(len(out))
    for chosen in choices:
        out[rows, chosen] += 1.0 / count
    return out
