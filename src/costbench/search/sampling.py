"""Strategies that ignore scores: exhaustive enumeration, and random sampling without replacement."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from costbench.arrays import F64
from costbench.search.space import Rows, SearchSpace, Seen

Proposals = Generator[Rows, F64, None]
"""Batches of decisions to score; each is answered by its scores."""

_CHUNK_BITS = 1 << 20
_LONGEST_CHUNK = 1 << 14
_FIRST_BATCH = 64
_WATCHED_BATCH = 16


def exhaustive(space: SearchSpace[Any], rng: np.random.Generator, start: Rows) -> Proposals:
    """Yields `start`, then every other legal decision in order of number."""
    if len(start):
        yield start
    seen = Seen(start)
    chunk = max(1, min(_LONGEST_CHUNK, _CHUNK_BITS // space.size.bit_length()))
    for first in range(0, space.size, chunk):
        rows = space.rows(range(first, min(first + chunk, space.size)))
        rows = rows[space.legal(rows)]
        rows = rows[seen.fresh(rows)]
        if len(rows):
            yield rows


def enumeration(space: SearchSpace[Any], rng: np.random.Generator, start: Rows) -> Proposals:
    """Yields what `exhaustive` does in small batches, where scoring a decision takes long enough to watch."""
    for rows in exhaustive(space, rng, start):
        for first in range(0, len(rows), _WATCHED_BATCH):
            yield rows[first : first + _WATCHED_BATCH]


def random_draws(space: SearchSpace[Any], rng: np.random.Generator, start: Rows) -> Proposals:
    """Yields `start`, then legal decisions drawn without replacement until the space gives no new ones."""
    seen = Seen()
    batch = start if len(start) else space.draw(rng, _FIRST_BATCH, seen)
    while len(batch):
        yield batch
        seen.add(batch)
        # A draw costs time linear in the decisions seen and drawn: doubling batches keep the total linear.
        batch = space.draw(rng, max(_FIRST_BATCH, len(seen)), seen)
