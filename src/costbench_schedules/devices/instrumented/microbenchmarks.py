"""Costs of operations and of memory on this processor, by loops of one kind of instruction (crop2024, 3.3.2).

Latency: a chain, each operation waits for the one before. Inverse throughput: many chains side by side.
Functions return loops, to be timed together by `time_fastest`; the latency of an integer addition is one
cycle on every processor that is described, which gives the frequency.

What disturbs a measurement on a shared host comes in bursts: another virtual machine on the same core or
cache, a lower frequency. Blocks that follow each other all lie in one burst. Therefore loops take turns,
round after round, and each is as fast as its fastest block of all rounds. All loops then meet the same
frequency, the highest one, which gives their cycles. Blocks are so short that many are not interrupted, and
are timed by wall time: processor time loses what a virtual machine says was stolen from it, sometimes from
another block than it was, and is then too short, which the minimum finds.
"""

from __future__ import annotations

import math
import mmap
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from costbench.arrays import I64
from costbench.rng import stream
from costbench_schedules.devices.instrumented.engine import CompiledModule

_HUGE_PAGE = 2 << 20
_MAX_WALKED = 1 << 13
"""Iterations of a walk before each turn, at most; twice through every usual cache."""


@dataclass(frozen=True)
class Rounds:
    """How long and how often loops are timed.

    Attributes:
        rounds: number of rounds, in each of which every short loop has its turn.
        block_ns: wall time that a block takes at least.
        blocks: number of blocks of a turn, after a call that does not count: it fills caches and predictors.
    """

    rounds: int = 100
    block_ns: int = 200_000
    blocks: int = 4


