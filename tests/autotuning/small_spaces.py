"""Decision spaces and evaluators whose every answer can be worked out by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from costbench.arrays import I16, I64, Bool
from costbench.autotuning.evaluators import Evaluation, Source
from costbench.autotuning.search import TuningProblem
from costbench.autotuning.trace import Subject
from costbench.compiler.spaces import VectorSpace
from costbench.search.space import NumberedSearchSpace, Rows, VectorSearchSpace

NONE: Rows = np.zeros((0, 1), dtype=np.int64)


@dataclass(frozen=True)
class Line:
    """The numbers 0 to size - 1 but for the forbidden ones; neighbours differ by 1; a decision is its number.

    With size 12 and multiples of 5 forbidden, nine are legal: 1 2 3 4, 6 7 8 9 and 11, which has no
    neighbour. No walk leads from one of these groups to another.
    """

    size: int = 12
    forbidden: frozenset[int] = frozenset({0, 5, 10})

    def legal(self, ids: I64) -> Bool:
        return ~np.isin(ids, sorted(self.forbidden))

    def decode(self, ids: I64) -> I64:
        return ids

    def sample(self, rng: np.random.Generator, count: int) -> I64:
        ids = np.arange(self.size, dtype=np.int64)
        ids = ids[self.legal(ids)]
        return ids if len(ids) <= count else np.sort(rng.choice(ids, count, replace=False))

    def neighbours(self, identifier: int) -> I64:
        near = np.array([n for n in (identifier - 1, identifier + 1) if 0 <= n < self.size], dtype=np.int64)
        return near[self.legal(near)]


@dataclass(frozen=True)
class Table:
    """Decision i scores (i - `target`)^2, or infinity among `broken`; each takes `cost_s` seconds."""

    target: int = 7
    broken: frozenset[int] = frozenset()
    cost_s: float = 0.5
    source: Source = "device"
    name: str = "table"
    batches: list[list[int]] = field(default_factory=list)
    recalled: list[int] = field(default_factory=list)

    def evaluate(self, decisions: I64) -> Evaluation:
        self.batches.append(decisions.tolist())
        scores = [math.inf if i in self.broken else (i - self.target) ** 2 for i in decisions.tolist()]
        return Evaluation(np.array(scores, dtype=np.float64), np.full(len(decisions), self.cost_s))

    def recall(self, decisions: I64) -> None:
        self.recalled.extend(decisions.tolist())


@dataclass(frozen=True)
class Dials:
    """Vectors of `places` choices from 0 to 2 that add up to an even number; neighbours turn two dials."""

    places: int = 3

    @property
    def num_choices(self) -> I64:
        return np.full(self.places, 3, dtype=np.int64)

    @property
    def default(self) -> I16:
        return np.zeros(self.places, dtype=np.int16)

    def legal(self, configs: I16) -> Bool:
        inside = ((configs >= 0) & (configs < 3)).all(axis=1)
        return np.asarray(inside & (configs.sum(axis=1) % 2 == 0), dtype=np.bool_)

    def sample(self, rng: np.random.Generator, count: int) -> I16:
        return self._evened(rng.integers(3, size=(count, self.places)).astype(np.int16))

    def neighbours(self, config: I16, rng: np.random.Generator, count: int) -> I16:
        result = np.repeat(config[None], count, axis=0)
        for row in result:
            row[rng.integers(self.places)] = rng.integers(3)
        return self._evened(result)

    def crossover(self, first: I16, second: I16, rng: np.random.Generator) -> I16:
        mixed = np.where(rng.random(self.places) < 0.5, first, second).astype(np.int16)
        return self._evened(mixed[None])[0]

    def _evened(self, rows: I16) -> I16:
        # An odd sum has a 1 somewhere: the first of them goes to 0.
        odd = np.flatnonzero(rows.sum(axis=1) % 2)
        rows[odd, np.argmax(rows[odd] == 1, axis=1)] = 0
        return rows


@dataclass(frozen=True, eq=False)
class Distance:
    """A vector scores the number of places at which it differs from `target`; each takes `cost_s` seconds."""

    target: I16
    cost_s: float = 0.25
    source: Source = "model"
    name: str = "distance"

    def evaluate(self, decisions: I16) -> Evaluation:
        scores = (decisions != self.target).sum(axis=1).astype(np.float64)
        return Evaluation(scores, np.full(len(decisions), self.cost_s))

    def recall(self, decisions: I16) -> None:
        pass


def line_problem(space: Line) -> TuningProblem[I64]:
    return TuningProblem(Subject("line", "none", "by hand", "line", space.size), NumberedSearchSpace(space))


def vector_problem(space: VectorSpace) -> TuningProblem[I16]:
    vectors = VectorSearchSpace(space)
    return TuningProblem(Subject("vector", "none", "by hand", "vector", vectors.size), vectors)
