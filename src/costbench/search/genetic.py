"""Genetic search: the best of parents and children go on.

A child has one or two parents, each the better of two drawn ones, and takes a few steps to a neighbour. When
a generation brings nothing new, decisions drawn at random join it, so given enough budget a small space is
visited as a whole. TpuGraphs' layout search is of this kind (tpugraphs2023, section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from costbench.search.sampling import Proposals
from costbench.search.space import Rows, SearchSpace, Seen

FloatArray = npt.NDArray[np.float64]
_TOURNAMENT = 2


@dataclass(frozen=True)
class Genetic:
    """A `Strategy`.

    Attributes:
        population: decisions kept from one generation to the next, and children per generation.
        crossover: share of children that have two parents.
        mutations: steps to a neighbour that a child takes, at most; at least one.

    Raises:
        ValueError: for a population below 2, no mutations, or a share outside of [0, 1].
    """

    population: int = 32
    crossover: float = 0.5
    mutations: int = 2

    def __post_init__(self) -> None:
        if self.population < 2:
            raise ValueError("population: at least 2")
        if self.mutations < 1:
            raise ValueError("mutations: at least 1")
        if not 0.0 <= self.crossover <= 1.0:
            raise ValueError("crossover: a share, from 0 to 1")

    def __call__(self, space: SearchSpace[Any], rng: np.random.Generator, start: Rows, /) -> Proposals:
        """Generations, the first of them `start` (drawn at random if it is empty)."""
        seen = Seen()
        kept, scores = space.rows([]), np.zeros(0)
        batch = start if len(start) else space.draw(rng, self.population, seen)
        while len(batch):
            found = yield batch
            seen.add(batch)
            kept, scores = np.concatenate([kept, batch]), np.concatenate([scores, found])
            best = np.argsort(scores, kind="stable")[: self.population]
            kept, scores = kept[best], scores[best]
            batch = self._children(space, rng, kept, scores)
            batch = batch[seen.fresh(batch)]
            if not len(batch):
                batch = space.draw(rng, self.population, seen)

    def _children(
        self, space: SearchSpace[Any], rng: np.random.Generator, kept: Rows, scores: FloatArray
    ) -> Rows:
        first, second = (kept[self._parents(rng, scores)] for _ in range(2))
        crossed = space.cross(first, second, rng)
        two_parents = rng.random(self.population) < self.crossover
        children = np.where(two_parents[:, None], crossed, first)
        steps = rng.integers(1, self.mutations + 1, size=self.population)
        for number in range(self.mutations):
            children = np.where((steps > number)[:, None], space.step(children, rng), children)
        return children

    def _parents(self, rng: np.random.Generator, scores: FloatArray) -> npt.NDArray[np.int64]:
        drawn = rng.integers(len(scores), size=(self.population, _TOURNAMENT))
        better: npt.NDArray[np.int64] = drawn[np.arange(self.population), np.argmin(scores[drawn], axis=1)]
        return better
