"""Accesses of all values of a kernel, found by carrying the loops from its anchor through every instruction.

Maps travel forwards to users and backwards to operands until nothing new is reached. A broadcast's operand
and a reduction's result know less than the other side, so maps cross those two in the direction of loss
only, until nothing else is left. Values with several uses end up with what serves them all.
"""

from __future__ import annotations

from collections.abc import Mapping

from costbench.compiler.access import (
    Access,
    AxisMap,
    array_shape,
    operand_access,
    result_access,
    scatter_index_access,
    whole,
    wider,
)
from costbench.compiler.kernel import Kernel
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

_GAINS_AXES_FORWARDS = frozenset({Opcode.BROADCAST})
_GAINS_AXES_BACKWARDS = frozenset({Opcode.REDUCE})


class Propagation:
    """The state of one kernel's search for accesses.

    Args:
        kernel: whose values are wanted.
        anchor: position of the value that the loops walk over.
        shape: of the anchor.
        num_output_loops: loops over the anchor, in physical order; 0 for a kernel without tiles.
        fixed_operands: accesses that a contraction prescribes for its operands, by (instruction, place).
    """

    def __init__(
        self,
        kernel: Kernel,
        anchor: int,
        shape: Shape,
        num_output_loops: int,
        fixed_operands: Mapping[tuple[int, int], Access],
    ) -> None:
        self._kernel = kernel
        self._anchor = anchor
        self._anchor_shape = shape
        self._fixed = fixed_operands
        self._identity = _identity(shape, num_output_loops)
        self._known: dict[int, Access] = {anchor: self._identity}

    def run(self) -> dict[int, Access]:
        """Access of every instruction and input."""
        self._settle()
        self._adopt_alike()
        for position in self._kernel.instructions:
            self._forwards(position, lossless=False)
        self._settle()
        return self._serve_all_uses()

    def _settle(self) -> None:
        """Carries maps forwards and backwards until nothing new is reached."""
        before = -1
        while before != len(self._known):
            before = len(self._known)
            for position in self._kernel.instructions:
                self._forwards(position, lossless=True)
            for position in reversed(self._kernel.instructions):
                self._backwards(position)

    def _forwards(self, position: int, *, lossless: bool) -> None:
        inst = self._kernel.instruction(position)
        if position in self._known or (lossless and inst.opcode in _GAINS_AXES_FORWARDS):
            return
        for place, operand in enumerate(inst.operands):
            source = self._known.get(operand)
            result = None if source is None else result_access(self._kernel.body, inst, place, source)
            if result is not None:
                self._known[position] = result
                return

    def _backwards(self, position: int) -> None:
        access = self._known.get(position)
        inst = self._kernel.instruction(position)
        if access is None or inst.opcode in _GAINS_AXES_BACKWARDS:
            return
        for place, operand in enumerate(inst.operands):
            if operand not in self._known and (
                operand in self._kernel.members or operand in self._kernel.inputs
            ):
                self._known[operand] = self._wanted(position, inst, place, access)

    def _adopt_alike(self) -> None:
        """Values of the anchor's sizes and memory order that nothing links to it run in the same loops."""
        for position in self._kernel.instructions:
            shape = array_shape(self._kernel.instruction(position).shape)
            same = (
                shape.dimensions == self._anchor_shape.dimensions
                and shape.layout == self._anchor_shape.layout
            )
            if same and position not in self._known:
                self._known[position] = self._identity

    def _serve_all_uses(self) -> dict[int, Access]:
        """Final accesses: instructions keep theirs, inputs get what all their users need together."""
        needed: dict[int, Access] = {}
        result: dict[int, Access] = {}
        for position in reversed(self._kernel.instructions):
            inst = self._kernel.instruction(position)
            access = self._known.get(position, needed.get(position))
            result[position] = whole(array_shape(inst.shape)) if access is None else access
            for place, operand in enumerate(inst.operands):
                wanted = self._wanted(position, inst, place, result[position])
                if inst.opcode in _GAINS_AXES_BACKWARDS:
                    wanted = self._known.get(operand, wanted)
                needed[operand] = wider(needed.get(operand), wanted)
        for position in self._kernel.inputs:
            shape = array_shape(self._kernel.instruction(position).shape)
            result[position] = needed.get(position, whole(shape))
        result[self._anchor] = self._identity
        return result

    def _wanted(self, position: int, inst: Instruction, place: int, access: Access) -> Access:
        """What operand `place` must provide for a tile of the instruction's value."""
        fixed = self._fixed.get((position, place))
        if fixed is not None:
            return fixed
        operand = self._kernel.instruction(inst.operands[place]).shape
        shape = array_shape(operand)
        updates = self._known.get(inst.operands[-1]) if inst.opcode is Opcode.SCATTER else None
        if updates is not None and place == 1:
            return scatter_index_access(inst, updates, shape)
        alike = shape.dimensions == array_shape(inst.shape).dimensions
        if alike and (inst.shape.is_tuple or operand.is_tuple):
            return access
        wanted = operand_access(self._kernel.body, inst, place, access)
        return wanted if len(wanted) == shape.rank else whole(shape)


def _identity(shape: Shape, num_output_loops: int) -> Access:
    identity = [AxisMap()] * shape.rank
    for loop, axis in enumerate(reversed(shape.layout)):
        if loop < num_output_loops:
            identity[axis] = AxisMap(loop=loop)
    return tuple(identity)
