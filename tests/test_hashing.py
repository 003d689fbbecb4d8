from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.hashing import BLOCK_BYTES, GOLDEN_GAMMA, digest_16, mix, put_word, words_of

SCRATCH = np.zeros(24, dtype=np.uint64)


def digest_of(message: bytes) -> bytes:
    # What lies behind the last word of a message must not count.
    words = np.append(words_of(message), np.uint64(2**64 - 1))
    digest_16(words, len(message), SCRATCH)
    return bytes(SCRATCH[:2].astype("<u8").tobytes())


@given(st.binary(max_size=5 * BLOCK_BYTES))
def test_digests_are_those_of_the_standard_library(message: bytes) -> None:
    assert digest_of(message) == hashlib.blake2b(message, digest_size=16).digest()


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 127, 128, 129, 255, 256, 257])
def test_digests_around_the_ends_of_words_and_blocks(length: int) -> None:
    message = (bytes(range(256)) * 2)[:length]
    assert digest_of(message) == hashlib.blake2b(message, digest_size=16).digest()


def test_words_are_little_endian_and_filled_up_with_zeros() -> None:
    assert words_of(bytes([1] + [0] * 7 + [2, 1])).tolist() == [1, 0x0102]
    assert words_of(b"").tolist() == []


@given(st.lists(st.binary(min_size=1, max_size=8), max_size=20))
def test_words_are_appended_at_any_byte(parts: list[bytes]) -> None:
    message, num_bytes = np.full(24, 2**64 - 1, dtype=np.uint64), 0
    for part in parts:
        put_word(message, num_bytes, np.uint64(int.from_bytes(part, "little")))
        num_bytes += len(part)
    expected = words_of(b"".join(parts))
    assert message[: len(expected)].tolist() == expected.tolist()


def test_draws_are_those_of_the_reference_code() -> None:
    # Vigna's splitmix64.c with state 1234567, as published at rosettacode.org (Pseudo-random numbers).
    states = np.uint64(1234567) + np.arange(5, dtype=np.uint64) * GOLDEN_GAMMA
    assert mix(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_mixing_is_a_bijection_on_a_sample() -> None:
    assert len(np.unique(mix(np.arange(100_000, dtype=np.uint64)))) == 100_000


def test_an_array_gives_what_its_keys_give_alone() -> None:
    keys = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert mix(keys).tolist() == [int(mix(key)) for key in keys]
