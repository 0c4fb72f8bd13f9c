"""The contract of policies and worlds as functions you can run on your own.

    from newcomer.testing import check_policy

    def test_mine():
        check_policy(MyPolicy(dim=5))

Each promise of policies/base.py is tried on random users, actions and rewards; the first one that is broken raises
an AssertionError that says which. Nothing here needs a test framework. `check_world` does the same for worlds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from newcomer.arrays import Floats, Ints
from newcomer.errors import NewcomerError
from newcomer.policies.base import Contract
from newcomer.policies.calls import Ids
from newcomer.policies.protocol import Policy
from newcomer.policies.repeatability import Repeatability
from newcomer.worlds.world import check_world

USERS, ACTIONS, ROUNDS = 4, 6, 12
CHOICES, ASKED = 200, 20  # choices and answers by which probabilities are judged
UNHEARD = 10**12  # names of actions begin here, far from those that catalogues use


__all__ = ["PROMISES", "check_policy", "check_world"]


def check_policy(policy: Policy, *, dim: int | None = None, seed: int = 0) -> None:
    """Try every promise of the policy contract; features have `dim` entries, by default what the policy's fields say.

    Deterministic policies must not depend on the generators they are given; those that refuse to choose without one are
    taken to be random, and are held to the same promises with equal generators.
    """
    trial = Trial(policy, dim or _dimension(policy), seed)
    for promise in PROMISES:
        promise(trial)


def _dimension(policy: Policy) -> int:
    """What the policy's `dimension`, `dim` or model says; 5 if none does, or any number will do, as for Uniform."""
    for place in (policy, getattr(policy, "model", None)):
        said = getattr(place, "dimension", None) or getattr(place, "dim", None)
        if said:
            return int(said)
    return 5


class Trial:
    """One policy with the users, actions and rewards it is tried on."""

    def __init__(self, policy: Policy, dim: int, seed: int) -> None:
        self.policy, self.dim, self.seed = policy, dim, seed
        rng = np.random.default_rng(seed)
        self.beta = rng.standard_normal((USERS, dim)) / np.sqrt(dim)
        self.actions = rng.standard_normal((USERS, ACTIONS, dim)) / np.sqrt(dim)

    def rngs(self, count: int = USERS) -> list[Generator]:
        """Fresh generators, one per user, always the same."""
        return [np.random.default_rng([self.seed, 7, user]) for user in range(count)]

    def choose(self, state: Any, actions: Floats | None = None, **options: Any) -> Ints:
        """A choice with fresh generators for as many rows as the query has."""
        rows = len(options["users"]) if options.get("users") is not None else len(state)
        given = self.actions if actions is None else actions
        return self.policy.choose(state, given, self.rngs(rows), **options)

    def learned(self, names: Ids | None = None) -> Any:
        """A state after some rounds with every user; the actions of every round have these names (K,), if any."""
        state, rng, who = self.policy.start(USERS), np.random.default_rng(self.seed + 1), np.arange(USERS)
        for _ in range(ROUNDS):
            actions = rng.standard_normal(self.actions.shape) / np.sqrt(self.dim)
            chosen = self.policy.choose(state, actions, self.rngs(), ids=names)
            features, noise = actions[who, chosen], 0.1 * rng.standard_normal(USERS)
            reward = (features * self.beta).sum(axis=1) + noise
            if getattr(getattr(self.policy, "model", None), "outcome", "") == "binary":
                reward = (reward > 0).astype(np.float64)
            self.policy.update(state, features, reward, ids=None if names is None else names[chosen])
        return state


def _say(holds: bool, promise: str) -> None:
    if not holds:
        raise AssertionError(f"the policy breaks its contract: {promise}")


def _refused(call: Callable[[], object], what: str) -> None:
    try:
        call()
    except NewcomerError:
        return
    raise AssertionError(f"the policy breaks its contract: it accepted {what}")


def _promised_shapes(trial: Trial) -> None:
    """Choices, probabilities and scores have the promised shapes and values."""
    policy, state = trial.policy, trial.learned()
    chosen = trial.choose(state)
    _say(len(state) == USERS, "len(state) is the number of users")
    _say(chosen.shape == (USERS,) and chosen.dtype.kind == "i", "choose returns one integer a user")
    _say(bool(np.all((0 <= chosen) & (chosen < ACTIONS))), "choices are indices of actions")
    chances = policy.probabilities(state, trial.actions, trial.rngs())
    _say(chances.shape == (USERS, ACTIONS), "probabilities are (m, K)")
    _say(bool(np.all(chances >= 0) and np.allclose(chances.sum(axis=1), 1)), "probabilities sum to one")
    _say(policy.scores(state, trial.actions, trial.rngs()).shape == (USERS, ACTIONS), "scores are (m, K)")
    found = policy.in_subspace(state)
    _say(found.shape == (USERS,) and found.dtype == np.bool_, "in_subspace is a boolean a user")


