"""The process in which instrumented kernels run: one may never end or crash, and takes only itself along.

A run counts how often each edge was taken, and at what distances lines were used again. The process answers
as `costbench_schedules.devices.worker` does: one request a line, JSON, and the answer on the descriptor that
it was given.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costbench.arrays import I64
from costbench.errors import DataError
from costbench.rng import stream
from costbench_schedules.devices.instrumented.engine import CompiledModule
from costbench_schedules.llvm.instrumentation import ENTER, InstrumentedModule, instrument
from costbench_schedules.llvm.program import Program, parse_program
from costbench_schedules.llvm.runtime import LINE_BYTES, SAMPLE_WORDS, STACK_BYTES

WORKSPACE_BYTES = 1 << 28
"""Most that a kernel may allocate at once; pages that it does not touch cost nothing."""
_WORD = 8
_PAGE = 4096
_NEVER = (1 << 63) - 1


@dataclass(frozen=True)
class Sampling:
    """How reuse distances are sampled.

    Attributes:
        samples: number of samples that are wanted; gaps between them are uniform, with the mean that this
            takes.
        every: whether every touched line is sampled instead.
        seed: seed of the gaps.
    """

    samples: int = 8192
    every: bool = False
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Run:
    """What one run has counted.

    Attributes:
        counts: counts of edges of serial code, then of each task, int64 [1 + threads, edges].
        samples: site and reuse distance in lines, -1 at the first access to a line, int64 [n, 2].
        touched: number of lines touched in all, with repetition; 0 without sampling.
        footprint: bytes of arguments and workspaces.
    """

    counts: I64
    samples: I64
    touched: int
    footprint: int


class Arena:
    """The memory of a kernel, and where its arguments lie in it.

    Args:
        program: program of the kernel.
        sizes: bytes of each pointer argument, by name.

    Raises:
        DataError: for an argument whose size is not given.
    """

    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        pointers = [name for kind, name in program.functions[0].parameters if kind == "ptr"]
        missing = [name for name in pointers if name not in sizes]
        if missing:
            where = f"@{program.functions[0].name}"
            raise DataError(
                f"no size of argument {missing[0]!r}", where=where, expected="bytes of every pointer"
            )
        offsets, used = [], 0
        for name in pointers:
            offsets.append(used)
            used += -(-sizes[name] // _PAGE) * _PAGE
        self.used = used
        self.limit = used + WORKSPACE_BYTES
        self._memory = np.zeros(self.limit + _PAGE, dtype=np.uint8)
        self.address = -(-self._memory.ctypes.data // _PAGE) * _PAGE
        self.arguments = np.array([self.address + offset for offset in offsets] or [0], dtype=np.int64)


class InstrumentedKernel:
    """An instrumented kernel, compiled; it runs on zeros.

    Args:
        instrumented: kernel with tracing.
        arena: memory of the kernel.
        processor: `native`, or a processor of this family as LLVM names it.
    """

    def __init__(self, instrumented: InstrumentedModule, arena: Arena, processor: str = "native") -> None:
        self._compiled = CompiledModule(instrumented.text, processor)
        self._arena = arena
        self._num_edges = max(1, len(instrumented.edges))
        # Pages that are never touched take no memory.
        self._shadow = np.zeros((arena.limit + STACK_BYTES) // LINE_BYTES + 2 * _WORD, dtype=np.int64)
        values = {"cb.arena": arena.address, "cb.limit": arena.limit, "cb.most": arena.used}
        self._compiled.set_values(values | {"cb.shadow": self._shadow.ctypes.data})

    def run(self, threads: int = 1) -> Run:
        """Counts one run without samples, its parallel launches as `threads` tasks one after another.

        Raises:
            DataError: if the kernel says that it failed, or touches memory that is neither its own nor the
                stack.
        """
        return self._run(threads, np.zeros(1, dtype=np.int64), 0)

    def sampled(self, sampling: Sampling, threads: int = 1) -> Run:
        """Runs twice and samples the second run: caches are warm when a kernel is measured.

        Raises:
            DataError: as `run` does.
        """
        self._shadow[:] = 0
        first = self.run(threads)
        # An access that begins inside a line may touch one line more in the second run than in the first.
        if sampling.every:
            gaps = np.ones(first.touched + 2, dtype=np.int64)
        else:
            mean = max(1, first.touched // max(1, sampling.samples))
            number = 2 * first.touched // mean + 2
            generator = stream(sampling.seed, "reuse samples")
            gaps = generator.integers(1, 2 * mean, number, dtype=np.int64)
        return self._run(threads, gaps, len(gaps) - 1)

    def _run(self, threads: int, gaps: I64, room: int) -> Run:
        counts = np.zeros((1 + threads, self._num_edges), dtype=np.int64)
        samples = np.zeros((room + 1, SAMPLE_WORDS), dtype=np.int64)
        before = self._compiled.value("cb.clock")
        stride = counts.shape[1] * _WORD
        self._compiled.set_values(
            {
                "cb.top": self._arena.used,
                "cb.counts": counts.ctypes.data,
                "cb.stride": stride,
                "cb.rows": counts.ctypes.data + stride,
                "cb.threads": threads,
                "cb.next": before + int(gaps[0]) if room else _NEVER,
                "cb.gaps": gaps.ctypes.data,
                "cb.samples": samples.ctypes.data,
                "cb.room": room,
                "cb.taken": 0,
            }
        )
        status = ctypes.c_int32(self._compiled.call(ENTER, self._arena.arguments.ctypes.data)).value
        if status:
            expected = f"0; it may allocate {WORKSPACE_BYTES} bytes"
            raise DataError(f"the kernel returns {status}", expected=expected)
        lost = self._compiled.value("cb.lost")
        if lost:
            raise DataError(
                f"{lost} bytes touched outside of arguments, workspaces and stack", expected="none"
            )
        taken, touched = self._compiled.value("cb.taken"), self._compiled.value("cb.clock") - before
        return Run(counts, samples[:taken], touched, self._compiled.value("cb.most"))


def answer(request: Mapping[str, Any]) -> dict[str, object]:
    """Returns counts by number of threads, and samples of a run on one thread.

    Args:
        request: IR text, entry, sizes of arguments, numbers of threads, sampling, processor.
    """
    program = parse_program(request["text"], request["entry"])
    kernel = InstrumentedKernel(
        instrument(program, trace=True), Arena(program, request["sizes"]), request["processor"]
    )
    sampled = kernel.sampled(Sampling(**request["sampling"]))
    counts = {}
    for threads in request["threads"]:
        run = sampled if threads == 1 else kernel.run(threads)
        counts[str(threads)] = run.counts.tolist()
    return {
        "counts": counts,
        "samples": sampled.samples.tolist(),
        "touched": sampled.touched,
        "footprint": sampled.footprint,
    }


def main(descriptor: int, memory_bytes: int) -> None:
    """Serves requests until standard input ends."""
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:

        def say(message: Mapping[str, object]) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        say({"host": {}, "pid": os.getpid()})
        for line in sys.stdin:
            try:
                say(answer(json.loads(line)))
            except (DataError, MemoryError) as error:
                say({"failed": str(error) or "out of memory"})


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
