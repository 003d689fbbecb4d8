"""Genetic search: the best of parents and children are kept from one generation to the next.

A child has one or two parents, each the better of two drawn ones, and takes a few steps to a neighbour.
TpuGraphs' layout search is of this kind (tpugraphs2023, section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from costbench.arrays import F64, I64
from costbench.search.space import Proposals, Rows, SearchSpace, Seen

_TOURNAMENT = 2


@dataclass(frozen=True)
class Genetic:
    """A `Strategy`.

    Attributes:
        population: decisions kept from one generation to the next, and children per generation.
        crossover: share of children that have two parents.
        mutations: steps to a neighbour that a child takes, at most; at least one.
        tries: 0, or number of attempts per child to breed one that is new. With 0 a generation is drawn at
            once and children that are known are dropped from it; otherwise children are drawn one after
            another.

    Raises:
        ValueError: for a population below 2, no mutations, a share outside of [0, 1], or fewer than 0 tries.
    """

    population: int = 32
    crossover: float = 0.5
    mutations: int = 2
    tries: int = 0

    def __post_init__(self) -> None:
        if self.population < 2:
            raise ValueError("population: at least 2")
        if self.mutations < 1:
            raise ValueError("mutations: at least 1")
        if not 0.0 <= self.crossover <= 1.0:
            raise ValueError("crossover: a share, from 0 to 1")
        if self.tries < 0:
            raise ValueError("tries: at least 0")

    def __call__(self, space: SearchSpace[Any], rng: np.random.Generator, start: Rows, /) -> Proposals:
        """Yields generations, the first of them `start` (drawn at random if it is empty).

        When a generation brings nothing new, decisions drawn at random join it, so given enough budget a
        small space is visited as a whole.
        """
        seen = Seen()
        survivors = Population(space.rows([]), np.zeros(0))
        batch = start if len(start) else space.draw(rng, self.population, seen)
        while len(batch):
            seen.add(batch)
            survivors = self.survivors(survivors, Population(batch, (yield batch)))
            batch = self.children(space, rng, survivors, self.population, seen)
            if not len(batch):
                batch = space.draw(rng, self.population, seen)

    def survivors(self, parents: Population, children: Population) -> Population:
        """Returns the best of both by score; of equal ones the older."""
        rows = np.concatenate([parents.rows, children.rows])
        scores = np.concatenate([parents.scores, children.scores])
        best = np.argsort(scores, kind="stable")[: self.population]
        return Population(rows[best], scores[best])

    def children(
        self, space: SearchSpace[Any], rng: np.random.Generator, parents: Population, count: int, seen: Seen
    ) -> Rows:
        """Returns up to `count` children that are not in `seen`, and adds them to it."""
        if not self.tries:
            return seen.take_fresh(self._generation(space, rng, parents, count))
        children = space.rows([])
        for _ in range(count * self.tries):
            if len(children) == count:
                break
            child = self._child(space, rng, parents)
            children = np.concatenate([children, seen.take_fresh(child)])
        return children

    def _generation(
        self, space: SearchSpace[Any], rng: np.random.Generator, parents: Population, count: int
    ) -> Rows:
        """Returns `count` children drawn at once, one vectorised draw of each kind for all of them."""
        first, second = (parents.tournament(rng, count) for _ in range(2))
        crossed = space.cross(first, second, rng)
        two_parents = rng.random(count) < self.crossover
        children = np.where(two_parents[:, None], crossed, first)
        steps = rng.integers(1, self.mutations + 1, size=count)
        for number in range(self.mutations):
            children = np.where((steps > number)[:, None], space.step(children, rng), children)
        return children

    def _child(self, space: SearchSpace[Any], rng: np.random.Generator, parents: Population) -> Rows:
        """Returns one child [1, m] and draws only the random numbers that it needs."""
        child = parents.tournament(rng, 1)
        if rng.random() < self.crossover:
            child = space.cross(child, parents.tournament(rng, 1), rng)
        for _ in range(int(rng.integers(1, self.mutations + 1))):
            child = space.step(child, rng)
        return child


@dataclass(frozen=True, eq=False)
class Population:
    """Decisions with their scores.

    Attributes:
        rows: decisions, [n, m].
        scores: score of each, float64 [n], lower is better.
    """

    rows: Rows
    scores: F64

    def tournament(self, rng: np.random.Generator, count: int) -> Rows:
        """Returns `count` parents, each the better of two drawn ones, [count, m]."""
        candidates = rng.integers(len(self.scores), size=(count, _TOURNAMENT))
        winners: I64 = candidates[np.arange(count), np.argmin(self.scores[candidates], axis=1)]
        parents: Rows = self.rows[winners]
        return parents
