"""Loops of schedules against enumeration and the rule of unrolling, and their text."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.rng import stream
from costbench_schedules.operators.operators import Operator, parse_operator
from costbench_schedules.operators.reference import expected_output, inputs_of
from costbench_schedules.spaces.nest import (
    LoopStatement,
    ScheduledNest,
    nest_batch,
    nest_of,
    nest_text,
    schedule_at,
)
from costbench_schedules.spaces.space import ScheduleSpace, Value

OPERATORS = (
    "matmul:m=4,n=6,k=4",
    "batch_matmul:b=2,m=4,n=4,k=2",
    "dense:n=2,ci=6,co=4",
    "conv2d:h=4,w=4,ci=2,co=4,kh=3,kw=3,pad=1",
    "conv2d:h=5,w=5,ci=2,co=2,kh=1,kw=1,stride=2",
    "conv2d:h=5,w=5,ci=1,co=4,kh=3,kw=3,stride=2,pad=1",
    "depthwise_conv2d:h=4,w=4,c=4,kh=3,kw=3,pad=1",
)


def addresses(statement: LoopStatement, first: int, buffer: int) -> np.ndarray:
    """The element that each iteration of the loops from `first` on accesses, outer loops at their start."""
    totals = np.zeros(1, dtype=np.int64)
    for loop in statement.loops[first:]:
        totals = (totals[:, None] + np.arange(loop.extent) * loop.strides[buffer]).reshape(-1)
    return totals


@pytest.mark.parametrize("text", OPERATORS)
def test_touched_elements_are_those_that_enumeration_finds(text: str) -> None:
    space = ScheduleSpace(parse_operator(text))
    checked = 0
    for row in space.sample(stream(0, "touched", text), 40):
        inline = space.choices(row)["padding"] == "inline"
        for statement in nest_of(space, row).statements:
            for index, (name, _, size) in enumerate(statement.buffers):
                if (name.endswith(".padded") and inline) or (statement.name == "padding" and name == "data"):
                    continue
                for first, loop in enumerate(statement.loops):
                    result = addresses(statement, first, index)
                    assert loop.touched[index] == len(np.unique(result)), (
                        space.choices(row),
                        statement,
                        first,
                    )
                    assert result.max() < size
                    checked += 1
    assert checked > 300


@pytest.mark.parametrize("text", [text for text in OPERATORS if "pad=1" in text])
def test_reads_of_a_padded_input_are_never_underestimated(text: str) -> None:
    operator = parse_operator(text)
    space = ScheduleSpace(operator).sub_space({"padding": ["inline"]})
    for row in space.sample(stream(0, "inline", text), 10):
        compute = statement_of(nest_of(space, row), "compute")
        for first, loop in enumerate(compute.loops):
            inside = dict.fromkeys((axis.name for axis in operator.axes), 1)
            for item in compute.loops[first:]:
                inside[item.name.partition(".")[0]] *= item.extent
            assert len(read(operator, inside)) <= loop.touched[0] <= compute.buffers[0][2]


def read(operator: Operator, inside: dict[str, int]) -> set[tuple[int, ...]]:
    """Elements of the image that the first iterations of the axes read, without those of the padding."""
    access = operator.accesses[0]
    source, before = operator.padding[access.tensor]
    names = set()
    for point in np.ndindex(*inside.values()):
        values = dict(zip(inside, point, strict=True))
        index = [sum(values[name] * k for name, k in dim) for dim in access.strides]
        index = [i - pad for i, pad in zip(index, before, strict=True)]
        if all(0 <= i < size for i, size in zip(index, operator.tensors[source], strict=True)):
            names.add(tuple(index))
    return names


def statement_of(nest: ScheduledNest, name: str) -> LoopStatement:
    return next(one for one in nest.statements if one.name == name)


@pytest.mark.parametrize("text", OPERATORS)
def test_the_computation_is_the_operator(text: str) -> None:
    operator = parse_operator(text)
    wanted: dict[str, list[Value]] = {"cache": ["none"]}
    if operator.padding:
        wanted["padding"] = ["root"]
    space = ScheduleSpace(operator).sub_space(wanted)
    inputs = inputs_of(operator)
    expected = expected_output(operator, inputs)
    arrays = whole_arrays(operator, [array.astype(np.float64) for array in inputs])
    for row in space.sample(stream(0, "computation", text), 10):
        compute = statement_of(nest_of(space, row), "compute")
        at = [addresses(compute, 0, index) for index in range(len(compute.buffers))]
        result = np.zeros(expected.size)
        np.add.at(result, at[-1], np.prod([arrays[i][at[i]] for i in range(len(arrays))], axis=0))
        np.testing.assert_allclose(result.reshape(expected.shape), expected, atol=1e-12)


def whole_arrays(operator: Operator, inputs: list[np.ndarray]) -> list[np.ndarray]:
    named = dict(zip(operator.inputs, inputs, strict=True))
    for name, (source, before) in operator.padding.items():
        padded = np.zeros(operator.tensors[name])
        inside = zip(before, named[source].shape, strict=True)
        padded[tuple(slice(pad, pad + size) for pad, size in inside)] = named[source]
        named[name] = padded
    return [named[access.tensor].reshape(-1) for access in operator.accesses[:-1]]


@pytest.mark.parametrize("text", OPERATORS)
def test_copies_and_initialisation_cover_what_is_computed(text: str) -> None:
    operator = parse_operator(text)
    space = ScheduleSpace(operator)
    output = int(np.prod(operator.tensors["output"]))
    for row in space.sample(stream(0, "copies", text), 40):
        nest = nest_of(space, row)
        init = statement_of(nest, "init")
        assert np.prod([loop.extent for loop in init.loops]) % output == 0
        names = [one.name for one in nest.statements]
        cached = space.choices(row)["cache"] != "none"
        assert ("write" in names) == cached
        assert ("padding" in names) == (space.choices(row)["padding"] in ("root", "tile"))
        if cached:
            write = statement_of(nest, "write")
            # Every element of the output is written once.
            assert sorted(addresses(write, 0, 1).tolist()) == list(range(output))


def test_a_batch_is_its_rows_one_by_one() -> None:
    space = ScheduleSpace(parse_operator("C6"))
    rows = space.sample(stream(0, "batch"), 32)
    batch = nest_batch(space, rows)
    assert len(batch) == 32
    for index, row in enumerate(rows):
        assert schedule_at(batch, index) == nest_of(space, row)


MATMUL: dict[str, Value] = {
    "tile i": (2, 1, 4, 2),
    "tile j": (1, 2, 1, 16),
    "tile r": (4, 8),
    "order": "S0 S1 S2 R0 R1 S3",
    "cache": "tile",
    "vectorize": 1,
    "unroll": 16,
    "parallel": "none",
    "padding": "none",
}


def shown(nest: ScheduledNest, name: str) -> list[tuple[str, int, str]]:
    return [(loop.name, loop.extent, loop.annotation) for loop in statement_of(nest, name).loops]


def test_loops_of_a_matmul_by_hand() -> None:
    space = ScheduleSpace(parse_operator("matmul:m=16,n=32,k=32"))
    nest = nest_of(space, space.row_of(MATMUL))
    # Inside r.0: 8 x 2 statements of 16 lanes reach the limit of 16.
    assert shown(nest, "compute") == [
        ("i.0", 2, "none"),
        ("j.1", 2, "none"),
        ("i.2", 4, "none"),
        ("r.0", 4, "none"),
        ("r.1", 8, "unroll"),
        ("i.3", 2, "unroll"),
        ("j.3", 16, "vectorize"),
    ]
    assert shown(nest, "init")[3:] == [("i.3", 2, "unroll"), ("j.3", 16, "vectorize")]
    assert shown(nest, "write")[3:] == [("dim 0", 2, "unroll"), ("dim 1", 16, "vectorize")]
    compute = statement_of(nest, "compute")
    assert compute.buffers == (("left", False, 512), ("right", False, 1024), ("sums", True, 32))
    # r.1 reads 2 rows of 8 of the left matrix and 8 rows of 16 of the right one, and moves by one and by 32.
    assert compute.loops[4].touched == (16, 128, 32)
    assert compute.loops[4].strides == (1, 32, 0)
    assert [one.shared for one in nest.statements] == [3, 7, 3]


def test_statements_side_by_side_share_the_limit_of_unrolling() -> None:
    space = ScheduleSpace(parse_operator("matmul:m=4,n=1,k=2"))
    tiles: dict[str, Value] = {"tile i": (1, 1, 4, 1), "tile j": (1, 1, 1, 1), "tile r": (1, 2)}
    nest = nest_of(space, space.row_of(MATMUL | tiles))
    # i.2 encloses init (1), r.1 (2 statements) and the write (1): 4 x 4 = 16 statements.
    assert shown(nest, "compute") == [("i.2", 4, "unroll"), ("r.1", 2, "unroll")]
    larger = ScheduleSpace(parse_operator("matmul:m=5,n=1,k=2"))
    nest = nest_of(larger, larger.row_of(MATMUL | tiles | {"tile i": (1, 1, 5, 1)}))
    assert shown(nest, "compute") == [("i.2", 5, "none"), ("r.1", 2, "unroll")]
    assert shown(nest, "write") == [("i.2", 5, "none")]


WANTED = """\
for dim 1 in 6:
  for dim 2 in 6:
    for dim 3 in 2:  # vectorize
      data.padded = data, zeros around it
