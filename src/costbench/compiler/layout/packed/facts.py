"""What fusion, kernels and memory need to know of an instruction once its memory orders are known.

An instruction meets few combinations of orders, so each is worked out once, by the rules that a full compile
uses, and stored as a row of numbers. A laid-out computation then is a list of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from costbench.arrays import I64, U64
from costbench.compiler.fingerprints import ModuleFingerprints, input_label, instruction_label
from costbench.compiler.fusion.reads import Extent, own_extent
from costbench.compiler.fusion.rules import (
    Kind,
    is_cheap,
    is_duplicated,
    is_free,
    kind_of,
    may_fuse,
    takes_clones,
)
from costbench.compiler.tiled_memory import padded_bytes
from costbench.hlo.instruction import Instruction
from costbench.hlo.memo import Memo
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape

Number = TypeVar("Number", np.int64, np.uint64)

OPCODE, KIND, FLAGS, EXTENT, BYTES, PADDED, PORT, NATURAL, ASSIGNED, NEEDS = range(10)
"""Columns of a row: opcode, number of its kind, flags, number of the extent of its loops, bytes without and
with padding, its first port, order in which it makes its result and order that the result is to have, where
the orders that it needs its operands in begin. Orders are -1 where there is only one."""
NUM_COLUMNS = 10
KINDS = {kind: number for number, kind in enumerate(Kind)}
_FEWEST_ROWS = 1024
STAYING = frozenset({Opcode.PARAMETER, Opcode.CONSTANT})
"""Opcodes whose values are in memory all the time."""
PASSING_ON = frozenset({Opcode.GET_TUPLE_ELEMENT, Opcode.OPT_BARRIER})
"""Opcodes whose results are their operand's buffers."""
TAKING_OVER = frozenset({Opcode.TUPLE, Opcode.WHILE, Opcode.CALL, Opcode.CONDITIONAL})
"""Opcodes that keep the buffers of their operands until the computation ends."""


FREE, DUPLICATED, CONVERTS, CONSTANT, GENERATED, BROADCAST, CHEAP = (1 << bit for bit in range(7))
ARRAY, TUPLE, SCALAR, STAYS, PASSES_ON, TAKES_OVER, CARRIED = (1 << bit for bit in range(7, 14))
"""Flags: moves no data; every reader computes it again; changes the type of an array; a constant; a constant,
count or broadcast; a broadcast; costs next to nothing; has more than one element; a tuple; without axes; in
memory all the time; shares the buffer of its operand; takes over that of its operands; one of several
results."""


@dataclass(frozen=True, eq=False)
class Placed:
    """An instruction with memory orders.

    Attributes:
        inst: with the order in which it makes its result; its operands are those of the program.
        first: shape of its first operand as it reads it, if it has one.
        carried: whether it takes one of several results of an instruction that becomes a kernel.
        needs: numbers of the orders that it needs its operands in.
        natural: number of the order in which it makes its result.
        assigned: number of the order that its result is to have.
    """

    inst: Instruction
    first: Shape | None
    carried: bool
    needs: Sequence[int]
    natural: int
    assigned: int


class FactTable:
    """Rows of facts about the instructions of one program, numbered as they are added.

    Args:
        module: the program.

    Attributes:
        rows: int64 [r, 10].
        needs: orders of operands, rows end to end.
        labels: uint64 [r, 2], hashes of the label of an instruction and of its shape alone.
        instructions: the instruction of each row.
        label_bytes: the label of each row.
        input_digests: digest of the label that each row has as an input, 16 bytes.
    """

    def __init__(self, module: HloModule) -> None:
        fingerprints = ModuleFingerprints(module)
        self._called: Memo[int, bytes] = Memo(fingerprints.called)
        self.ports = PortTable(module)
        self.rows: I64 = np.zeros((_FEWEST_ROWS, NUM_COLUMNS), dtype=np.int64)
        self.labels: U64 = np.zeros((_FEWEST_ROWS, 2), dtype=np.uint64)
        self.needs: I64 = np.full(_FEWEST_ROWS, -1, dtype=np.int64)
        self._num_needs = 0
        self.instructions: list[Instruction] = []
        self.label_bytes: list[bytes] = []
        self.input_digests: list[bytes] = []
        self._extents: dict[Extent, int] = {}

    def add(self, placed: Placed) -> int:
        """Adds a row and returns its number."""
        inst = placed.inst
        number = len(self.instructions)
        label = self.label(inst)
        as_input = _digest(input_label(inst.shape))
        self.rows = _grown(self.rows, number + 1)
        self.labels = _grown(self.labels, number + 1)
        self.needs = _grown(self.needs, self._num_needs + len(placed.needs))
        self.rows[number] = self._row(placed)
        self.labels[number] = [int.from_bytes(d[:8], "little") for d in (_digest(label), as_input)]
        self.needs[self._num_needs : self._num_needs + len(placed.needs)] = placed.needs
        self._num_needs += len(placed.needs)
        self.instructions.append(inst)
        self.label_bytes.append(label)
        self.input_digests.append(as_input)
        return number

    def label(self, inst: Instruction) -> bytes:
        """Returns the label that an instruction has in kernels; callees count by their fingerprints."""
        return instruction_label(inst, [self._called[callee] for callee in inst.called], numbered=False)

    def _row(self, placed: Placed) -> list[int]:
        inst = placed.inst
        # The rules look at no operand but the first.
        first = Instruction("", Opcode.PARAMETER, placed.first or inst.shape)
        alone = inst.rewire(inst.shape, (0,) * len(inst.operands), ())
        body = HloComputation("", (first, alone), 1)
        extent = own_extent(body, 1)
        return [
            int(inst.opcode),
            KINDS[kind_of(inst)],
            _flags(body, alone) | (CARRIED if placed.carried else 0),
            self._extents.setdefault(extent, len(self._extents)),
            inst.shape.num_bytes,
            padded_bytes(inst.shape),
            self.ports.first(inst),
            placed.natural,
            placed.assigned,
            self._num_needs,
        ]


