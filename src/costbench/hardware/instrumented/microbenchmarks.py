"""Costs of operations and of memory on this processor, by loops of one kind of instruction (crop2024, 3.3.2).

Latency: a chain, each operation waits for the one before. Inverse throughput: many chains side by side. What
is fastest of several runs counts, by the processor time of this thread. Times are in nanoseconds; the latency
of an integer addition is one cycle on every processor that is described, which gives the frequency.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from costbench.hardware.instrumented.engine import Compiled
from costbench.rng import stream

ITERATIONS = 400_000
"""Operations of a chain: the call of a loop takes microseconds, and has to be a small part of it."""
_UNROLLED = 16
_REPEATS = 9
_LINE_WORDS = 8
_BARRIER = '{new} = call {type} asm sideeffect "", "={constraint},0"({type} {old})'


@dataclass(frozen=True)
class OperationTimes:
    """Nanoseconds of an operation.

    Attributes:
        latency: from operands to result.
        inverse: between independent operations.
    """

    latency: float
    inverse: float


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


def operation_times(kind: str, bits: int) -> OperationTimes:
    """Returns the times of an operation on operands of 64 bits (integers) or 32 and more (floats).

    Shuffles and integers pass a barrier, without which LLVM makes one operation of two.
    """
    chain = _time(_loop(kind, bits, 1))
    # Enough chains to fill two units of five cycles, and few enough for 16 registers.
    side = _time(_loop(kind, bits, 12))
    return OperationTimes(chain / _UNROLLED, side / (12 * _UNROLLED))


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
    sinks = [f'call void asm sideeffect "", "{form.constraint}"({type_} {each})' for each in last]
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


def _counted(before: list[str], phis: list[str], body: list[str], after: list[str]) -> str:
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
            "ret i64 %next",
            "}",
            "",
        ]
    )


def _time(text: str, iterations: int = ITERATIONS // _UNROLLED, address: int = 0) -> float:
    """Returns nanoseconds of an iteration of a function `loop`."""
    compiled = Compiled(text)
    return fastest(lambda: compiled.call("loop", iterations, address)) / iterations


def fastest(call: Callable[[], object], repeats: int = _REPEATS) -> float:
    """Returns the least processor time of a call in nanoseconds, after one that does not count."""
    call()
    times = []
    for _ in range(repeats):
        start = time.thread_time_ns()
        call()
        times.append(time.thread_time_ns() - start)
    return float(max(1, min(times)))


def load_latency(num_bytes: int) -> float:
    """Returns nanoseconds from a load to its value, in a random cycle through a buffer of that size."""
    lines = max(2, num_bytes // (8 * _LINE_WORDS))
    order = stream(0, "pointer chase", str(lines)).permutation(lines)
    memory = np.zeros(lines * _LINE_WORDS + _LINE_WORDS, dtype=np.int64)
    first = -(-memory.ctypes.data // 64) * 8 - memory.ctypes.data // 8
    memory[first + order * _LINE_WORDS] = memory.ctypes.data + 8 * (first + np.roll(order, -1) * _LINE_WORDS)
    body, last = [], "%p"
    for step in range(_UNROLLED):
        body += [f"%a{step} = inttoptr i64 {last} to ptr", f"%v{step} = load volatile i64, ptr %a{step}"]
        last = f"%v{step}"
    phi = f"%p = phi i64 [ %address, %entry ], [ {last}, %loop ]"
    iterations = max(ITERATIONS // _UNROLLED, 2 * lines // _UNROLLED)
    return _time(_counted([], [phi], body, []), iterations, memory.ctypes.data + 8 * first) / _UNROLLED


def line_time(num_bytes: int) -> float:
    """Returns nanoseconds per line of reading a buffer of that size again and again in its order."""
    chunk = 64 * _UNROLLED
    chunks = max(1, num_bytes // chunk)
    memory = np.zeros(chunks * chunk + 64, dtype=np.uint8)
    body = ["%turn = urem i64 %i, " + str(chunks), f"%offset = mul i64 %turn, {chunk}"]
    body.append("%base = add i64 %address, %offset")
    for step in range(_UNROLLED):
        body += [
            f"%n{step} = add i64 %base, {64 * step}",
            f"%a{step} = inttoptr i64 %n{step} to ptr",
            f"%v{step} = load volatile i64, ptr %a{step}",
        ]
    iterations = max(ITERATIONS // _UNROLLED, 2 * chunks)
    address = -(-memory.ctypes.data // 64) * 64
    return _time(_counted([], [], body, []), iterations, address) / _UNROLLED


def forwarding_latency(bits: int) -> float:
    """Returns nanoseconds from a value that is stored to the same value loaded again."""
    memory = np.zeros(256, dtype=np.uint8)
    form = _Form("add", bits)
    body, last = ["%a = inttoptr i64 %address to ptr"], "%p"
    for step in range(_UNROLLED):
        body.append(f"store volatile {form.type} {last}, ptr %a, align 64")
        body.append(f"%v{step} = load volatile {form.type}, ptr %a, align 64")
        last = f"%v{step}"
    phi = f"%p = phi {form.type} [ %start, %entry ], [ {last}, %loop ]"
    text = _counted([form.barrier("%start", form.one)], [phi], body, [])
    return _time(text, ITERATIONS // _UNROLLED, -(-memory.ctypes.data // 64) * 64) / _UNROLLED


def lane_access(kind: str, bits: int) -> OperationTimes:
    """Returns the times of a gather or scatter of 32-bit lanes, each in a line of its own in the first cache.

    The latency is that of a chain of gathers, each of which takes its addresses from the one before; a
    scatter has none.
    """
    lanes = bits // 32
    memory = np.zeros(64 * lanes + 64, dtype=np.uint8)
    address = -(-memory.ctypes.data // 64) * 64
    on = f"<{lanes} x i1> <" + ", ".join(["i1 true"] * lanes) + ">"
    offsets = ", ".join(f"i64 {64 * lane}" for lane in range(lanes))
    pointers, words = f"<{lanes} x ptr>", f"<{lanes} x i32>"
    before = ["%base = inttoptr i64 %address to ptr"]
    before.append(f"%all = getelementptr i8, ptr %base, <{lanes} x i64> <{offsets}>")
    runs = ITERATIONS // _UNROLLED // 4
    if kind == "scatter":
        name = f"@llvm.masked.scatter.v{lanes}i32.v{lanes}p0"
        declare = f"declare void {name}({words}, {pointers}, <{lanes} x i1>)\n"
        body = [f"call void {name}({words} zeroinitializer, {pointers} %all, {on})"] * _UNROLLED
        return OperationTimes(0.0, _time(declare + _counted(before, [], body, []), runs, address) / _UNROLLED)
    name = f"@llvm.masked.gather.v{lanes}i32.v{lanes}p0"
    declare = f"declare {words} {name}({pointers}, <{lanes} x i1>, {words})\n"
    sink = f'call void asm sideeffect "", "{"v" if bits > 256 else "x"},~{{{{memory}}}}"({words} {{}})'
    chain, side, last = [], [], "%p"
    for step in range(_UNROLLED):
        # What is gathered is zero, and is added to the addresses.
        chain.append(f"%at{step} = getelementptr i8, {pointers} %all, {words} {last}")
        chain.append(f"%v{step} = call {words} {name}({pointers} %at{step}, {on}, {words} poison)")
        side.append(f"%v{step} = call {words} {name}({pointers} %all, {on}, {words} poison)")
        side.append(sink.format(f"%v{step}"))
        last = f"%v{step}"
    phi = f"%p = phi {words} [ zeroinitializer, %entry ], [ {last}, %loop ]"
    latency = _time(declare + _counted(before, [phi], chain, [sink.format(last)]), runs, address)
    inverse = _time(declare + _counted(before, [], side, []), runs, address)
    return OperationTimes(latency / _UNROLLED, inverse / _UNROLLED)


def access_time(kind: str, bits: int) -> float:
    """Returns nanoseconds between independent loads or stores of that width in the first cache."""
    memory = np.zeros(4096 + 64, dtype=np.uint8)
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
    return (
        _time(_counted([], [], body, []), ITERATIONS // _UNROLLED, -(-memory.ctypes.data // 64) * 64)
        / _UNROLLED
    )
