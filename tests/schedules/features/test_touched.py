"""Touched sizes, and with them all that is made of them, against running the loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from costbench import rng
from costbench_schedules.operators.operators import Operator, parse_operator
from costbench_schedules.spaces.nest import LoopStatement, nest_batch, schedule_at
from costbench_schedules.spaces.space import ScheduleSpace, Value, tile_name

SMALL = [
    "matmul:m=4,n=6,k=4",
    "dense:n=2,ci=6,co=4",
    "batch_matmul:b=2,m=2,n=4,k=3",
    "conv2d:h=4,w=4,ci=2,co=4,kh=3,kw=3,stride=1,pad=1",
    "conv2d:h=5,w=5,ci=2,co=2,kh=3,kw=3,stride=2,pad=1",
    "conv2d:h=6,w=6,ci=2,co=4,kh=1,kw=1,stride=2,pad=0",
    "depthwise_conv2d:h=4,w=4,c=4,kh=3,kw=3,stride=1,pad=0",
]
MOST_POINTS = 20_000


def steps_of(operator: Operator, choices: dict[str, Value]) -> dict[str, tuple[str, int]]:
    """The axis of each loop and how far along it one iteration goes, from the knobs' tiles alone."""
    by_name = {}
    for axis in operator.axes:
        factors = choices[tile_name(axis)]
        assert isinstance(factors, tuple)
        for level in range(len(factors)):
            by_name[f"{axis.name}.{level}"] = (axis.name, int(np.prod(factors[level + 1 :])))
    return by_name


def by_running(
    operator: Operator, statement: LoopStatement, first: int, choices: dict[str, Value]
) -> list[int]:
    """The distinct elements of every tensor that the computation's loops from `first` on access."""
    steps = steps_of(operator, choices)
    loops = statement.loops[first:]
    met: list[set[tuple[int, ...]]] = [set() for _ in operator.accesses]
    for point in itertools.product(*(range(loop.extent) for loop in loops)):
        values = dict.fromkeys((axis.name for axis in operator.axes), 0)
        for loop, iteration in zip(loops, point, strict=True):
            axis, step = steps[loop.name]
            values[axis] += step * iteration
        for elements, access in zip(met, operator.accesses, strict=True):
            elements.add(tuple(sum(c * values[axis] for axis, c in index) for index in access.strides))
    return [len(elements) for elements in met]


def by_strides(statement: LoopStatement, first: int, buffer: int) -> int:
    """The distinct addresses in one buffer that a statement's loops from `first` on access."""
    loops = statement.loops[first:]
    addresses = {0}
    for loop in loops:
        addresses = {a + loop.strides[buffer] * i for a in addresses for i in range(loop.extent)}
    return len(addresses)


@pytest.mark.parametrize("text", SMALL)
def test_touched_elements_are_those_that_running_the_loops_touches(text: str) -> None:
    operator = parse_operator(text)
    space = ScheduleSpace(operator)
    rows = space.sample(rng.stream(0, "touched", text), 25)
    batch = nest_batch(space, rows)
    checked = 0
    for index, row in enumerate(rows):
        choices = space.choices(row)
        nest = schedule_at(batch, index)
        [compute] = [statement for statement in nest.statements if statement.name == "compute"]
        for first, loop in enumerate(compute.loops):
            if np.prod([inner.extent for inner in compute.loops[first:]]) > MOST_POINTS:
                continue
            whole = by_running(operator, compute, first, choices)
            for number, access in enumerate(operator.accesses):
                padded = access.tensor in operator.padding
                part = (padded and choices["padding"] == "tile") or (
                    access.write and choices["cache"] != "none"
                )
                if padded and choices["padding"] == "inline":
                    assert loop.touched[number] <= whole[number]
                elif part:
                    # A buffer holds a part of the tensor: loops outside of it touch the same part again.
                    assert loop.touched[number] == by_strides(compute, first, number) <= whole[number]
                else:
                    assert loop.touched[number] == whole[number] == by_strides(compute, first, number)
                checked += 1
    assert checked > 200
