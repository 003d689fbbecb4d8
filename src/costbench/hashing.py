"""Hash functions for compiled code: BLAKE2b for names, SplitMix64 for numbers that look random.

BLAKE2b: unkeyed digests of 16 bytes, those of `hashlib.blake2b(digest_size=16)`. RFC 7693 gives the
algorithm, its constants and the names of variables (`v`, `h`, `m`). Compiled code cannot call hashlib, and
fingerprints of kernels take a digest or two per instruction.

SplitMix64: numbers that are each a function of its key alone. Measurement noise and hashes of kernels depend
neither on the order in which they are computed nor on which others are computed. Steele, Lea, Flood: Fast
splittable pseudorandom number generators (OOPSLA 2014); the constants are those of Vigna's reference code
(prng.di.unimi.it/splitmix64.c).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from costbench.arrays import U64
from costbench.execution.compiled import compiled, compiled_step

BLOCK_BYTES = 128
WORD_BYTES = 8
DIGEST_WORDS = 2
# The fractional parts of the square roots of the first eight primes.
_START = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    dtype=np.uint64,
)
# Which words of a block each round takes (SIGMA).
_ORDER = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ]
)
# Unkeyed, one leaf, 16 bytes of digest.
_PARAMETERS = np.uint64(0x01010000 ^ 16)
_ROUNDS = 12
_16, _24, _32, _40, _48, _63, _1 = (np.uint64(bits) for bits in (16, 24, 32, 40, 48, 63, 1))
_ALL = np.uint64(2**64 - 1)
_WORD_BITS = np.uint64(64)
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""The odd number closest to 2^64 / golden ratio: what the generator adds to its state per draw."""
FIRST_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
SECOND_MULTIPLIER = np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
_Four = tuple[np.uint64, np.uint64, np.uint64, np.uint64]
Key = TypeVar("Key", np.uint64, U64)


@compiled_step
def _mix_words(v: _Four, x: np.uint64, y: np.uint64) -> _Four:
    """Applies RFC 7693's mixing function G: additions and right rotations by 32, 24, 16 and 63 bits."""
    a, b, c, d = v
    a = a + b + x
    d = d ^ a
    d = (d >> _32) | (d << _32)
    c = c + d
    b = b ^ c
    b = (b >> _24) | (b << _40)
    a = a + b + y
    d = d ^ a
    d = (d >> _16) | (d << _48)
    c = c + d
    b = b ^ c
    b = (b >> _63) | (b << _1)
    return a, b, c, d


@compiled
def _compress(h: U64, m: U64, num_bytes: int, is_last: bool) -> None:
    """Updates the state `h` [8] by a block `m` of 16 words; `num_bytes` counts the message up to its end."""
    v0, v1, v2, v3, v4, v5, v6, v7 = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    v8, v9, v10, v11 = _START[0], _START[1], _START[2], _START[3]
    v12, v13, v14, v15 = _START[4] ^ np.uint64(num_bytes), _START[5], _START[6], _START[7]
    if is_last:
        v14 = v14 ^ _ALL
    for number in range(_ROUNDS):
        s = _ORDER[number % 10]
        v0, v4, v8, v12 = _mix_words((v0, v4, v8, v12), m[s[0]], m[s[1]])
        v1, v5, v9, v13 = _mix_words((v1, v5, v9, v13), m[s[2]], m[s[3]])
        v2, v6, v10, v14 = _mix_words((v2, v6, v10, v14), m[s[4]], m[s[5]])
        v3, v7, v11, v15 = _mix_words((v3, v7, v11, v15), m[s[6]], m[s[7]])
        v0, v5, v10, v15 = _mix_words((v0, v5, v10, v15), m[s[8]], m[s[9]])
        v1, v6, v11, v12 = _mix_words((v1, v6, v11, v12), m[s[10]], m[s[11]])
        v2, v7, v8, v13 = _mix_words((v2, v7, v8, v13), m[s[12]], m[s[13]])
        v3, v4, v9, v14 = _mix_words((v3, v4, v9, v14), m[s[14]], m[s[15]])
    h[0] ^= v0 ^ v8
    h[1] ^= v1 ^ v9
    h[2] ^= v2 ^ v10
    h[3] ^= v3 ^ v11
    h[4] ^= v4 ^ v12
    h[5] ^= v5 ^ v13
    h[6] ^= v6 ^ v14
    h[7] ^= v7 ^ v15


@compiled
def digest_16(message: U64, num_bytes: int, scratch: U64) -> None:
    """Writes the digest of a message into `scratch[:2]`, as little-endian words.

    Args:
        message: message as little-endian words; bytes of the last word beyond the message's end are 0.
        num_bytes: length of the message.
        scratch: state of 8 words and a block of 16, uint64 [24].
    """
    h, m = scratch[:8], scratch[8:24]
    for i in range(8):
        h[i] = _START[i]
    h[0] ^= _PARAMETERS
    start = 0
    while True:
        stop = min(start + BLOCK_BYTES, num_bytes)
        for i in range(16):
            word = (start >> 3) + i
            m[i] = message[word] if 8 * word < stop else np.uint64(0)
        _compress(h, m, stop, stop == num_bytes)
        if stop == num_bytes:
            return
        start = stop


@compiled_step
def put_word(message: U64, num_bytes: int, word: np.uint64) -> None:
    """Appends a word to a message of `num_bytes`; to append fewer than 8 bytes, set the others to 0."""
    index, shift = num_bytes >> 3, np.uint64(8 * (num_bytes & 7))
    if shift == 0:
        message[index] = word
    else:
        message[index] |= word << shift
        message[index + 1] = word >> (_WORD_BITS - shift)


def words_of(message: bytes) -> U64:
    """Returns a message as little-endian words, the last one padded with zeros."""
    return np.frombuffer(message + bytes(-len(message) % WORD_BYTES), dtype="<u8").astype(np.uint64)


@compiled
def mix(key: Key) -> Key:
    """Returns the generator's output for a state: a bijection on 64 bits in which each input bit affects all.

    A key is one number or an array of them.
    """
    key = key + GOLDEN_GAMMA
    key = (key ^ (key >> _30)) * FIRST_MULTIPLIER
    key = (key ^ (key >> _27)) * SECOND_MULTIPLIER
    return key ^ (key >> _31)
