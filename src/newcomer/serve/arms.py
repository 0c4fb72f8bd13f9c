"""Arms: who is treated, who is served at random, by the population mean, or as before; and what each arm shows.

A user's arm is drawn at the first decision, by a hash of the id under the store's secret key, and stays: histories of
the random arm are whole, which is what SOLD and the checks ask for. Each slot's propensity is P(action | arm, recorded
history, candidates, earlier slots): 1/K at random, 1 where the arm's rule is deterministic, and the share of votes of a
sampled policy, whose votes are a function of the history and from whose shares the action is drawn. What the incumbent
shows is the client's affair: its propensity is unknown (null), and what the treated arm would have shown is kept
beside it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.random import Generator
from numpy.typing import NDArray

from newcomer.arrays import Bools, Floats
from newcomer.serve.models import Serving
from newcomer.serve.shapes import Refused

DEFAULT = (0.05, 0.05, 0.0)  # random, control, incumbent


@dataclass(frozen=True)
class Shares:
    """Shares of new users; what is left is treated."""

    version: int
    random: float
    control: float
    incumbent: float

    @property
    def treated(self) -> float:
        """The share of new users that the policy serves."""
        return max(round(1.0 - self.random - self.control - self.incumbent, 12), 0.0)


def check_arm_shares(random: float, control: float, incumbent: float) -> None:
    """Refuse shares that are more than everybody."""
    if not (min(random, control, incumbent) >= 0.0 and random + control + incumbent <= 1.0 + 1e-9):
        raise Refused(422, "bad_shares", "shares of arms lie between 0 and 1 and add up to at most 1")


def draw_arm(key: bytes, user: str, shares: Shares) -> tuple[str, float]:
    """The arm of a user and its probability.

    >>> draw_arm(b"key", "ann", Shares(1, 1.0, 0.0, 0.0))
    ('random', 1.0)
    """
    keyed = _keyed(key).copy()
    keyed.update(user.encode("utf-8", "surrogatepass"))
    digest = keyed.digest()
    number = int.from_bytes(digest[:7], "big") / 2**56
    for arm in ("random", "control", "incumbent"):
        share = float(getattr(shares, arm))
        if number < share:
            return arm, share
        number -= share
    return "treated", shares.treated


@lru_cache(maxsize=8)
def _keyed(key: bytes) -> hmac.HMAC:
    """The hash of the key, to which ids are added: to begin it takes longer than all the rest of the draw."""
    return hmac.new(key, b"arm:", "sha256")


class Asked(Struct, frozen=True):
    """The candidates of a request, checked: K of them, by id, by features, or both."""

    count: int  # K
    ids: Sequence[int | str] | NDArray[Any] | None  # (K,) as policies take them: all numbers, or all texts
    names: Sequence[int | str] | None  # (K,) as the answer gives them
    features: Floats | None  # (K, d)
    allowed: Bools | None = None  # (K,), of which at least one is true; None: all are
    whole: bool = False  # the whole catalogue
    excluded: tuple[int | str, ...] = ()

    @property
    def open(self) -> int:
        """How many may be shown."""
        return self.count if self.allowed is None else int(np.count_nonzero(self.allowed))

    def name(self, index: int) -> int | str | None:
        """The id of a candidate, where it has one."""
        return None if self.names is None else self.names[index]


class Pick(Struct, frozen=True):
    """A slot: which candidate, with what probability given the slots before it."""

    index: int
    propensity: float | None
    left: Bools | None  # (K,) the candidates of this slot; None: all
    shadow: int | None = None


def pick_by_arm(
    serving: Serving,
    arm: str,
    state: Any,
    asked: Asked,
    top: int,
    *,
    baseline: Sequence[int] = (),
    rng: Generator,
    seed: str,
) -> list[Pick]:
    """The slots that an arm shows."""
    if arm == "random":
        return list(_at_random(asked, top, rng))
    if arm == "control":
        return list(_by_policy(serving.control, serving.everybody, asked, top))
    if arm == "incumbent":
        ours = pick_by_arm(serving, "treated", state, asked, top, rng=rng, seed=seed)
        return list(_incumbent(asked, baseline, ours))
    if serving.sampled:
        return list(_by_votes(serving, state, asked, top, rng, seed))
    if top == 1:  # the commonest call
        return [
            Pick(
                int(serving.policy.choose(state, asked.features, ids=asked.ids, mask=asked.allowed)[0]),
                1.0,
                asked.allowed,
            )
        ]
    return list(_by_policy(serving.policy, state, asked, top))


def _at_random(asked: Asked, top: int, rng: Generator) -> Iterator[Pick]:
    left = asked.allowed
    for _ in range(top):
        places = np.arange(asked.count) if left is None else np.flatnonzero(left)
        index = int(places[rng.integers(len(places))])
        yield Pick(index, 1.0 / len(places), left)
        left = _without(asked, left, index)


def _by_policy(policy: Any, state: Any, asked: Asked, top: int) -> Iterator[Pick]:
    """The best, then the best of the rest: certain, given what is known."""
    left = asked.allowed
    for slot in range(top):
        index = int(policy.choose(state, asked.features, ids=asked.ids, mask=left)[0])
        yield Pick(index, 1.0, left)
        left = _without(asked, left, index) if slot + 1 < top else left


def _by_votes(serving: Serving, state: Any, asked: Asked, top: int, rng: Generator, seed: str) -> Iterator[Pick]:
    """Votes depend on the history alone, by their seed; the action is drawn from their shares."""
    left = asked.allowed
    for slot in range(top):
        digest = hashlib.sha256(f"{seed}:{slot}".encode("utf-8", "surrogatepass")).digest()
        votes = np.random.default_rng(int.from_bytes(digest[:16], "big"))
        shares = serving.policy.probabilities(state, asked.features, votes, ids=asked.ids, mask=left)[0]
        shares = shares if left is None else np.where(left, shares, 0.0)
        shares = shares / shares.sum()
        index = int(rng.choice(len(shares), p=shares))
        yield Pick(index, float(shares[index]), left)
        left = _without(asked, left, index)


def _incumbent(asked: Asked, baseline: Sequence[int], ours: list[Pick]) -> Iterator[Pick]:
    left = asked.allowed
    for index, pick in zip(baseline, ours, strict=True):
        yield Pick(index, None, left, shadow=pick.index)
        left = _without(asked, left, index)


def _without(asked: Asked, left: Bools | None, index: int) -> Bools:
    rest = np.ones(asked.count, dtype=np.bool_) if left is None else left.copy()
    rest[index] = False
    return rest