for y.0 in 4:  # parallel
  for x.2 in 2:
    for x.3 in 2:  # unroll
      for co.3 in 4:  # vectorize
        sums = 0
    for ci.0 in 2:
      for kh.1 in 3:
        for kw.1 in 3:  # unroll
          for x.3 in 2:  # unroll
            for co.3 in 4:  # vectorize
              sums += data.padded * weight
    for dim 2 in 2:  # unroll
      for dim 3 in 4:  # vectorize
        output = sums"""


def test_shared_loops_are_written_once() -> None:
    space = ScheduleSpace(parse_operator("conv2d:h=4,w=4,ci=2,co=4,kh=3,kw=3,pad=1"))
    choices: dict[str, Value] = {
        "tile n": (1, 1, 1, 1),
        "tile y": (4, 1, 1, 1),
        "tile x": (1, 1, 2, 2),
        "tile co": (1, 1, 1, 4),
        "tile ci": (2, 1),
        "tile kh": (1, 3),
        "tile kw": (1, 3),
        "order": "S0 S1 S2 R0 R1 S3",
        "cache": "tile",
        "vectorize": 1,
        "unroll": 16,
        "parallel": "S0",
        "padding": "root",
    }
    # Of the loops around the sum kw.1 makes 3 x 2 statements; kh.1 would make 18, more than 16.
    assert nest_text(nest_of(space, space.row_of(choices))) == WANTED
