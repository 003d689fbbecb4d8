"""SplitMix64: numbers that look random, each a function of its key alone.

Measurement noise and hashes of kernels are functions of a key, so they depend neither on the order in which
they are computed nor on which others are computed.

Steele, Lea, Flood: Fast splittable pseudorandom number generators (OOPSLA 2014); the constants are those of
Vigna's reference code (prng.di.unimi.it/splitmix64.c).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from costbench.arrays import U64
from costbench.execution.compiled import compiled

Key = TypeVar("Key", np.uint64, U64)

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""The odd number closest to 2^64 / golden ratio: what the generator adds to its state per draw."""
FIRST_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
SECOND_MULTIPLIER = np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@compiled
def mix(key: Key) -> Key:
    """Returns the generator's output for a state: a bijection on 64 bits in which each input bit affects all.

    A key is one number or an array of them.
    """
    key = key + GOLDEN_GAMMA
    key = (key ^ (key >> _30)) * FIRST_MULTIPLIER
    key = (key ^ (key >> _27)) * SECOND_MULTIPLIER
    return key ^ (key >> _31)
