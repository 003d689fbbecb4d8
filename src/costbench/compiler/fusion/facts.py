"""What fusion, cutting and memory need to know of the instructions of a computation, as rows of numbers.

The rules of `fusion.rules` are applied once to an instruction with its memory orders; compiled code reads the
results. Rules about a producer and its reader depend on the producer's opcode and on the reader's operand, a
*port*, alone: they are a table of ports by opcodes.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, Bool
from costbench.compiler.fusion.rules import (
    Kind,
    Port,
    is_cheap,
    is_duplicated,
    is_free,
    kind_of,
    may_fuse,
    takes_clones,
)
from costbench.compiler.kernel_arrays import lists_to_arrays
from costbench.compiler.tiled_memory import padded_bytes
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

OPCODE, KIND, FLAGS, EXTENT, BYTES, PADDED, PORT = range(7)
"""Columns of a row: opcode, number of its kind, flags, number of the extent of its loops, bytes without and
with padding, port of its first operand."""
NUM_FACTS = 7
KINDS = {kind: number for number, kind in enumerate(Kind)}
CONTROL, ELEMENTWISE = KINDS[Kind.CONTROL], KINDS[Kind.ELEMENTWISE]

FREE, DUPLICATED, CONVERTS, CONSTANT, GENERATED, BROADCAST, CHEAP = (1 << bit for bit in range(7))
ARRAY, TUPLE, SCALAR, STAYS, PASSES_ON, TAKES_OVER, MEMBER = (1 << bit for bit in range(7, 14))
"""Flags: moves no data; every reader computes it again; changes the type of an array; a constant; a constant,
count or broadcast; a broadcast; costs next to nothing; has more than one element; a tuple; without axes; in
memory all the time; shares the buffer of its operand; takes over those of its operands; one of several
results of an instruction that becomes a kernel."""

STAYING = frozenset({Opcode.PARAMETER, Opcode.CONSTANT})
"""Opcodes whose values are in memory all the time."""
PASSING_ON = frozenset({Opcode.GET_TUPLE_ELEMENT, Opcode.OPT_BARRIER})
"""Opcodes whose results are their operand's buffers."""
TAKING_OVER = frozenset({Opcode.TUPLE, Opcode.WHILE, Opcode.CALL, Opcode.CONDITIONAL})
"""Opcodes that keep the buffers of their operands until the computation ends."""

Extent = tuple[int, int]
"""What the loops of a kernel run over: number of elements, and size of the minor-most axis."""
_NUM_OPCODES = max(Opcode) + 1
_MAX_BYTES = 1 << 62
"""Larger sizes count as this one."""


class BodyFacts(NamedTuple):
    """A computation of n instructions whose memory orders are known.

    Attributes:
        facts: [n, columns], the rows of its instructions.
        operands_offsets: [n + 1], where the operands of each instruction begin.
        operands: positions.
        root: position of the root.
        takes: [ports, opcodes, 2], see `InstructionFacts`.
        clones: [ports], likewise.
    """

    facts: I64
    operands_offsets: I64
    operands: I64
    root: int
    takes: Bool
    clones: Bool


