"""State: what a policy remembers of its users, as a dataclass of arrays with users first.

States are plain data. Policies change them in place; anyone may take some users out, put several states together, or
turn a state into bytes (state_file.py), which name the kind of state, so that nothing else is taken for one.

A state also carries a `Record` of who started it: the same arrays mean something else to another policy, to other
settings or on another model, and would be misread without a word. The record stays with the users who are taken out,
states of different records are never put together, and a policy refuses a state whose record is not its own
(policies/base.py).

Calls on one state may come from several threads: each state has a lock, which every call on it holds
(`one_state_call_at_a_time`). Other states are not held up. The lock is no part of what a state is: it is not copied,
compared or written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from copy import deepcopy
from dataclasses import Field, asdict, dataclass, field, fields
from functools import cached_property, lru_cache, wraps
from operator import attrgetter
from threading import RLock
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast, get_type_hints
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from newcomer import files
from newcomer.arrays import Bools, Ints
from newcomer.errors import ModelError, NoHash, PolicyError
from newcomer.linear import state_file
from newcomer.linear.shared_rows import SharedRows, alike_shared_rows, grouped_shared_rows
from newcomer.records import Shown
from newcomer.validate import validate_array

Array = NDArray[Any]
Call = TypeVar("Call", bound=Callable[..., Any])
UNLOCKED = nullcontext()  # of what is no state: the call refuses it
PLAIN_USERS = 1024  # up to so many users each has a row of their own; among more, newcomers share one

# Metadata of a dataclass field whose trailing axes may differ between states of a kind; `concat` pads it with zeros.
GROWS = {"grows": True}
LATER = {"grows": True, "later": True}  # the same, of a field that older files lack: it has a default


def one_state_call_at_a_time(call: Call) -> Call:
    """For a policy's call on a state: it waits until calls of other threads on the same state have ended."""

    @wraps(call)
    def alone(self: Any, state: Any, *given: Any, **named: Any) -> Any:
        with getattr(state, "lock", UNLOCKED):
            return call(self, state, *given, **named)

    return cast(Call, alone)


@dataclass(frozen=True)
class Record(Shown):
    """Who started a state: the policy's name, those of its settings that give the arrays their meaning, its model's id.

    Settings are written as text, so that they compare, print and go into a file alike, infinities included.

    >>> str(Record.of("PriorUCB", {"dim": 4, "level": 0.1}))
    'PriorUCB with dim 4, level 0.1'
    """

    policy: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    model: str = ""

    @classmethod
    def of(cls, policy: str, settings: Mapping[str, str | float], model: str = "") -> Record:
        """The record of a policy with these settings; numbers are written with all their digits."""
        said = {name: value if isinstance(value, str) else f"{value:.17g}" for name, value in settings.items()}
        return cls(policy, said, model)

    @cached_property
    def text(self) -> str:
        """Policy, settings and model as they are written in files."""
        return json.dumps([self.policy, dict(self.settings), self.model], separators=(",", ":"))[1:-1]

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {_readable(value)}" for name, value in self.settings.items())
        model = f" on model {self.model[:12]}" if self.model else ""
        return (self.policy or "no policy") + (f" with {settings}" if settings else "") + model


NOBODY = Record()


