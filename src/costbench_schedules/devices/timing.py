"""Times a call, by the processor time of this thread or by wall time, in blocks that no process interrupted.

On a machine that others use, too, wall time says little: under load the rank correlation between repeated
measurements was 0.72 to 0.80 for wall time and 0.94 to 1.00 for the thread's own processor time. Blocks with
an involuntary context switch are dropped nevertheless, for caches are cold after it. What remains is compared
by its minimum, as the papers do (lpm2021, section 4).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal


@dataclass(frozen=True)
class TimingSpec:
    """How long and how often is measured.

    Attributes:
        block_ns: processor time that a block of runs takes at least.
        blocks: number of blocks without interruption that are wanted.
        max_blocks: number of blocks after which the measurement ends in any case.
        budget_ns: processor time after which it ends; one block is always completed.
    """

    block_ns: int = 1_000_000
    blocks: int = 7
    max_blocks: int = 40
    budget_ns: int = 150_000_000


@dataclass(frozen=True)
class Timing:
    """Processor time per run.

    Attributes:
        runtime_ns: minimum over the blocks that count.
        median_ns: median over these blocks.
        clean: number of blocks without an interruption; if there is none, all blocks count.
        blocks: number of all blocks.
        runs: number of runs in all, warm-up included.
        total_ns: processor time of all runs.
    """

    runtime_ns: float
    median_ns: float
    clean: int
    blocks: int
    runs: int
    total_ns: int

    @property
    def spread(self) -> float:
        """Returns median over minimum, minus 1."""
        return self.median_ns / self.runtime_ns - 1.0 if self.runtime_ns else 0.0


def _interruptions() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def _interruptions_of_all() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


Clock = Literal["processor", "wall"]
CLOCKS: Mapping[Clock, tuple[Callable[[], int], Callable[[], int]]] = {
    "processor": (time.thread_time_ns, _interruptions),
    "wall": (time.perf_counter_ns, _interruptions_of_all),
}
"""Clocks in nanoseconds, and the involuntary context switches that disturb them. Processor time is that of
one thread; programs of several have wall time alone, and need a machine with nothing else to do."""


def time_call(
    call: Callable[[], object],
    spec: TimingSpec,
    clock: Callable[[], int] = time.thread_time_ns,
    interruptions: Callable[[], int] = _interruptions,
) -> Timing:
    """Returns the processor time of one call, after a warm-up of at least one.

    Args:
        call: function that runs on this thread alone.
        spec: length and number of measurements.
        clock: function that returns the time in nanoseconds.
        interruptions: function that returns the involuntary context switches so far.
    """
    begin = clock()
    call()
    first = max(1, clock() - begin)
    # The first call pays for page faults; a second tells how many fill a block, unless one is the budget.
    runs = 1
    if first * 3 <= spec.budget_ns:
        start = clock()
        call()
        first, runs = max(1, clock() - start), 2
    number = max(1, -(-spec.block_ns // first))
    times: list[tuple[float, bool]] = []
    clean = 0
    while len(times) < spec.max_blocks and clean < spec.blocks:
        before, start = interruptions(), clock()
        for _ in range(number):
            call()
        stop, after = clock(), interruptions()
        times.append(((stop - start) / number, after == before))
        clean += after == before
        runs += number
        if stop - begin >= spec.budget_ns:
            break
    counted = [time_ns for time_ns, quiet in times if quiet] or [time_ns for time_ns, _ in times]
    return Timing(min(counted), median(counted), clean, len(times), runs, clock() - begin)
