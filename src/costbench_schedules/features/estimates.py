"""Costs that analytical models give schedules: Crop's estimates as features, bytes that enter a cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costbench.arrays import F32, F64
from costbench.search.space import Rows
from costbench_schedules.features.context import ELEMENT_BYTES
from costbench_schedules.spaces.nest import StatementBatch, nest_batch
from costbench_schedules.spaces.space import ScheduleSpace

PARTS = ("compute", "L2", "L3", "RAM", "branches")
_SIMPLER = ("throughput", "roofline", "instructions")


def estimate_features(estimates: Mapping[str, F64], lanes: F64) -> F32:
    """Returns features without a unit, float32 [n, F].

    These are the shares of the parts in the total, the logarithms of the ratios of simpler models' and of
    other processors' times to it, and the base-2 logarithms of executed lanes by kind of operation, relative
    to the most frequent kind.

    Args:
        estimates: estimates [n] by name, `total` and some of the others; see
            `records.estimation.ProgramEstimates.of`.
        lanes: executed lanes by kind of operation, [n, kinds].
    """
    total = estimates["total"]
    shares = [estimates[name] / total for name in PARTS if name in estimates]
    ratios = [
        np.log((1.0 + values) / total)
        for name, values in estimates.items()
        if name in _SIMPLER or name.startswith("total@")
    ]
    largest = lanes.max(axis=1, keepdims=True)
    logarithms = np.log2((1.0 + lanes) / (1.0 + largest))
    return np.column_stack([*shares, *ratios, logarithms]).astype(np.float32)


CACHE_BYTES = 32 * 1024
"""Size of a first-level cache for data, as most x86 processors have."""


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
    indices = np.arange(len(extents))
    return np.asarray(runs[indices, first] * touched[indices, first], dtype=np.float64)


def traffic_cost(space: ScheduleSpace, rows: Rows, capacity: int = CACHE_BYTES) -> F64:
    """Returns the traffic of configurations [n, m] as a cost, float64 [n]: lower is taken to be faster."""
    return traffic(nest_batch(space, rows).statements["compute"], capacity)
