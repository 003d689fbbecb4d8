from __future__ import annotations

import itertools

import numpy as np
import pytest

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.access import WHOLE, Access, AxisMap
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.hlo.opcode import Opcode
from tests.compiler import small_kernels as small
from tests.compiler.laid_out import accesses_of
from tests.compiler.small_kernels import finish
from tests.hlo.builder import ModuleBuilder

L0, L1 = AxisMap(loop=0), AxisMap(loop=1)


def accesses(kernel: Kernel) -> list[Access]:
    """Of inputs, then instructions."""
    by_position = accesses_of(kernel)
    assert by_position.keys() == set(kernel.nodes)
    return [by_position[p] for p in kernel.nodes]


def test_a_reduction_keeps_what_it_does_not_sum() -> None:
    b = ModuleBuilder()
    kernel = finish(b, b.reduce(b.op("tanh", b.parameter("f32[64,256]")), (0,)))
    of_input, of_zero, of_tanh, of_sum = (accesses(kernel)[i] for i in (0, 1, 2, 3))
    assert sorted([of_input, of_zero, of_tanh, of_sum], key=len) == [(), (L1,), (L0, L1), (L0, L1)]


def test_a_broadcast_row_moves_with_its_axis_only() -> None:
    b = ModuleBuilder()
    row = b.broadcast(b.op("exponential", b.parameter("f32[256]")), "f32[64,256]", (1,))
    maps = accesses(finish(b, b.op("add", b.parameter("f32[64,256]"), row)))
    assert sorted(maps, key=len) == [(L1,), (L1,), (L0, L1), (L0, L1), (L0, L1)]


def test_what_nothing_links_to_the_anchor_follows_it_if_it_looks_alike() -> None:
    b = ModuleBuilder()
    first = b.op("tanh", b.parameter("f32[64,256]"))
    kernel = finish(b, first, b.op("exponential", b.parameter("f32[64,256]")))
    assert accesses(kernel) == [(L0, L1)] * 4


def test_what_looks_different_is_taken_whole() -> None:
    b = ModuleBuilder()
    kernel = finish(b, b.op("tanh", b.parameter("f32[64,256]")), b.op("tanh", b.parameter("f32[8,4]")))
    assert sorted(accesses(kernel)) == sorted([(L0, L1)] * 2 + [(WHOLE, WHOLE)] * 2)


def test_an_input_serves_all_its_users() -> None:
    b = ModuleBuilder()
    x = b.parameter("f32[64,64]")
    turned = b.op("transpose", x, shape="f32[64,64]", dimensions=(1, 0))
    maps = accesses(finish(b, b.op("add", x, turned)))
    # One use wants rows by loop 0, the other by loop 1.
    assert maps[0] == (WHOLE, WHOLE)
    assert maps[1:].count((L0, L1)) == 2


def test_indices_of_a_scatter_follow_its_updates() -> None:
    kernel = small.scatter()
    by_position = dict(zip(kernel.nodes, accesses(kernel), strict=True))
    (scatter,) = kernel.outputs
    table, indices, updates = kernel.instruction(scatter).operands
    assert by_position[updates] == (L0, L1)
    assert by_position[indices] == (L0, WHOLE)
    assert by_position[table] == (WHOLE, WHOLE)


# ---- against brute force: which elements of every value a tile of the result needs -------------------------


def chain() -> Kernel:
    b = ModuleBuilder()
    row = b.broadcast(b.op("negate", b.parameter("f32[16]")), "f32[24,16,130]", (1,))
    turned = b.op("transpose", b.parameter("f32[130,24,16]"), shape="f32[24,16,130]", dimensions=(1, 2, 0))
    column = b.broadcast(b.parameter("f32[24,1,130]"), "f32[24,1,130]", (0, 1, 2))
    return finish(
        b,
        b.op(
            "add",
            b.op("add", turned, row),
            b.broadcast(b.op("reshape", column, shape="f32[24,130]"), "f32[24,16,130]", (0, 2)),
        ),
    )


def merged() -> Kernel:
    b = ModuleBuilder()
    flat = b.op("reshape", b.parameter("f32[6,4,256]"), shape="f32[6,1024]")
    return finish(b, b.op("add", flat, b.broadcast(b.parameter("f32[6]"), "f32[6,1024]", (0,))))


def needed_elements(kernel: Kernel) -> dict[int, np.ndarray]:
    """For each value, the element of it that each element of the result is computed from."""
    (output,) = kernel.outputs
    body = kernel.body
    shape = body.instructions[output].shape
    elements = {output: np.arange(shape.num_elements).reshape(shape.dimensions)}
    for position in reversed(kernel.instructions):
        inst = body.instructions[position]
        for operand in inst.operands:
            of = body.instructions[operand].shape
            numbers = np.arange(of.num_elements).reshape(of.dimensions)
            if inst.opcode is Opcode.TRANSPOSE:
                numbers = numbers.transpose(inst.dimensions)
            elif inst.opcode is Opcode.RESHAPE:
                numbers = numbers.reshape(inst.shape.dimensions)
            elif inst.opcode is Opcode.BROADCAST:
                axes = [a for a in range(inst.shape.rank) if a not in inst.dimensions]
                numbers = np.broadcast_to(np.expand_dims(numbers, axes), inst.shape.dimensions)
            elements[operand] = numbers.ravel()[elements[position]]
    return elements


@pytest.mark.parametrize("make", [chain, merged])
def test_accesses_hold_just_what_tiles_of_the_result_need(make: object) -> None:
    kernel = make()  # type: ignore[operator]
    nest, by_position, needed = loop_nest(kernel), accesses_of(kernel), needed_elements(kernel)
    shape = kernel.instruction(kernel.outputs[0]).shape
    assert shape.layout == tuple(reversed(range(shape.rank)))  # loop i runs over axis i
    # One native tile along each loop: every tile of the result, and the elements that it is computed from.
    units = [loop.unit for loop in nest.loops]
    starts = itertools.product(*(range(0, loop.extent, loop.unit) for loop in nest.loops))
    for start in starts:
        tile = tuple(slice(s, s + unit) for s, unit in zip(start, units, strict=True))
        lengths = [min(unit, loop.extent - s) for s, unit, loop in zip(start, units, nest.loops, strict=True)]
        for position, access in by_position.items():
            sizes = kernel.instruction(position).shape.dimensions
            expected = [
                lengths[axis.loop] * axis.scale if axis.loops else size
                for axis, size in zip(access, sizes, strict=True)
            ]
            exact = len(np.unique(needed[position][tile]))
            # Of an axis that a reshape merges, whole minor axes are taken.
            assert exact <= np.prod([max(1.0, np.ceil(e)) for e in expected])
            if make is chain:
                assert exact == np.prod(expected)
