"""Finds the values that share one buffer, hence one memory order: loop state, call arguments, tuple members.

Every array of a program, members of tuples included, is a leaf. A tuple, its members, a loop's initial value,
its body's parameter and result and the condition's parameter are all the same buffers, so their leaves are
united into classes; a class has one memory order.
"""

from __future__ import annotations

from collections.abc import Sequence

from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

_IDENTITIES = frozenset({Opcode.OPT_BARRIER, Opcode.DOMAIN, Opcode.ADD_DEPENDENCY})
ALIASES = frozenset({Opcode.TUPLE, Opcode.GET_TUPLE_ELEMENT, Opcode.WHILE, Opcode.CALL, Opcode.CONDITIONAL})
"""Opcodes whose result is (part of) their operands, or of what the computations they call return."""
WHILE_BODY, WHILE_CONDITION = 0, 1
"""Indices of a loop's two computations in `Instruction.called`."""


class ValueClasses:
    """The leaves of a program, numbered end to end, and the class of each.

    Attributes:
        shapes: shape of every leaf.
        owner: (computation, position) of the instruction that every leaf belongs to.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.shapes: list[Shape] = []
        self.owner: list[tuple[int, int]] = []
        self._first: list[list[int]] = []
        for c, computation in enumerate(module.computations):
            firsts = []
            for p, inst in enumerate(computation.instructions):
                firsts.append(len(self.shapes))
                leaves = inst.shape.leaves()
                self.shapes.extend(leaves)
                self.owner.extend([(c, p)] * len(leaves))
            self._first.append(firsts)
        self._parent = list(range(len(self.shapes)))
        self._offsets: dict[tuple[int, int], list[int]] = {}
        for c, computation in enumerate(module.computations):
            for p, inst in enumerate(computation.instructions):
                self._unite_instruction(c, p, inst)

    def leaves(self, computation: int, position: int) -> range:
        """Returns the leaves of an instruction's value."""
        first = self._first[computation][position]
        shape = self.module.computations[computation].instructions[position].shape
        return range(first, first + (len(shape.leaves()) if shape.is_tuple else 1))

    def leaf(self, computation: int, position: int) -> int:
        """Returns the only leaf of an instruction whose value is an array."""
        return self._first[computation][position]

    def find(self, leaf: int) -> int:
        """Returns the number of a leaf's class: its smallest leaf."""
        parent = self._parent
        while parent[leaf] != leaf:
            parent[leaf] = parent[parent[leaf]]
            leaf = parent[leaf]
        return leaf

    def members(self) -> dict[int, list[int]]:
        """Returns leaves by class, only for arrays of rank two or more: the others have just one order."""
        leaves: dict[int, list[int]] = {}
        for leaf, shape in enumerate(self.shapes):
            if shape.rank > 1:
                leaves.setdefault(self.find(leaf), []).append(leaf)
        return leaves

    def _unite(self, first: Sequence[int], second: Sequence[int]) -> None:
        for a, b in zip(first, second, strict=True):
            a, b = self.find(a), self.find(b)
            self._parent[max(a, b)] = min(a, b)

    def _unite_instruction(self, c: int, p: int, inst: Instruction) -> None:
        leaves = self.leaves(c, p)
        if inst.opcode is Opcode.TUPLE:
            first = leaves.start
            for operand in inst.operands:
                members = self.leaves(c, operand)
                self._unite(range(first, first + len(members)), members)
                first += len(members)
        elif inst.opcode is Opcode.GET_TUPLE_ELEMENT:
            start = self._member_offset(c, inst.operands[0], inst.tuple_index)
            self._unite(leaves, range(start, start + len(leaves)))
        elif inst.opcode in (Opcode.WHILE, Opcode.CALL, Opcode.CONDITIONAL):
            self._unite_called(c, inst, leaves)
        elif inst.opcode in _IDENTITIES:
            self._unite(leaves, self.leaves(c, inst.operands[0]))
        elif inst.shape.is_tuple:
            self._unite_alike(leaves)

    def _member_offset(self, c: int, position: int, index: int) -> int:
        offsets = self._offsets.get((c, position))
        if offsets is None:
            offsets, first = [], self.leaf(c, position)
            for member in self.module.computations[c].instructions[position].shape.tuple_shapes:
                offsets.append(first)
                first += len(member.leaves())
            self._offsets[c, position] = offsets
        return offsets[index]

    def _unite_called(self, c: int, inst: Instruction, leaves: range) -> None:
        computations = self.module.computations
        if inst.opcode is Opcode.WHILE:
            self._unite(leaves, self.leaves(c, inst.operands[0]))
            for callee in inst.called:
                self._unite(leaves, self.leaves(callee, computations[callee].parameters[0]))
            self._unite(
                leaves, self.leaves(inst.called[WHILE_BODY], computations[inst.called[WHILE_BODY]].root)
            )
            return
        arguments = inst.operands if inst.opcode is Opcode.CALL else inst.operands[1:]
        for number, callee in enumerate(inst.called):
            operands = arguments if inst.opcode is Opcode.CALL else arguments[number : number + 1]
            for operand, parameter in zip(operands, computations[callee].parameters, strict=True):
                self._unite(self.leaves(c, operand), self.leaves(callee, parameter))
            self._unite(leaves, self.leaves(callee, computations[callee].root))

    def _unite_alike(self, leaves: range) -> None:
        """Unites the results of one instruction (a sort, a reduction of two values): they share an order."""
        for leaf in leaves[1:]:
            if self.shapes[leaf].dimensions == self.shapes[leaves.start].dimensions:
                self._unite((leaves.start,), (leaf,))
