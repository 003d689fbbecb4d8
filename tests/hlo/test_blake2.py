from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.hlo.blake2 import BLOCK_BYTES, digest_16, put_word, words_of

ROOM = np.zeros(24, dtype=np.uint64)


def digest_of(message: bytes, length: int) -> bytes:
    digest_16(np.frombuffer(message + b"\0", dtype=np.uint8), length, ROOM)
    return bytes(ROOM[:2].astype("<u8").tobytes())


@given(st.binary(max_size=5 * BLOCK_BYTES))
def test_digests_are_those_of_the_standard_library(message: bytes) -> None:
    assert digest_of(message, len(message)) == hashlib.blake2b(message, digest_size=16).digest()


@pytest.mark.parametrize("length", [0, 1, 7, 8, 127, 128, 129, 255, 256, 257])
def test_only_the_first_bytes_count(length: int) -> None:
    message = bytes(range(256)) * 2
    assert digest_of(message, length) == hashlib.blake2b(message[:length], digest_size=16).digest()


def test_words_are_little_endian() -> None:
    assert words_of([bytes([1] + [0] * 7 + [2] + [0] * 7)]).tolist() == [[1, 2]]
    message = np.zeros(10, dtype=np.uint8)
    put_word(message, 1, np.uint64(0x0807060504030201))
    assert message.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]
