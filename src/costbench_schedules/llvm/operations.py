"""What each instruction of LLVM IR costs a processor, in kinds that are the same on every processor.

An instruction becomes an operation: a kind, its lanes and the bits of a lane. What machine code does not
execute is of kind `free`: phis, casts that rename a register, addresses that a load or store computes itself,
a scalar load that is broadcast. How many native vectors an operation takes is the target's business
(`costbench_schedules.crop.costs`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from costbench.errors import DataError
from costbench_schedules.llvm.program import Instruction, enclosed, split_top

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
FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
POINTER_BITS = 64
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


def operation_of(instruction: Instruction, where: str) -> Operation:
    """Returns what an instruction does, seen alone (see `graphlets` for what its neighbours make free).

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
