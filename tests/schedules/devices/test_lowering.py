"""The nest that is computed without a compiler is the one that TVM makes of the schedule."""

from __future__ import annotations

import pytest

from costbench.rng import stream
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.nest import LoopStatement, nest_of
from costbench_schedules.spaces.space import ScheduleSpace

lowering = pytest.importorskip(
    "tests.schedules.devices.lowering", reason="needs the extra cpu (TVM)", exc_type=ImportError
)

KINDS = {"none": 0, "parallel": 1, "vectorize": 2, "unroll": 0}
OPERATORS = (
    "matmul:m=12,n=32,k=20",
    "batch_matmul:b=3,m=8,n=16,k=12",
    "dense:n=6,ci=24,co=40",
    "conv2d:n=1,h=8,w=8,ci=4,co=16,kh=3,kw=3,stride=1,pad=1",
    "conv2d:n=2,h=9,w=9,ci=3,co=8,kh=3,kw=3,stride=2,pad=1",
    "conv2d:n=1,h=6,w=6,ci=8,co=12,kh=1,kw=1,stride=2,pad=0",
    "depthwise_conv2d:n=1,h=8,w=8,c=24,kh=3,kw=3,stride=1,pad=1",
    "grouped_conv2d:n=1,h=8,w=8,g=4,ci=6,co=8,kh=3,kw=3,stride=2,pad=1",
)
NUM_CONFIGS = 12


def loops_of(statement: LoopStatement, rolled: bool = False) -> list[tuple[int, int]]:
    """Extents and kinds, parallel loops fused; without those that are unrolled or vectorised on demand."""
    values: list[tuple[int, int]] = []
    for loop in statement.loops:
        kind = KINDS[loop.annotation]
        if rolled and loop.annotation in ("unroll", "vectorize"):
            continue
        if kind == 1 and values and values[-1][1] == 1:
            values[-1] = (values[-1][0] * loop.extent, 1)
        else:
            values.append((loop.extent, kind))
    return values


@pytest.mark.parametrize("text", OPERATORS)
def test_loops_and_strides_are_those_of_the_lowered_program(text: str) -> None:
    space = ScheduleSpace(parse_operator(text))
    for row in space.sample(stream(0, "lowering", text), NUM_CONFIGS):
        choices = space.choices(row)
        stores = lowering.lower_stores(space.operator, choices)
        statements = nest_of(space, row).statements
        assert len(stores) == len(statements), choices
        for store, statement in zip(stores, statements, strict=True):
            real = [index for index, (extent, _) in enumerate(store.loops) if extent > 1]
            assert [store.loops[index] for index in real] == loops_of(statement), choices
            if any(loop.annotation == "parallel" for loop in statement.loops):
                continue  # indices of fused loops are not affine
            by_name = dict(store.accesses)
            wanted = {names_of(name, by_name): index for index, (name, _, _) in enumerate(statement.buffers)}
            for name, index in wanted.items():
                strides = by_name[name]
                assert strides is not None
                expected = [loop.strides[index] for loop in statement.loops]
                assert [strides[i] for i in real] == expected, (choices, statement.name, name)


def names_of(name: str, known: dict[str, tuple[int, ...] | None]) -> str:
    if name in ("sums", "output"):
        local = "compute_local"
        return local if name == "sums" and local in known else "compute"
    plain = name.replace(".", "_")
    return plain if plain in known else "data"


@pytest.mark.parametrize("text", OPERATORS)
def test_loops_that_stay_are_those_that_the_compiler_does_not_unroll(text: str) -> None:
    space = ScheduleSpace(parse_operator(text))
    for row in space.sample(stream(1, "unrolling", text), NUM_CONFIGS):
        choices = space.choices(row)
        stores = lowering.lower_stores(space.operator, choices, unrolled=True)
        names = {tuple(pair for pair in store.loops if pair[0] > 1) for store in stores}
        wanted = {tuple(loops_of(one, rolled=True)) for one in nest_of(space, row).statements}
        assert names == wanted, choices