class TimedLoop:
    """A compiled loop, the memory that it works on, and how much it does.

    Args:
        text: LLVM IR of a function `loop` of a number of iterations and an address.
        operations: number of operations that an iteration executes.
        memory: memory that the address points to, if any.
        walk: iterations of one walk through the memory; the function then returns where it stopped, and the
            next call goes on there. 0 for a loop that begins at the start.

    Attributes:
        memory: memory that the address points to, if any.
    """

    def __init__(self, text: str, operations: int, memory: LineMemory | None = None, walk: int = 0) -> None:
        self._compiled = CompiledModule(text)
        self._operations, self.memory, self._walk = operations, memory, walk
        self._address = memory.address if memory else 0

    def run(self, iterations: int) -> None:
        """Runs the loop."""
        address = self._compiled.call("loop", iterations, self._address)
        if self._walk:
            self._address = address

    def block_ns(self, iterations: int) -> float:
        """Returns the nanoseconds of an operation in so many iterations."""
        start = time.perf_counter_ns()
        self.run(iterations)
        return max(1, time.perf_counter_ns() - start) / (iterations * self._operations)

    def iterations_for(self, block_ns: int) -> int:
        """Returns how many iterations take that time, a power of two."""
        iterations = 1
        # The first call is slow, and any may be interrupted.
        while min(self.block_ns(iterations) for _ in range(3)) * iterations * self._operations < block_ns:
            iterations *= 2
        return iterations

    def warm_up(self, iterations: int) -> None:
        """Runs a quarter of the iterations that a block will have, or twice through the memory.

        A last cache may keep what is read again longer than what was read once.
        """
        self.run(min(2 * self._walk, _MAX_WALKED) if self._walk else max(1, iterations // 4))


class LineMemory:
    """Zeroed memory that begins at a line, in pages as large as the system gives.

    With small pages, latencies hold misses of the translation buffer and conflicts of the pages that the
    system happened to choose: they differ from one allocation to the next.

    Args:
        num_bytes: number of bytes.

    Attributes:
        address: address of the first byte.
        words: contents of the memory, int64.
    """

    def __init__(self, num_bytes: int) -> None:
        self._map = mmap.mmap(-1, num_bytes + _HUGE_PAGE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        content = np.frombuffer(self._map, dtype=np.int64)
        start = -content.ctypes.data % _HUGE_PAGE // 8
        self.words: I64 = content[start : start + num_bytes // 8]
        self.words[:] = 0
        self.address = self.words.ctypes.data


def time_fastest(loops: Mapping[str, TimedLoop], spec: Rounds) -> dict[str, float]:
    """Returns the nanoseconds of an operation of each loop, in its fastest block."""
    iterations = {name: loop.iterations_for(spec.block_ns) for name, loop in loops.items()}
    times_ns = dict.fromkeys(loops, math.inf)
    for _ in range(spec.rounds):
        for name, loop in loops.items():
            loop.warm_up(iterations[name])
            blocks = [loop.block_ns(iterations[name]) for _ in range(spec.blocks)]
            times_ns[name] = min(times_ns[name], *blocks)
    return times_ns


@contextmanager
def pin_to_one_processor() -> Iterator[None]:
    """Keeps this process on one of its processors, the last one: the first ones serve interrupts."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_UNROLLED = 16
_CHAINS = 12
"""Enough to fill two units of five cycles, and few enough for 16 registers."""
_LINE_WORDS = 8
_BARRIER = '{new} = call {type} asm sideeffect "", "={constraint},0"({type} {old})'


FORMS: Mapping[str, str] = {
    "integer": "add {type} {old}, 3",
    "integer_multiply": "mul {type} {old}, %other",
    "integer_divide": "sdiv {type} {old}, %other",
    "add": "fadd {type} {old}, %other",
    "multiply": "fmul {type} {old}, %other",
    "multiply_add": "call {type} @llvm.fma.{name}({type} {old}, {type} %other, {type} %other)",
    "divide": "fdiv {type} {old}, %other",
    "square_root": "call {type} @llvm.sqrt.{name}({type} {old})",
    "convert": "sitofp {integer} {old} to {type}",
    "shuffle": "shufflevector {type} {old}, {type} poison, {mask}",
}
"""What is timed; `{old}` is the result of the operation before."""


def chain(kind: str, bits: int) -> TimedLoop:
    """Returns a chain of operations on operands of 64 bits (integers) or 32 and more (floats).

    Shuffles and integers pass a barrier, without which LLVM makes one operation of two.
    """
    return TimedLoop(_loop(kind, bits, 1), _UNROLLED)


def side_by_side(kind: str, bits: int) -> TimedLoop:
    """Returns several such chains that do not wait for each other."""
    return TimedLoop(_loop(kind, bits, _CHAINS), _CHAINS * _UNROLLED)


@dataclass(frozen=True)
class _Form:
    """Words of the IR of an operation on operands of some width."""

    kind: str
    bits: int

    @property
    def is_integer(self) -> bool:
        return self.kind.startswith("integer")

    @property
    def lanes(self) -> int:
        return 1 if self.is_integer else self.bits // 32

    @property
    def type(self) -> str:
        return self._vector("i64" if self.is_integer else "float")

    @property
    def name(self) -> str:
        return "f32" if self.lanes == 1 else f"v{self.lanes}f32"

    @property
    def constraint(self) -> str:
        """Returns the class of registers, as inline assembly of x86 names it."""
        return "r" if self.is_integer else "x" if self.bits < 512 else "v"

    @property
    def one(self) -> str:
        """Returns a constant that makes no operation trivial or slow."""
        number = "3" if self.is_integer else "1.5"
        return number if self.lanes == 1 else "<" + ", ".join([f"float {number}"] * self.lanes) + ">"

    def _vector(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def words(self) -> dict[str, str]:
        swapped = ", ".join(f"i32 {lane ^ 1}" for lane in range(self.lanes))
        mask = f"<{self.lanes} x i32> <{swapped}>"
        return {"type": self.type, "name": self.name, "integer": self._vector("i32"), "mask": mask}

    def barrier(self, new: str, old: str) -> str:
        return _BARRIER.format(new=new, type=self.type, old=old, constraint=self.constraint)


def _loop(kind: str, bits: int, chains: int) -> str:
    form = _Form(kind, bits)
    words, type_ = form.words(), form.type
    lines, last = [], [f"%p{chain}" for chain in range(chains)]
    for step in range(_UNROLLED):
        for chain in range(chains):
            fresh, old = f"%v{step}.{chain}", last[chain]
            if kind == "convert":
                old = f"%c{step}.{chain}"
                lines.append(f"{old} = bitcast {type_} {last[chain]} to {words['integer']}")
            lines.append(f"{fresh} = " + FORMS[kind].format(old=old, **words))
            last[chain] = fresh
            if kind == "shuffle" or form.is_integer:
                last[chain] = f"%b{step}.{chain}"
                lines.append(form.barrier(last[chain], fresh))
    phis = [
        f"%p{chain} = phi {type_} [ %start, %entry ], [ {last[chain]}, %loop ]" for chain in range(chains)
    ]
    sinks = [f'call void asm sideeffect "", "{form.constraint}"({type_} {value})' for value in last]
    before = [form.barrier("%start", form.one), form.barrier("%other", form.one)]
    declares = (
        ""
        if form.is_integer
        else (
            f"declare {type_} @llvm.fma.{form.name}({type_}, {type_}, {type_})\n"
            f"declare {type_} @llvm.sqrt.{form.name}({type_})\n"
        )
    )
    return declares + _counted(before, phis, lines, sinks)


def _counted(
    before: list[str], phis: list[str], body: list[str], after: list[str], result: str = "%next"
) -> str:
    """Returns a function `loop` of a number of iterations and an address."""
    return "\n".join(
        [
            "define i64 @loop(i64 %times, i64 %address) {",
            "entry:",
            *before,
            "br label %loop",
            "loop:",
            "%i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *phis,
            *body,
            "%next = add i64 %i, 1",
            "%more = icmp ult i64 %next, %times",
            "br i1 %more, label %loop, label %done",
            "done:",
            *after,
            f"ret i64 {result}",
            "}",
            "",
        ]
    )


def pointer_chase(num_bytes: int) -> TimedLoop:
    """Returns loads that each wait for the one before, in a random cycle through a buffer of that size."""
    steps = max(2, num_bytes // (8 * _LINE_WORDS) // _UNROLLED)
    lines = steps * _UNROLLED
    order = stream(0, "pointer chase", str(lines)).permutation(lines)
    memory = LineMemory(lines * 8 * _LINE_WORDS)
    memory.words[order * _LINE_WORDS] = memory.address + 8 * np.roll(order, -1) * _LINE_WORDS
    body, last = [], "%p"
    for step in range(_UNROLLED):
        body += [f"%a{step} = inttoptr i64 {last} to ptr", f"%v{step} = load volatile i64, ptr %a{step}"]
        last = f"%v{step}"
    phi = f"%p = phi i64 [ %address, %entry ], [ {last}, %loop ]"
    return TimedLoop(_counted([], [phi], body, [], last), _UNROLLED, memory, steps)


def linear_walk(num_bytes: int) -> TimedLoop:
    """Returns loads of a word of each line of a buffer of that size, again and again in its order."""
    chunk = 64 * _UNROLLED
    chunks = max(1, num_bytes // chunk)
    memory = LineMemory(chunks * chunk)
    body = []
    for step in range(_UNROLLED):
        body += [
            f"%n{step} = add i64 %p, {64 * step}",
            f"%a{step} = inttoptr i64 %n{step} to ptr",
            f"%v{step} = load volatile i64, ptr %a{step}",
        ]
    body += [
        f"%after = add i64 %p, {chunk}",
        f"%ends = icmp eq i64 %after, {memory.address + chunks * chunk}",
    ]
    body.append(f"%q = select i1 %ends, i64 {memory.address}, i64 %after")
    phi = "%p = phi i64 [ %address, %entry ], [ %q, %loop ]"
    return TimedLoop(_counted([], [phi], body, [], "%q"), _UNROLLED, memory, chunks)


def forwarding(bits: int) -> TimedLoop:
    """Returns stores of a value that is then loaded again, and stored again."""
    form = _Form("add", bits)
    body, last = ["%a = inttoptr i64 %address to ptr"], "%p"
    for step in range(_UNROLLED):
        body.append(f"store volatile {form.type} {last}, ptr %a, align 64")
        body.append(f"%v{step} = load volatile {form.type}, ptr %a, align 64")
        last = f"%v{step}"
    phi = f"%p = phi {form.type} [ %start, %entry ], [ {last}, %loop ]"
    text = _counted([form.barrier("%start", form.one)], [phi], body, [])
    return TimedLoop(text, _UNROLLED, LineMemory(256))


def scatters(bits: int) -> TimedLoop:
    """Returns scatters of 32-bit lanes, each to a line of its own in the first cache."""
    lanes = bits // 32
    before, on = _lane_addresses(lanes)
    pointers, words = f"<{lanes} x ptr>", f"<{lanes} x i32>"
    name = f"@llvm.masked.scatter.v{lanes}i32.v{lanes}p0"
    declare = f"declare void {name}({words}, {pointers}, <{lanes} x i1>)\n"
    body = [f"call void {name}({words} zeroinitializer, {pointers} %all, {on})"] * _UNROLLED
    return TimedLoop(declare + _counted(before, [], body, []), _UNROLLED, LineMemory(64 * lanes))


def gathers(bits: int, *, chained: bool) -> TimedLoop:
    """Returns gathers of 32-bit lanes, each from a line of its own in the first cache.

    Args:
        bits: number of bits of all lanes.
        chained: whether each takes its addresses from the one before.
    """
    lanes = bits // 32
    before, on = _lane_addresses(lanes)
    pointers, words = f"<{lanes} x ptr>", f"<{lanes} x i32>"
    name = f"@llvm.masked.gather.v{lanes}i32.v{lanes}p0"
    declare = f"declare {words} {name}({pointers}, <{lanes} x i1>, {words})\n"
    sink = f'call void asm sideeffect "", "{"v" if bits > 256 else "x"},~{{{{memory}}}}"({words} {{}})'
    body, last = [], "%p"
    for step in range(_UNROLLED):
        if chained:
            # What is gathered is zero, and is added to the addresses.
            body.append(f"%at{step} = getelementptr i8, {pointers} %all, {words} {last}")
        at = f"%at{step}" if chained else "%all"
        body.append(f"%v{step} = call {words} {name}({pointers} {at}, {on}, {words} poison)")
        last = f"%v{step}"
        if not chained:
            body.append(sink.format(last))
    phis = [f"%p = phi {words} [ zeroinitializer, %entry ], [ {last}, %loop ]"] if chained else []
    after = [sink.format(last)] if chained else []
    return TimedLoop(declare + _counted(before, phis, body, after), _UNROLLED, LineMemory(64 * lanes))


def _lane_addresses(lanes: int) -> tuple[list[str], str]:
    """Returns IR of `%all`, addresses in lines of their own, and a mask with every lane on."""
    on = f"<{lanes} x i1> <" + ", ".join(["i1 true"] * lanes) + ">"
    offsets = ", ".join(f"i64 {64 * lane}" for lane in range(lanes))
    before = ["%base = inttoptr i64 %address to ptr"]
    before.append(f"%all = getelementptr i8, ptr %base, <{lanes} x i64> <{offsets}>")
    return before, on


def accesses(kind: str, bits: int) -> TimedLoop:
    """Returns independent loads or stores of that width in the first cache."""
    lanes = bits // 32
    type_ = "float" if lanes == 1 else f"<{lanes} x float>"
    body = []
    for step in range(_UNROLLED):
        body.append(f"%n{step} = add i64 %address, {64 * step}")
        body.append(f"%a{step} = inttoptr i64 %n{step} to ptr")
        if kind == "load":
            body.append(f"%v{step} = load volatile {type_}, ptr %a{step}, align 64")
        else:
            body.append(f"store volatile {type_} zeroinitializer, ptr %a{step}, align 64")
    if kind == "store" and lanes == 1:
        body = [line.replace("zeroinitializer", "0.0") for line in body]
    return TimedLoop(_counted([], [], body, []), _UNROLLED, LineMemory(4096))
