"""The bytes of a state: a short head, a table of arrays, and the arrays as state_loops.py writes them.

    4 bytes    "ncst"
    1          the format, 4
    16         BLAKE2b of everything else, so that no bit changes unnoticed
    4, 4       lengths of the head and of the table, little-endian like all numbers here
    head       JSON: [kind of state, policy, its settings, id of its model, users n, rows r]
    table      an entry an array: CRC-32 of its name (4 bytes), its type and number of axes beyond the first (1), how it
               is written (1), the length of each of these axes (1 byte, or 255 and 8 bytes)
    the rest   the arrays in the order of the table

Arrays have r rows. Where users share rows (shared_rows.py), the first array has no name, and is the row of each of the
n users; else r is n. Formats 1 to 3 were safetensors files (newcomer/files.py), which are still read.

A file is not trusted: every length is checked against the bytes that are there before anything is allocated,
and arrays whose entries are all equal, which take no bytes, have at most `FREE` entries together.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from newcomer.arrays import Bools, Ints
from newcomer.errors import ModelError
from newcomer.linear import state_loops
from newcomer.linear.state_loops import CONSTANT, WIDTHS, ZERO

MAGIC, FORMAT = b"ncst", 4
FREE = 2**24  # entries that arrays of equal entries may have together
VERSION = bytes((FORMAT,))
FLOAT, INT = np.dtype(np.float64), np.dtype(np.int64)
REAL, WHOLE, FLAG = range(3)  # types of arrays
CODES: dict[str, int] = {FLOAT.char: REAL, INT.char: WHOLE, np.dtype(np.bool_).char: FLAG}
LONG, LONGEST = 255, 2**40  # the byte that says that a length takes 8 more; no axis is longer
AXES = 7  # of an array, beyond the first
LENGTHS = struct.Struct("<II")
BODY = len(MAGIC) + 1 + 16  # where the lengths are
Array = NDArray[Any]


class ArrayNames(dict[int, str]):
    """Names of arrays by their CRC-32, made once for each kind of state: one is equal to itself alone."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


class Contents(NamedTuple):
    """What a file says: who started the state, arrays by name, and the row of each user, None where users are rows."""

    policy: str
    settings: dict[str, str]
    model: str
    arrays: dict[str, Array]
    place: Ints | None
    fits: set[type]  # kinds of state that were made of arrays of these names, types and shapes before


@dataclass(frozen=True, eq=False)
class Plan:
    """Where the arrays of a file are among its words, and what they are."""

    parts: tuple[tuple[str, int, int, int, tuple[int, ...]], ...]  # name, begin, end, type, shape
    kinds: NDArray[np.uint8]
    ends: Ints
    reals: Bools
    written: int  # bytes of all arrays
    fits: set[type] = field(default_factory=set)  # kinds of state that were made of such arrays before


class Forms(NamedTuple):
    """What the types and shapes of some arrays come to."""

    types: tuple[int, ...]
    ends: Ints  # (A,) where arrays end among the words
    reals: Bools  # (A,) which are floats
    axes: tuple[tuple[int, ...], ...]  # of each array, beyond the first


@lru_cache(maxsize=256)
def _forms(given: tuple[tuple[str, tuple[int, ...]], ...]) -> Forms | None:
    """Of arrays with these characters of their types, and shapes; None where the format has not all of these types."""
    if not CODES.keys() >= {char for char, _ in given}:
        return None
    types = tuple([CODES[char] for char, _ in given])
    ends = np.array(list(accumulate([prod(shape) for _, shape in given])))
    return Forms(types, ends, _reals(types), tuple([shape[1:] for _, shape in given]))


def pack_state_file(kind: str, record: str, arrays: Mapping[str, Array], index: Ints | None = None) -> bytes | None:
    """The bytes of a state of this kind; `record` is policy, settings and model as JSON, without the brackets.

    None where the format has not the types of all arrays.
    """
    rows = len(next(iter(arrays.values())))
    named = arrays if index is None else {"": index, **arrays}
    given = list(named.values())
    forms = _forms(tuple([(array.dtype.char, array.shape) for array in given]))
    if forms is None:
        return None
    runs = [
        (array.astype(INT) if code == FLAG else array).tobytes() for array, code in zip(given, forms.types, strict=True)
    ]
    data = b"".join([*runs, bytes(8)])  # a word more, so that there is one
    kinds, out = np.empty(len(given), dtype=np.uint8), np.empty(len(data), dtype=np.uint8)
    words, numbers = np.frombuffer(data, INT), np.frombuffer(data, FLOAT)
    size = state_loops.encode_state_words_loop(words, numbers, forms.ends, forms.reals, FREE, kinds, out)
    table = _write_table(tuple(named), forms.types, forms.axes, kinds.tobytes())
    users = rows if index is None else len(index)
    head = f"[{json.dumps(kind)},{record},{users},{rows}]".encode()
    body = b"".join([LENGTHS.pack(len(head), len(table)), head, table, out[:size].tobytes()])
    return b"".join([MAGIC, VERSION, _checksum(VERSION, body), body])