def _flags(body: HloComputation, inst: Instruction) -> int:
    free, shape = is_free(body, inst), inst.shape
    array = any(leaf.num_elements > 1 for leaf in shape.leaves())
    found = (
        (FREE, free),
        (DUPLICATED, is_duplicated(body, inst, free)),
        (CONVERTS, inst.opcode is Opcode.CONVERT and shape.rank > 0),
        (ARRAY, array),
        (TUPLE, shape.is_tuple),
        (SCALAR, shape.rank == 0),
    )
    return _opcode_flags(inst.opcode) | sum(flag for flag, holds in found if holds)


@cache
def _opcode_flags(opcode: Opcode) -> int:
    """Returns the flags that follow from the opcode alone."""
    found = {
        CONSTANT: opcode is Opcode.CONSTANT,
        GENERATED: opcode in (Opcode.IOTA, Opcode.BROADCAST, Opcode.CONSTANT),
        BROADCAST: opcode is Opcode.BROADCAST,
        CHEAP: is_cheap(Instruction("", opcode, Shape(ElementType.F32))),
        STAYS: opcode in STAYING,
        PASSES_ON: opcode in PASSING_ON,
        TAKES_OVER: opcode in TAKING_OVER,
    }
    return sum(flag for flag, holds in found.items() if holds)


class PortTable:
    """Which producers may run in the kernel of an instruction that reads them as a certain operand (a port).

    Args:
        module: the program.

    Attributes:
        takes: bool [p, opcodes, 2], whether the port takes a producer with this opcode, as it is and if a
            broadcast lies between.
        clones: bool [p], whether it takes duplicated instructions.
    """

    def __init__(self, module: HloModule) -> None:
        opcodes = {inst.opcode for body in module.computations for inst in body.instructions}
        self._producers = [
            Instruction("", opcode, Shape(ElementType.F32)) for opcode in sorted(opcodes | {Opcode.COPY})
        ]
        self._width = max(Opcode) + 1
        self._first: dict[tuple[Opcode, int], int] = {}
        self.takes = np.zeros((0, self._width, 2), dtype=bool)
        self.clones = np.zeros(0, dtype=bool)

    def first(self, user: Instruction) -> int:
        """Returns the port of an instruction's first operand; the others follow."""
        key = user.opcode, len(user.operands)
        if key not in self._first:
            self._first[key] = len(self.clones)
            added = np.zeros((len(user.operands), self._width, 2), dtype=bool)
            if kind_of(user) not in (Kind.CONTROL, Kind.ALONE):
                for place, repeated in np.ndindex(len(user.operands), 2):
                    for producer in self._producers:
                        taken = may_fuse(producer, user, place, repeated=bool(repeated))
                        added[place, producer.opcode, repeated] = taken
            self.takes = np.concatenate([self.takes, added])
            clones = [takes_clones(user, place) for place in range(len(user.operands))]
            self.clones = np.concatenate([self.clones, np.array(clones, dtype=bool)])
        return self._first[key]


def _digest(label: bytes) -> bytes:
    return blake2b(label, digest_size=16).digest()


def _grown(array: npt.NDArray[Number], length: int) -> npt.NDArray[Number]:
    """Returns the array, or a copy of at least twice its length if `length` does not fit."""
    if length <= len(array):
        return array
    result = np.zeros((max(length, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    result[: len(array)] = array
    return result
