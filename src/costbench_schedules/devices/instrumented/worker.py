"""The process in which instrumented kernels run: one may never end or crash, and takes only this process
along.

It answers as `costbench_schedules.devices.worker` does: one request a line, JSON, and the answer on the
descriptor that it was given.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping
from typing import Any

from costbench.errors import DataError
from costbench_schedules.devices.instrumented.run import Arena, Kernel, Sampling
from costbench_schedules.llvm.instrumentation import instrumented
from costbench_schedules.llvm.program import parse_program


def answer(request: Mapping[str, Any]) -> dict[str, object]:
    """Returns counts by number of threads, and samples of a run on one thread.

    Args:
        request: IR text, entry, sizes of arguments, numbers of threads, sampling, processor.
    """
    program = parse_program(request["text"], request["entry"])
    kernel = Kernel(instrumented(program, trace=True), Arena(program, request["sizes"]), request["processor"])
    sampled = kernel.sampled(Sampling(**request["sampling"]))
    counts = {}
    for threads in request["threads"]:
        found = sampled if threads == 1 else kernel.run(threads)
        counts[str(threads)] = found.counts.tolist()
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