def unpack_state_file(data: bytes, kind: str, names: ArrayNames) -> Contents:
    """What `pack_state_file` wrote, checked; `names` are those of the arrays that the kind has, by their CRC-32."""
    if len(data) < BODY + LENGTHS.size:
        raise _damaged()
    if data[4] > FORMAT:
        raise ModelError(f"format {data[4]} is newer than this version of newcomer reads", todo="upgrade newcomer")
    if _checksum(data[4:5], data[BODY:]) != data[5:BODY]:
        raise ModelError("the contents do not match their checksum", todo="copy or make it again")
    head, table = LENGTHS.unpack_from(data, BODY)
    begin = BODY + LENGTHS.size + head
    said, policy, settings, model, users, rows = _read_head(data[begin - head : begin])
    if said != kind:
        raise ModelError(f"this is a file of kind '{said}', not '{kind}'", todo=f"pass a {kind} file")
    plan = _plan(data[begin : begin + table], users, rows, names)
    if plan.written != len(data) - begin - table:
        raise _damaged()
    words = np.empty(int(plan.ends[-1]), INT)
    numbers = words.view(FLOAT)
    content = np.frombuffer(data, dtype=np.uint8)
    state_loops.decode_state_words_loop(content, begin + table, plan.kinds, plan.ends, plan.reals, words, numbers)
    found: dict[str, Array] = {}
    for name, first, last, code, shape in plan.parts:
        part = (numbers if code == REAL else words)[first:last]
        part = part if code != FLAG else part != 0
        found[name] = part if len(shape) == 1 else part.reshape(shape)
    return Contents(policy, dict(settings), model, found, found.pop("", None), plan.fits)


@lru_cache(maxsize=256)
def _plan(table: bytes, users: int, rows: int, known: ArrayNames) -> Plan:
    """What a table says of arrays with these CRCs and names, checked before anything is allocated."""
    crcs, types, kinds, shapes = _read_table(table)
    unknown = [crc for crc in crcs if crc and crc not in known]
    if not crcs or unknown or len(set(crcs)) != len(crcs) or (crcs[0] == 0) != (users != rows):
        raise ModelError("this state was saved by another version", todo="make it again with this version of newcomer")
    whole = [(rows if crc else users, *shape) for crc, shape in zip(crcs, shapes, strict=True)]
    sizes = [prod(shape) for shape in whole]
    constant = [how in (ZERO, CONSTANT) for how in kinds]
    free = sum([size for size, same in zip(sizes, constant, strict=True) if same])
    written = sum([WIDTHS[how] * (1 if same else n) for how, same, n in zip(kinds, constant, sizes, strict=True)])
    if free > FREE or written > LONGEST or any(prod(max(n, 1) for n in shape) > LONGEST for shape in whole):
        raise _damaged()
    ends = list(accumulate(sizes))
    called = [known[crc] if crc else "" for crc in crcs]
    parts = tuple(zip(called, [0, *ends[:-1]], ends, types, whole, strict=True))
    return Plan(parts, np.frombuffer(kinds, dtype=np.uint8), np.array(ends), _reals(types), written)


def _checksum(version: bytes, body: bytes) -> bytes:
    made = hashlib.blake2b(version, digest_size=16)
    made.update(body)
    return made.digest()


@lru_cache(maxsize=256)
def _reals(types: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which arrays are floats."""
    return np.array([code == REAL for code in types], dtype=np.bool_)


@lru_cache(maxsize=256)
def _write_table(
    names: tuple[str, ...], types: tuple[int, ...], shapes: tuple[tuple[int, ...], ...], kinds: bytes
) -> bytes:
    """The entries of arrays with these names, types and axes beyond the first, written in these ways."""
    parts: list[bytes] = []
    for name, code, shape, how in zip(names, types, shapes, kinds, strict=True):
        sizes = b"".join(bytes((n,)) if n < LONG else bytes((LONG,)) + n.to_bytes(8, "little") for n in shape)
        parts += [crc32(name.encode()).to_bytes(4, "little"), bytes((code | len(shape) << 4, how)), sizes]
    return b"".join(parts)


@lru_cache(maxsize=256)
def _read_table(table: bytes) -> tuple[tuple[int, ...], tuple[int, ...], bytes, tuple[tuple[int, ...], ...]]:
    """CRCs of names, types, ways of writing and axes beyond the first of the arrays in a table."""
    crcs, types, kinds, shapes = [], [], [], []
    place = 0
    while place < len(table):
        if place + 6 > len(table):
            raise _damaged()
        code, axes, how = table[place + 4] & 15, table[place + 4] >> 4, table[place + 5]
        if code > FLAG or axes > AXES or how >= len(WIDTHS):
            raise _damaged()
        crcs.append(int.from_bytes(table[place : place + 4], "little"))
        types.append(code)
        kinds.append(how)
        place += 6
        shape = []
        for _ in range(axes):
            size = table[place] if place < len(table) else LONG
            width = 9 if size == LONG else 1
            size = int.from_bytes(table[place + 1 : place + 9], "little") if size == LONG else size
            place += width
            if place > len(table) or size > LONGEST:
                raise _damaged()
            shape.append(size)
        shapes.append(tuple(shape))
    return tuple(crcs), tuple(types), bytes(kinds), tuple(shapes)


@lru_cache(maxsize=256)
def _read_head(head: bytes) -> tuple[str, str, Mapping[str, str], str, int, int]:
    """Kind, policy, settings, model, users and rows."""
    try:
        kind, policy, settings, model, users, rows = json.loads(head)
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged() from error
    texts = isinstance(settings, dict) and {type(one) for one in (kind, policy, model, *settings.values())} == {str}
    if not texts or not all(type(one) is int and 0 <= one <= LONGEST for one in (users, rows)):
        raise _damaged()
    return kind, policy, settings, model, users, rows


def _damaged() -> ModelError:
    return ModelError("the file is damaged or cut short", todo="copy or make it again")
