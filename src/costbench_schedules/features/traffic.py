"""Bytes that a schedule moves into a cache, by what its loops touch: an estimate without a machine."""

from __future__ import annotations

import numpy as np

from costbench.arrays import F64
from costbench.search.space import Rows
from costbench_schedules.features.context import ELEMENT_BYTES
from costbench_schedules.spaces.nest import StatementBatch, nest_batch
from costbench_schedules.spaces.space import ScheduleSpace

CACHE_BYTES = 32 * 1024
"""Of a first-level cache for data, as most x86 processors have."""


def traffic(compute: StatementBatch, capacity: int) -> F64:
    """Returns the bytes that enter a cache of that size during the computation, float64 [n].

    It is the traffic of the outermost loop whose working set fits: the bytes that one run of it touches,
    times its runs. Where not even the innermost loop fits, every access is traffic.
    """
    extents = compute.extents.astype(np.float64)
    touched = compute.touched.sum(axis=2) * float(ELEMENT_BYTES)
    # One more, innermost "loop": a single point, which accesses one element of each buffer.
    point = np.full((len(extents), 1), float(ELEMENT_BYTES * compute.touched.shape[2]))
    touched = np.concatenate([touched, point], axis=1)
    runs = np.cumprod(np.concatenate([np.ones((len(extents), 1)), extents], axis=1), axis=1)
    fits = touched <= capacity
    fits[:, -1] = True
    first = np.argmax(fits, axis=1)
    lines = np.arange(len(extents))
    return np.asarray(runs[lines, first] * touched[lines, first], dtype=np.float64)


def traffic_cost(space: ScheduleSpace, rows: Rows, capacity: int = CACHE_BYTES) -> F64:
    """Returns the traffic of configurations [n, m] as a cost, float64 [n]: lower is taken to be faster."""
    return traffic(nest_batch(space, rows).statements["compute"], capacity)
