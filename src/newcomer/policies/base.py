"""The contract of policies, written once: every call checked, every promise kept, whatever the algorithm.

A policy is a frozen dataclass of settings; what it learns of its users travels apart, in a state (linear/state.py).

    state = policy.start(n, attributes=, repeatability=)                        n newcomers
    policy.know(state, attributes, users=)                                      attributes that become known later
    policy.choose(state, actions, rng, ids=, mask=, users=) -> (m,)             pure: asking twice gives the same answer
    policy.probabilities(state, actions, rng, ids=, mask=, users=) -> (m, K)    one-hot if certain; votes if sampled
    policy.scores(state, actions, ids=, mask=, users=) -> (m, K)                what it ranks by; -inf where masked
    policy.in_subspace(state) -> (n,)                                           does it still rely on what users share?
    policy.update(state, features, reward, ids=, users=)                        in place, or refused as a whole
    policy.repeatability(state)                                                 what their repeats say of repeatability

`actions` is (m, K, d), or (K, d) for all alike, or, with a model whose features have names, a frame or mapping of
columns with these names; a model with an intercept takes features with the constant or without it. `ids`, (m, K) or
(K,), say which actions these are, for policies that remember actions and for those whose model has a catalogue, which
then gives the features if `actions` is left out;
`mask` is (m, K) or (K,), true where an action may be chosen; `users` are the positions (m,) in the state,
all of them by default. A reward of NaN means nothing yet. Scores within 1e-12 relative of the best are a tie, which the
lowest index wins. `rng` is a Generator, or one per row (m); with one per user, results do not depend on how users are
put into batches. Calls on one state may come from several threads: they are made one after another (`one_at_a_time`).

`Contract` turns these calls into checked questions and rewards (policies/calls.py). A policy derives from it and
supplies what is its own:

    init(n) -> state                         the state of n users before any reward
    score(state, query) -> (m, K)            the score of each action; the best is chosen, unless draws decide
    learn(state, observed)                   how checked rewards change the state
    draws(state, query, rngs)                sampled policies: scores (m, K) of one draw after another
    choice_probabilities(state, query, rng)  sampled policies that know their probabilities (m, K) without drawing
    in_subspace(state) -> (n,)               who is served in the shared subspace, if there is one
    state_settings() -> {name: value}        the settings that give the state its meaning
    pool_repeatability(state)                what repeated actions say of repeatability; None without per-action effects
    apply_repeatability(state, given)        newcomers start with that
    apply_attributes(state, users, x)        the prior given encoded attributes of users
    best(state, query) -> (m,)               the best by `score`, for policies that find it without scoring all
    shares_rows = True                       if hooks index the arrays by `users` and by nothing else: newcomers of
                                             large states then share a row, and `users` are rows (linear/shared_rows.py)
    learner                                  init, learn and what else concerns the state, shared with other policies
    choose_plain, learn_plain                the same as `best` and `learn`, faster, for the commonest calls by features
    choose_codes, learn_codes                the same for calls by ids of the catalogue

Policies that do not derive from it need only satisfy policies/protocol.py, as `newcomer.testing.check_policy` tries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, wraps
from itertools import islice
from typing import Any, ClassVar, Generic

import numpy as np
from numpy.typing import ArrayLike

from newcomer.arrays import Bools, Floats, Ints
from newcomer.catalogue import Catalogue
from newcomer.encoding import encode_by_entries
from newcomer.errors import PolicyError
from newcomer.linear import state as linear_state
from newcomer.linear.state import Record, State, one_state_call_at_a_time, state_positions
from newcomer.model import Model
from newcomer.policies import calls
from newcomer.policies.attributes import encoded_attributes
from newcomer.policies.calls import Generators, Query, Random, Rewards
from newcomer.policies.protocol import NO_LEARNER, Kind, Learner
from newcomer.policies.repeatability import Repeatability, the_repeatability
from newcomer.records import Shown
from newcomer.transforms import LEAST, Transform, transform_rewards, untransform_rewards
from newcomer.validate import validate_instance

# Former names of hooks, and their names now.
FORMER_HOOKS = {"begin": "init", "rank": "score", "law": "choice_probabilities", "inside": "in_subspace"}


class Contract(Shown, ABC, Generic[Kind]):
    """The calls of every policy, checked; docs/how-to/own-policy.md says what a policy supplies.

    Policies that are dataclasses are equal if all settings are, models by their id.
    """

    sampled: ClassVar[bool] = False  # whether choices are drawn at random
    # Whether ids alone do: without a model, or with one of so many one-hot actions that none is written.
    by_ids: ClassVar[bool] = False
    # Whether all hooks take `users` for rows of the arrays, and nothing else: then newcomers of large states share one.
    shares_rows: ClassVar[bool] = False

    def __init_subclass__(cls, **named: Any) -> None:
        """Refuse hooks by their former names, and check the state that a policy's own `in_subspace` is called with."""
        super().__init_subclass__(**named)
        old = [name for name in FORMER_HOOKS if callable(cls.__dict__.get(name))]
        if old:
            todo = "rename " + ", ".join(f"{name} to {FORMER_HOOKS[name]}" for name in old)
            raise PolicyError(f"{cls.__name__} has hooks of an earlier version", todo=todo)
        own = cls.__dict__.get("in_subspace")
        if own is not None:
            cls.in_subspace = _checked_phase(own)  # type: ignore[assignment, method-assign]

    # What everybody calls.

    def start(
        self, n: int, attributes: Any = None, repeatability: Repeatability | Mapping[str, Any] | None = None
    ) -> Kind:
        """The state of n new users; `repeatability` is what earlier users showed of it, if given.

        `attributes` are a frame, a dict of columns, or one dict a user, with the names of `model.attributes`. Missing
        values and unseen levels count as average, with a wider prior.
        """
        count = calls.newcomers_of_call(n)
        observed = None if repeatability is None else the_repeatability(repeatability)
        known = None if attributes is None else self._encoded(attributes, calls.everyone_of_call(count))
        try:
            index, known = self._rows_to_start(count, known)
            state = self.init(count if index is None else int(index.max()) + 1)
        except (MemoryError, ValueError, OverflowError) as error:
            if isinstance(error, PolicyError):
                raise
            raise PolicyError(f"the state of {count:,} users does not fit into memory", todo="start fewer") from error
        if not isinstance(state, State):
            what = f"{type(self).__name__}.init gave a {type(state).__name__} and no state"
            raise PolicyError(what, todo="return a dataclass of arrays that derives from newcomer.linear.state.State")
        state.record = self.record
        if observed is not None:
            self.apply_repeatability(state, observed)
        if known is not None and len(known):
            self.apply_attributes(state, np.arange(len(known)), known)
        if index is not None:
            state.share_rows(index)
        return state

    def _rows_to_start(self, count: int, known: Floats | None) -> tuple[Ints | None, Floats | None]:
        """The row of each of many newcomers, None if each has one, and the attributes of the rows: who has the same
        attributes, or none, has the same row.
        """
        if count <= linear_state.PLAIN_USERS or not self.shares_rows:
            return None, known
        if known is None:
            return np.zeros(count, dtype=np.int64), None
        words = np.ascontiguousarray(known).view(np.int64)
        _, first, index = np.unique(words, axis=0, return_index=True, return_inverse=True)
        return index.ravel(), known[first]

    @one_state_call_at_a_time
    def know(self, state: Kind, attributes: Any, *, users: ArrayLike | None = None) -> None:
        """Attributes of users (all by default) that become known later: as if they had been known from the start.

        For the Gaussian posterior that is exact. Tests that were made on the way, of whether the prior fits the user,
        stay as they were. Attributes that were known before are replaced.
        """
        who = self.positions(state, users)
        x = self._encoded(attributes, who)
        if x is not None and len(who):
            self.apply_attributes(state, state.own_rows(who), x)

    @one_state_call_at_a_time
    def repeatability(self, state: Kind) -> Repeatability | None:
        """What the repeats of the users of `state` say of repeatability, for the next `start`.

        The more users the better: put states together (`concat`) before you ask. None from a policy that does not
        remember actions.
        """
        self._recognise(state)
        return self.pool_repeatability(state)

    @one_state_call_at_a_time
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
        """The chosen action (m,) of each row: the allowed one of largest score, by `score` or, if sampled, by a draw.

        An array of int64, also for a single user: `chosen.tolist()` or `int(chosen[0])` is plain Python, for JSON say.
        """
        # The commonest call needs no question: plain arrays for everybody, nothing masked.
        if ids is mask is users is None and getattr(state, "record", None) is self.record:
            n, given = len(state), calls.plain_call_actions(actions, self.dimension)
            if given is not None and (len(given) == n or given is not actions):
                chosen = self.choose_plain(state, state.rows_of(calls.everyone_of_call(n)), given)
                if chosen is not None:
                    return chosen
        elif actions is mask is None and not self.sampled:
            chosen = self._choose_known(state, ids, users)
            if chosen is not None:
                return chosen
        query = self.query(state, actions, ids, mask, users)
        if self.sampled:
            return calls.pick_for_call(next(self.draws(state, query, self._generators(rng, query))), query)
        return self.best(state, query)

    @one_state_call_at_a_time
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
        query = self.query(state, actions, ids, mask, users)
        return (
            self.choice_probabilities(state, query, rng)
            if self.sampled
            else calls.call_choice_shares([self.best(state, query)], query, 1)
        )

    @one_state_call_at_a_time
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
        query = self.query(state, actions, ids, mask, users)
        return calls.masked_call_scores(self.score(state, query), query)

    @one_state_call_at_a_time
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
            reward = calls.transformed_call_rewards(reward, self._transform)
        if reward is not None and self._binary:
            reward = calls.click_call_rewards(reward)
        if ids is users is None and calls.is_plain_call(features) and calls.is_plain_call(reward):
            n = len(state)
            plain = features.shape == (n, self.dimension) and reward.shape == (n,)
            if plain and self.learn_plain(state, state.own_rows(calls.everyone_of_call(n)), features, reward):
                return
        elif features is None and self._learn_known(state, ids, reward, users):
            return
        if reward is None:
            raise PolicyError("update needs the rewards", todo="pass reward=")
        which = None if ids is None else calls.call_action_names(ids)
        if features is None:
            calls.check_call_observed(which, np.size(reward), len(state) if users is None else np.size(users))
        codes = None if which is None or self._catalogue is None else self._catalogue.recognise(which, observed=True)
        given = (
            self._features(which, codes, "features")
            if features is None
            else self._complete(features, "features", which)
        )
        observed = calls.rewards_of_call(len(state), self._width(given, which), given, reward, which, users, codes)
        if len(observed.users):
            self._warn_of_range(observed.reward)
            self.learn(state, observed._replace(users=state.own_rows(observed.users)))

    # What a policy supplies.

    @property
    def learner(self) -> Learner[Kind]:
        """What keeps the state, for policies that share it; one that supplies `init` and `learn` needs none."""
        return NO_LEARNER  # type: ignore[return-value]

    def init(self, n: int) -> Kind:
        """The state of n newcomers, n checked."""
        return self.learner.init(n)

    @abstractmethod
    def score(self, state: Kind, query: Query) -> Floats:
        """The score (m, K) of each action; a score that is not finite has the features refused that it came from."""

    def learn(self, state: Kind, observed: Rewards) -> None:
        """Take rewards into the state; at least one row."""
        self.learner.learn(state, observed)

    def draws(self, state: Kind, query: Query, rngs: Generators) -> Iterator[Floats]:
        """Endless draws of scores (m, K), row i by the generator rngs[i] alone."""
        raise NotImplementedError(f"{type(self).__name__} is sampled and has no draws")

    def choice_probabilities(self, state: Kind, query: Query, rng: Random) -> Floats:
        """The probabilities (m, K) of a sampled policy; by default the share of `votes` draws that an action wins."""
        votes = int(getattr(self, "votes", 256))
        draws = islice(self.draws(state, query, self._generators(rng, query)), votes)
        return calls.call_choice_shares((calls.pick_for_call(scores, query) for scores in draws), query, votes)

    def in_subspace(self, state: Kind) -> Bools:
        """Whether the coming round of each user (n,) relies on the shared subspace; never, for most policies."""
        self._recognise(state)
        return _of_users(state, self.learner.in_subspace(state))

    def state_settings(self) -> Mapping[str, str | float]:
        """Settings, beside the dimension, without which a state means something else; not widths, nor votes."""
        return self.learner.state_settings()

    def pool_repeatability(self, state: Kind) -> Repeatability | None:
        """What repeated actions say of repeatability; None without per-action effects."""
        return self.learner.pool_repeatability(state)

    def apply_repeatability(self, state: Kind, given: Repeatability) -> None:
        """Let the users of a new state start with the repeatability of earlier users."""
        self.learner.apply_repeatability(state, given)

    def apply_attributes(self, state: Kind, users: Ints, x: Floats) -> None:
        """Let the prior of `users` (m,), each once, be the one given their encoded attributes (m, p)."""
        self.learner.apply_attributes(state, users, x)

    def best(self, state: Kind, query: Query) -> Ints:
        """The allowed action (m,) of largest score; for policies that find it without scoring all."""
        return calls.pick_for_call(self.score(state, query), query)

    def choose_plain(self, state: Kind, users: Ints, actions: Floats) -> Ints | None:
        """The best (n,) by `score` in the commonest call: for all users, plain actions, all of them allowed.

        Actions are (n, K, d), or (1, K, d) for all alike, and may still be NaN or infinite. None, the default, says
        that the long way must decide.
        """
        return None

    def choose_codes(self, state: Kind, users: Ints, codes: Ints) -> Ints | None:
        """The best (m,) by `score` of the candidates at these places (1, K) of the catalogue, all of them allowed.

        None, the default, says that the long way must decide.
        """
        return None

    def learn_codes(self, state: Kind, users: Ints, codes: Ints, reward: Floats) -> bool:
        """`learn` from rewards (m,), not looked at yet, for actions at these places (m,) of the catalogue.

        False, the default, says that the long way must be gone, and that nothing has changed.
        """
        return self.learner.learn_codes(state, users, codes, reward, self.largest_reward)

    def learn_plain(self, state: Kind, users: Ints, features: Floats, reward: Floats) -> bool:
        """`learn` in the commonest call: plain features (n, d) and rewards (n,), one for everybody, not looked at yet.

        False, the default, says that the long way must be gone, and that nothing has changed.
        """
        return self.learner.learn_plain(state, users, features, reward)

    # What the calls share.

    @cached_property
    def dimension(self) -> int | None:
        """Entries d of a feature vector, by the policy's `dim`, `centers` (S, d) or model; None if any number is taken.

        A policy that has none of these fields, and is not content with any number, sets `dimension` itself.
        """
        centers = getattr(self, "centers", None)
        if centers is not None:
            return int(np.shape(centers)[1])
        dim = getattr(self, "dim", getattr(self._model, "dim", None))
        return None if dim is None else int(dim)

    @cached_property
    def record(self) -> Record:
        """What the states of this policy carry: its name, the settings that matter to them, and the id of its model."""
        dim = {} if self.dimension is None else {"dim": self.dimension}
        model = getattr(self._model, "id", "")
        return Record.of(type(self).__name__, {**dim, **self.state_settings()}, model)

    def query(
        self,
        state: Kind,
        actions: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Query:
        """The question of a call, checked, about a state that must be this policy's."""
        self._recognise(state)
        which = None if ids is None else calls.call_action_names(ids)
        if actions is None:
            calls.check_call_candidates(which, len(state) if users is None else np.size(users))
        codes = None if which is None or self._catalogue is None else self._catalogue.recognise(which)
        given = (
            self._features(which, codes, "actions") if actions is None else self._complete(actions, "actions", which)
        )
        query = calls.query_of_call(len(state), self._width(given, which), given, which, mask, users, codes)
        return query if state.shared is None else query._replace(users=state.rows_of(query.users))

    def _choose_known(self, state: Kind, ids: Any, users: Any) -> Ints | None:
        """The choice among ids that the catalogue has, if the policy has a short way for them."""
        codes = None if self._catalogue is None or not self.by_ids else self._catalogue.known_codes(ids)
        if codes is None or getattr(state, "record", None) is not self.record:
            return None
        who = calls.everyone_of_call(len(state)) if users is None else state_positions(users, len(state))
        return self.choose_codes(state, state.rows_of(who), codes[None])

    def _learn_known(self, state: Kind, ids: Any, reward: Any, users: Any) -> bool:
        """Whether rewards for ids that the catalogue has were learned in a short way."""
        codes = None if self._catalogue is None or not self.by_ids else self._catalogue.known_codes(ids)
        paid = None if codes is None else calls.plain_call_rewards(reward)
        if codes is None or paid is None or not len(paid) or paid.min() < self._plausible[0]:
            return False
        who = calls.everyone_of_call(len(state)) if users is None else state_positions(users, len(state))
        return len(codes) == len(paid) == len(who) and self.learn_codes(state, state.own_rows(who), codes, paid)

    def positions(self, state: Kind, users: ArrayLike | None) -> Ints:
        """The positions (m,) of `users`, all by default, in a state that must be this policy's."""
        self._recognise(state)
        return calls.everyone_of_call(len(state)) if users is None else state_positions(users, len(state))

    def _generators(self, rng: Random, query: Query) -> Generators:
        """One generator for each row, or the request to pass one."""
        return calls.call_generators(rng, len(query.users), type(self).__name__)

    @property
    def takes_attributes(self) -> bool:
        """Whether attributes of users change what the policy does."""
        return self._conditions_on_attributes and bool(getattr(self._model, "attributes", ()))

    @property
    def _conditions_on_attributes(self) -> bool:
        """Whether the policy, or its learner, has a prior that attributes can change."""
        own = type(self).apply_attributes is not Contract.apply_attributes
        return own or type(self.learner).apply_attributes is not Learner.apply_attributes

    def _encoded(self, given: Any, users: Ints) -> Floats | None:
        """Attributes (m, p) of users, checked, as the prior takes them; None if the model has none."""
        model = self._model
        if model is None or not self._conditions_on_attributes:
            raise PolicyError(f"{type(self).__name__} does not use attributes of users", todo="leave out attributes=")
        return encoded_attributes(model, given, users)

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
        fresh = self.init(0)
        if type(state) is not type(fresh) or _shapes(state) != _shapes(fresh):
            raise PolicyError(f"the arrays of this state are not those of {self.record}")
        if not self.shares_rows:
            state.spread()
        state.record = self.record

    def _complete(self, given: Any, name: str, ids: calls.Ids | None = None) -> Any:
        """Features by the names that the model was fitted with, where both the model and what is given have names.

        Where the model has an intercept, and one feature less than it has is given, the constant is added.
        """
        model = self._model
        wanted, constant = getattr(model, "feature_names", None), bool(getattr(model, "intercept", False))
        if wanted is not None and type(given) is not np.ndarray:
            levels = getattr(model, "feature_levels", ())
            given = encode_by_entries(given, levels, model.action_ids, ids) if levels else given
            given = calls.call_features_by_name(given, wanted, constant=constant)
        return calls.call_features_with_constant(calls.call_floats(given, name), self.dimension) if constant else given

    @cached_property
    def _binary(self) -> bool:
        """Whether the policy's model takes rewards for clicks."""
        return getattr(getattr(self, "model", None), "outcome", "gaussian") == "binary"

    @cached_property
    def _transform(self) -> Transform | None:
        """What the policy's model learns rewards as."""
        return getattr(self._model, "reward_transform", None)

    @cached_property
    def _catalogue(self) -> Catalogue | None:
        """The actions of the policy's model."""
        return getattr(self._model, "catalogue", None)

    @cached_property
    def _unwritten(self) -> bool:
        """Whether ids stand for features that are never written out: the policy takes ids, and actions are one-hot."""
        model = self._model
        return self.by_ids and (model is None or (model.one_hot and not model.intercept))

    def _width(self, features: Any, ids: calls.Ids | None) -> int | None:
        """Entries of a feature vector: d, or none where ids stand for them."""
        return 0 if self._unwritten and ids is not None and np.shape(features)[-1:] == (0,) else self.dimension

    def _features(self, ids: calls.Ids | None, codes: Ints | None, what: str) -> Floats:
        """The features (..., d) of the actions with these ids, by the catalogue of the policy's model.

        An action that it does not know is a new one, and has the features of the average action. Where actions are
        one-hot and the policy takes ids, nothing is written out: (..., 0).
        """
        if ids is None:
            raise PolicyError(f"there are no {what}", todo=f"pass {what}, or ids= of the model's catalogue")
        if self._unwritten:
            return np.zeros((*ids.shape, 0))
        if self._catalogue is None:
            raise PolicyError(f"{type(self).__name__} has no model with a catalogue", todo=f"pass {what} beside ids=")
        if codes is None or not self._catalogue.known:
            return np.asarray(self._model.features(ids.ravel()))  # which says why it has none
        return self._catalogue.rows(codes)

    @property
    def _model(self) -> Any:
        """The policy's model, None if it has none."""
        return getattr(self, "model", None)

    @property
    def largest_reward(self) -> float:
        """The size beyond which a reward is far outside those of the logs; infinite if nothing is known of these."""
        return self._plausible[1]

    @cached_property
    def _plausible(self) -> tuple[float, float]:
        """Rewards, as they are learned, that may be in the units of the logs: at most one range beyond the logged one.

        With a transform the range is that of raw rewards, in which users make mistakes of units.
        """
        least, most = self._logged_range
        if not most > least:
            return -np.inf, np.inf
        wide = np.array([2 * least - most, 2 * most - least])
        if self._transform is None:
            return float(wide[0]), float(wide[1])
        below = wide <= LEAST
        low, high = transform_rewards(np.where(below, 0.0, wide), self._transform)
        return (-np.inf if below[0] else float(low)), float(high)

    @cached_property
    def _logged_range(self) -> tuple[float, float]:
        """The least and the largest raw reward of the logs; both 0 if nothing is known of these."""
        logs = getattr(getattr(self._model, "evidence", None), "logs", None)
        if logs is None:
            return 0.0, 0.0
        least = -logs.max_reward if logs.least_reward is None else logs.least_reward
        low, high = untransform_rewards(np.array([least, logs.max_reward]), self._transform)
        return float(low), float(high)

    def _warn_of_range(self, reward: Floats) -> None:
        """Point out, once a model, rewards in other units than those of the logs; they are learned all the same."""
        low, high = self._plausible
        far = reward[(reward < low) | (reward > high)]
        if len(far) and self._catalogue is not None:
            least, most = self._logged_range
            sentence = (
                f"A reward of {float(untransform_rewards(far[:1], self._transform)[0]):g} is far outside "
                "those of the logs, which lie"
                f" between {least:g} and {most:g}: pass rewards in the units of the logs."
            )
            self._catalogue.warn_once("range", lambda: sentence)


def _checked_phase(own: Callable[[Any, Any], Bools]) -> Callable[[Any, Any], Bools]:
    """A policy's `in_subspace` as everybody calls it: with a state of this policy, and a copy (n,) for an answer."""

    @wraps(own)
    def in_subspace(self: Any, state: Any) -> Bools:
        self._recognise(state)
        return _of_users(state, own(self, state))

    return one_state_call_at_a_time(in_subspace)


def _of_users(state: State, rows: Bools) -> Bools:
    """What is said of rows, of users (n,), as a copy."""
    return np.array(rows if state.shared is None else rows[state.shared.index], dtype=np.bool_)


def the_policy_model(given: object) -> Model:
    """What was passed as the model of a policy, if it is one."""
    return validate_instance(given, Model, "model", todo="pass what nc.fit or nc.load gave")


def _shapes(state: State) -> list[tuple[str, tuple[int, ...], np.dtype[Any]]]:
    """Names, trailing axes and types of the arrays that do not grow."""
    return [(name, array.shape[1:], array.dtype) for name, array, grows in state.arrays() if not grows]
