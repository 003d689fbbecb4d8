"""Times short loops on a shared host: many blocks of each, spread over seconds, of which the fastest counts.

What disturbs a measurement comes in bursts: another virtual machine on the same core or cache, a lower
frequency. Blocks that follow each other all lie in one burst. Therefore loops take turns, round after round,
and each is as fast as its fastest block of all rounds. All loops then meet the same frequency, the highest
one, which gives their cycles. Blocks are so short that many are not interrupted, and are timed by wall time:
processor time loses what a virtual machine says was stolen from it, sometimes from another block than it was,
and is then too short, which the minimum finds.
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
from costbench_schedules.devices.instrumented.engine import Compiled

_HUGE_PAGE = 2 << 20
_MOST_WALKED = 1 << 13
"""Iterations of a walk before each turn, at most; twice through every usual cache."""


@dataclass(frozen=True)
class Rounds:
    """How long and how often loops are timed.

    Attributes:
        rounds: in each, every short loop has its turn.
        block_ns: wall time that a block takes at least.
        blocks: of a turn, after a call that does not count: it fills caches and predictors.
    """

    rounds: int = 100
    block_ns: int = 200_000
    blocks: int = 4


class Loop:
    """A compiled loop, the memory that it works on, and how much it does.

    Args:
        text: LLVM IR of a function `loop` of a number of iterations and an address.
        operations: that an iteration executes.
        memory: what the address points to, if anything.
        walk: iterations of one walk through the memory; the function then returns where it stopped, and the
            next call goes on there. 0 for a loop that begins anew.

    Attributes:
        memory: the same.
    """

    def __init__(self, text: str, operations: int, memory: LineMemory | None = None, walk: int = 0) -> None:
        self._compiled = Compiled(text)
        self._operations, self.memory, self._walk = operations, memory, walk
        self._address = memory.address if memory else 0

    def run(self, iterations: int) -> None:
        """Runs the loop."""
        found = self._compiled.call("loop", iterations, self._address)
        if self._walk:
            self._address = found

    def block_ns(self, iterations: int) -> float:
        """Returns the nanoseconds of an operation in so many iterations."""
        start = time.perf_counter_ns()
        self.run(iterations)
        return max(1, time.perf_counter_ns() - start) / (iterations * self._operations)

    def iterations_for(self, block_ns: int) -> int:
        """Returns how many iterations take that time, a power of two."""
        found = 1
        # The first call is slow, and any may be interrupted.
        while min(self.block_ns(found) for _ in range(3)) * found * self._operations < block_ns:
            found *= 2
        return found

    def warm_up(self, iterations: int) -> None:
        """Runs a quarter of the iterations that a block will have, or twice through the memory.

        A last cache may keep what is read again longer than what was read once.
        """
        self.run(min(2 * self._walk, _MOST_WALKED) if self._walk else max(1, iterations // 4))


class LineMemory:
    """Zeroed memory that begins at a line, in pages as large as the system gives.

    With small pages, latencies hold misses of the translation buffer and conflicts of the pages that the
    system happened to choose: they differ from one allocation to the next.

    Args:
        num_bytes: how much.

    Attributes:
        address: of the first byte.
        words: the memory, int64.
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


def fastest(loops: Mapping[str, Loop], spec: Rounds) -> dict[str, float]:
    """Returns the nanoseconds of an operation of each loop, in its fastest block."""
    iterations = {name: loop.iterations_for(spec.block_ns) for name, loop in loops.items()}
    found = dict.fromkeys(loops, math.inf)
    for _ in range(spec.rounds):
        for name, loop in loops.items():
            loop.warm_up(iterations[name])
            blocks = [loop.block_ns(iterations[name]) for _ in range(spec.blocks)]
            found[name] = min(found[name], *blocks)
    return found


@contextmanager
def one_processor() -> Iterator[None]:
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
