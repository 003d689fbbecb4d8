"""Work of instructions, summed per box: what a cost model asks of a kernel before it sees any tile size.

What an instruction does depends on its program alone, not on the kernel that it is fused into. So a table per
computation holds it, and summing it up for a kernel is a matter of additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.packed import (
    AFTER_CONTRACTION,
    INPUT,
    KIND,
    NODE_BOX,
    POSITION,
    Packed,
    unpacked,
)
from costbench.execution.compiled import compiled

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Amounts = tuple[float, ...]
Describe = Callable[[Kernel, int], Sequence[tuple[int, Amounts]]]
"""Gives for an instruction at most two values whose tiles are worked on, and the amounts of work on each."""

MAX_SUBJECTS = 2
EVERY_ITERATION, EVERY_RESULT = range(2)
"""When work runs: the first axis of what `work_per_box` returns."""
_UNKNOWN, _NONE = -2, -1


class WorkTable:
    """What the instructions of one computation do, found out when a kernel first asks.

    Args:
        num_instructions: of the computation.
        num_amounts: kinds of work.
        describe: finds out.
    """

    def __init__(self, num_instructions: int, num_amounts: int, describe: Describe) -> None:
        self.subjects = np.full((num_instructions, MAX_SUBJECTS), _UNKNOWN, dtype=np.int64)
        self.amounts = np.zeros((num_instructions, MAX_SUBJECTS, num_amounts))
        self._describe = describe

    def complete(self, kernel: Kernel) -> None:
        """Finds out what is missing for a kernel."""
        positions = np.array(kernel.instructions, dtype=np.int64)
        for position in positions[self.subjects[positions, 0] == _UNKNOWN].tolist():
            found = self._describe(kernel, position)
            for place, (subject, amounts) in enumerate(found):
                self.subjects[position, place] = subject
                self.amounts[position, place] = amounts
            self.subjects[position, len(found) :] = _NONE


def work_table(kernel: Kernel, name: str, num_amounts: int, describe: Describe) -> WorkTable:
    """The table of a kernel's computation, kept with the computation under a name."""
    tables: dict[str, WorkTable] = vars(kernel.body).setdefault("work_tables", {})
    table = tables.get(name)
    if table is None:
        table = tables[name] = WorkTable(len(kernel.body.instructions), num_amounts, describe)
    return table


def work_per_box(packed: Packed, kernel: Kernel, table: WorkTable) -> FloatArray:
    """Amounts of work summed over a kernel's instructions, [2, num_boxes, num_amounts].

    First what runs in every iteration, then what needs the finished sums of a contraction.
    """
    result = np.zeros((2, packed.num_boxes, table.amounts.shape[2]))
    if not add_up(packed.ints, packed.floats, table.subjects, table.amounts, result):
        table.complete(kernel)
        result[:] = 0.0
        add_up(packed.ints, packed.floats, table.subjects, table.amounts, result)
    return result


@compiled
def add_up(
    ints: IntArray, floats: FloatArray, subjects: IntArray, amounts: FloatArray, result: FloatArray
) -> bool:
    """Adds work to `result`, [2, num_boxes, num_amounts]; False where the table lacks an instruction."""
    nodes = unpacked(ints, floats).nodes
    for node in range(len(nodes)):
        if nodes[node, KIND] == INPUT:
            continue
        position = nodes[node, POSITION]
        if subjects[position, 0] == _UNKNOWN:
            return False
        when = EVERY_RESULT if nodes[node, KIND] == AFTER_CONTRACTION else EVERY_ITERATION
        for place in range(MAX_SUBJECTS):
            subject = subjects[position, place]
            if subject == _NONE:
                break
            other = node
            while nodes[other, POSITION] != subject:
                other = other - 1 if other else len(nodes) - 1
            for kind in range(amounts.shape[2]):
                result[when, nodes[other, NODE_BOX], kind] += amounts[position, place, kind]
    return True
