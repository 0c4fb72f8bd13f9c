"""Catalogue: the actions of a model, by id and by place, and what the model says of each.

A model knows A actions, each at a place 0..A-1. Their features phi (A, d) come from an items table, or are one-hot and
never written out: then phi^T m is an entry of the mean and phi^T L a row of the factor, whatever the number of actions.
`codes` looks ids up, `project` gives what policies work with:

    population mean   phi^T m + o      what everybody thinks of the action, offsets o included
    loadings          phi^T L (k,)     how the latent coordinates z of a user move its reward

An action that the catalogue does not know has the code -1, and what it says of that one is what it says of the average
action: tables have a last row for it, so that one indexing serves both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from newcomer.arrays import Floats, Ints, read_only_array
from newcomer.errors import ModelError, warn_caller
from newcomer.one_hot import OneHot
from newcomer.validate import show_invalid_value

SEVERAL = 3  # different unknown ids among rewards before a warning
EXAMPLES = 3  # unknown ids that the warning names
PLAIN = frozenset({int, str})  # types of ids that the dictionary takes as they are: True and 1.0 equal 1, and are none


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The actions of one model; arrays are those of the model. `features` is None without an items table."""

    ids: tuple[int | str, ...]
    features: Floats | OneHot | None  # (A, d)
    mean: Floats  # m (d,)
    factor: Floats  # L (d, k)
    offsets: Floats  # (A,), or (1,)
    tidy: bool = False  # ids that differ in case, or in blanks at their ends, are the same
    _said: set[str] = field(default_factory=set, repr=False)  # warnings that were given
    _unknown_met: list[Any] = field(default_factory=list, repr=False)  # unknown ids that came with rewards

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def known(self) -> bool:
        """Whether it has the features of its actions, so that ids alone stand for actions."""
        return self.features is not None

    # Ids to places.

    def codes(self, ids: Iterable[int | str]) -> Ints:
        """The place (K,) of each action, -1 for those that are not in it; see `Model.codes`."""
        ordered = self._ordered
        if isinstance(ids, np.ndarray) and ids.ndim == 1 and ordered and ids.dtype.kind == ordered[0].dtype.kind:
            place = np.minimum(np.searchsorted(ordered[0], ids), len(ordered[0]) - 1)
            found = np.where(ordered[0][place] == ids, ordered[1][place], -1)
            if not self.tidy or (found >= 0).all():
                return found
        try:
            return np.fromiter((self._place(one) for one in catalogue_action_ids(ids)), dtype=np.int64)
        except TypeError as problem:  # a list, say, where an id should be
            raise ModelError("ids must be whole numbers or text, in a flat list") from problem

    def known_codes(self, ids: object) -> Ints | None:
        """The places (K,) of a list or array of ids that are all here, spelled as they are here; else None.

        The short way for the ids of one decision: what it does not answer, `codes` does.
        """
        given = ids.tolist() if type(ids) is np.ndarray and ids.ndim == 1 and ids.dtype.kind in "iU" else ids
        if type(given) is not list or not given or not PLAIN.issuperset(map(type, given)):
            return None
        found = list(map(self._places.get, given, repeat(-1)))
        return np.array(found) if -1 not in found else None

    def recognise(self, ids: NDArray[Any], *, observed: bool = False) -> Ints:
        """The `codes` of a call to a policy, in the shape of the ids; most ids unknown: a warning, once a model.

        With `observed`, ids that came with rewards, it takes `SEVERAL` different ones, in one call or in several: a
        single new action is an ordinary thing, and rewards come one at a time.
        """
        codes = self.codes(ids.ravel()).reshape(ids.shape)
        lost = int(np.count_nonzero(codes < 0))
        if lost and len(self) and 2 * lost > codes.size:
            unknown, count = list(dict.fromkeys(ids[codes < 0].tolist())), f"{lost:,} of {codes.size:,}"
            if observed and lost < SEVERAL:
                self._unknown_met.extend(one for one in unknown if one not in self._unknown_met)
                unknown, count = self._unknown_met, f"{len(self._unknown_met):,}"
            if not observed or len(unknown) >= SEVERAL:
                self.warn_once("unknown ids", lambda: self._unknown_sentence(unknown, count))
                self._unknown_met.clear()
        return codes

    def warn_once(self, about: str, sentence: Any) -> None:
        """Warn at the line that called the package, the first time that something is `about` this."""
        if about not in self._said:
            self._said.add(about)
            warn_caller(f"{sentence()} This warning is shown once.")

    def _unknown_sentence(self, unknown: list[Any], count: str) -> str:
        examples = ", ".join(show_invalid_value(one) for one in unknown[:EXAMPLES])
        return (
            f"{count} ids are not among the {len(self):,} actions of the"
            f" model ({examples}) and count as new actions, about which nothing is known: model.action_ids has the"
            " known ones."
        )

    def canonical(self, one: int | str) -> int | str:
        """An id, known or not, in the type of the catalogue's where it can be: "7" is 7 among integers, 7 is "7"."""
        one = _tidied(one) if self.tidy and isinstance(one, str) else one
        other = _other_type(one)
        kinds = {type(known) for known in self.ids[:1]}
        return other if other is not None and type(other) in kinds else one

    def _place(self, one: Any) -> int:
        """Place of an action, by its id or by the same id in the other type, or -1."""
        place, other = self._places.get(one, -1), _other_type(one)
        if place < 0 and other is not None:
            place = self._places.get(other, -1)
        if place < 0 and self.tidy and isinstance(one, str):
            place = self._tidy_places.get(_tidied(one), -1)
        return place

    @cached_property
    def _places(self) -> dict[int | str, int]:
        """Place of each action."""
        return {one: row for row, one in enumerate(self.ids)}

    @cached_property
    def _tidy_places(self) -> dict[str, int]:
        """Place of each action by its tidied id."""
        return {_tidied(str(one)): row for row, one in reversed(list(enumerate(self.ids)))}

    @cached_property
    def _ordered(self) -> tuple[NDArray[Any], Ints] | None:
        """The ids in order and the place of each, for looking many up at once; None if some are integers, some text."""
        alike = len({type(one) for one in self.ids}) == 1
        if not alike or not all(isinstance(one, str) or abs(one) < 2**63 for one in self.ids):
            return None
        ids = np.array(self.ids)
        order = np.argsort(ids, kind="stable")
        return ids[order], order

    # Places to what the model says.

    def rows(self, codes: Ints) -> Floats:
        """Features (..., d), written out; of an unknown action those of the average one."""
        assert self.features is not None
        found = np.array(self.features[codes])
        found[codes < 0] = self.average
        return found

    @cached_property
    def average(self) -> Floats:
        """Features (d,) of the average action: what is known of an action before it is met."""
        if isinstance(self.features, OneHot):
            actions, dim = self.features.shape
            return read_only_array(np.where(np.arange(dim) < actions, 1.0 / max(actions, 1), 1.0))
        assert self.features is not None
        return read_only_array(np.array(self.features.mean(axis=0)))

    def times(self, weights: Floats) -> Floats:
        """Features times weights (d, ...), (A, ...): rows of the weights where features are one-hot."""
        assert self.features is not None
        return np.asarray(self.features @ weights)

    def project(self, codes: Ints) -> tuple[Floats, Floats]:
        """Population means (...) and loadings (..., k) of actions, without writing their features out."""
        means, loadings = self.tables
        return means[codes], loadings[codes]

    @property
    def population_mean(self) -> Floats:
        """phi^T m + o (A,)."""
        means: Floats = self.tables[0][:-1]
        return means

    @property
    def loadings(self) -> Floats:
        """phi^T L (A, k)."""
        rows: Floats = self.tables[1][:-1]
        return rows

    @cached_property
    def tables(self) -> tuple[Floats, Floats]:
        """Population means (A + 1,) and loadings (A + 1, k), the last those of the average action."""
        if self.features is None:
            return np.zeros(1), np.zeros((1, self.factor.shape[1]))
        means, loadings = self.times(self.mean) + self.offsets, self.times(self.factor)
        return np.append(means, means.mean()), np.vstack([loadings, loadings.mean(axis=0)])


