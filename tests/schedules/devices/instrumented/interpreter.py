"""Interprets small kernels instruction by instruction: what counters and reuse profiles are compared with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from costbench_schedules.llvm.program import ENTRY_EDGE, Function, Instruction, Program

LINE = 64
START = {"left": 0, "right": 1 << 20, "out": 2 << 20, "data": 3 << 20}


class Interpreter:
    """Runs a kernel of integer control flow; numbers that are stored or loaded have no value."""

    def __init__(self, program: Program) -> None:
        self.functions = {function.name: function for function in program.functions}
        self.edges: Counter[tuple[str, str, str]] = Counter()
        self.touched: list[tuple[tuple[str, str, int], int]] = []
        self.stack = 4 << 20

    def run(self, function: Function, arguments: dict[str, int]) -> None:
        values, block, before = dict(arguments), function.blocks[0], ENTRY_EDGE
        by_name = {item.name: item for item in function.blocks}
        while True:
            self.edges[function.name, before, block.name] += 1
            phis = [item for item in block.instructions if item.opcode == "phi"]
            new = {item.result: self.incoming(item, before, values) for item in phis}
            values |= new
            for index, item in enumerate(block.instructions):
                if item.opcode == "phi":
                    continue
                site = (function.name, block.name, index)
                for line in dict.fromkeys(self.lines(item, values)):
                    self.touched.append((site, line))
                if item.result:
                    values[item.result] = self.value(item, values)
            last = block.instructions[-1]
            if last.opcode == "ret":
                return
            way = 0
            if last.text.startswith("br i1"):
                way = 0 if values[last.operands[0]] else 1
            labels = re.findall(r"label %([\w.]+)", last.text)
            before, block = block.name, by_name[labels[way]]

    def incoming(self, phi: Instruction, before: str, values: dict[str, int]) -> int:
        texts = re.findall(r"\[ (\S+), %([\w.]+) \]", phi.text)
        [text] = [value for value, source in texts if source == before]
        return self.number(text, values)

    @staticmethod
    def number(text: str, values: dict[str, int]) -> int:
        if text.startswith("%"):
            return values[text[1:]]
        return int(text) if re.fullmatch(r"-?\d+", text) else 0

    def value(self, item: Instruction, values: dict[str, int]) -> int:
        words = item.text.replace(",", "").split()
        if item.opcode == "alloca":
            return self.stack
        if item.opcode in ("add", "mul"):
            left, right = (self.number(word, values) for word in words[-2:])
            return left + right if item.opcode == "add" else left * right
        if item.opcode == "icmp":
            left, right = (self.number(word, values) for word in words[-2:])
            return int(left < right)
        if item.opcode == "getelementptr" and not item.text.startswith("getelementptr float, <"):
            size = 32 if "<8 x float>" in item.text else 4
            index = self.number(words[-1], values)
            return values[re.findall(r"ptr %([\w.]+)", item.text)[0]] + size * index
        return 0

    def lines(self, item: Instruction, values: dict[str, int]) -> Iterator[int]:
        pointers = re.findall(r"ptr(?: align \d+)? %([\w.]+)", item.text)
        if item.opcode in ("load", "store"):
            size = 32 if "<8 x float>" in item.text else 4
            yield from self.span(values[pointers[-1]], size)
        elif "masked.load" in item.text:
            # Lanes 1 to 4 of the mask of kernels.VECTORS.
            yield from self.span(values[pointers[0]] + 4, 16)
        elif "masked.gather" in item.text:
            for lane in (0, 80, 120):
                yield from self.span(values["at"] + 4 * lane, 4)
        elif "memset" in item.text:
            yield from self.span(values[pointers[0]], 256)
        elif "memcpy" in item.text:
            yield from self.span(values[pointers[1]], 20)
            yield from self.span(values[pointers[0]], 20)

    @staticmethod
    def span(start: int, size: int) -> Iterator[int]:
        yield from range(start // LINE, (start + size - 1) // LINE + 1)


def reuse_distances(lines: list[int]) -> list[int]:
    """Returns for each access the distinct other lines since the last to its line; -1 at first."""
    values = []
    for index, line in enumerate(lines):
        before = next((at for at in range(index - 1, -1, -1) if lines[at] == line), None)
        values.append(-1 if before is None else len(set(lines[before + 1 : index])))
    return values