def _promised_purity(trial: Trial) -> None:
    """Asking changes nothing, and equal generators give equal answers."""
    policy, state = trial.policy, trial.learned()
    before = state.to_bytes()
    first, second = trial.choose(state), trial.choose(state)
    policy.probabilities(state, trial.actions, trial.rngs())
    policy.scores(state, trial.actions, trial.rngs())
    policy.in_subspace(state)
    _say(np.array_equal(first, second), "equal questions have equal answers")
    _say(state.to_bytes() == before, "asking leaves the state as it was")


def _promised_determinism(trial: Trial) -> None:
    """The same history gives the same state, byte for byte."""
    _say(trial.learned().to_bytes() == trial.learned().to_bytes(), "equal histories give equal states")


def _promised_batches(trial: Trial) -> None:
    """A user's answer does not depend on who else is in the batch, nor on how actions are shared."""
    policy, state = trial.policy, trial.learned()
    together = policy.choose(state, trial.actions, trial.rngs())
    alone = [
        policy.choose(state, trial.actions[[u]], [rng], users=[u])[0]
        for u, rng in zip(range(USERS), trial.rngs(), strict=True)
    ]
    _say(bool(np.array_equal(together, alone)), "choices do not depend on the batch")
    same = np.broadcast_to(trial.actions[0], trial.actions.shape)
    _say(np.array_equal(trial.choose(state, trial.actions[0]), trial.choose(state, same)), "(K, d) serves all users")
    single = policy.choose(state, trial.actions, np.random.default_rng(3))
    _say(single.shape == (USERS,), "one generator serves all users")


def _promised_late_rewards(trial: Trial) -> None:
    """Rewards may come for any users, in any number; NaN means nothing yet."""
    policy, state = trial.policy, trial.learned()
    before = state.to_bytes()
    policy.update(state, trial.actions[:, 0], np.full(USERS, np.nan))
    policy.update(state, np.empty((0, trial.dim)), np.empty(0), users=np.empty(0, dtype=np.int64))
    _say(state.to_bytes() == before, "a reward of NaN changes nothing")
    twice, once = trial.learned(), trial.learned()
    policy.update(twice, trial.actions[:2, 0], [0.5, 0.25], users=[1, 1])
    policy.update(once, trial.actions[:1, 0], [0.5], users=[1])
    policy.update(once, trial.actions[1:2, 0], [0.25], users=[1])
    _say(twice.to_bytes() == once.to_bytes(), "several rewards of a user at once equal the same ones in turn")


def _promised_masks(trial: Trial) -> None:
    """What is masked is not chosen; masking all is refused."""
    policy, state = trial.policy, trial.learned()
    for action in range(ACTIONS):
        only = np.arange(ACTIONS) == action
        _say(bool(np.all(trial.choose(state, mask=only) == action)), "the only allowed action is chosen")
        chances = policy.probabilities(state, trial.actions, trial.rngs(), mask=only)
        _say(bool(np.allclose(chances[:, action], 1)), "the only allowed action is certain")
    hidden = np.ones((USERS, ACTIONS), dtype=np.bool_)
    hidden[np.arange(USERS), trial.choose(state)] = False
    _say(bool(np.all(hidden[np.arange(USERS), trial.choose(state, mask=hidden)])), "a masked action is not chosen")
    scores = policy.scores(state, trial.actions, trial.rngs(), mask=hidden)
    _say(bool(np.all(np.isneginf(scores) == ~hidden)), "scores are -inf exactly where masked")
    if _certain(trial, state):
        open_scores = policy.scores(state, trial.actions, trial.rngs())
        _say(bool(np.allclose(scores[hidden], open_scores[hidden])), "a mask leaves the scores of other actions alone")
    _refused(lambda: trial.choose(state, mask=np.zeros(ACTIONS, dtype=np.bool_)), "a mask that allows nothing")


def _promised_ties(trial: Trial) -> None:
    """Of equal actions a policy that is certain takes the first; their order does not matter otherwise."""
    policy, state = trial.policy, trial.learned()
    if not _certain(trial, state):
        return
    doubled = np.concatenate([trial.actions, trial.actions], axis=1)
    chosen = trial.choose(state)
    _say(np.array_equal(trial.choose(state, doubled), chosen), "the lowest index wins a tie")
    order = np.random.default_rng(trial.seed).permutation(ACTIONS)
    scores = np.sort(policy.scores(state, trial.actions, trial.rngs()), axis=1)
    alone = scores[:, -1] - scores[:, -2] > 1e-9 * (1.0 + np.abs(scores[:, -1]))
    same = order[trial.choose(state, trial.actions[:, order])] == chosen
    _say(bool(same[alone].all()), "the order of actions is moot")


