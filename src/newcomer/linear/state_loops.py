"""Compiled loops that write the arrays of a state as bytes, each in the shortest way that keeps every bit.

An array is a run of 8-byte words, the bits of a float64 or of an int64. All equal, they are written once; whole numbers
of a few bits take one, two or four bytes, and so do floats that a float32 has; anything else takes eight. Bytes are
little-endian on every machine. The file around them is in state_file.py.

A service keeps a state for each user, so that the size of a user is what it stores and moves: most numbers of a user
with few rewards are counts, zeros and ones, which take a byte instead of eight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from newcomer.array_loops import compiled
from newcomer.arrays import Bools, Floats, Ints

Bytes = NDArray[np.uint8]
# How a run of words is written, and the bytes that each word then takes (of a constant run: all of them together).
RAW, ZERO, CONSTANT, INT8, INT16, INT32, FLOAT32 = range(7)
WIDTHS = (8, 0, 8, 1, 2, 4, 4)


@compiled
def _state_words_fit(words: Ints, numbers: Floats, begin: int, end: int, real: bool, limit: float) -> bool:
    """Whether all words of a run are whole numbers in [-limit, limit)."""
    for i in range(begin, end):
        if real:
            value = numbers[i]
            if not -limit <= value < limit or np.floor(value) != value or (value == 0.0 and words[i] != 0):
                return False
        elif not -limit <= words[i] < limit:
            return False
    return True


@compiled
def _shortest_state_words(words: Ints, numbers: Floats, begin: int, end: int, real: bool) -> int:
    """How to write the run of words from `begin` to `end`, which are floats if `real`; constants aside."""
    if _state_words_fit(words, numbers, begin, end, real, 128.0):
        return INT8
    if _state_words_fit(words, numbers, begin, end, real, 32768.0):
        return INT16
    if _state_words_fit(words, numbers, begin, end, real, 2147483648.0):
        return INT32
    if not real:
        return RAW
    for i in range(begin, end):
        if not abs(numbers[i]) < 1e38 or float(np.float32(numbers[i])) != numbers[i]:
            return RAW
    return FLOAT32


@compiled
def _put_state_word(word: int, width: int, out: Bytes, place: int) -> None:
    """Write the lowest bytes of a word."""
    for b in range(width):
        out[place + b] = (word >> (8 * b)) & 255


@compiled
def encode_state_words_loop(
    words: Ints, numbers: Floats, ends: Ints, reals: Bools, free: int, kinds: Bytes, out: Bytes
) -> int:
    """Write runs of words, which end at `ends` (A,), to `out`, and how to `kinds` (A,); returns the bytes written.

    `numbers` are the same words as floats, which those of `reals` (A,) are. At most `free` words are written as
    constants, so that a reader knows how much a short file can grow to.
    """
    single = np.empty(1, dtype=np.float32)
    bits, place, begin = single.view(np.int32), 0, 0
    for a in range(ends.size):
        end = ends[a]
        same = end - begin <= free
        for i in range(begin + 1, end):
            if words[i] != words[begin]:
                same = False
                break
        if same:
            free -= end - begin
            kinds[a] = CONSTANT if end > begin and words[begin] != 0 else ZERO
            if kinds[a] == CONSTANT:
                _put_state_word(int(words[begin]), 8, out, place)
                place += 8
            begin = end
            continue
        kind = _shortest_state_words(words, numbers, begin, end, reals[a])
        kinds[a] = kind
        for i in range(begin, end):
            if kind == RAW:
                _put_state_word(int(words[i]), 8, out, place)
                place += 8
            elif kind == FLOAT32:
                single[0] = numbers[i]
                _put_state_word(int(bits[0]), 4, out, place)
                place += 4
            else:
                width = 1 if kind == INT8 else 2 if kind == INT16 else 4
                _put_state_word(int(numbers[i]) if reals[a] else int(words[i]), width, out, place)
                place += width
        begin = end
    return place


@compiled
def _get_state_word(data: Bytes, place: int, width: int) -> int:
    """The whole number, with its sign, of the lowest bytes of a word."""
    word = np.int64(0)
    for b in range(width):
        word |= np.int64(data[place + b]) << np.int64(8 * b)
    if width < 8 and data[place + width - 1] > 127:
        word -= np.int64(1) << np.int64(8 * width)
    return int(word)


@compiled
def decode_state_words_loop(
    data: Bytes, place: int, kinds: Bytes, ends: Ints, reals: Bools, words: Ints, numbers: Floats
) -> None:
    """Read what `encode_state_words_loop` wrote from `place` on into `words`; the caller has seen that `data` is as
    long as that takes.

    `numbers` are the same memory as `words`.
    """
    single = np.empty(1, dtype=np.int32)
    number, begin = single.view(np.float32), 0
    for a in range(ends.size):
        end, kind = ends[a], kinds[a]
        if kind == ZERO or kind == CONSTANT:
            words[begin:end] = 0 if kind == ZERO else _get_state_word(data, place, 8)
            place += 8 if kind == CONSTANT else 0
            begin = end
            continue
        width = 8 if kind == RAW else 1 if kind == INT8 else 2 if kind == INT16 else 4
        for i in range(begin, end):
            word = _get_state_word(data, place, width)
            place += width
            if kind == FLOAT32:
                single[0] = word
                numbers[i] = number[0]
            elif kind != RAW and reals[a]:
                numbers[i] = word
            else:
                words[i] = word
        begin = end


def warm_state_loops() -> None:
    """Call every loop of this file once, with arrays of the types it meets."""
    data = np.arange(2.0).tobytes()
    words, numbers = np.frombuffer(data, dtype=np.int64), np.frombuffer(data)
    ends, reals, kinds, out = np.array([2]), np.ones(1, dtype=np.bool_), np.zeros(1, np.uint8), np.zeros(16, np.uint8)
    _state_words_fit(words, numbers, 0, 2, True, 2.0)
    _shortest_state_words(words, numbers, 0, 2, True)
    _put_state_word(1, 1, out, 0)
    encode_state_words_loop(words, numbers, ends, reals, 8, kinds, out)
    written, back = np.frombuffer(out.tobytes(), dtype=np.uint8), np.zeros(2, dtype=np.int64)
    _get_state_word(written, 0, 1)
    given: list[Any] = [written, 0, np.frombuffer(kinds.tobytes(), dtype=np.uint8), ends, reals]
    decode_state_words_loop(*[*given, back, back.view(np.float64)])
