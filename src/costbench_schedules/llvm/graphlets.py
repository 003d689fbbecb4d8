"""Task graphlets: what each instruction of a block has to wait for (crop2024, section 3.1.2).

Vertices are instructions, edges their dependences: through registers, and through memory where a load reads
what a store before it wrote. Two accesses meet if they have the same base and overlapping bytes; accesses
with different bases are taken as independent, as processors predict them to be. A branch waits for
everything.

A superblock is a block with the block that follows it: its phis take the values of that predecessor, and its
loads wait for the stores of the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from costbench_schedules.llvm.operations import (
    BULK,
    FREE,
    LOAD,
    READS,
    WRITES,
    Operation,
    call_arguments,
    leading_type,
    operation_of,
    type_shape,
)
from costbench_schedules.llvm.program import Block, Function, Instruction, split_top

_POINTER = re.compile(r"%(?:([-\w.$]+)|\"([^\"]*)\")$")
_BYTES = 8


@dataclass(frozen=True)
class Access:
    """Memory that an instruction touches.

    Attributes:
        base: name of the pointer that the address is computed from; empty for a global value.
        offset: constant bytes from the base to the first byte.
        num_bytes: bytes; those of all lanes.
        pointer: name of the address itself; empty for a global value.
        writes: whether it is written.
    """

    base: str
    offset: int
    num_bytes: int
    pointer: str
    writes: bool

    def meets(self, other: Access) -> bool:
        """Returns whether both have the same base and overlapping bytes."""
        apart = self.offset + self.num_bytes <= other.offset or other.offset + other.num_bytes <= self.offset
        return bool(self.base) and self.base == other.base and not apart


class FunctionGraph:
    """The graphlets of a function.

    Args:
        function: function that is analysed.

    Raises:
        DataError: for an unknown instruction.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.by_name: Mapping[str, Block] = {block.name: block for block in function.blocks}
        self.definitions: Mapping[str, Instruction] = {
            instruction.result: instruction
            for block in function.blocks
            for instruction in block.instructions
            if instruction.result
        }

    @cached_property
    def operations(self) -> Mapping[str, tuple[Operation, ...]]:
        """Returns the operations of each block, with what machine code folds into others as `free`."""
        return {block.name: tuple(map(self._operation, block.instructions)) for block in self.function.blocks}

    @cached_property
    def accesses(self) -> Mapping[str, tuple[Access | None, ...]]:
        """Returns what each instruction of each block touches; None for those that touch no memory.

        Of a bulk copy that is what it writes.
        """
        return {block.name: tuple(map(self._access, block.instructions)) for block in self.function.blocks}

    def _operation(self, instruction: Instruction) -> Operation:
        operation = operation_of(instruction, f"@{self.function.name}")
        opcode = instruction.opcode
        if opcode == "getelementptr":
            indices = split_top(instruction.text)[2:]
            variable = sum("%" in index for index in indices)
            # One scaled index is part of the addressing mode; vectors of addresses are arithmetic.
            lanes = max(type_shape(leading_type(part))[0] for part in split_top(instruction.text)[1:])
            if lanes > 1:
                return Operation("integer", lanes, 64)
            return operation if variable < 2 else Operation("integer", 1, 64)
        if opcode == "insertelement" and re.search(r"> (poison|undef), .*, i\d+ 0$", instruction.text):
            return replace(operation, kind=FREE)
        if opcode == "shufflevector" and self._broadcasts_load(instruction):
            return replace(operation, kind=FREE)
        return operation

    def _broadcasts_load(self, instruction: Instruction) -> bool:
        """Returns whether a shuffle copies one loaded number to all lanes, which the load itself can do."""
        if not instruction.text.endswith("zeroinitializer") or not instruction.operands:
            return False
        first = self.definitions.get(instruction.operands[0])
        if first is None or first.opcode != "insertelement" or not first.operands:
            return False
        number = self.definitions.get(first.operands[-1])
        return number is not None and number.opcode == LOAD

    def _access(self, instruction: Instruction) -> Access | None:
        operation = operation_of(instruction, f"@{self.function.name}")
        kind = operation.kind
        if kind not in READS and kind not in WRITES and kind not in BULK:
            return None
        pointer = _pointer(instruction, kind)
        size = operation.length or max(1, operation.lanes * operation.bits // _BYTES)
        if kind in ("gather", "scatter"):
            return Access(pointer, 0, size, pointer, kind in WRITES)
        base, offset = self._resolved(pointer)
        return Access(base, offset, size, pointer, kind not in READS)

    def _resolved(self, pointer: str) -> tuple[str, int]:
        """Returns the base of an address and its constant distance from it."""
        offset = 0
        while (made := self.definitions.get(pointer)) is not None and made.opcode == "getelementptr":
            step = _constant_step(made)
            if step is None or not made.operands:
                break
            pointer, offset = made.operands[0], offset + step
        return pointer, offset

    def dependences(self, names: Iterable[str]) -> tuple[tuple[int, ...], ...]:
        """Returns the graphlet of a block, or of a superblock of blocks that run one after another.

        Returns:
            For each instruction, in order, the positions of those that it waits for, ascending. Values from
            before the first block are there at the start and are not listed.
        """
        made: dict[str, int] = {}
        stores: list[tuple[int, Access]] = []
        graphlet: list[tuple[int, ...]] = []
        before = ""
        for name in names:
            block, start = self.by_name[name], len(graphlet)
            phis = {}
            for position, (instruction, access) in enumerate(
                zip(block.instructions, self.accesses[name], strict=True), start=start
            ):
                waits = self._registers(instruction, before, made)
                if access is not None:
                    waits |= {at for at, store in stores if store.meets(access)}
                if position == start + len(block.instructions) - 1:
                    waits |= set(range(start, position))
                graphlet.append(tuple(sorted(waits)))
                if access is not None and access.writes:
                    stores.append((position, access))
                if instruction.opcode == "phi":
                    phis[instruction.result] = position
                    continue
                made |= phis
                phis = {}
                if instruction.result:
                    made[instruction.result] = position
            # An address that is computed again is another address.
            again = {instruction_again.result for instruction_again in block.instructions}
            stores = [(at, store) for at, store in stores if store.base not in again or at >= start]
            before = name
        return tuple(graphlet)

    @staticmethod
    def _registers(instruction: Instruction, before: str, made: Mapping[str, int]) -> set[int]:
        if instruction.opcode != "phi":
            return {made[name] for name in instruction.operands if name in made}
        values = {value for value, source in instruction.incoming if source == before}
        return {made[value] for value in values if value in made}


def _pointer(instruction: Instruction, kind: str) -> str:
    """Returns the name of the address; empty for a global value."""
    if instruction.opcode in ("load", "store"):
        part = split_top(instruction.text)[1]
    else:
        argument = 1 if kind in ("masked_store", "scatter") else 0
        part = call_arguments(instruction)[argument]
    match = _POINTER.search(part)
    return (match[1] or match[2]) if match else ""


def _constant_step(instruction: Instruction) -> int | None:
    """Returns the bytes that a `getelementptr` adds, None if they are not one constant of plain elements."""
    parts = split_top(instruction.text)
    if len(parts) != 3 or not parts[1].startswith("ptr "):
        return None
    index = parts[2].split()[-1]
    lanes, bits = type_shape(_element(parts[0]))
    if not re.fullmatch(r"-?\d+", index) or bits % _BYTES:
        return None
    return int(index) * lanes * bits // _BYTES


def _element(head: str) -> str:
    """Returns the element type of `getelementptr flags type`."""
    if head.endswith(">"):
        return head[head.index("<") :]
    return head.rpartition(" ")[2]