@dataclass
class State(Shown):
    """Arrays with users first; a field may itself be a State. Subclasses are dataclasses and may extend `check`.

    Where a state of many users shares the rows of those who have learned nothing, `shared` says which row each user
    has: `rows_of` finds it, `own_rows` makes it the user's own. In all other states users are rows.
    States are equal if their records are, and what they say of each user, to the bit. They change, and have no hash.
    """

    lock: ClassVar[AbstractContextManager[Any]]  # each state has its own
    saved_as: ClassVar[str] = ""  # the kind of its files where that is not the name of the class: its first name
    record: Record = field(default=NOBODY, kw_only=True, repr=False)
    shared: SharedRows | None = field(default=None, kw_only=True, repr=False)

    def __new__(cls, *given: Any, **named: Any) -> Self:
        state = super().__new__(cls)
        object.__setattr__(state, "lock", RLock())
        return state

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __copy__(self) -> Self:
        if self.shared is not None:  # whose arrays grow, and would do so in one of the two
            return deepcopy(self)
        other = object.__new__(type(self))  # which has the same arrays, and so the same lock
        other.__dict__.update(self.__dict__)
        return other

    def facts(self) -> dict[str, Any]:
        """Which policy started it, and how large it is: as `to_bytes`, and in memory."""
        arrays = [array for _, array, _ in self.arrays()]
        found = {"users": len(self), "started_by": str(self.record), "arrays": len(arrays)}
        index = 0 if self.shared is None else self.shared.index.nbytes
        return found | {"bytes": len(self.to_bytes()), "bytes_in_memory": sum(array.nbytes for array in arrays) + index}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_bytes() == cast(Self, other).to_bytes()

    def __hash__(self) -> int:
        todo = "use state.to_bytes(), or the ids of its users"
        raise NoHash("a state changes in place, so it cannot be in a set or the key of a dict", todo=todo)

    def __len__(self) -> int:
        return len(self.layout().first(self)) if self.shared is None else len(self.shared.index)

    @classmethod
    def layout(cls) -> Layout:
        """Where the arrays are."""
        return _layout(cast(Any, cls))

    def arrays(self) -> Iterator[tuple[str, Array, bool]]:
        """Every array, also of nested states, with its dotted name, and whether its trailing axes may grow."""
        layout = self.layout()
        return zip(layout.names, layout.values(self), layout.grows, strict=True)

    # Users and rows.

    def rows_of(self, users: Ints) -> Ints:
        """The rows (m,) of users in the arrays."""
        return users if self.shared is None else self.shared.index[users]

    def own_rows(self, users: Ints) -> Ints:
        """The same, for users who are about to learn: each of them has a row of their own."""
        shared = self.shared
        if shared is None:
            return users
        crowded = shared.crowded(users)
        if len(crowded):
            self._lengthen(shared.reserve(len(crowded)), shared.used)
            rows, before = shared.used + np.arange(len(crowded)), shared.index[crowded]
            for _, array, _ in self.arrays():
                array[rows] = array[before]
            shared.move(crowded, rows)
        return shared.index[users]

    def share_rows(self, index: Ints) -> None:
        """Let user i have row `index[i]` of the arrays."""
        self.shared = SharedRows.of(index, len(self))

    def spread(self) -> None:
        """Give every user a row of their own, in the order of users."""
        if self.shared is not None:
            rows, self.shared = self.shared.index, None
            for owner, part, array in self._parts():
                setattr(owner, part, array[rows])

    def untouched(self) -> Bools | None:
        """Of each row (R,) whether nothing has been learned in it; None, the default, if rows are never shared."""
        return None

    def _lengthen(self, length: int, used: int) -> None:
        """Arrays of so many rows, of which the first `used` are as they were."""
        for owner, part, array in self._parts():
            if len(array) < length:
                longer = np.zeros((length, *array.shape[1:]), dtype=array.dtype)
                longer[:used] = array[:used]
                setattr(owner, part, longer)

    def _parts(self) -> list[tuple[State, str, Array]]:
        """Every array with the state, this or a nested one, that has it, and the name of its field there."""
        found: list[tuple[State, str, Array]] = []
        for part, _, kind, _ in _fields(cast(Any, type(self))):
            value = getattr(self, part)
            found += [(self, part, value)] if kind is None else value._parts()
        vars(self).pop("parts", None)  # which holds arrays that are about to be replaced
        return found

    def take(self, users: ArrayLike) -> Self:
        """A copy with these users (m,), in this order; a user may occur more than once. The record comes along."""
        with self.lock:
            who = state_positions(users, len(self))
            if self.shared is None or len(who) <= PLAIN_USERS:
                return self._copy(None, self.rows_of(who))
            return self._copy(*self.shared.taken(who))

    def _copy(self, index: Ints | None, rows: Ints) -> Self:
        """A copy with these rows, and users who have them by this index."""
        copy = self.rebuild({name: array[rows] for name, array, _ in self.arrays()}, record=self.record)
        if index is not None:
            copy.share_rows(index)
        return copy

    @classmethod
    def concat(cls, states: Sequence[Self]) -> Self:
        """One state with the users of all `states`, in order; states of different records are refused."""
        listed = isinstance(states, Sequence) and not isinstance(states, str) and len(states) > 0
        if not listed or any(type(state) is not cls for state in states):
            raise PolicyError(f"{cls.__name__}.concat needs at least one state, all of this kind")
        first = states[0].record
        for state in states:
            if state.record is not first and state.record != first:
                raise PolicyError(f"states started by {first} and by {state.record} cannot be put together")
        with ExitStack() as held:
            for state in sorted(states, key=id):  # in the same order in every thread: none waits for another in a ring
                held.enter_context(state.lock)
            plain = sum(map(len, states)) <= PLAIN_USERS or all(state.shared is None for state in states)
            rows = [state.rows_of(np.arange(len(state))) if plain else np.arange(_rows(state)) for state in states]
            loose = {name: grows for name, _, grows in states[0].arrays()}
            parts = [
                {name: array[own] for name, array, _ in state.arrays()} for state, own in zip(states, rows, strict=True)
            ]
            joint = cls.rebuild(
                {name: _stack(name, [part[name] for part in parts], loose[name]) for name in loose}, record=first
            )
            if not plain:
                starts = np.cumsum([0, *map(len, rows)])
                index = [
                    start + state.rows_of(np.arange(len(state))) for start, state in zip(starts, states, strict=False)
                ]
                joint.share_rows(np.concatenate(index))
            return joint

    # States as bytes.

    def to_bytes(self) -> bytes:
        """The state and its record as bytes (state_file.py), the same for equal states.

        Users who have learned nothing, and are alike, are written once.
        """
        with self.lock:
            kind, record = self.saved_as or type(self).__name__, self.record
            whole, index = self._compact()
            layout = whole.layout()
            arrays = dict(zip(layout.names, layout.values(whole), strict=True))
            for prefix, state in layout.nested(whole):
                for name, length in state.lengths().items():
                    arrays[prefix + name] = arrays[prefix + name][:, :length]
                for name in state.derived():
                    del arrays[prefix + name]
            packed = state_file.pack_state_file(kind, record.text, arrays, index)
            if packed is not None:
                return packed
            return files.pack_file(kind, {name: array for name, array, _ in self.arrays()}, {"record": asdict(record)})

    def lengths(self) -> Mapping[str, int]:
        """How much of the second axis of some arrays, by their names in files, is in use: the rest is not written."""
        return {}

    def derived(self) -> Collection[str]:
        """Arrays, by their names in files, that `rebuild` makes from the others, to the bit: they are not written."""
        return ()

    def _compact(self) -> tuple[Self, Ints | None]:
        """The state with one row for users who have learned nothing and are alike, and the row of each user, if any."""
        count = len(self)
        fresh = self.untouched() if count > 1 or self.shared is not None else None
        if fresh is None or (self.shared is None and np.count_nonzero(fresh) < 2):
            return self, None
        same, rows = np.arange(len(fresh)), self.rows_of(np.arange(count))
        which = np.flatnonzero(fresh)
        same[which] = alike_shared_rows([array for _, array, _ in self.arrays()], which)
        index, rows = grouped_shared_rows(same[rows], ~fresh[rows])
        if self.shared is None and len(rows) == count:
            return self, None
        whole = self._copy(None, rows)
        return whole, index if len(rows) < count else None

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state that `to_bytes` wrote; anything else is refused, also a state from before there were records."""
        kind = cls.saved_as or cls.__name__
        if not isinstance(data, bytes | bytearray | memoryview) or bytes(data[:4]) != state_file.MAGIC:
            return cls._from_safetensors(data, kind)
        found = state_file.unpack_state_file(bytes(data), kind, cls.layout().crcs)
        record = Record(found.policy, found.settings, found.model)
        if cls in found.fits:
            state = cls.assemble(found.arrays)
            state.check_values()
            state.record = record
        else:
            state = cls.rebuild(found.arrays, record=record)
            if found.arrays.keys() | state._derivable() == set(cls.layout().names):
                found.fits.add(cls)
        if found.place is not None:
            state._take_index(found.place)
        return state

    def _take_index(self, index: Ints) -> None:
        """Share rows as a file says, if that makes sense; few users get rows of their own."""
        fresh, rows = self.untouched(), len(self)
        inside = index.ndim == 1 and index.dtype == np.int64 and bool(((index >= 0) & (index < rows)).all())
        if fresh is None or not inside or not bool(fresh[np.bincount(index, minlength=rows) > 1].all()):
            raise ModelError("users of this state share what they have learned", todo="make it again")
        self.share_rows(index)
        words = sum(array.size for _, array, _ in self.arrays()) // max(rows, 1)
        if len(index) <= PLAIN_USERS and len(index) * words <= state_file.FREE:
            self.spread()

    @classmethod
    def _from_safetensors(cls, data: bytes, kind: str) -> Self:
        """A state of the formats before 4, and one with arrays of types that format 4 does not have."""
        arrays, facts = files.unpack_file(data, kind)
        record = facts.get("record")
        if not isinstance(record, dict) or record.keys() != asdict(NOBODY).keys():
            raise ModelError(
                "this state was saved by an older version, which did not record the policy that started it",
                todo="start its users anew and let the policy learn from their rewards again",
            )
        return cls.rebuild({name: np.array(array) for name, array in arrays.items()}, record=Record(**record))

    @classmethod
    def rebuild(cls, arrays: Mapping[str, Array], prefix: str = "", record: Record = NOBODY) -> Self:
        """A state from arrays by dotted name, checked; nested states take the arrays whose names begin with theirs.

        A record belongs to the state as a whole: nested states have none of their own.
        """
        values: dict[str, Any] = {"record": record}
        for part, saved, kind, later in _fields(cast(Any, cls)):
            name = prefix + saved
            if kind is not None:
                values[part] = kind.rebuild(arrays, f"{name}.")
            elif name in arrays:
                values[part] = arrays[name]
            elif not later:
                raise ModelError(f"the state lacks the array '{name}'")
        state = cls(**values)
        state.check()
        return state

    @classmethod
    def assemble(cls, arrays: Mapping[str, Array], prefix: str = "") -> Self:
        """The same of arrays whose names, types and shapes have been found to fit: all of them are there."""
        state = cls.__new__(cls)
        values = state.__dict__
        values["record"], values["shared"] = NOBODY, None
        for part, saved, kind, _ in _fields(cast(Any, cls)):
            name = prefix + saved
            values[part] = arrays[name] if kind is None else kind.assemble(arrays, name + ".")
        return state

    def _derivable(self) -> set[str]:
        """Dotted names of arrays that are not written because others give them."""
        return {prefix + name for prefix, state in self.layout().nested(self) for name in state.derived()}

    def check_values(self) -> None:
        """Of `check`, what depends on values, not on shapes and types alone; all of it, by default."""
        self.check()

    def check(self) -> None:
        """Refuse arrays that do not fit together; compiled loops rely on it, because they do not look at bounds."""
        lengths = {array.shape[:1] for array in self.layout().values(self)}
        if len(lengths) != 1 or () in lengths:
            shapes = {name: array.shape for name, array, _ in self.arrays()}
            raise ModelError(f"the arrays of the state disagree about the number of users: {shapes}")

    def refuse_unless(self, fits: bool) -> None:
        """For `check` of subclasses: refuse arrays of the wrong shapes or types."""
        if not fits:
            found = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array, _ in self.arrays())
            raise ModelError(f"these arrays do not make a {type(self).__name__}: {found}")


class Layout(NamedTuple):
    """The arrays of a kind of state, also of nested states."""

    names: tuple[str, ...]  # dotted, as in files
    grows: tuple[bool, ...]  # whether trailing axes may grow
    crcs: state_file.ArrayNames  # names by their CRC-32
    values: Callable[[State], tuple[Array, ...]]
    first: Callable[[State], Array]
    inside: tuple[tuple[str, Callable[[State], State]], ...]  # nested states, by what names of their arrays begin with

    def nested(self, state: State) -> list[tuple[str, State]]:
        """A state and those in it, with what the names of their arrays begin with."""
        return [("", state), *[(prefix, get(state)) for prefix, get in self.inside]]


@lru_cache(maxsize=64)
def _layout(kind: Any) -> Layout:
    """Where the arrays of a kind of state are."""
    listed = list(_paths(kind))
    paths, names = [path for path, _, _ in listed], tuple(name for _, name, _ in listed)
    get, first = attrgetter(*paths), attrgetter(paths[0])
    crcs = state_file.ArrayNames({crc32(name.encode()): name for name in names})
    inside = tuple((f"{name}.", attrgetter(path)) for path, name in _nested_paths(kind))
    if len(crcs) != len(names) or 0 in crcs:
        raise PolicyError(f"two fields of {kind.__name__} cannot be told apart in files", todo="rename one of them")
    values = get if len(paths) > 1 else lambda state: (first(state),)
    return Layout(names, tuple(grows for _, _, grows in listed), crcs, values, first, inside)


def _nested_paths(kind: Any, path: str = "", prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted attribute and dotted name in files of every state in a kind of state."""
    for part, saved, nested, _ in _fields(kind):
        if nested is not None:
            yield path + part, prefix + saved
            yield from _nested_paths(nested, f"{path}{part}.", f"{prefix}{saved}.")