class InstructionFacts:
    """Works out rows of facts, and numbers the extents and ports that they name.

    Attributes:
        takes: bool [ports, opcodes, 2], whether the kernel of a reader takes a producer with this opcode as
            this operand, as it is and if a broadcast lies between.
        clones: bool [ports], whether it takes duplicated instructions.
    """

    def __init__(self) -> None:
        self.takes = np.zeros((0, _NUM_OPCODES, 2), dtype=bool)
        self.clones = np.zeros(0, dtype=bool)
        self._ports: dict[tuple[Opcode, int], int] = {}
        self._extents: dict[Extent, int] = {}

    def row(self, inst: Instruction, operand: Shape | None, *, is_member: bool) -> list[int]:
        """Returns the facts about an instruction, by column.

        Args:
            inst: the instruction, with the memory order of its result.
            operand: shape of its first operand as the instruction reads it, if it has one.
            is_member: whether it takes one of several results of an instruction that becomes a kernel.
        """
        shape = inst.shape
        flags = _opcode_flags(inst.opcode)
        for flag, is_set in (
            (FREE, is_free(inst, operand)),
            (DUPLICATED, is_duplicated(inst, operand)),
            (CONVERTS, inst.opcode is Opcode.CONVERT and shape.rank > 0),
            (ARRAY, any(leaf.num_elements > 1 for leaf in shape.leaves())),
            (TUPLE, shape.is_tuple),
            (SCALAR, shape.rank == 0),
            (MEMBER, is_member),
        ):
            if is_set:
                flags |= flag
        # A reduction's loops run over what it reads.
        looped = operand if inst.opcode is Opcode.REDUCE and operand is not None else shape
        extent = extent_of(looped)
        return [
            int(inst.opcode),
            KINDS[kind_of(inst.opcode)],
            flags,
            self._extents.setdefault(extent, len(self._extents)),
            min(shape.num_bytes, _MAX_BYTES),
            min(padded_bytes(shape), _MAX_BYTES),
            self._port(inst.opcode, len(inst.operands)),
        ]

    def _port(self, opcode: Opcode, num_operands: int) -> int:
        """Returns the port of an instruction's first operand; the others follow."""
        key = opcode, num_operands
        if key not in self._ports:
            self._ports[key] = len(self.clones)
            takes, clones = _ports_of(opcode, num_operands)
            self.takes = np.concatenate([self.takes, takes])
            self.clones = np.concatenate([self.clones, clones])
        return self._ports[key]


def extent_of(shape: Shape) -> Extent:
    """Returns the extent of a shape, or of a tuple's first array; (0, 0) for an empty tuple.

    Arrays of equal extent can be computed by the same loops.
    """
    leaves = shape.leaves()
    if not leaves:
        return (0, 0)
    sizes = [size for size in leaves[0].physical_dimensions if size != 1]
    return (leaves[0].num_elements, sizes[-1] if sizes else 1)


@cache
def _opcode_flags(opcode: Opcode) -> int:
    """Returns the flags that follow from the opcode alone."""
    flags = {
        CONSTANT: opcode is Opcode.CONSTANT,
        GENERATED: opcode in (Opcode.IOTA, Opcode.BROADCAST, Opcode.CONSTANT),
        BROADCAST: opcode is Opcode.BROADCAST,
        CHEAP: is_cheap(opcode),
        STAYS: opcode in STAYING,
        PASSES_ON: opcode in PASSING_ON,
        TAKES_OVER: opcode in TAKING_OVER,
    }
    return sum(flag for flag, is_set in flags.items() if is_set)


@cache
def _ports_of(opcode: Opcode, num_operands: int) -> tuple[Bool, Bool]:
    """Returns `InstructionFacts.takes` and `clones` of the operands of an instruction."""
    takes = np.zeros((num_operands, _NUM_OPCODES, 2), dtype=bool)
    clones = np.zeros(num_operands, dtype=bool)
    for number in range(num_operands):
        port = Port(opcode, num_operands, number)
        clones[number] = takes_clones(port)
        for producer in Opcode if kind_of(opcode) not in (Kind.CONTROL, Kind.ALONE) else ():
            takes[number, producer] = [
                may_fuse(producer, port, repeated=repeated) for repeated in (False, True)
            ]
    return takes, clones


def is_kernel_result(inst: Instruction, operand: Instruction | None) -> bool:
    """Returns whether an instruction takes one of several results of its operand, which becomes a kernel."""
    if inst.opcode is not Opcode.GET_TUPLE_ELEMENT or operand is None:
        return False
    return kind_of(operand.opcode) is not Kind.CONTROL


def body_facts(body: HloComputation) -> BodyFacts:
    """Returns a computation whose layouts are assigned, as compiled code reads it."""
    table, rows = InstructionFacts(), []
    for inst in body.instructions:
        operand = body.instructions[inst.operands[0]] if inst.operands else None
        rows.append(
            table.row(inst, operand.shape if operand else None, is_member=is_kernel_result(inst, operand))
        )
    facts = np.array(rows, dtype=np.int64).reshape(-1, NUM_FACTS)
    operands_offsets, operands = lists_to_arrays([inst.operands for inst in body.instructions])
    return BodyFacts(facts, operands_offsets, operands, body.root, table.takes, table.clones)
