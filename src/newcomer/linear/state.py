"""State: what a policy remembers of its users, as a dataclass of arrays with users first.

States are plain data. Policies change them in place; anyone may take some users out, put several states together, or
turn a state into bytes, a file of newcomer/files.py that names the kind of state, so that nothing else is taken for
one.

A state also carries a `Record` of who started it: the same arrays mean something else to another policy, to other
settings or on another model, and would be misread without a word. The record stays with the users who are taken out,
states of different records are never put together, and a policy refuses a state whose record is not its own
(policies/base.py).

Calls on one state may come from several threads: each state has a lock, which every call on it holds (`one_at_a_time`).
Other states are not held up. The lock is no part of what a state is: it is not copied, compared or written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import Field, asdict, dataclass, field, fields
from functools import lru_cache, wraps
from threading import RLock
from typing import Any, ClassVar, Self, TypeVar, cast, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from newcomer import files, validate
from newcomer.arrays import Ints
from newcomer.errors import ModelError, NoHash, PolicyError
from newcomer.records import Shown

Array = NDArray[Any]
Call = TypeVar("Call", bound=Callable[..., Any])
UNLOCKED = nullcontext()  # of what is no state: whoever is called refuses it

# Metadata of a dataclass field whose trailing axes may differ between states of a kind; `concat` pads it with zeros.
GROWS = {"grows": True}
LATER = {"grows": True, "later": True}  # the same, of a field that older files lack: it has a default


def one_at_a_time(call: Call) -> Call:
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

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {_readable(value)}" for name, value in self.settings.items())
        model = f" on model {self.model[:12]}" if self.model else ""
        return (self.policy or "no policy") + (f" with {settings}" if settings else "") + model


NOBODY = Record()


@dataclass
class State(Shown):
    """Arrays with users first; a field may itself be a State. Subclasses are dataclasses and may extend `check`.

    States are equal if their records are, and all arrays to the bit. They change, and have no hash.
    """

    lock: ClassVar[AbstractContextManager[Any]]  # each state has its own
    saved_as: ClassVar[str] = ""  # the kind of its files where that is not the name of the class: its first name
    record: Record = field(default=NOBODY, kw_only=True, repr=False)

    def __new__(cls, *given: Any, **named: Any) -> Self:
        state = super().__new__(cls)
        object.__setattr__(state, "lock", RLock())
        return state

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __copy__(self) -> Self:
        other = object.__new__(type(self))  # which has the same arrays, and so the same lock
        other.__dict__.update(self.__dict__)
        return other

    def facts(self) -> dict[str, Any]:
        """Which policy started it, and how large it is: as `to_bytes`, and in memory."""
        arrays = [array for _, array, _ in self.arrays()]
        found = {"users": len(self), "started_by": str(self.record), "arrays": len(arrays)}
        return found | {"bytes": len(self.to_bytes()), "bytes_in_memory": sum(array.nbytes for array in arrays)}

    def __hash__(self) -> int:
        todo = "use state.to_bytes(), or the ids of its users"
        raise NoHash("a state changes in place, so it cannot be in a set or the key of a dict", todo=todo)

    def __len__(self) -> int:
        return len(next(self.arrays())[1])

    def arrays(self, prefix: str = "", grows: bool = False) -> Iterator[tuple[str, Array, bool]]:
        """Every array, also of nested states, with its dotted name, and whether its trailing axes may grow."""
        for part in fields(self):
            value, name = getattr(self, part.name), prefix + _saved_name(part)
            loose = grows or part.metadata.get("grows", False)
            if isinstance(value, State):
                yield from value.arrays(f"{name}.", loose)
            elif part.name != "record":
                yield name, value, loose

    def take(self, users: ArrayLike) -> Self:
        """A copy with these users (m,), in this order; a user may occur more than once. The record comes along."""
        with self.lock:
            rows = positions(users, len(self))
            return self.rebuild({name: array[rows] for name, array, _ in self.arrays()}, record=self.record)

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
            parts = [{name: array for name, array, _ in state.arrays()} for state in states]
            loose = {name: grows for name, _, grows in states[0].arrays()}
            joint = {name: _stack(name, [part[name] for part in parts], loose[name]) for name in loose}
            return cls.rebuild(joint, record=first)

    def to_bytes(self) -> bytes:
        """The state and its record as safetensors bytes, the same for equal states."""
        with self.lock:
            arrays = {name: array for name, array, _ in self.arrays()}
            return files.pack(self.saved_as or type(self).__name__, arrays, {"record": asdict(self.record)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state that `to_bytes` wrote; anything else is refused, also a state from before there were records."""
        arrays, facts = files.unpack(data, cls.saved_as or cls.__name__)
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
        own: Any = cls
        for part, saved, kind in _parts(own):
            name = prefix + saved
            if kind is not None:
                values[part] = kind.rebuild(arrays, f"{name}.")
            elif name in arrays:
                values[part] = arrays[name]
            elif part != "record" and not own.__dataclass_fields__[part].metadata.get("later"):
                raise ModelError(f"the state lacks the array '{name}'")
        state = cls(**values)
        state.check()
        return state

    def check(self) -> None:
        """Refuse arrays that do not fit together; compiled loops rely on it, because they do not look at bounds."""
        shapes = {name: array.shape for name, array, _ in self.arrays()}
        if any(not shape for shape in shapes.values()) or len({shape[0] for shape in shapes.values()}) != 1:
            raise ModelError(f"the arrays of the state disagree about the number of users: {shapes}")

    def refuse_unless(self, fits: bool) -> None:
        """For `check` of subclasses: refuse arrays of the wrong shapes or types."""
        if not fits:
            found = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array, _ in self.arrays())
            raise ModelError(f"these arrays do not make a {type(self).__name__}: {found}")


@lru_cache(maxsize=64)
def _parts(kind: Any) -> tuple[tuple[str, str, type[State] | None], ...]:
    """The fields of a kind of state: name, name in files, and the kind of a nested state (None for an array)."""
    hints = get_type_hints(kind)
    nested = {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, State)}
    return tuple((part.name, _saved_name(part), nested.get(part.name)) for part in fields(kind))


def _saved_name(part: Field[Any]) -> str:
    """The name of a field's array in files: that of the version which first wrote it, where the field was renamed."""
    return str(part.metadata.get("saved_as", part.name))


def positions(users: ArrayLike | Any, count: int) -> Ints:
    """Users as checked positions (m,) in [0, count); negative ones are refused, where NumPy would count from the end.

    >>> positions([2, 0], 3).tolist()
    [2, 0]
    """
    if type(users) is list and len(users) == 1 and type(users[0]) is int and 0 <= users[0] < count:
        return np.array(users)  # one user, as most calls of a service have it
    given = users if type(users) is np.ndarray else validate.array(users, "users")
    if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
        raise PolicyError(f"users must be a list of positions, not {given.dtype} of shape {given.shape}")
    rows = np.ascontiguousarray(given, dtype=np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= count):
        raise PolicyError(f"users must lie in 0..{count - 1}, and {rows.min()}..{rows.max()} were given")
    return rows


def _readable(value: str) -> str:
    """A setting as people read it: numbers as short as they can be, of hashes the beginning."""
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
