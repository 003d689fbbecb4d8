"""Decision spaces and an evaluator whose every answer can be worked out by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from costbench.autotuning.evaluators import Evaluation, Source
from costbench.autotuning.trace import Subject
from costbench.autotuning.tuning import TuningProblem

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Line:
    """The numbers 0 to size - 1 but for the forbidden ones; neighbours differ by 1; a decision is its number.

    With size 12 and multiples of 5 forbidden, nine are legal: 1 2 3 4, 6 7 8 9 and 11, which has no
    neighbour. No walk leads from one of these groups to another.
    """

    size: int = 12
    forbidden: frozenset[int] = frozenset({0, 5, 10})

    def legal(self, ids: IntArray) -> npt.NDArray[np.bool_]:
        return ~np.isin(ids, sorted(self.forbidden))

    def decode(self, ids: IntArray) -> IntArray:
        return ids

    def sample(self, rng: np.random.Generator, count: int) -> IntArray:
        ids = np.arange(self.size, dtype=np.int64)
        ids = ids[self.legal(ids)]
        return ids if len(ids) <= count else np.sort(rng.choice(ids, count, replace=False))

    def neighbours(self, identifier: int) -> IntArray:
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

    def evaluate(self, decisions: IntArray) -> Evaluation:
        self.batches.append(decisions.tolist())
        scores = [math.inf if i in self.broken else (i - self.target) ** 2 for i in decisions.tolist()]
        return Evaluation(np.array(scores, dtype=np.float64), np.full(len(decisions), self.cost_s))


def line_problem(space: Line) -> TuningProblem[IntArray]:
    return TuningProblem(Subject("line", "none", "by hand", "line", space.size), space)
