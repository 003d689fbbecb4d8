from __future__ import annotations

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.lowering.packed import NODE_BOX, POSITION, pack, unpacked
from costbench.compiler.lowering.work import EVERY_ITERATION, EVERY_RESULT, work_per_box, work_table
from costbench.hlo.builder import ModuleBuilder
from costbench.hlo.opcode import Opcode
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import finish


class Counting:
    """Counts operations on the result, or on what a reduction reads; and how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, kernel: Kernel, position: int) -> list[tuple[int, tuple[float, float]]]:
        self.asked += 1
        inst = kernel.instruction(position)
        if inst.opcode in (Opcode.DOT, Opcode.CONSTANT):
            return []
        return [(inst.operands[0] if inst.opcode is Opcode.REDUCE else position, (1.0, 10.0))]


def test_work_is_summed_by_box_and_by_when_it_runs() -> None:
    b = ModuleBuilder()
    left = b.op("negate", b.op("negate", b.parameter("f32[64,512]")))
    product = b.dot(left, b.parameter("f32[512,384]"))
    kernel = finish(b, b.reduce(b.op("negate", product), (1,)))
    describe = Counting()
    packed = pack(loop_nest(kernel))
    found = work_per_box(packed, kernel, work_table(kernel, "test", 2, describe))
    assert found.shape == (2, packed.num_boxes, 2)
    nodes = unpacked(packed.ints, packed.floats).nodes
    box = {int(node[POSITION]): int(node[NODE_BOX]) for node in nodes}
    work = {inst.opcode: p for p in kernel.instructions for inst in [kernel.instruction(p)]}
    before, after = box[kernel.inputs[0]], box[work[Opcode.DOT]]
    assert found[EVERY_ITERATION, before].tolist() == [2, 20]
    # The negation of the sums, and the reduction that reads it.
    assert found[EVERY_RESULT, after].tolist() == [2, 20]
    assert found.sum() == 4 * 11


def test_an_instruction_is_looked_at_once_for_all_kernels() -> None:
    kernel = small.unary(times=3)
    describe = Counting()
    first = work_per_box(pack(loop_nest(kernel)), kernel, work_table(kernel, "test", 2, describe))
    again = Kernel(kernel.module, kernel.computation, kernel.instructions, kernel.inputs, kernel.outputs)
    second = work_per_box(pack(loop_nest(again)), again, work_table(again, "test", 2, describe))
    assert describe.asked == 3
    assert first.tolist() == second.tolist()
