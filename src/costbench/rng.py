"""Named random streams: a seed and a path of names determine a generator, whatever was drawn before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from costbench.arrays import U64


def stream_key(seed: int, *names: str | int) -> int:
    """Returns the 128-bit key of a stream: SHA-256 over the seed and the names, cut to 16 bytes."""
    return int.from_bytes(hashlib.sha256(_path(seed, *names).encode()).digest()[:16], "little")


def _path(seed: int, *names: str | int) -> str:
    return "\x1f".join([str(int(seed)), *(f"{type(name).__name__[0]}:{name}" for name in names)])


def stream_words(seed: int, *names: str | int, ends: Sequence[str]) -> U64:
    """Returns the lower 64 bits of `stream_key(seed, *names, end)` for each of the last names `ends`."""
    start = hashlib.sha256(_path(seed, *names, "").encode())
    words = []
    for end in ends:
        state = start.copy()
        state.update(end.encode())
        words.append(state.digest()[:8])
    return np.frombuffer(b"".join(words), dtype="<u8").astype(np.uint64)


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Returns the generator called `names` under `seed`; equal arguments give equal draws on any machine.

    >>> bool(stream(1, "noise", 3).integers(9) == stream(1, "noise", 3).integers(9))
    True
    """
    return np.random.Generator(np.random.PCG64(stream_key(seed, *names)))
