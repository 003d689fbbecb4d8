"""IR that counts and traces itself: what dynamic analysis runs (crop2024, section 3.2).

Counters stand on the edges of the control flow graph, not on its blocks: a phi at the top of a block knows
which predecessor it was entered from. A block's count is the sum over its edges, and edges say how well a
branch is predicted. Tracing calls `cb.touch` for the bytes of every access before it happens; of a masked
access for the lanes that are on, of a gather for each lane, of a bulk copy for what it reads and writes.

The kernel gets a runtime of its own (`costbench_schedules.llvm.runtime`) in place of TVM's: workspaces come
from one arena, and tasks of a parallel launch run one after another with counters of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from costbench.errors import DataError
from costbench_schedules.llvm.operations import (
    BULK,
    TOUCHES,
    Operation,
    address_of,
    call_arguments,
    leading_type,
    operation_of,
    type_shape,
)
from costbench_schedules.llvm.program import ENTRY_EDGE, Block, Function, Instruction, Program
from costbench_schedules.llvm.runtime import RUNTIME

TVM_FUNCTIONS = {
    "__TVMBackendAllocWorkspace": "cb.alloc",
    "__TVMBackendFreeWorkspace": "cb.free",
    "__TVMBackendParallelLaunch": "cb.launch",
}
"""Global pointers through which TVM's kernels call its runtime, and what they call here."""
ENTER = "cb.enter"
"""Function that calls the kernel: it takes the address of an array of the kernel's pointers."""


@dataclass(frozen=True)
class Site:
    """An instruction that touches memory.

    Attributes:
        function: name of its function.
        block: name of its block.
        position: position in the block.
    """

    function: str
    block: str
    position: int


@dataclass(frozen=True)
class InstrumentedModule:
    """A module that counts.

    Attributes:
        text: module in LLVM IR.
        edges: function, predecessor and block of each counter.
        sites: instructions that touch memory; the bytes of site i are reported with number i.
    """

    text: str
    edges: tuple[tuple[str, str, str], ...]
    sites: tuple[Site, ...]


def instrument(program: Program, trace: bool = False) -> InstrumentedModule:
    """Returns a program with counters on its edges.

    Args:
        program: kernel and what it calls.
        trace: whether the memory that is touched is reported, too.

    Raises:
        DataError: for an unknown instruction, or a call of a function that has no stand-in here.
    """
    edges = tuple((f.name, source, target) for f in program.functions for source, target in f.edges)
    sites = tuple(memory_sites(program))
    numbers = {site: number for number, site in enumerate(sites)} if trace else {}
    first = {edge: number for number, edge in reversed(list(enumerate(edges)))}
    bodies = []
    for function in program.functions:
        starts = {
            block.name: first[function.name, function.predecessors[block.name][0], block.name]
            for block in function.blocks
            if function.predecessors[block.name]
        }
        bodies.append(_function_text(function, starts, numbers))
    text = "\n".join([_preamble(program), RUNTIME, *bodies, _enter_text(program.functions[0])])
    return InstrumentedModule(text, edges, sites)


def memory_sites(program: Program) -> Iterator[Site]:
    """Yields the instructions that touch memory through a pointer of the program, function by function.

    What has a fixed address, such as the table of TVM's runtime functions, is left out.
    """
    for function in program.functions:
        for block in function.blocks:
            for position, instruction in enumerate(block.instructions):
                kind = operation_of(instruction, f"@{function.name}").kind
                if kind in TOUCHES and "%" in address_of(instruction, kind):
                    yield Site(function.name, block.name, position)


def _preamble(program: Program) -> str:
    text = program.preamble
    for name, ours in TVM_FUNCTIONS.items():
        text = re.sub(rf"^@{name} = .*$", f"@{name} = internal global ptr @{ours}", text, flags=re.MULTILINE)
    null = re.search(r"^@(\S+) = .*global ptr null", text, flags=re.MULTILINE)
    used = "\n".join(i.text for f in program.functions for b in f.blocks for i in b.instructions)
    if null and f"@{null[1]}" in used:
        problem = f"a call of {null[1]}, which has no stand-in"
        raise DataError(problem, expected="one of " + ", ".join(TVM_FUNCTIONS))
    # Declarations that the runtime repeats would be defined twice.
    return "\n".join(line for line in text.splitlines() if "@llvm.frameaddress" not in line) + "\n"


def _function_text(function: Function, starts: Mapping[str, int], numbers: Mapping[Site, int]) -> str:
    lines = [function.header]
    for number, block in enumerate(function.blocks):
        unnamed = number == 0 and block.name.isdigit()
        if not unnamed:
            lines.append(_quoted(block.name) + ":")
        lines += _block_lines(function, block, starts.get(block.name), numbers, number)
    return "\n".join([*lines, "}", ""])


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[-\w.$]+", name) else f'"{name}"'


