"""The graph on which fusion works: which instruction reads whose value in one computation.

Nodes are the instructions that run in one kernel only. Duplicated instructions, which every reader computes
for itself, are no nodes: an edge (a read) leads through them to the value that they are computed from, and
says whether a broadcast repeats that value on the way to its reader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from costbench.compiler.fusion.rules import (
    Kind,
    is_cheap,
    is_duplicated,
    is_free,
    kind_of,
    takes_clones,
)
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

Extent = tuple[int, int]
"""What the loops of a kernel run over: number of elements, and size of the minor-most axis."""


@dataclass(frozen=True, slots=True)
class Read:
    """An edge: `user` reads the value of `source` as its operand `place`.

    Attributes:
        source: position of the value.
        user: position of the reader.
        place: operand of the reader.
        repeated: whether a broadcast lies between.
    """

    source: int
    user: int
    place: int
    repeated: bool = False


@dataclass(frozen=True)
class BodyFacts:
    """Facts about the instructions of a computation that no fusion decision changes, by position.

    Attributes:
        kinds: kind of every instruction.
        free: whether it is a reshape, transpose or copy that moves no data.
        carried: get-tuple-elements of instructions with several results, with that instruction.
        extents: extent of the loops that compute a value; see `own_extent`.
        taken: cache over reads: whether the reader's kernel may compute the value; see `group_reads`.
    """

    kinds: tuple[Kind, ...]
    free: tuple[bool, ...]
    carried: dict[int, int]
    extents: tuple[Extent, ...]
    taken: dict[Read, tuple[bool, bool]] = field(default_factory=dict)


def facts_of(body: HloComputation) -> BodyFacts:
    """Returns the facts about a computation whose layouts are assigned."""
    kinds = tuple(kind_of(inst) for inst in body.instructions)
    carried = {
        position: inst.operands[0]
        for position, inst in enumerate(body.instructions)
        if inst.opcode is Opcode.GET_TUPLE_ELEMENT and kinds[inst.operands[0]] is not Kind.CONTROL
    }
    free = tuple(is_free(body, inst) for inst in body.instructions)
    return BodyFacts(kinds, free, carried, tuple(own_extent(body, p) for p in range(len(kinds))))


def extent_of(shape: Shape) -> Extent:
    """Returns the extent of a shape; arrays of equal extent can be computed by the same loops."""
    if shape.is_tuple:
        shape = shape.leaves()[0]
    long = [size for size in shape.physical_dimensions if size != 1]
    return (shape.num_elements, long[-1] if long else 1)


def own_extent(body: HloComputation, position: int) -> Extent:
    """Returns the extent of the loops that compute a value: for a reduction, that of its operand."""
    inst = body.instructions[position]
    if inst.opcode is Opcode.REDUCE:
        return extent_of(body.instructions[inst.operands[0]].shape)
    leaves = inst.shape.leaves()
    return extent_of(leaves[0]) if leaves else (0, 0)


class ReadGraph:
    """The reads of one computation.

    Attributes:
        body: the computation, layouts assigned.
        remade: instructions that are duplicated because that saves memory traffic, although `is_duplicated`
            does not ask for it.
        facts: its kinds, free reshapes and carried tuple elements (also as attributes of their own).
        duplicated: whether an instruction is computed again wherever it is read.
        stored: duplicated instructions that some reader needs in memory nevertheless.
    """

    def __init__(
        self,
        body: HloComputation,
        remade: frozenset[int] = frozenset(),
        facts: BodyFacts | None = None,
    ) -> None:
        self.body = body
        self.remade = remade
        self.facts = facts_of(body) if facts is None else facts
        self.kinds, self.free, self.carried = self.facts.kinds, self.facts.free, self.facts.carried
        self.duplicated: list[bool] = []
        self.stored: set[int] = set()
        self._rootless: list[bool] = []
        for position, inst in enumerate(self.body.instructions):
            self.duplicated.append(self._is_recomputed(position, inst))
        self._find_stored()

    def with_remade(self, more: frozenset[int]) -> ReadGraph:
        """Returns the graph of the same computation with further instructions duplicated."""
        return ReadGraph(self.body, self.remade | more, self.facts)

    def instruction(self, position: int) -> Instruction:
        """Returns the instruction at a position."""
        return self.body.instructions[position]

    def _is_recomputed(self, position: int, inst: Instruction) -> bool:
        """Returns whether an instruction is duplicated; records those computed from constants alone."""
        if inst.opcode in (Opcode.IOTA, Opcode.BROADCAST, Opcode.CONSTANT):
            duplicated = is_duplicated(self.body, inst, self.free[position])
            self._rootless.append(duplicated)
            return duplicated
        rootless = bool(inst.operands) and all(self._rootless[operand] for operand in inst.operands)
        # Masks and the like: a few operations on small inputs instead of a large array from memory.
        rootless = rootless and self.kinds[position] is Kind.ELEMENTWISE and is_cheap(inst)
        duplicated = is_duplicated(self.body, inst, self.free[position])
        duplicated = duplicated or rootless or position in self.remade
        if inst.opcode is Opcode.CONVERT and self.kinds[inst.operands[0]] is Kind.CONTROL:
            # An argument is in memory anyway; storing it once more in another type would only add traffic.
            duplicated = duplicated or inst.shape.rank > 0
        passed_on = duplicated and len(inst.operands) == 1 and self._rootless[inst.operands[0]]
        self._rootless.append(rootless or passed_on)
        return duplicated

    def origins(self, position: int) -> set[int]:
        """Returns the nodes that an instruction's large operands come from; no broadcasts or constants."""
        found: set[int] = set()
        visited: set[int] = set()
        stack = list(self.body.instructions[position].operands)
        while stack:
            operand = stack.pop()
            if self._rootless[operand]:
                continue
            if not self.duplicated[operand]:
                found.add(operand)
            elif operand not in visited:
                visited.add(operand)
                stack.extend(self.body.instructions[operand].operands)
        return found

    def is_node(self, position: int) -> bool:
        """Returns whether the instruction is a node, that is, runs in one kernel only."""
        return not self.duplicated[position] or position in self.stored

    def _find_stored(self) -> None:
        """Finds duplicated values that a loop, a sort and so on needs in memory."""
        for position, inst in enumerate(self.body.instructions):
            if self.duplicated[position]:
                continue
            for place, operand in enumerate(inst.operands):
                if not takes_clones(inst, place):
                    self._store(operand)
        self._store(self.body.root)

    def _store(self, position: int) -> None:
        inst = self.body.instructions[position]
        while self.duplicated[position] and self.free[position]:
            position = inst.operands[0]
            inst = self.body.instructions[position]
        if self.duplicated[position] and inst.opcode is not Opcode.CONSTANT:
            self.stored.add(position)

    @cached_property
    def results(self) -> frozenset[int]:
        """Returns the nodes whose values the computation returns."""
        found: set[int] = set()
        visited: set[int] = set()
        stack = [self.body.root]
        while stack:
            position = stack.pop()
            if self.is_node(position):
                found.add(position)
            elif position not in visited:
                visited.add(position)
                stack.extend(self.body.instructions[position].operands)
        return frozenset(found)

    @cached_property
    def reads(self) -> tuple[tuple[Read, ...], ...]:
        """Returns the reads by user; empty for duplicated instructions that are not stored."""
        return tuple(
            tuple(self._reads_of(position, inst)) if self.is_node(position) else ()
            for position, inst in enumerate(self.body.instructions)
        )

    @cached_property
    def readers(self) -> tuple[tuple[Read, ...], ...]:
        """Returns the reads by source."""
        found: list[list[Read]] = [[] for _ in self.body.instructions]
        for reads in self.reads:
            for read in reads:
                found[read.source].append(read)
        return tuple(tuple(reads) for reads in found)

    def _reads_of(self, user: int, inst: Instruction) -> list[Read]:
        """Returns the reads of one user, found depth first through duplicated instructions.

        A duplicated instruction is followed once for each operand of the user and each value of `repeated`,
        however many paths lead to it, since a second visit would find the same reads.
        """
        found: dict[Read, None] = {}
        for place, operand in enumerate(inst.operands):
            if not self.duplicated[operand]:
                found[Read(operand, user, place)] = None
                continue
            through = takes_clones(inst, place)
            stack = [(operand, False)]
            visited: set[tuple[int, bool]] = set()
            while stack:
                source, repeated = stack.pop()
                kept = source in self.stored and not through and not self.free[source]
                if kept or not self.duplicated[source]:
                    found[Read(source, user, place, repeated)] = None
                elif (source, repeated) not in visited:
                    visited.add((source, repeated))
                    step = self.body.instructions[source]
                    below = repeated or step.opcode is Opcode.BROADCAST
                    stack.extend((next_source, below) for next_source in step.operands)
        return list(found)

    def clones(self, position: int) -> list[int]:
        """Returns duplicated instructions that a node's kernel computes for it, in no particular order."""
        inst = self.body.instructions[position]
        found: dict[int, None] = {}
        stack = [o for place, o in enumerate(inst.operands) if takes_clones(inst, place)]
        # Scalars are part of whatever reads them; nothing is ever read from memory for them.
        stack += [o for o in inst.operands if self._is_scalar_constant(o)]
        while stack:
            operand = stack.pop()
            if self.duplicated[operand] and operand not in found:
                found[operand] = None
                stack.extend(self.body.instructions[operand].operands)
        return list(found)

    def _is_scalar_constant(self, position: int) -> bool:
        inst = self.body.instructions[position]
        return inst.opcode is Opcode.CONSTANT and self.duplicated[position]
