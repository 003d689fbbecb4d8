"""Strategies that learn nothing from scores: every decision in turn, or decisions drawn at random."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt

from costbench.compiler.spaces import DecisionSpace

IntArray = npt.NDArray[np.int64]
Proposals = Generator[IntArray, npt.NDArray[np.float64], None]
"""Batches of decisions to score; each is answered by its scores."""

_CHUNK = 1 << 14
_FIRST_BATCH = 64


def exhaustive(space: DecisionSpace[Any], rng: np.random.Generator, start: IntArray) -> Proposals:
    """`start`, then every other legal decision in order of number."""
    if len(start):
        yield start
    for first in range(0, space.size, _CHUNK):
        ids = np.arange(first, min(first + _CHUNK, space.size), dtype=np.int64)
        ids = ids[space.legal(ids) & ~np.isin(ids, start)]
        if len(ids):
            yield ids


def random_draws(space: DecisionSpace[Any], rng: np.random.Generator, start: IntArray) -> Proposals:
    """`start`, then legal decisions drawn without replacement until the space gives no new ones."""
    seen = start
    batch = start if len(start) else unseen(space, rng, start, _FIRST_BATCH)
    while len(batch):
        yield batch
        seen = np.concatenate([seen, batch])
        # Drawing costs in proportion to what is drawn, so batches that double keep the total linear.
        batch = unseen(space, rng, seen, max(_FIRST_BATCH, len(seen)))


def unseen(space: DecisionSpace[Any], rng: np.random.Generator, seen: IntArray, count: int) -> IntArray:
    """Up to `count` legal decisions that are not among `seen`, in random order; none where none are left."""
    # Of len(seen) + count distinct decisions at least `count` are new.
    drawn = space.sample(rng, len(seen) + count)
    return rng.permutation(drawn[~np.isin(drawn, seen)])[:count]