def _paths(kind: Any, path: str = "", prefix: str = "", grows: bool = False) -> Iterator[tuple[str, str, bool]]:
    """Dotted attribute, dotted name in files, and whether it grows, of every array of a kind of state."""
    loose = {part.name: grows or bool(part.metadata.get("grows")) for part in fields(kind)}
    for part, saved, nested, _ in _fields(kind):
        if nested is None:
            yield path + part, prefix + saved, loose[part]
        else:
            yield from _paths(nested, f"{path}{part}.", f"{prefix}{saved}.", loose[part])


@lru_cache(maxsize=64)
def _fields(kind: Any) -> tuple[tuple[str, str, type[State] | None, bool], ...]:
    """The fields of a kind of state: name, name in files, kind of a nested state (None for an array), if `LATER`."""
    hints = get_type_hints(kind)
    nested = {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, State)}
    return tuple(
        (part.name, _saved_name(part), nested.get(part.name), bool(part.metadata.get("later")))
        for part in fields(kind)
        if part.name not in ("record", "shared")
    )


def _saved_name(part: Field[Any]) -> str:
    """The name of a field's array in files: that of the version which first wrote it, where the field was renamed."""
    return str(part.metadata.get("saved_as", part.name))


def _rows(state: State) -> int:
    """Rows of the arrays that are in use."""
    return len(state) if state.shared is None else state.shared.used


