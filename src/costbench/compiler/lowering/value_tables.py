"""What lowering has to know of the values of a computation, worked out once for all kernels that hold them.

Kernels of one program share instructions, and maps travel through an instruction in few ways. So accesses
are numbered, and each instruction keeps tables from the access on one side of it to the access on the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from costbench.compiler.lowering.access import (
    Access,
    array_shape,
    identity,
    is_elementwise,
    loop_of_axis,
    operand_access,
    result_access,
    scatter_index_access,
    whole,
    wider,
)
from costbench.compiler.lowering.contraction import CONTRACTIONS, contraction_axes
from costbench.compiler.lowering.transfers import READS_IN_PART, Transfer, read, writes, written_value
from costbench.hlo.instruction import Instruction
from costbench.hlo.memo import Memo
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

_ENTRIES_PER_INSTRUCTION = 64

# Bits of `Value.traits`.
CONTRACTS = 1
UNTILED = 2
"""One fixed routine, without tiles."""
WORKS = 4
"""Anything but a reshape."""
FIXES_AXES = 8
"""May not be cut along some axis."""
READS_PART = 16
"""May read part of its first operand."""

_TRAITS: Mapping[Opcode, int] = {
    **dict.fromkeys(CONTRACTIONS, CONTRACTS | WORKS),
    **dict.fromkeys(
        (
            Opcode.FFT,
            Opcode.CHOLESKY,
            Opcode.TRIANGULAR_SOLVE,
            Opcode.CUSTOM_CALL,
            Opcode.RNG_GET_AND_UPDATE_STATE,
        ),
        UNTILED | WORKS,
    ),
    **dict.fromkeys((Opcode.RESHAPE, Opcode.BITCAST), 0),
    **dict.fromkeys((Opcode.SORT, Opcode.TOPK), FIXES_AXES | WORKS),
    **dict.fromkeys(READS_IN_PART, READS_PART | WORKS),
}


class Value(NamedTuple):
    """What an instruction makes; accesses are numbers of its `ValueTables`.

    Attributes:
        position: of the instruction.
        inst: the instruction itself.
        shape: of the value, of the largest member for a tuple.
        traits: bits, see the constants above.
        whole: the access of a value that every tile needs completely.
        results: of each operand, its position and the value's access by the operand's, None where it does
            not follow.
        wanted: of each operand, its position and what is read of it by the value's access.
        source: position of the value whose tiles are written where this one is an output.
    """

    position: int
    inst: Instruction
    shape: Shape
    traits: int
    whole: int
    results: tuple[tuple[int, Memo[int, int | None]], ...]
    wanted: tuple[tuple[int, Memo[int, int]], ...]
    source: int


class ValueTables(Memo[int, Value]):
    """The values of one computation by position.

    Args:
        body: the computation, layouts assigned.

    Attributes:
        accesses: by number.
        wider: the access that serves two uses of a value, an earlier one and this.
        read: what is copied for a value that is read as it is, by its position and access.
        writes: what is copied for an output, by its position and the access of its `source`.
    """

    __slots__ = (
        "_num_entries",
        "_numbers",
        "_same",
        "_same_result",
        "accesses",
        "body",
        "read",
        "wider",
        "writes",
    )

    def __init__(self, body: HloComputation) -> None:
        super().__init__(self._value)
        self.body = body
        self.accesses: list[Access] = []
        self.wider: Memo[tuple[int, int], int] = Memo(self._wider)
        self.read: Memo[tuple[int, int], Transfer] = Memo(self._read)
        self.writes: Memo[tuple[int, int], tuple[Transfer, ...]] = Memo(self._writes)
        self._numbers: dict[Access, int] = {}
        self._num_entries = 0
        self._same: Memo[int, int] = Memo(lambda access: access)
        self._same_result: Memo[int, int | None] = Memo(lambda access: access)

    @property
    def is_full(self) -> bool:
        """Whether the tables have outgrown the computation, and should be started anew."""
        return self._num_entries > _ENTRIES_PER_INSTRUCTION * len(self.body.instructions)

    def number(self, access: Access) -> int:
        """The number of an access; equal accesses have equal numbers."""
        self._num_entries += 1
        number = self._numbers.setdefault(access, len(self.accesses))
        if number == len(self.accesses):
            self.accesses.append(access)
        return number

    def keeps(self, results: Memo[int, int | None]) -> bool:
        """Whether a table of `Value.results` gives every access back as it is."""
        return results is self._same_result

    def scatter_indices(self, scatter: Value, updates: int) -> int:
        """What a scatter reads of its indices, given the access of its updates."""
        shape = self[scatter.inst.operands[1]].shape
        return self.number(scatter_index_access(scatter.inst, self.accesses[updates], shape))

    def _value(self, position: int) -> Value:
        inst = self.body.instructions[position]
        shape = array_shape(inst.shape)
        results: list[tuple[int, Memo[int, int | None]]] = []
        wanted: list[tuple[int, Memo[int, int]]] = []
        for place, operand in enumerate(inst.operands):
            if is_elementwise(inst, self.body.instructions[operand].shape):
                results.append((operand, self._same_result))
                wanted.append((operand, self._same))
            else:
                results.append((operand, Memo(partial(self._result, inst, place))))
                wanted.append((operand, Memo(partial(self._wanted, position, place))))
        return Value(
            position=position,
            inst=inst,
            shape=shape,
            traits=_TRAITS.get(inst.opcode, WORKS),
            whole=self.number(whole(shape)),
            results=tuple(results),
            wanted=tuple(wanted),
            source=written_value(inst, position),
        )

    def _result(self, inst: Instruction, place: int, access: int) -> int | None:
        self._num_entries += 1
        result = result_access(self.body, inst, place, self.accesses[access])
        return None if result is None else self.number(result)

    def _wanted(self, position: int, place: int, access: int) -> int:
        return self.number(self._wanted_access(position, place, self.accesses[access]))

    def _wanted_access(self, position: int, place: int, access: Access) -> Access:
        inst = self.body.instructions[position]
        if inst.opcode in CONTRACTIONS and access and access == identity(inst.shape):
            axes = contraction_axes(self.body, position, loop_of_axis(inst.shape), len(access))
            return axes.operands[place]
        operand = self.body.instructions[inst.operands[place]].shape
        shape = array_shape(operand)
        alike = shape.dimensions == array_shape(inst.shape).dimensions
        if alike and (inst.shape.is_tuple or operand.is_tuple):
            return access
        wanted = operand_access(self.body, inst, place, access)
        return wanted if len(wanted) == shape.rank else whole(shape)

    def _wider(self, uses: tuple[int, int]) -> int:
        first, second = uses
        return self.number(wider(self.accesses[first], self.accesses[second]))

    def _read(self, value: tuple[int, int]) -> Transfer:
        self._num_entries += 1
        position, access = value
        return read(self.body, position, self.accesses[access])

    def _writes(self, value: tuple[int, int]) -> tuple[Transfer, ...]:
        self._num_entries += 1
        position, access = value
        return writes(self.body, position, self.accesses[access])