def _certain(trial: Trial, state: Any) -> bool:
    """Whether the policy takes one action with certainty, whatever generator it is given."""
    given = [np.random.default_rng([trial.seed, 13, draw]) for draw in range(ASKED)]
    found = [trial.policy.probabilities(state, trial.actions, rng) for rng in given]
    return bool(np.isin(found[0], (0.0, 1.0)).all()) and all(np.array_equal(found[0], one) for one in found[1:])


def _promised_probabilities(trial: Trial) -> None:
    """Probabilities are those with which actions are chosen."""
    policy, state = trial.policy, trial.learned()
    counts, answers = np.zeros((USERS, ACTIONS)), []
    for draw in range(CHOICES):
        chosen = policy.choose(state, trial.actions, np.random.default_rng([trial.seed, 11, draw]))
        counts[np.arange(USERS), chosen] += 1
        if draw < ASKED:  # probabilities may themselves be votes of a few draws
            answers.append(policy.probabilities(state, trial.actions, np.random.default_rng([trial.seed, 12, draw])))
    chances, unsure = np.mean(answers, axis=0), np.var(answers, axis=0) / ASKED
    allowed = 2.0 / ASKED + 5.0 * np.sqrt((chances * (1.0 - chances) + 0.01) * 2.0 / CHOICES + unsure)
    _say(bool((np.abs(counts / CHOICES - chances) <= allowed).all()), "probabilities are those of the choices")


def _promised_saving(trial: Trial) -> None:
    """States can be cut, joined and turned into bytes, and go on as before."""
    policy, state = trial.policy, trial.learned()
    kind = type(state)
    again = kind.from_bytes(state.to_bytes())
    parts = kind.concat([state.take([0]), state.take(range(1, USERS))])
    for copy in (again, parts):
        _say(copy.to_bytes() == state.to_bytes(), "a copied state equals the original")
        _say(np.array_equal(trial.choose(copy), trial.choose(state)), "a copied state chooses alike")
    for one in (state, again, parts):
        policy.update(one, trial.actions[:, 1], np.ones(USERS))
    _say(again.to_bytes() == state.to_bytes() == parts.to_bytes(), "a copied state learns alike")
    data = state.to_bytes()
    _refused(lambda: kind.from_bytes(data[:-1]), "truncated bytes")
    _refused(lambda: state.take([USERS]), "a user who does not exist")


def _promised_ids(trial: Trial) -> None:
    """Actions may be named, by numbers or by text; names that are in no catalogue mean nothing by themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a model with a catalogue says that it does not know them
        _unheard_ids(trial)


def _unheard_ids(trial: Trial) -> None:
    policy, numbers = trial.policy, UNHEARD + np.arange(ACTIONS)
    for number, text in ((numbers, numbers.astype(str)), (numbers, numbers[::-1])):
        one, two = trial.learned(number), trial.learned(text)
        first, second = trial.choose(one, ids=number), trial.choose(two, ids=text)
        _say(np.array_equal(first, second), "other names for the same actions give the same choices")
        wide = np.broadcast_to(number, (USERS, ACTIONS))
        _say(np.array_equal(first, trial.choose(one, ids=wide)), "ids (K,) serve all users")
    state = trial.learned(numbers)
    before, plain = state.to_bytes(), trial.actions[:, 0]
    policy.scores(state, trial.actions, trial.rngs(), ids=numbers)
    policy.probabilities(state, trial.actions, trial.rngs(), ids=numbers)
    _refused(lambda: trial.choose(state, ids=numbers[1:]), "ids for fewer actions")
    _refused(lambda: trial.choose(state, ids=numbers + 0.5), "ids that are neither whole numbers nor text")
    _refused(lambda: policy.update(state, plain, np.ones(USERS), ids=numbers), "more ids than rewards")
    _refused(lambda: policy.update(state, plain), "features without rewards")
    _refused(lambda: policy.update(state, reward=np.ones(USERS)), "rewards without features or ids")
    _refused(lambda: policy.choose(state, None, trial.rngs()), "a question without actions or ids")
    _say(state.to_bytes() == before, "a refused call changes nothing")


def _promised_repeatability(trial: Trial) -> None:
    """What repeats say of repeatability starts the next users; tried on policies that derive from Contract."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a model with a catalogue says that it does not know these ids
        policy, state = trial.policy, trial.learned(UNHEARD + np.arange(ACTIONS))
    if not isinstance(policy, Contract):
        return
    before = state.to_bytes()
    found = policy.repeatability(state)
    _say(state.to_bytes() == before, "asking leaves the state as it was")
    if found is None:
        one = Repeatability((0.0,), (1.0,))
        _refused(lambda: policy.start(1, repeatability=one), "a repeatability though it remembers no actions")
        return
    started, alone = policy.start(USERS, repeatability=found), policy.start(1, repeatability=found)
    _say(started.take([0]).to_bytes() == alone.to_bytes(), "users start alike, however many there are")
    _say(policy.start(1, repeatability=found.to_json()).to_bytes() == alone.to_bytes(), "its JSON serves as well")
    joint = type(state).concat([started, policy.start(1), state])
    _say(
        np.array_equal(trial.choose(joint.take(range(USERS))), trial.choose(started)),
        "users keep what they started with",
    )
    twice = {"shares": found.shares, "weights": [2.0 * one for one in found.weights]}
    _refused(lambda: policy.start(1, repeatability=twice), "weights that add up to two")


