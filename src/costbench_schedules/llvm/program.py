"""LLVM IR as values: functions, basic blocks, instructions, control flow graph (crop2024, section 3.1.1).

LLVM (llvmlite) checks the text and prints it in its canonical form; this module reads that form. llvmlite's
own view of a module has neither the masks of shuffles nor the element types of addresses, and naming the
operands of instructions without names costs a print of the module each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from llvmlite import binding

from costbench.errors import DataError

_NAME = r'(?:[-\w.$]+|"[^"]*")'
_LOCAL = re.compile(rf"%({_NAME})")
_GLOBAL = re.compile(rf"@({_NAME})")
_LABEL = re.compile(rf"^({_NAME}):")
_RESULT = re.compile(rf"^%({_NAME}) = (.*)$")
_METADATA = re.compile(r",? ![a-zA-Z_][\w.]* !(?:\d+|\{\})")
_DROPPED = re.compile(r"^\s*(?:#dbg_|call void @llvm\.(?:dbg\.|experimental\.noalias))")
_HEADER = re.compile(rf"^define .*?(\S+) @({_NAME})\((.*)$")
_MODIFIERS = frozenset({"tail", "notail", "musttail"})
ENTRY_EDGE = ""
"""Predecessor of the first block of a function: its caller."""


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        text: instruction as LLVM prints it, without its result and without metadata.
        result: name of its result; empty where there is none.
        opcode: LLVM's word, `call` for all calls.
        operands: names of the local values that it reads, in their order; of a phi, those of `incoming`.
        incoming: value of a phi by predecessor; a constant has no name and is empty.
    """

    text: str
    result: str
    opcode: str
    operands: tuple[str, ...]
    incoming: tuple[tuple[str, str], ...] = ()

    @property
    def callee(self) -> str:
        """Returns the name of the called function; empty if it is a value or if this is no call."""
        if self.opcode != "call":
            return ""
        head = self.text.partition("(")[0]
        names = _GLOBAL.findall(head)
        return names[-1].strip('"') if names else ""


@dataclass(frozen=True)
class Block:
    """A basic block: its name, its instructions and the blocks that may follow, each once."""

    name: str
    instructions: tuple[Instruction, ...]
    successors: tuple[str, ...]


@dataclass(frozen=True)
class Function:
    """A function that is defined in a module.

    Attributes:
        name: name without its @.
        returns: type of its result.
        parameters: type and name of each parameter.
        blocks: basic blocks, the first is entered.
        header: line that opens it, without metadata.
    """

    name: str
    returns: str
    parameters: tuple[tuple[str, str], ...]
    blocks: tuple[Block, ...]
    header: str

    @cached_property
    def predecessors(self) -> Mapping[str, tuple[str, ...]]:
        """Returns for each block those that it may follow; `ENTRY_EDGE` comes first for the first block."""
        predecessors: dict[str, list[str]] = {block.name: [] for block in self.blocks}
        predecessors[self.blocks[0].name].append(ENTRY_EDGE)
        for block in self.blocks:
            for successor in block.successors:
                predecessors[successor].append(block.name)
        return {name: tuple(names) for name, names in predecessors.items()}

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Returns the edges of the control flow graph, grouped by their target in the order of blocks."""
        return tuple((source, b.name) for b in self.blocks for source in self.predecessors[b.name])


@dataclass(frozen=True)
class Program:
    """A kernel with all the functions that it reaches; the first is the kernel.

    Attributes:
        functions: functions that are defined here.
        preamble: rest of its text: target, types, global values, declarations and attributes.
    """

    functions: tuple[Function, ...]
    preamble: str


def parse_program(text: str, entry: str, where: str = "LLVM IR") -> Program:
    """Returns the kernel `entry` of a module and the functions whose names it mentions, directly or not.

    Args:
        text: module as LLVM prints it.
        entry: name of the kernel's function.
        where: name of the text in errors.

    Raises:
        DataError: for malformed IR, with LLVM's first line; if no function `entry` is defined.
    """
    printed = _checked(text, where)
    defined, preamble = _divided(printed)
    if entry not in defined:
        expected = "one of " + ", ".join(sorted(defined)) if defined else "a module that defines functions"
        raise DataError(f"no function {entry!r}", where=where, expected=expected)
    reached, waiting = [entry], [entry]
    while waiting:
        for mentioned in _GLOBAL.findall("\n".join(defined[waiting.pop()])):
            name = mentioned.strip('"')
            if name in defined and name not in reached:
                reached.append(name)
                waiting.append(name)
    return Program(tuple(_function(defined[name], where) for name in reached), preamble)


def _checked(text: str, where: str) -> str:
    """Returns a module in LLVM's canonical form."""
    try:
        module = binding.parse_assembly(text)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        message = next((line for line in lines if "error:" in line), lines[-1] if lines else "")
        raise DataError(f"malformed IR: {message}", where=where, expected="LLVM's own output") from error
    try:
        return str(module)
    finally:
        module.close()


