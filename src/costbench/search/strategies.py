"""The search strategies by name, the signature that they share, and those that ignore scores.

A strategy is a generator over the decisions of any space. It yields a batch of decisions to try and receives
their scores through `send`; it knows neither how they were scored nor the budget, so a run with a smaller
budget tries a prefix of what a run with a larger one tries. It proposes legal decisions only, each once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from costbench.search.annealing import Annealing
from costbench.search.genetic import Genetic
from costbench.search.space import Proposals, Rows, SearchSpace, Seen

_CHUNK_BITS = 1 << 20
_MAX_CHUNK = 1 << 14
_FIRST_BATCH = 64
_WATCHED_BATCH = 16


class Strategy(Protocol):
    """A search strategy: proposes what to try next."""

    def __call__(self, space: SearchSpace[Any], rng: np.random.Generator, start: Rows, /) -> Proposals:
        """Yields non-empty batches of decisions until no new ones are left.

        Args:
            space: decision space.
            rng: only source of randomness.
            start: distinct legal decisions to try first and to start from; may be empty.
        """
        ...


def exhaustive(space: SearchSpace[Any], rng: np.random.Generator, start: Rows) -> Proposals:
    """Yields `start`, then every other legal decision in order of number."""
    if len(start):
        yield start
    seen = Seen(start)
    chunk = max(1, min(_MAX_CHUNK, _CHUNK_BITS // space.size.bit_length()))
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


STRATEGIES: Mapping[str, Strategy] = {
    "annealing": Annealing(),
    "annealing-1": Annealing(num_chains=1),
    "enumeration": enumeration,
    "exhaustive": exhaustive,
    "genetic": Genetic(),
    "random": random_draws,
}