def catalogue_action_ids(ids: Iterable[int | str]) -> list[Any]:
    """Ids of actions as a list; a single one is refused, and so is what holds more than ids."""
    if isinstance(ids, np.ndarray) and ids.ndim == 1:
        return list(ids.tolist())
    if isinstance(ids, str | bytes | Mapping | np.ndarray) or not isinstance(ids, Iterable):
        todo = "put a single id in a list"
        raise ModelError(f"ids must be a list of action ids, not {show_invalid_value(ids)}", todo=todo)
    return list(ids)


def _tidied(one: str) -> str:
    """An id without blanks at its ends, in small letters.

    >>> _tidied(" B"), _tidied("b")
    ('b', 'b')
    """
    return one.strip().lower()


def _other_type(one: Any) -> int | str | None:
    """The same id in the other type: the integer that a text spells, or the text of an integer; else None.

    Only the usual spelling counts: "07" and "+7" are other ids than 7.

    >>> _other_type("7"), _other_type(-7), _other_type("07"), _other_type("x")
    (7, '-7', None, None)
    """
    if isinstance(one, str):
        spelled = len(one) < 20 and one.isascii() and one.removeprefix("-").isdigit() and str(int(one)) == one
        return int(one) if spelled else None
    return str(int(one)) if isinstance(one, int | np.integer) and not isinstance(one, bool) else None
