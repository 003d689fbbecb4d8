"""Features of schedules as one would write them down first: one schedule, one loop, one number at a time.

The truth that `costbench_schedules.features` is tested against, and the other side of the ratio that
`benchmarks.schedule_features` reports.
"""

from __future__ import annotations

import math

from costbench_schedules.features.context import ELEMENT_BYTES, FEATURE_NAMES
from costbench_schedules.features.vectors import BOUNDED_BY, THRESHOLDS
from costbench_schedules.spaces.nest import Loop, LoopStatement, ScheduledNest

Vector = dict[str, float]


def loop_vectors(nest: ScheduledNest) -> list[Vector]:
    """Returns the context features of every loop of the tree, statement by statement, outermost first."""
    reductions = {axis.name for axis in nest.operator.axes if axis.kind == "reduce"}
    found = []
    for statement in nest.statements:
        first = 0 if statement.name == "compute" else statement.shared
        for place in range(first, len(statement.loops)):
            found.append(_vector(statement, place, reductions))
    return found


def _vector(statement: LoopStatement, place: int, reductions: set[str]) -> Vector:
    loops = statement.loops
    loop = loops[place]
    vector = dict.fromkeys(FEATURE_NAMES, 0.0)
    bottom_up = math.prod(inner.extent for inner in loops[place:])
    vector["extent"] = math.log2(1 + loop.extent)
    vector["depth"] = place
    vector["height"] = len(loops) - 1 - place
    vector["top_down"] = math.log2(1 + math.prod(outer.extent for outer in loops[: place + 1]))
    vector["bottom_up"] = math.log2(1 + bottom_up)
    vector["working_set"] = math.log2(1 + ELEMENT_BYTES * sum(loop.touched))
    vector["reduce"] = float(loop.name.partition(".")[0] in reductions)
    if loop.annotation != "none":
        vector[loop.annotation] = 1.0
    vector[statement.name] = 1.0
    reads = iter(("first", "second"))
    for number, (_, written, _) in enumerate(statement.buffers):
        _describe(vector, "written" if written else next(reads), loop, number, bottom_up)
    return vector


def _describe(vector: Vector, buffer: str, loop: Loop, number: int, bottom_up: int) -> None:
    vector[f"touched_{buffer}"] = math.log2(1 + ELEMENT_BYTES * loop.touched[number])
    vector[f"reuse_{buffer}"] = math.log2(1 + bottom_up / loop.touched[number])
    vector[f"stride_{buffer}"] = math.log2(1 + ELEMENT_BYTES * abs(loop.strides[number]))


def relations(vectors: list[Vector]) -> list[float]:
    """Returns the relation features of a schedule's loops."""
    found = []
    for bound in BOUNDED_BY:
        for threshold in THRESHOLDS:
            inside = [vector for vector in vectors if vector[bound] < math.log2(1 + threshold)]
            found += [max((vector[name] for vector in inside), default=0.0) for name in FEATURE_NAMES]
    return [*found, *(max((vector[name] for vector in vectors), default=0.0) for name in FEATURE_NAMES)]
