"""Pairs of worlds that no method can tell apart by their logs, and whose users have nothing in common (Lemma 1).

Assumption 1 asks that contexts are drawn independently of each other and of the taste theta, and that the logger does
not know theta. For each of the three ways to break it there are two worlds in the plane, the twins, with *equal* laws
of logged histories of every length and *orthogonal* subspaces, span (1, 1) and span (1, -1). The printed pairs slip in
two places; with features of norm at most 1 these do what the lemma says:

contexts   theta = +-(1, 1) or +-(1, -1). Two contexts x, y with two actions each, features e1/2, e1 and e2/2, e2. A
           history sees one context only, either with probability 1/2, whatever the taste; actions are uniform.
tastes     the same features. Twin 1: (1, 1) sees x, (2, 2) sees y; twin 2: (1, -1) sees x, (-2, 2) sees y; 1/2 each.
           (Printed: "the context with a positive product"; for (1, 1) both qualify and for (-1, -1) none.)
logger     theta as in `contexts`. One context, actions e1, e2, -e1, -e2; the logger draws one of the two actions that
           this user likes, and repeats it. (Printed: drawn afresh each step; then *which* actions occur together
           tells the twins apart from length 2 on.)

Every pair of a context and an action is logged with probability 1/4. `strength` is the share of histories that are
confounded so; the others satisfy Assumption 1, so that at 0 the twins are told apart by any sound method. Noise takes
two values, so the law of a history is a finite list: `law` gives it in exact arithmetic.

Newcomers choose among unit vectors all around the circle. The best of them on one twin earns nothing on the other.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.errors import NewcomerError
from newcomer.subspace import fix_subspace_signs
from newcomer.worlds.world import Episode, world_stream

if TYPE_CHECKING:
    from newcomer.logs import Logs

Breach = Literal["contexts", "tastes", "logger"]
Vector = tuple[Fraction, Fraction]
History = tuple[tuple[int, Fraction], ...]  # the pair (a context and an action) of each step, and its reward

BLOCK = 256  # histories drawn from one generator; fixed, or the first n would change with their number
CIRCLE = 16  # candidates of a newcomer, unit vectors at equal angles
HALF, ONE, TWO = Fraction(1, 2), Fraction(1), Fraction(2)
AXES: tuple[Vector, ...] = ((ONE, Fraction(0)), (Fraction(0), ONE))


class Script(NamedTuple):
    """A way in which histories come about: its probability, the taste, and the pairs of which each step draws one."""

    chance: Fraction
    taste: Vector
    shown: tuple[int, ...]


@dataclass(frozen=True)
class Confounded:
    """One of the twins of Lemma 1 in which Assumption 1 is broken by `breach`.

    Parameters
    ----------
    breach : "contexts" (they depend on each other), "tastes" (contexts depend on the taste) or "logger" (it knows it).
    twin : 1, whose users lie on the line of (1, 1), or 2, on that of (1, -1).
    strength : share of histories that are confounded; at 1 the twins have the same logs for the same seed.
    noise : rewards are their mean plus or minus this much, either with probability 1/2.
    """

    breach: Breach
    twin: int = 1
    strength: float = 1.0
    noise: float = 0.5

    def __post_init__(self) -> None:
        _require(self.breach in get_args(Breach), f"breach={self.breach!r}", "contexts, tastes or logger")
        _require(self.twin in (1, 2), f"twin={self.twin}", "choose 1 or 2")
        _require(0 <= self.strength <= 1, f"strength={self.strength}", "choose a share from 0 to 1")
        _require(self.noise >= 0, f"noise={self.noise}", "choose 0 or more")

    @property
    def dim(self) -> int:
        """Feature dimension, 2."""
        return 2

    @property
    def rank(self) -> int:
        """Dimension of the subspace, 1."""
        return 1

    @cached_property
    def basis(self) -> Floats:
        """Orthonormal basis (2, 1) of this twin's users; the other twin's is orthogonal to it."""
        line = np.array([[1.0], [1.0 if self.twin == 1 else -1.0]])
        return fix_subspace_signs(line / np.linalg.norm(line))

    @cached_property
    def catalogue(self) -> Floats:
        """Features (4, 2) of the pairs of a context and an action, of norm at most 1."""
        return np.array(self.pairs, dtype=float)

    @cached_property
    def pairs(self) -> tuple[Vector, ...]:
        """The same, exactly: (x, 0), (x, 1), (y, 0), (y, 1), or the four actions."""
        if self.breach == "logger":
            return AXES + tuple((-a, -b) for a, b in AXES)
        return tuple((size * a, size * b) for a, b in AXES for size in (HALF, ONE))

    @cached_property
    def tastes(self) -> tuple[Vector, Vector]:
        """The two equally likely reward vectors."""
        other = ONE if self.twin == 1 else -ONE
        if self.breach == "tastes":
            return (ONE, other), (TWO * other, TWO)
        return (ONE, other), (-ONE, -other)

    @cached_property
    def scripts(self) -> tuple[Script, ...]:
        """How histories come about; in an order in which those of the twins pay alike if all are confounded."""
        share, everything = Fraction(self.strength), tuple(range(len(self.pairs)))
        sound = [Script((1 - share) * HALF, taste, everything) for taste in self.tastes]
        bent = [Script(share * chance, taste, shown) for chance, taste, shown in self._confounded()]
        bent.sort(key=lambda script: (script.shown, [self.mean(script.taste, pair) for pair in script.shown]))
        return tuple(script for script in (*bent, *sound) if script.chance)

    def _confounded(self) -> list[Script]:
        one, two = self.tastes
        if self.breach == "contexts":
            return [Script(HALF * HALF, taste, context) for taste in (one, two) for context in ((0, 1), (2, 3))]
        if self.breach == "tastes":
            return [Script(HALF, one, (0, 1)), Script(HALF, two, (2, 3))]
        liked = {taste: [pair for pair in range(4) if self.mean(taste, pair) > 0] for taste in (one, two)}
        return [Script(HALF * HALF, taste, (pair,)) for taste, own in liked.items() for pair in own]

    def mean(self, taste: Vector, pair: int) -> Fraction:
        """The expected reward phi . theta of a pair, exactly."""
        a, b = self.pairs[pair]
        return a * taste[0] + b * taste[1]

    def law(self, steps: int) -> dict[History, Fraction]:
        """The probability of every logged history of this length: pairs and rewards, without the taste.

        >>> one, two = (Confounded("logger", twin).law(2) for twin in (1, 2))
        >>> one == two, sum(one.values()) == 1
        (True, True)
        """
        _require(steps >= 1, f"steps={steps}", "at least one step")
        found: dict[History, Fraction] = defaultdict(Fraction)
        errors = (Fraction(-self.noise), Fraction(self.noise)) if self.noise else (Fraction(0),)
        for chance, taste, shown in self.scripts:
            each = chance / (len(shown) * len(errors)) ** steps
            outcomes = [(pair, self.mean(taste, pair) + error) for pair in shown for error in errors]
            for history in product(outcomes, repeat=steps):
                found[history] += each
        return dict(found)

    def logs(self, users: int, steps: int, seed: int) -> Logs:
        """Histories drawn from the law; actions are the pairs of the catalogue."""
        from newcomer.logs import Logs

        _require(users >= 1 and steps >= 1, f"users={users}, steps={steps}", "at least one of each")
        blocks = [
            self._block(world_stream(seed, "confounded logs", index), steps) for index in range(-(-users // BLOCK))
        ]
        action, reward = (np.concatenate(column)[:users].ravel() for column in zip(*blocks, strict=True))
        user = np.repeat(np.arange(users), steps)
        return Logs.from_arrays(user=user, action=action, items=self.catalogue, reward=reward)

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One newcomer, a draw of theta, who is offered unit vectors all around the circle in every round."""
        _require(horizon >= 1, f"horizon={horizon}", "at least one round")
        taste = np.array(self.tastes, dtype=float)[rng.integers(2)]
        angles = np.arange(CIRCLE) * (2 * np.pi / CIRCLE)
        circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        means = np.tile(circle @ taste, (horizon, 1))
        return Episode(np.tile(circle, (horizon, 1, 1)), means, means + self._errors(rng, means.shape))

    def _block(self, rng: np.random.Generator, steps: int) -> tuple[Ints, Floats]:
        """Pairs and rewards (BLOCK, steps): a script for each history, then pairs and noise of its steps."""
        edges = np.cumsum([float(script.chance) for script in self.scripts])
        which = np.minimum(np.searchsorted(edges, rng.random(BLOCK), side="right"), len(edges) - 1)
        draws = rng.random((BLOCK, steps))
        action = np.empty((BLOCK, steps), np.int64)
        means = np.empty((BLOCK, steps))
        for index, (_, taste, shown) in enumerate(self.scripts):
            mine = which == index
            action[mine] = np.array(shown)[(draws[mine] * len(shown)).astype(np.int64)]
            means[mine] = np.array([float(self.mean(taste, pair)) for pair in range(4)])[action[mine]]
        return action, means + self._errors(rng, means.shape)

    def _errors(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return np.asarray(self.noise * (2.0 * rng.integers(2, size=shape) - 1.0), np.float64)


def _require(holds: bool, where: str, todo: str) -> None:
    if not holds:
        raise NewcomerError("this confounded world cannot be drawn", where=where, todo=todo)
