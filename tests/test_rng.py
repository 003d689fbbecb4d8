from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from costbench import rng

names = st.lists(st.text() | st.integers(), max_size=3)


def test_key_is_the_first_sixteen_bytes_of_sha256_little_endian() -> None:
    text = "1\x1fs:noise\x1fi:3"
    assert rng.stream_key(1, "noise", 3) == int.from_bytes(
        hashlib.sha256(text.encode()).digest()[:16], "little"
    )


@given(st.integers(0), names)
def test_equal_names_give_equal_draws_whatever_ran_before(seed: int, path: list[str | int]) -> None:
    first = rng.stream(seed, *path).integers(2**63, size=4)
    np.random.default_rng(0).normal(size=10)
    rng.stream(seed, "another").normal(size=10)
    assert rng.stream(seed, *path).integers(2**63, size=4).tolist() == first.tolist()


def test_different_names_give_different_streams() -> None:
    # The pairs that a careless join of the parts would confuse, among others.
    paths = [(), ("",), ("a",), ("b",), ("a", "b"), ("ab",), ("1",), (1,), (1, 2), (12,), ("1", "2"), (-1,)]
    keys = [rng.stream_key(seed, *path) for seed in (0, 1, 11) for path in paths]
    assert len(set(keys)) == len(keys)


def test_streams_of_neighbouring_seeds_are_uncorrelated() -> None:
    first, second = (rng.stream(seed, "x").normal(size=20_000) for seed in (0, 1))
    # The standard error of a correlation of independent draws is 1/sqrt(20000) = 0.007.
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03


def test_draws_are_the_same_in_another_process() -> None:
    program = (
        "import costbench.rng as r; print(r.stream(7, 'noise', 'tpu_v3').integers(10**9, size=3).tolist())"
    )
    source = Path(rng.__file__).parents[1]
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(source), "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == str(rng.stream(7, "noise", "tpu_v3").integers(10**9, size=3).tolist())


def test_words_are_the_lower_halves_of_keys() -> None:
    words = rng.stream_words(3, "device", 5, ends=["a", "", "0f"])
    keys = [rng.stream_key(3, "device", 5, end) for end in ("a", "", "0f")]
    assert words.tolist() == [key % 2**64 for key in keys]
    assert rng.stream_words(3, "device", ends=[]).tolist() == []
