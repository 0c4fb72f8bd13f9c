"""Guards the bytes of states: small, exact to the bit, and read from a stranger without harm."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import newcomer as nc
from newcomer import files
from newcomer.errors import ModelError
from newcomer.linear import state_file
from newcomer.linear.state import State
from newcomer.policies.action_memory import ActionMemory
from newcomer.policies.belief import PriorState
from tests.contract.examples import rank_16, with_catalogue


def served(policy, users, rewards, seed=1):
    state, rng = policy.start(users), np.random.default_rng(seed)
    for _ in range(rewards):
        policy.update(state, ids=[int(rng.integers(0, 200))], reward=[float(rng.integers(1, 6))], users=[0])
    return state


@pytest.mark.parametrize(("rewards", "most"), [(0, 500), (40, 3_000), (1_000, 20_000)])
def test_states_of_rank_16_take_few_bytes(rewards, most):
    policy = nc.PriorUCB(rank_16())
    state = served(policy, 1, rewards)
    data = state.to_bytes()
    assert len(data) <= most
    again = PriorState.from_bytes(data)
    for (name, one, _), (_, other, _) in zip(state.arrays(), again.arrays(), strict=True):
        used = one if one.ndim == 1 else one[:, : other.shape[1]]
        assert used.tobytes() == other.tobytes(), name


def test_newcomers_of_a_state_are_written_once():
    policy = nc.PriorUCB(rank_16())
    one, many = served(policy, 2, 10), served(policy, 900, 10)
    assert len(many.to_bytes()) < len(one.to_bytes()) + 1_000
    again = PriorState.from_bytes(many.to_bytes())
    assert again == many and len(again) == 900 and again.shared is None
    assert again.take([0, 1]) == one


def test_attributes_and_repeatability_of_newcomers_are_kept():
    policy = nc.EmpiricalArms(with_catalogue(5, 2))
    warm = policy.start(1)
    for reward in (1.0, 1.1, 0.9):
        policy.update(warm, ids=[2], reward=[reward])
    state = policy.start(3, repeatability=policy.repeatability(warm))
    mixed = ActionMemory.concat([state, policy.start(2)])
    again = ActionMemory.from_bytes(mixed.to_bytes())
    np.testing.assert_array_equal(again.log_prior, mixed.log_prior)


@dataclass
class Numbers(State):
    """Arrays of the three types that the format has."""

    real: np.ndarray
    whole: np.ndarray
    flag: np.ndarray


EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    127.0,
    128.0,
    -128.0,
    32767.0,
    2.0**31,
    -(2.0**31),
    0.5,
    0.1,
    1e300,
    1e-310,
    inf,
    -inf,
    nan,
]
WHOLE = [0, 1, -1, 127, 128, -128, -129, 2**15, -(2**15), 2**31, -(2**31), 2**62, -(2**63), 2**63 - 1]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_array_comes_back_to_the_bit(data):
    users, width = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 5))
    some = st.one_of(st.sampled_from(EDGES), st.floats(), st.floats(width=32))
    real = data.draw(st.lists(some, min_size=users * width, max_size=users * width))
    whole = data.draw(st.lists(st.sampled_from(WHOLE), min_size=users, max_size=users))
    flag = data.draw(st.lists(st.booleans(), min_size=users, max_size=users))
    state = Numbers(
        np.array(real, dtype=float).reshape(users, width), np.array(whole, dtype=np.int64), np.array(flag, bool)
    )
    again = Numbers.from_bytes(state.to_bytes())
    for (_, one, _), (_, other, _) in zip(state.arrays(), again.arrays(), strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def test_arrays_of_other_types_are_saved_as_safetensors():
    state = Numbers(np.ones((2, 3), dtype=np.float32), np.arange(2), np.ones(2, dtype=bool))
    again = Numbers.from_bytes(state.to_bytes())
    assert again == state and again.real.dtype == np.float32


def test_states_of_format_3_are_read():
    policy = nc.PriorUCB(rank_16())
    state = served(policy, 2, 12)
    record = {"policy": state.record.policy, "settings": dict(state.record.settings), "model": state.record.model}
    old = files.pack_file("PriorState", {name: array for name, array, _ in state.arrays()}, {"record": record})
    assert PriorState.from_bytes(old) == state


def signed(body):
    """A file whose checksum is right, whatever it says."""
    check = hashlib.blake2b(state_file.VERSION + body, digest_size=16).digest()
    return state_file.MAGIC + state_file.VERSION + check + body


def refused_or_read(data):
    """Whether a file was refused, in our own words; nothing else may happen."""
    try:
        PriorState.from_bytes(data)
    except ModelError:
        return True
    return False


def test_truncated_and_altered_files_are_refused():
    data = served(nc.PriorUCB(rank_16()), 3, 5).to_bytes()
    assert all(refused_or_read(data[:end]) for end in range(0, len(data), 7))
    flipped = bytearray(data)
    for place in range(0, len(data), 5):
        flipped[place] ^= 1 << place % 8
        assert refused_or_read(bytes(flipped)), place
        flipped[place] ^= 1 << place % 8


@pytest.mark.parametrize("seed", range(4))
def test_files_of_strangers_with_a_right_checksum_do_no_harm(seed):
    """Bytes are altered at random, and signed again: refused with a ModelError, or read as some state."""
    rng = np.random.default_rng(seed)
    body = bytearray(served(nc.PriorUCB(rank_16()), 3, 5).to_bytes()[state_file.BODY :])
    seen = 0
    for _ in range(300):
        broken, place = bytearray(body), rng.integers(0, min(len(body), 500), rng.integers(1, 4))
        broken[int(place[0])] = rng.integers(0, 256)
        for one in place[1:]:
            broken[int(one)] ^= 1 << int(rng.integers(0, 8))
        seen += refused_or_read(signed(bytes(broken)))
    assert seen > 30


HEADS = [b"[" * 60_000, b"[]", b"{}", b"\xff", b'["PriorState","",{},"",1]', b'["PriorState",1,{},"",1,1]']


@pytest.mark.parametrize("head", [*HEADS, b'["PriorState","",{},"",true,1]', b'["PriorState","",{},"",-1,-1]'])
def test_heads_that_make_no_sense_are_refused(head):
    assert refused_or_read(signed(struct.pack("<II", len(head), 0) + head))


@pytest.mark.parametrize("users", [2**24 + 1, 2**39, 2**62, 10**30])
def test_absurd_numbers_of_users_are_refused_before_memory_is_taken(users):
    policy = nc.PriorUCB(rank_16())
    data = policy.start(1).to_bytes()[state_file.BODY :]
    head, table = struct.unpack_from("<II", data)
    said = data[8 : 8 + head].replace(b",1,1]", f",{users},{users}]".encode())
    assert refused_or_read(signed(struct.pack("<II", len(said), table) + said + data[8 + head :]))


@pytest.mark.parametrize("width", [255, 2**20, 2**39, 2**62])
def test_absurd_sizes_of_arrays_are_refused_before_memory_is_taken(width):
    data = nc.PriorUCB(rank_16()).start(1).to_bytes()[state_file.BODY :]
    head, _ = struct.unpack_from("<II", data)
    table, rest = data[8 + head :], b""
    first = table[:6] + b"\xff" + width.to_bytes(8, "little")  # small.moment, an array of zeros
    wide = first + table[7:]
    size = struct.unpack_from("<II", data)[1] + 8
    assert refused_or_read(signed(struct.pack("<II", head, size) + data[8 : 8 + head] + wide + rest))
