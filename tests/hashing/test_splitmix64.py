from __future__ import annotations

import numpy as np

from costbench.hashing.splitmix64 import GOLDEN_GAMMA, mix


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