def _divided(printed: str) -> tuple[dict[str, list[str]], str]:
    """Returns the lines of each function that is defined, and the text of everything else."""
    functions: dict[str, list[str]] = {}
    rest: list[str] = []
    current: list[str] | None = None
    for raw in printed.splitlines():
        line = _METADATA.sub("", raw.split(" ; preds =")[0].rstrip())
        if current is not None:
            if line == "}":
                current = None
            elif line.strip() and not line.lstrip().startswith(";") and not _DROPPED.match(line):
                current.append(line)
        elif line.startswith("define "):
            match = _HEADER.match(line)
            assert match is not None
            current = functions[match[2].strip('"')] = [line]
        elif line and line[0] not in ";!":
            rest.append(line)
    return functions, "\n".join(rest) + "\n"


def split_top(text: str) -> list[str]:
    """Returns the parts of `text` between commas that no bracket encloses, stripped."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "," and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def enclosed(text: str, start: int) -> str:
    """Returns what the bracket at `start` of `text` encloses."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] in "([{<") - (text[index] in ")]}>")
        if not depth:
            return text[start + 1 : index]
    return text[start + 1 :]


def _function(lines: list[str], where: str) -> Function:
    header = _HEADER.match(lines[0])
    assert header is not None
    parameters = []
    for index, part in enumerate(split_top(enclosed(lines[0], header.start(3) - 1))):
        names = _LOCAL.findall(part)
        parameters.append((part.split()[0], names[-1] if names else str(index)))
    unnamed = sum(name.isdigit() for _, name in parameters)
    texts: list[tuple[str, list[str]]] = []
    for line in _joined(lines[1:]):
        label = _LABEL.match(line)
        if label:
            texts.append((label[1].strip('"'), []))
        else:
            # The first block has no label where it has no name; its number follows the parameters'.
            if not texts:
                texts.append((str(unnamed), []))
            texts[-1][1].append(line.strip())
    values = {name.strip('"') for _, name in parameters}
    for _, body in texts:
        values |= {match[1].strip('"') for line in body if (match := _RESULT.match(line))}
    labels = {name for name, _ in texts}
    blocks = tuple(_block(name, body, values, labels) for name, body in texts)
    missing = [name for block in blocks for name in block.successors if name not in labels]
    if missing:
        raise DataError(f"unknown block {missing[0]!r}", where=where, field=header[2], expected="a label")
    return Function(header[2].strip('"'), header[1], tuple(parameters), blocks, lines[0])


def _joined(lines: list[str]) -> list[str]:
    """Returns the lines with each switch, which is printed on several, on one."""
    joined: list[str] = []
    for line in lines:
        if joined and joined[-1].lstrip().startswith("switch ") and not joined[-1].endswith("]"):
            joined[-1] += " " + line.strip()
        else:
            joined.append(line)
    return joined


def _block(name: str, body: list[str], values: set[str], labels: set[str]) -> Block:
    instructions = tuple(_instruction(line, values) for line in body)
    last = instructions[-1]
    mentioned = [label.strip('"') for label in re.findall(rf"label %({_NAME})", last.text)]
    return Block(name, instructions, tuple(dict.fromkeys(label for label in mentioned if label in labels)))


def _instruction(line: str, values: set[str]) -> Instruction:
    match = _RESULT.match(line)
    result, text = (match[1].strip('"'), match[2]) if match else ("", line)
    words = text.split()
    opcode = words[1] if words[0] in _MODIFIERS else words[0]
    if opcode == "phi":
        incoming = []
        for pair in re.findall(r"\[ (.*?) \](?:,|$)", text):
            value, _, source = pair.rpartition(", ")
            name = value[1:].strip('"') if value.startswith("%") else ""
            incoming.append((name, source[1:].strip('"')))
        return Instruction(text, result, opcode, tuple(v for v, _ in incoming if v), tuple(incoming))
    names = (name_read.strip('"') for name_read in _LOCAL.findall(re.sub(rf"label %{_NAME}", "", text)))
    return Instruction(text, result, opcode, tuple(name_read for name_read in names if name_read in values))