def _block_lines(
    function: Function, block: Block, start: int | None, numbers: Mapping[Site, int], block_number: int
) -> list[str]:
    named = [
        f"%{i.result} = {i.text}"
        if re.fullmatch(r"[-\w.$]+", i.result)
        else f'%"{i.result}" = {i.text}'
        if i.result
        else i.text
        for i in block.instructions
    ]
    num_phis = sum(i.opcode == "phi" for i in block.instructions)
    lines = []
    sources = function.predecessors[block.name]
    index = "0"
    if start is not None and sources[0] != ENTRY_EDGE:
        known = {source: number for number, source in enumerate(sources)}
        lines.append(f"  %cb.from.{block_number} = phi i64 {_incoming(function, block, known)}")
        index = f"%cb.from.{block_number}"
    lines += ["  " + text for text in named[:num_phis]]
    if start is not None:
        names = {word: f"%cb.{word}.{block_number}" for word in ("row", "edge", "at", "old", "new")}
        lines += [
            f"  {names['edge']} = add i64 {index}, {start}",
            f"  {names['row']} = load ptr, ptr @cb.counts",
            f"  {names['at']} = getelementptr i64, ptr {names['row']}, i64 {names['edge']}",
            f"  {names['old']} = load i64, ptr {names['at']}",
            f"  {names['new']} = add i64 {names['old']}, 1",
            f"  store i64 {names['new']}, ptr {names['at']}",
        ]
    for at in range(num_phis, len(named)):
        number = numbers.get(Site(function.name, block.name, at))
        if number is not None:
            operation = operation_of(block.instructions[at], f"@{function.name}")
            lines += [f"  {line}" for line in _touches(block.instructions[at], operation, number)]
        lines.append("  " + named[at])
    return lines


def _incoming(function: Function, block: Block, known: Mapping[str, int]) -> str:
    """Returns the phi's pairs; a switch is listed as often as it has cases for this block."""
    pairs = []
    for source in known:
        last = (
            next(predecessor for predecessor in function.blocks if predecessor.name == source)
            .instructions[-1]
            .text
        )
        times = len(re.findall(rf"label %{re.escape(_quoted(block.name))}(?![-\w.$])", last))
        pairs += [f"[ {known[source]}, %{_quoted(source)} ]"] * times
    return ", ".join(pairs)


def _touches(instruction: Instruction, operation: Operation, number: int) -> list[str]:
    """Returns the calls that report an access; names of their temporaries end in the site's number."""
    kind = operation.kind
    size = max(1, operation.lanes * operation.bits // 8)
    address = "%" + address_of(instruction, kind).rpartition("%")[2]
    if kind in ("load", "store"):
        return [f"call void @cb.touch(ptr {address}, i64 {size}, i64 {number})"]
    arguments = call_arguments(instruction)
    if kind in BULK:
        length = arguments[2].split()[-1]
        calls = [f"call void @cb.touch(ptr {address}, i64 {length}, i64 {number})"]
        source = arguments[1].rpartition(" ")[2]
        if kind == "copy_bytes" and source.startswith("%"):
            calls.insert(0, f"call void @cb.touch(ptr {source}, i64 {length}, i64 {number})")
        return calls
    mask = next(argument for argument in arguments if re.match(r"<\d+ x i1>", argument))
    bits = mask[len(leading_type(mask)) :].strip()
    element = operation.bits // 8
    if kind in ("gather", "scatter"):
        return _lane_touches(address, bits, operation.lanes, element, number)
    lanes = operation.lanes
    return [
        f"%cb.m{number} = bitcast <{lanes} x i1> {bits} to i{lanes}",
        f"%cb.w{number} = zext i{lanes} %cb.m{number} to i64"
        if lanes < 64
        else f"%cb.w{number} = add i64 0, %cb.m{number}",
        f"call void @cb.touch_masked(ptr {address}, i64 %cb.w{number}, i64 {element}, i64 {number})",
    ]


def _lane_touches(address: str, bits: str, lanes: int, element: int, number: int) -> list[str]:
    lines = []
    for lane in range(lanes):
        name = f"{number}.{lane}"
        lines += [
            f"%cb.p{name} = extractelement <{lanes} x ptr> {address}, i64 {lane}",
            f"%cb.b{name} = extractelement <{lanes} x i1> {bits}, i64 {lane}",
            f"%cb.l{name} = select i1 %cb.b{name}, i64 {element}, i64 0",
            f"call void @cb.touch(ptr %cb.p{name}, i64 %cb.l{name}, i64 {number})",
        ]
    return lines


def _enter_text(kernel: Function) -> str:
    """Returns a function that calls the kernel with pointers from an array, and zero for other parameters."""
    lines, values, index = [f"define i32 @{ENTER}(ptr %arguments) {{"], [], 0
    for kind, _ in kernel.parameters:
        if kind != "ptr":
            lanes, _bits = type_shape(kind)
            assert lanes == 1
            values.append(f"{kind} 0")
            continue
        lines.append(f"  %at.{index} = getelementptr ptr, ptr %arguments, i64 {index}")
        lines.append(f"  %value.{index} = load ptr, ptr %at.{index}")
        values.append(f"ptr %value.{index}")
        index += 1
    convention = "fastcc " if " fastcc " in kernel.header else ""
    call = f"call {convention}{kernel.returns} @{kernel.name}({', '.join(values)})"
    lines.append("  call void @cb.begin()")
    if kernel.returns == "i32":
        return "\n".join([*lines, f"  %status = {call}", "  ret i32 %status", "}", ""])
    return "\n".join([*lines, f"  {call}", "  ret i32 0", "}", ""])
