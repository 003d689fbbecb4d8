"""What each instruction of LLVM IR is to a processor: kinds that are the same on every one, and accesses.

An instruction becomes an operation: a kind, its lanes and the bits of a lane. What machine code does not
execute is of kind `free`: phis, casts that rename a register, addresses that a load or store computes itself,
a scalar load that is broadcast. How many native vectors an operation takes is the target's business
(`costbench_schedules.crop.costs`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from costbench.errors import DataError
from costbench_schedules.llvm.program import Function, Instruction, enclosed, split_top

FREE, LOAD, STORE = "free", "load", "store"
KINDS = (
    FREE,
    "integer",
    "integer_multiply",
    "integer_divide",
    "add",
    "multiply",
    "multiply_add",
    "divide",
    "square_root",
    "convert",
    "shuffle",
    LOAD,
    STORE,
    "masked_load",
    "masked_store",
    "gather",
    "scatter",
    "set_bytes",
    "copy_bytes",
    "call",
    "branch",
)
"""All kinds; features hold their positions, so new ones are added at the end."""
READS = frozenset({LOAD, "masked_load", "gather"})
WRITES = frozenset({STORE, "masked_store", "scatter"})
BULK = frozenset({"set_bytes", "copy_bytes"})
TOUCHES = READS | WRITES | BULK
"""Kinds of operations that touch memory."""
FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
POINTER_BITS = 64
_BYTES = 8
_POINTER = re.compile(r"%(?:([-\w.$]+)|\"([^\"]*)\")$")
_VECTOR = re.compile(r"<(\d+) x (.+)>$")
_OPCODES = {
    **dict.fromkeys(
        ("phi", "bitcast", "trunc", "zext", "freeze", "inttoptr", "ptrtoint", "alloca", "ret"), FREE
    ),
    **dict.fromkeys(("add", "sub", "and", "or", "xor", "shl", "lshr", "ashr", "icmp", "select"), "integer"),
    **dict.fromkeys(("sext", "extractvalue", "insertvalue", "addrspacecast"), "integer"),
    "mul": "integer_multiply",
    **dict.fromkeys(("udiv", "sdiv", "urem", "srem"), "integer_divide"),
    **dict.fromkeys(("fadd", "fsub", "fcmp", "fneg"), "add"),
    "fmul": "multiply",
    **dict.fromkeys(("fdiv", "frem"), "divide"),
    **dict.fromkeys(("fptosi", "fptoui", "sitofp", "uitofp", "fptrunc", "fpext"), "convert"),
    **dict.fromkeys(("shufflevector", "insertelement", "extractelement"), "shuffle"),
    "load": LOAD,
    "store": STORE,
    **dict.fromkeys(("br", "switch", "unreachable"), "branch"),
    "getelementptr": FREE,
}
_INTRINSICS = (
    (r"llvm\.(fmuladd|fma)\.", "multiply_add"),
    (r"llvm\.(minnum|maxnum|minimum|maximum|fabs|copysign)", "add"),
    (r"llvm\.(smax|smin|umax|umin|abs|ctpop|fshl|fshr|ctlz|cttz|usub|uadd)", "integer"),
    (r"llvm\.sqrt\.", "square_root"),
    (r"llvm\.masked\.load\.", "masked_load"),
    (r"llvm\.masked\.store\.", "masked_store"),
    (r"llvm\.masked\.gather\.", "gather"),
    (r"llvm\.masked\.scatter\.", "scatter"),
    (r"llvm\.memset\.", "set_bytes"),
    (r"llvm\.(memcpy|memmove)\.", "copy_bytes"),
    (r"llvm\.vector\.reduce\.(fadd|fmul|fmax|fmin)\.", "shuffle"),
    (r"llvm\.(assume|lifetime\.\w+|prefetch|stacksave|stackrestore|sideeffect|donothing)", FREE),
)


@dataclass(frozen=True)
class Operation:
    """What an instruction does.

    Attributes:
        kind: kind of operation, one of `KINDS`.
        lanes: number of elements that it works on; 1 for scalars.
        bits: bits of an element.
        length: bytes that a `set_bytes` or `copy_bytes` writes; 0 if that is not constant.
        floating: whether its elements are floating-point numbers, which lie in vector registers.
    """

    kind: str
    lanes: int = 1
    bits: int = 32
    length: int = 0
    floating: bool = False


def type_shape(text: str) -> tuple[int, int]:
    """Returns lanes and bits per lane of a type: (16, 32) of `<16 x float>`, (1, 64) of `ptr`.

    A vector with a number of lanes that only the processor knows, and an aggregate, count as one lane of 64
    bits.
    """
    match = _VECTOR.match(text)
    lanes, element = (int(match[1]), match[2]) if match else (1, text)
    if element in FLOAT_BITS:
        return lanes, FLOAT_BITS[element]
    if element.startswith("i") and element[1:].isdigit():
        return lanes, int(element[1:])
    return lanes, POINTER_BITS


def leading_type(text: str) -> str:
    """Returns the type with which `text` begins."""
    return f"<{enclosed(text, 0)}>" if text.startswith("<") else text.split(" ")[0].rstrip(",")


def call_arguments(instruction: Instruction) -> list[str]:
    """Returns the arguments of a call, each with its type and attributes."""
    text = instruction.text
    callee = text.find("@" + instruction.callee) if instruction.callee else -1
    start = text.find("(", callee) if callee >= 0 else text.find("(", text.rfind("%", 0, text.find("(") + 1))
    return split_top(enclosed(text, start))


def address_of(instruction: Instruction, kind: str) -> str:
    """Returns the argument that holds the address of an access, with its type."""
    if instruction.opcode in ("load", "store"):
        return split_top(instruction.text)[1]
    return call_arguments(instruction)[1 if kind in ("masked_store", "scatter") else 0]


def operation_of(instruction: Instruction, where: str) -> Operation:
    """Returns what an instruction does, seen alone (see `FunctionOperations` for what neighbours make free).

    Raises:
        DataError: for an instruction or an intrinsic that is not known; nothing counts as nothing in silence.
    """
    if instruction.opcode == "call":
        return _call(instruction, where)
    if instruction.opcode not in _OPCODES:
        expected = "an instruction that the model has a cost for"
        raise DataError(f"unknown instruction {instruction.opcode!r}", where=where, expected=expected)
    return _typed(_OPCODES[instruction.opcode], _worked_on(instruction))


def _typed(kind: str, text: str) -> Operation:
    match = _VECTOR.match(text)
    return Operation(kind, *type_shape(text), floating=(match[2] if match else text) in FLOAT_BITS)


def _worked_on(instruction: Instruction) -> str:
    """Returns the type of what the instruction produces, or of what it stores or compares."""
    words = instruction.text.split(" ")
    opcode = instruction.opcode
    if opcode in ("br", "switch", "ret", "unreachable"):
        return "i1"
    if opcode == "getelementptr":
        return "ptr"
    if " to " in instruction.text and opcode not in ("store", "call"):
        return instruction.text.rpartition(" to ")[2]
    # Flags such as `nuw`, `fast` or a predicate stand between the opcode and the type.
    start = 1
    while start < len(words) - 1 and not _is_type(words[start]):
        start += 1
    return leading_type(" ".join(words[start:]))


def _is_type(word: str) -> bool:
    plain = word.rstrip(",")
    return (
        plain.startswith(("<", "[", "{"))
        or plain in FLOAT_BITS
        or plain == "ptr"
        or bool(re.fullmatch(r"i\d+", plain))
    )


def _call(instruction: Instruction, where: str) -> Operation:
    callee = instruction.callee
    if not callee.startswith("llvm."):
        return Operation("call")
    kind = next((kind for pattern, kind in _INTRINSICS if re.match(pattern, callee)), "")
    if not kind:
        expected = "an instruction that the model has a cost for"
        raise DataError(f"unknown instruction {callee!r}", where=where, expected=expected)
    if kind == FREE:
        return Operation(FREE)
    arguments = call_arguments(instruction)
    if kind in BULK:
        length = arguments[2].split()[-1]
        return Operation(kind, 1, 8, int(length) if length.isdigit() else 0)
    result = instruction.text[instruction.text.find("call ") + 5 :]
    return _typed(kind, leading_type(arguments[0] if kind in WRITES else result))


@dataclass(frozen=True)
class Access:
    """Memory that an instruction touches.

    Attributes:
        base: name of the pointer that the address is computed from; empty for a global value.
        offset: constant bytes from the base to the first byte.
        num_bytes: bytes; those of all lanes.
        writes: whether it is written.
    """

    base: str
    offset: int
    num_bytes: int
    writes: bool


class FunctionOperations:
    """Operations and accesses of a function, seen with their neighbours.

    Two accesses meet if they have the same base and overlapping bytes; accesses with different bases are
    taken as independent, as processors predict them to be.

    Args:
        function: function that is analysed.

    Raises:
        DataError: for an unknown instruction.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self._definitions: Mapping[str, Instruction] = {
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
        first = self._definitions.get(instruction.operands[0])
        if first is None or first.opcode != "insertelement" or not first.operands:
            return False
        number = self._definitions.get(first.operands[-1])
        return number is not None and number.opcode == LOAD

    def _access(self, instruction: Instruction) -> Access | None:
        operation = operation_of(instruction, f"@{self.function.name}")
        kind = operation.kind
        if kind not in TOUCHES:
            return None
        match = _POINTER.search(address_of(instruction, kind))
        pointer, offset = (match[1] or match[2]) if match else "", 0
        size = operation.length or max(1, operation.lanes * operation.bits // _BYTES)
        if kind in ("gather", "scatter"):
            return Access(pointer, 0, size, kind in WRITES)
        # The base of an address, and the constant bytes from it.
        while (made := self._definitions.get(pointer)) is not None and made.opcode == "getelementptr":
            step = _constant_step(made)
            if step is None or not made.operands:
                break
            pointer, offset = made.operands[0], offset + step
        return Access(pointer, offset, size, kind not in READS)


def _constant_step(instruction: Instruction) -> int | None:
    """Returns the bytes that a `getelementptr` adds, None if they are not one constant of plain elements."""
    parts = split_top(instruction.text)
    if len(parts) != 3 or not parts[1].startswith("ptr "):
        return None
    index = parts[2].split()[-1]
    # The element type of `getelementptr flags type`.
    element = parts[0][parts[0].index("<") :] if parts[0].endswith(">") else parts[0].rpartition(" ")[2]
    lanes, bits = type_shape(element)
    if not re.fullmatch(r"-?\d+", index) or bits % _BYTES:
        return None
    return int(index) * lanes * bits // _BYTES