def state_positions(users: ArrayLike | Any, count: int) -> Ints:
    """Users as checked positions (m,) in [0, count); negative ones are refused, where NumPy would count from the end.

    >>> state_positions([2, 0], 3).tolist()
    [2, 0]
    """
    if type(users) is list and len(users) == 1 and type(users[0]) is int and 0 <= users[0] < count:
        return np.array(users)  # one user, as most calls of a service have it
    given = users if type(users) is np.ndarray else validate_array(users, "users")
    if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
        raise PolicyError(f"users must be a list of positions, not {given.dtype} of shape {given.shape}")
    rows = np.ascontiguousarray(given, dtype=np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= count):
        raise PolicyError(f"users must lie in 0..{count - 1}, and {rows.min()}..{rows.max()} were given")
    return rows


def _readable(value: str) -> str:
    """A setting as users read it: numbers as short as they can be, of hashes the beginning."""
    try:
        return repr(float(value)).removesuffix(".0") if "." in value or "e" in value else value[:24]
    except ValueError:
        return value[:24]


def _stack(name: str, parts: list[Array], grows: bool) -> Array:
    """The arrays one below the other; arrays that grow are first padded with zeros to the largest trailing axes."""
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) == 1:
        return np.concatenate(parts)
    if not grows or len({part.ndim for part in parts}) != 1:
        raise PolicyError(f"states of different shapes cannot be put together: '{name}' has {sorted(shapes)}")
    common = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    out = np.zeros((sum(map(len, parts)), *common), dtype=parts[0].dtype)
    start = 0
    for part in parts:
        out[(slice(start, start + len(part)), *map(slice, part.shape[1:]))] = part
        start += len(part)
    return out
