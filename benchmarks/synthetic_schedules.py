"""A made-up machine for schedules: an analytic function of their loops, for tests and for timing searches.

It measures nothing. The time of a schedule is the sum of

- operations / (rate lanes), lanes being the extent of a vectorised innermost loop of contiguous writes, up to
  8, and 1 elsewhere;
- for every cache, traffic / bandwidth. The traffic is that of the outermost loop whose working set fits: the
  bytes that one run of it touches, times its runs. Where not even the innermost loop fits, every access is
  traffic;
- a constant for each iteration of a loop that is neither unrolled nor vectorised, of all statements;
- a constant for each start of a parallel loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64, I64, Bool
from costbench.search.space import Rows
from costbench_schedules.features.estimates import traffic
from costbench_schedules.search.problems import ScheduleEvaluator
from costbench_schedules.spaces.nest import NONE, PARALLEL, VECTORIZE, StatementBatch, nest_batch
from costbench_schedules.spaces.space import ScheduleSpace

CACHES = ((32 * 1024, 32.0), (1024 * 1024, 8.0))
"""Bytes of each cache, and bytes that reach it in a nanosecond."""
OPERATIONS_PER_NS = 4.0
ITERATION_NS = 0.5
PARALLEL_NS = 5000.0
MAX_LANES = 8


def synthetic_ns(space: ScheduleSpace, rows: Rows) -> F64:
    """Returns the made-up time of configurations [n, m], float64 [n]."""
    statements = nest_batch(space, rows).statements
    compute = statements["compute"]
    lanes = np.ones(len(rows))
    inner = (compute.annotations == VECTORIZE) & (compute.strides[:, :, -1] == 1)
    lanes = np.maximum(lanes, np.minimum((compute.extents * inner).max(axis=1), MAX_LANES))
    total = space.operator.flops / (OPERATIONS_PER_NS * lanes)
    for capacity, bandwidth in CACHES:
        total += traffic(compute, capacity) / bandwidth
    for statement in statements.values():
        total += ITERATION_NS * iterations(statement)
    total += PARALLEL_NS * (compute.annotations == PARALLEL).any(axis=1)
    return np.asarray(total, dtype=np.float64)


def iterations(statement: StatementBatch) -> F64:
    """Returns how often loops go round that are neither unrolled nor vectorised, float64 [n]."""
    rounds = np.cumprod(statement.extents.astype(np.float64), axis=1)
    is_counted = (statement.extents > 1) & statement.present[:, None]
    is_counted &= (statement.annotations == NONE) | (statement.annotations == PARALLEL)
    if statement.name != "compute":
        is_counted &= np.arange(is_counted.shape[1]) >= statement.shared[:, None]
    return np.asarray((rounds * is_counted).sum(axis=1), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class MadeUp:
    """What the made-up machine answers.

    Attributes:
        runtime_ns: int64 [n].
    """

    runtime_ns: I64

    @property
    def failed(self) -> Bool:
        """Nothing fails."""
        return np.zeros(len(self.runtime_ns), dtype=bool)

    @property
    def run_seconds(self) -> F64:
        """Nothing is charged."""
        return np.zeros(len(self.runtime_ns))


class SyntheticMachine:
    """Measures schedules by `synthetic_ns`."""

    def measure(self, space: ScheduleSpace, rows: Rows, /) -> MadeUp:
        """Returns made-up times in whole nanoseconds, at least 1."""
        return MadeUp(np.maximum(1, np.rint(synthetic_ns(space, rows))).astype(np.int64))


def synthetic(space: ScheduleSpace) -> ScheduleEvaluator:
    """Returns the evaluator of a space on the made-up machine."""
    return ScheduleEvaluator(space, SyntheticMachine(), "synthetic")
