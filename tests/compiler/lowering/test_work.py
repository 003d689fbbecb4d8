from __future__ import annotations

import numpy as np

from costbench.compiler.lowering.iteration_space import IterationSpace
from costbench.compiler.lowering.loop_nest import Lowering, loop_nest
from costbench.compiler.lowering.packed import unpacked
from costbench.compiler.lowering.work import (
    EVERY_ITERATION,
    EVERY_RESULT,
    WorkModel,
    contraction_rows,
    row_of,
)
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import finish
from tests.hlo.builder import ModuleBuilder


class Counting:
    """Counts operations on the result, or on what a reduction reads; and how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(
        self, module: HloModule, body: HloComputation, position: int
    ) -> list[tuple[int, tuple[float, float]]]:
        self.asked += 1
        inst = body.instructions[position]
        if inst.opcode in (Opcode.DOT, Opcode.CONSTANT):
            return []
        return [(inst.operands[0] if inst.opcode is Opcode.REDUCE else position, (1.0, 10.0))]


def test_work_is_summed_by_box_and_by_when_it_runs() -> None:
    b = ModuleBuilder()
    left = b.op("negate", b.op("negate", b.parameter("f32[64,512]")))
    product = b.dot(left, b.parameter("f32[512,384]"))
    kernel = finish(b, b.reduce(b.op("negate", product), (1,)))
    describe = Counting()
    nest = loop_nest(kernel)
    amounts = nest.tables.table(WorkModel("test", 2, describe)).per_box(nest.words, nest.kernel.instructions)
    packed = unpacked(nest.words)
    assert amounts.shape == (2, len(packed.boxes) - 1, 2)
    box = {int(node["position"]): int(node["box"]) for node in packed.nodes}
    work = {inst.opcode: p for p in kernel.instructions for inst in [kernel.instruction(p)]}
    before, after = box[kernel.inputs[0]], box[work[Opcode.DOT]]
    assert amounts[EVERY_ITERATION, before].tolist() == [2, 20]
    # The negation of the sums, and the reduction that reads it.
    assert amounts[EVERY_RESULT, after].tolist() == [2, 20]
    assert amounts.sum() == 4 * 11


def test_an_instruction_is_looked_at_once_for_all_kernels() -> None:
    kernel = small.unary(times=3)
    describe, lowering = Counting(), Lowering(kernel.module)
    first, second = (lowering.loop_nest(kernel) for _ in range(2))
    amounts = [
        nest.tables.table(WorkModel("test", 2, describe)).per_box(nest.words, nest.kernel.instructions)
        for nest in (first, second)
    ]
    assert describe.asked == 3
    assert amounts[0].tolist() == amounts[1].tolist()


def test_contractions_are_described_once_for_each_iteration_space() -> None:
    asked: list[IterationSpace] = []

    def describe(space: IterationSpace) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        asked.append(space)
        return np.array([1.0, 2.0])

    dot, other = loop_nest(small.dot()).space, loop_nest(small.elementwise()).space
    for _ in range(2):
        rows = contraction_rows([other, dot], "test", describe)
    assert row_of(rows, 0).tolist() == []
    assert row_of(rows, 1).tolist() == [1.0, 2.0]
    assert asked == [dot]
