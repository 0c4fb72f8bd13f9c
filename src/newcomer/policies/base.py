"""The contract of policies, written once: every call checked, every promise kept, whatever the algorithm.

A policy is a frozen dataclass of settings; what it learns of its users travels apart, in a state (linear/state.py).

    state = policy.start(n, repeatability=)                                     n newcomers
    policy.choose(state, actions, rng, ids=, mask=, users=) -> (m,)             pure: asking twice gives the same answer
    policy.probabilities(state, actions, rng, ids=, mask=, users=) -> (m, K)    one-hot if certain; votes if sampled
    policy.scores(state, actions, ids=, mask=, users=) -> (m, K)                what it ranks by; -inf where masked
    policy.in_subspace(state) -> (n,)                                           does it still rely on what users share?
    policy.update(state, features, reward, ids=, users=)                        in place, or refused as a whole
    policy.repeatability(state)                                                 what users tell of how much comes again

`actions` is (m, K, d), or (K, d) for all alike, or, with a model whose features have names, a frame or mapping of
columns with these names; a model with an intercept takes features with the constant or without it. `ids`, (m, K) or
(K,), say which actions these are, for policies that remember actions and for those whose model has a catalogue, which
then gives the features if `actions` is left out;
`mask` is (m, K) or (K,), true where an action may be chosen; `users` are the positions (m,) of the users asked about,
all of them by default. A reward of NaN means nothing yet. Scores within 1e-12 relative of the best are a tie, which the
lowest index wins. `rng` is a Generator, or one per row (m); with one per user, results do not depend on how users are
put into batches. Calls on one state may come from several threads: they are made one after another (`one_at_a_time`).

`Contract` turns these calls into checked questions and rewards (policies/calls.py). A policy derives from it and
supplies what is its own:

    begin(n) -> state                        how the state of n users begins
    rank(state, asked) -> (m, K)             the score of each action; the best is chosen, unless draws decide
    learn(state, told)                       how checked rewards change the state
    draws(state, asked, rngs)                sampled policies: scores (m, K) of one draw after another
    law(state, asked, rng) -> (m, K)         sampled policies that know their probabilities without drawing
    inside(state) -> (n,)                    who is served in the shared subspace, if there is one
    state_settings() -> {name: value}        the settings that give the state its meaning
    pool_repeatability(state)                what users who met actions again tell; None if actions are not remembered
    apply_repeatability(state, given)        newcomers begin with that
    best(state, asked) -> (m,)               the best by `rank`, for policies that find it without scoring all
    choose_plain, learn_plain                the same as `best` and `learn`, faster, for the commonest calls

Policies that do not derive from it need only satisfy the `Policy` protocol, as `newcomer.testing.check_policy` tries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from newcomer import validate
from newcomer.arrays import Bools, Floats, Ints
from newcomer.errors import PolicyError
from newcomer.linear.state import Record, State, one_at_a_time, positions
from newcomer.model import Model
from newcomer.policies import calls
from newcomer.policies.calls import Generators, Query, Random, Rewards
from newcomer.policies.repeatability import Repeatability, the_repeatability
from newcomer.records import Shown
from newcomer.transforms import Transform

Kind = TypeVar("Kind", bound=State)


@runtime_checkable
class Policy(Protocol):
    """What `nc.play`, the service and `newcomer.testing.check_policy` ask of a policy; its state is its own affair."""

    def start(self, n: int) -> Any:
        """The state of n newcomers."""

    def choose(
        self,
        state: Any,
        actions: ArrayLike | None = None,
        rng: Random = None,
        *,
        ids: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The chosen action (m,) of each row."""

    def probabilities(
        self,
        state: Any,
        actions: ArrayLike | None = None,
        rng: Random = None,
        *,
        ids: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """The probability (m, K) with which `choose` takes each action."""

    def scores(
        self,
        state: Any,
        actions: ArrayLike | None = None,
        rng: Random = None,
        *,
        ids: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """What the policy ranks by (m, K)."""

    def in_subspace(self, state: Any) -> Bools:
        """Whether each user (n,) is still served in the shared subspace."""

    def update(
        self,
        state: Any,
        features: ArrayLike | None = None,
        reward: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> None:
        """Learn from rewards, in place."""


class Contract(Shown, ABC, Generic[Kind]):
    """The calls of every policy, checked; see the module for what a policy supplies.

    Policies that are dataclasses are equal if all settings are, models by their id.
    """

    sampled: ClassVar[bool] = False  # whether choices are drawn at random
    # Whether ids alone do: without a model, or with one of so many one-hot actions that none is written.
    by_ids: ClassVar[bool] = False

    # What everybody calls.

    def start(self, n: int, *, repeatability: Repeatability | Mapping[str, Any] | None = None) -> Kind:
        """The state of n newcomers, who begin with the `repeatability` that earlier users told, if given."""
        count = calls.newcomers(n)
        told = None if repeatability is None else the_repeatability(repeatability)
        try:
            state = self.begin(count)
        except (MemoryError, ValueError, OverflowError) as error:
            if isinstance(error, PolicyError):
                raise
            raise PolicyError(f"the state of {count:,} users does not fit into memory", todo="start fewer") from error
        if not isinstance(state, State):
            what = f"{type(self).__name__}.begin gave a {type(state).__name__} and no state"
            raise PolicyError(what, todo="return a dataclass of arrays that derives from newcomer.linear.state.State")
        state.record = self.record
        if told is not None:
            self.apply_repeatability(state, told)
        return state

    @one_at_a_time
    def repeatability(self, state: Kind) -> Repeatability | None:
        """What the users of `state` tell of how much of a reward comes again, for the next `start`.

        The more users the better: put states together (`concat`) before you ask. None from a policy that does not
        remember actions.
        """
        self._recognise(state)
        return self.pool_repeatability(state)

    @one_at_a_time
    def choose(
        self,
        state: Kind,
        actions: ArrayLike | None = None,
        rng: Random = None,
        *,
        ids: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The chosen action (m,) of each row: the allowed one of largest score, by `rank` or, if sampled, by a draw.

        An array of int64, whatever was asked: `chosen.tolist()` or `int(chosen[0])` is plain Python, for JSON say.
        """
        # The commonest call needs no question: plain arrays for everybody, nothing masked.
        if ids is mask is users is None and getattr(state, "record", None) is self.record:
            n, given = len(state), calls.plain_actions(actions, self.dimension)
            if given is not None and (len(given) == n or given is not actions):
                chosen = self.choose_plain(state, calls.everyone(n), given)
                if chosen is not None:
                    return chosen
        asked = self.ask(state, actions, ids, mask, users)
        if self.sampled:
            return calls.pick(next(self.draws(state, asked, self._generators(rng, asked))), asked)
        return self.best(state, asked)

    @one_at_a_time
    def probabilities(
        self,
        state: Kind,
        actions: ArrayLike | None = None,
        rng: Random = None,
        *,
        ids: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """The probability (m, K) with which `choose` takes each action: one-hot if certain, else a share of draws."""
        asked = self.ask(state, actions, ids, mask, users)
        return self.law(state, asked, rng) if self.sampled else calls.shares([self.best(state, asked)], asked, 1)

    @one_at_a_time
    def scores(
        self,
        state: Kind,
        actions: ArrayLike | None = None,
        rng: Random = None,
        *,
        ids: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """What the policy ranks by (m, K), -inf where masked; expected rewards if draws, not these, decide."""
        asked = self.ask(state, actions, ids, mask, users)
        return calls.masked(self.rank(state, asked), asked)

    @one_at_a_time
    def in_subspace(self, state: Kind) -> Bools:
        """Whether the coming round of each user (n,) relies on what users share; never, for most policies."""
        self._recognise(state)
        return np.array(self.inside(state), dtype=np.bool_)

    @one_at_a_time
    def update(
        self,
        state: Kind,
        features: ArrayLike | None = None,
        reward: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> None:
        """Learn, in place, from rewards (m,) for actions with features (m, d), or with `ids` (m,) of the catalogue.

        A reward of NaN means "nothing yet": its row is left out, the user is as before, and the reward may come with
        a later call; rewards may come late and in any order. Users may occur several times and then learn in the order
        of the rows, just as if each row had come in a call of its own: so one call takes all past events of many users
        into a fresh state, for a new model say. A model with an intercept takes features with the constant or without,
        and one with a `reward_transform` rewards as they are.
        If a row makes no sense the call is refused as a whole, before anything has changed.
        """
        self._recognise(state)
        if reward is not None and self._transform is not None:
            reward = calls.transformed_rewards(reward, self._transform)
        if reward is not None and self._binary:
            reward = calls.click_rewards(reward)
        if ids is users is None and calls.is_plain(features) and calls.is_plain(reward):
            n = len(state)
            plain = features.shape == (n, self.dimension) and reward.shape == (n,)
            if plain and self.learn_plain(state, calls.everyone(n), features, reward):
                return
        which = None if ids is None else calls.names(ids)
        features = self._catalogue(which, "features") if features is None else self._complete(features, "features")
        if reward is None:
            raise PolicyError("update needs the rewards", todo="pass reward=")
        told = calls.rewards(len(state), self._width(features, which), features, reward, which, users)
        if len(told.users):
            self.learn(state, told)

    # What a policy supplies.

    @abstractmethod
    def begin(self, n: int) -> Kind:
        """The state of n newcomers, n checked."""

    @abstractmethod
    def rank(self, state: Kind, asked: Query) -> Floats:
        """The score (m, K) of each action; a score that is not finite has the features refused that it came from."""

    @abstractmethod
    def learn(self, state: Kind, told: Rewards) -> None:
        """Take rewards into the state; at least one row."""

    def draws(self, state: Kind, asked: Query, rngs: Generators) -> Iterator[Floats]:
        """Endless draws of scores (m, K), row i by the generator rngs[i] alone."""
        raise NotImplementedError(f"{type(self).__name__} is sampled and has no draws")

    def law(self, state: Kind, asked: Query, rng: Random) -> Floats:
        """The probabilities (m, K) of a sampled policy; by default the share of `votes` draws that an action wins."""
        votes = int(getattr(self, "votes", 256))
        draws = islice(self.draws(state, asked, self._generators(rng, asked)), votes)
        return calls.shares((calls.pick(scores, asked) for scores in draws), asked, votes)

    def inside(self, state: Kind) -> Bools:
        """Who (n,) is served in the shared subspace."""
        return np.zeros(len(state), dtype=np.bool_)

    def state_settings(self) -> Mapping[str, str | float]:
        """Settings, beside the dimension, without which a state means something else; not widths, nor votes."""
        return {}

    def pool_repeatability(self, state: Kind) -> Repeatability | None:
        """What users who met actions again tell."""
        return None

    def apply_repeatability(self, state: Kind, given: Repeatability) -> None:
        """Let the users of a state that has just begun begin with what earlier users told."""
        what = f"{type(self).__name__} does not remember actions, so that nothing comes again"
        raise PolicyError(what, todo="leave out repeatability=")

    def best(self, state: Kind, asked: Query) -> Ints:
        """The allowed action (m,) of largest score; for policies that find it without scoring all."""
        return calls.pick(self.rank(state, asked), asked)

    def choose_plain(self, state: Kind, users: Ints, actions: Floats) -> Ints | None:
        """The best (n,) by `rank` in the commonest call: about everybody, plain actions, all of them allowed.

        Actions are (n, K, d), or (1, K, d) for all alike, and may still be NaN or infinite. None, the default, says
        that the long way must decide.
        """
        return None

    def learn_plain(self, state: Kind, users: Ints, features: Floats, reward: Floats) -> bool:
        """`learn` in the commonest call: plain features (n, d) and rewards (n,), one for everybody, not looked at yet.

        False, the default, says that the long way must be gone, and that nothing has changed.
        """
        return False

    # What the calls share.

    @cached_property
    def dimension(self) -> int | None:
        """Entries d of a feature vector, by the policy's `dim`, `centers` (S, d) or model; None if any number is taken.

        A policy that has none of these fields, and is not content with any number, sets `dimension` itself.
        """
        centers = getattr(self, "centers", None)
        if centers is not None:
            return int(np.shape(centers)[1])
        dim = getattr(self, "dim", getattr(getattr(self, "model", None), "dim", None))
        return None if dim is None else int(dim)

    @cached_property
    def record(self) -> Record:
        """What the states of this policy carry: its name, the settings that matter to them, and the id of its model."""
        dim = {} if self.dimension is None else {"dim": self.dimension}
        model = getattr(getattr(self, "model", None), "id", "")
        return Record.of(type(self).__name__, {**dim, **self.state_settings()}, model)

    def ask(
        self,
        state: Kind,
        actions: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Query:
        """The question of a call, checked, about a state that must be this policy's."""
        self._recognise(state)
        which = None if ids is None else calls.names(ids)
        actions = self._catalogue(which, "actions") if actions is None else self._complete(actions, "actions")
        return calls.query_of(len(state), self._width(actions, which), actions, which, mask, users)

    def positions(self, state: Kind, users: ArrayLike | None) -> Ints:
        """The positions (m,) of the users asked about, all by default, in a state that must be this policy's."""
        self._recognise(state)
        return calls.everyone(len(state)) if users is None else positions(users, len(state))

    def _generators(self, rng: Random, asked: Query) -> Generators:
        """One generator for each row, or the request to pass one."""
        return calls.generators(rng, len(asked.users), type(self).__name__)

    def _recognise(self, state: Kind) -> None:
        """Refuse a state of another record, or whose arrays are not those that this policy begins with.

        A state that was read from bytes has an equal record of its own; it gets this policy's, so that the next call
        sees at once, by identity, that all is well.
        """
        record = getattr(state, "record", None)
        if record is self.record:
            return
        if record != self.record:
            who = record if isinstance(record, Record) else f"nobody (it is a {type(state).__name__})"
            todo = "use a state with the policy that started it"
            if isinstance(record, Record) and record.policy == self.record.policy and record.model != self.record.model:
                todo = (
                    "to move users to this model, replay their past events into it, all in one call:"
                    " state = policy.start(n); policy.update(state, ids=... or features=..., reward=..., users=...)"
                )
            raise PolicyError(f"this state was started by {who}; this policy is {self.record}", todo=todo)
        fresh = self.begin(0)
        if type(state) is not type(fresh) or _shapes(state) != _shapes(fresh):
            raise PolicyError(f"the arrays of this state are not those of {self.record}")
        state.record = self.record

    def _complete(self, given: Any, name: str) -> Any:
        """Features by the names that the model was fitted with, where both the model and what is given have names.

        Where the model has an intercept, and one feature less than it has is given, the constant is added.
        """
        model: Any = getattr(self, "model", None)
        wanted, constant = getattr(model, "feature_names", None), bool(getattr(model, "intercept", False))
        if wanted is not None and type(given) is not np.ndarray:
            given = calls.by_name(given, wanted, constant=constant)
        return calls.with_constant(calls.floats(given, name), self.dimension) if constant else given

    @cached_property
    def _binary(self) -> bool:
        """Whether the policy's model takes rewards for clicks."""
        return getattr(getattr(self, "model", None), "outcome", "gaussian") == "binary"

    @cached_property
    def _transform(self) -> Transform | None:
        """What the policy's model learns rewards as."""
        return getattr(getattr(self, "model", None), "reward_transform", None)

    @cached_property
    def _unwritten(self) -> bool:
        """Whether ids stand for features that are never written out."""
        model = getattr(self, "model", None)
        return self.by_ids and (model is None or bool(getattr(model, "by_ids_alone", False)))

    def _width(self, features: Any, ids: calls.Ids | None) -> int | None:
        """Entries of a feature vector: d, or none where ids stand for them."""
        return 0 if self._unwritten and ids is not None and np.shape(features)[-1:] == (0,) else self.dimension

    def _catalogue(self, ids: calls.Ids | None, what: str) -> Floats:
        """The features (..., d) of the actions with these ids, by the catalogue of the policy's model.

        An action that it does not know is a new one, and has the features of the average action. Where actions are
        one-hot and many, and the policy knows them by their ids, nothing is written out: (..., 0).
        """
        if ids is None:
            raise PolicyError(f"there are no {what}", todo=f"pass {what}, or ids= of the model's catalogue")
        if self._unwritten:
            return np.zeros((*ids.shape, 0))  # ids say it all: the policy looks them up, or does not care
        features = getattr(getattr(self, "model", None), "features", None)
        if features is None:
            raise PolicyError(f"{type(self).__name__} has no model with a catalogue", todo=f"pass {what} beside ids=")
        found = np.asarray(features(ids.ravel(), unknown="average"), dtype=np.float64)
        return found.reshape(*ids.shape, found.shape[-1])


def the_model(given: object) -> Model:
    """What was passed as the model of a policy, if it is one."""
    return validate.instance(given, Model, "model", todo="pass what nc.fit or nc.load gave")


def _shapes(state: State) -> list[tuple[str, tuple[int, ...], np.dtype[Any]]]:
    """Names, trailing axes and types of the arrays that do not grow."""
    return [(name, array.shape[1:], array.dtype) for name, array, grows in state.arrays() if not grows]