def _promised_records(trial: Trial) -> None:
    """States remember who started them, and are never misread; tried on policies that derive from Contract."""
    policy, state = trial.policy, trial.learned()
    if not isinstance(policy, Contract):
        return
    kind, record = type(state), state.record
    _say(record == policy.start(1).record and record.policy == type(policy).__name__, "a state says who started it")
    _say(state.take([0]).record == record, "users who are taken out keep the record")
    _say(kind.from_bytes(state.to_bytes()).record == record, "bytes keep the record")
    foreign = state.take(range(USERS))
    for what in ("policy", "model", "settings"):
        foreign.record = replace(record, **{what: {"other": "1"} if what == "settings" else "another"})
        _refused(lambda: kind.concat([state, foreign]), f"states put together of which one has another {what}")
        _refused(lambda: trial.choose(foreign), f"a question about a state of another {what}")
        _refused(lambda: policy.in_subspace(foreign), f"a question about a state of another {what}")
        _refused(
            lambda: policy.update(foreign, trial.actions[:, 0], np.ones(USERS)),
            f"rewards for a state of another {what}",
        )


def _promised_refusals(trial: Trial) -> None:
    """Calls that make no sense are refused with our errors, and change nothing."""
    policy, state, actions = trial.policy, trial.learned(), trial.actions
    before = state.to_bytes()
    broken = actions.copy()
    features = actions[:, 0].copy()
    for bad in (np.nan, np.inf):
        broken[-1, -1, -1] = features[-1, -1] = bad
        _refused(lambda: trial.choose(state, broken), f"an action with {bad}")
        _refused(lambda: policy.update(state, features, np.ones(USERS)), f"features with {bad}")
    plain = actions[:, 0]
    _refused(lambda: policy.update(state, plain, np.full(USERS, np.inf)), "an infinite reward")
    _refused(lambda: policy.update(state, plain, np.ones(USERS - 1)), "fewer rewards than users")
    _refused(lambda: policy.update(state, plain[:1], np.ones(1), users=[USERS]), "a user who does not exist")
    _refused(lambda: policy.update(state, plain[:1], np.ones(1), users=[-1]), "a negative user")
    _refused(lambda: trial.choose(state, actions[:-1]), "actions for fewer users")
    _refused(lambda: trial.choose(state, actions[:, :0]), "no actions")
    _refused(lambda: trial.choose(state, actions[0, 0]), "a vector of actions")
    _refused(lambda: policy.start(-1), "a negative number of users")
    _say(state.to_bytes() == before, "a refused call changes nothing")


def _promised_small_cases(trial: Trial) -> None:
    """One action, one user and no users are nothing special."""
    policy = trial.policy
    one = policy.start(1)
    _say(bool(trial.choose(one, trial.actions[0, :1])[0] == 0), "a single action is chosen")
    policy.update(one, trial.actions[0, 0], 1.0)
    none = policy.start(0)
    _say(trial.choose(none, trial.actions[0]).shape == (0,), "nobody chooses nothing")


PROMISES = (
    _promised_shapes,
    _promised_purity,
    _promised_determinism,
    _promised_batches,
    _promised_late_rewards,
    _promised_masks,
    _promised_ties,
    _promised_probabilities,
    _promised_saving,
    _promised_ids,
    _promised_repeatability,
    _promised_records,
    _promised_refusals,
    _promised_small_cases,
)
