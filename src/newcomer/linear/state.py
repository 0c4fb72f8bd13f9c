"""State: what a policy remembers of its users, as a dataclass of arrays with users first.

States are plain data: policies change them in place, and anyone may take some users out, put several states together,
or turn one into bytes, a file of newcomer/files.py that names the kind of state, so that nothing else is taken for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from newcomer import files
from newcomer.errors import ModelError, PolicyError

Array = NDArray[Any]


# Metadata of a dataclass field whose trailing axes may differ between states of a kind; `concat` pads it with zeros.
GROWS = {"grows": True}


@dataclass
class State:
    """Arrays with users first; a field may itself be a State. Subclasses are dataclasses and may extend `check`."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def arrays(self, prefix: str = "", grows: bool = False) -> Iterator[tuple[str, Array, bool]]:
        """Every array with its dotted name, and whether its trailing axes may grow."""
        for part in fields(self):
            value = getattr(self, part.name)
            loose = grows or part.metadata.get("grows", False)
            if isinstance(value, State):
                yield from value.arrays(f"{prefix}{part.name}.", loose)
            else:
                yield prefix + part.name, value, loose

    def take(self, users: ArrayLike) -> Self:
        """A copy with these users (m,), in this order; a user may occur more than once."""
        rows = positions(users, len(self))
        return self.rebuild({name: array[rows] for name, array, _ in self.arrays()})

    @classmethod
    def concat(cls, states: Sequence[Self]) -> Self:
        """One state with the users of all `states`, in order."""
        if not states or any(type(state) is not cls for state in states):
            raise PolicyError(f"{cls.__name__}.concat needs at least one state, all of this kind")
        parts = [{name: array for name, array, _ in state.arrays()} for state in states]
        loose = {name: grows for name, _, grows in states[0].arrays()}
        return cls.rebuild({name: _stack(name, [part[name] for part in parts], loose[name]) for name in loose})

    def to_bytes(self) -> bytes:
        """The state as safetensors bytes, the same for equal states."""
        return files.pack(type(self).__name__, {name: array for name, array, _ in self.arrays()}, {})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state that `to_bytes` wrote; anything else is refused."""
        arrays, _ = files.unpack(data, cls.__name__)
        return cls.rebuild({name: np.array(array) for name, array in arrays.items()})

    @classmethod
    def rebuild(cls, arrays: dict[str, Array], prefix: str = "") -> Self:
        """A state from arrays by dotted name, checked."""
        hints = get_type_hints(cls)
        values: dict[str, Any] = {}
        for part in fields(cls):
            kind = hints[part.name]
            if isinstance(kind, type) and issubclass(kind, State):
                values[part.name] = kind.rebuild(arrays, f"{prefix}{part.name}.")
            elif prefix + part.name not in arrays:
                raise ModelError(f"the state lacks the array '{prefix}{part.name}'")
            else:
                values[part.name] = arrays[prefix + part.name]
        state = cls(**values)
        state.check()
        return state

    def check(self) -> None:
        """Refuse arrays that do not fit together; kernels rely on it."""
        shapes = {name: array.shape for name, array, _ in self.arrays()}
        if any(not shape for shape in shapes.values()) or len({shape[0] for shape in shapes.values()}) != 1:
            raise ModelError(f"the arrays of the state disagree about the number of users: {shapes}")

    def refuse_unless(self, fits: bool) -> None:
        """For `check` of subclasses: refuse arrays of the wrong shapes or types."""
        if not fits:
            found = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array, _ in self.arrays())
            raise ModelError(f"these arrays do not make a {type(self).__name__}: {found}")


def positions(users: ArrayLike, count: int) -> NDArray[np.int64]:
    """Users as checked positions (m,) in [0, count)."""
    given = np.asarray(users)
    if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
        raise PolicyError(f"users must be a list of positions, not {given.dtype} of shape {given.shape}")
    rows = np.ascontiguousarray(given, dtype=np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= count):
        raise PolicyError(f"users must lie in 0..{count - 1}, and {rows.min()}..{rows.max()} were given")
    return rows


def _stack(name: str, parts: list[Array], grows: bool) -> Array:
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
