"""Measures what evaluating a layout config takes, beside what compiling and running it is charged."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64, I64
from costbench.autotuning.charging import Charging
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.metrics.overhead import BATCH, Overhead

Score = Callable[[LayoutGraph, I64], F64]
_REPEATS = 3


@dataclass(frozen=True)
class MeasuredProgram:
    """A program whose model is timed: where it stands in result rows, and its graph."""

    split: str
    chip: str
    application: str
    graph: LayoutGraph


def measure_overhead(
    program: MeasuredProgram, extract: Callable[[], object], score: Score, charging: Charging
) -> Overhead:
    """Returns the times of one program, each wall time the median of three after one that is not counted.

    Args:
        program: with one config at least, and known runtimes.
        extract: extracts the features of the program's graph once more.
        score: scores some configs of the graph by a trained model, as it would for a search.
        charging: seconds charged for compiling.
    """
    graph = program.graph
    batch = np.resize(np.arange(graph.num_configs), BATCH)
    return Overhead(
        split=program.split,
        chip=program.chip,
        application=program.application,
        program=graph.program,
        compile_s=charging.measuring(graph.num_nodes).compile_s,
        run_s=float(np.median(graph.runtime_ns)) * 1e-9,
        extraction_s=_seconds(extract),
        batch_s=_seconds(lambda: score(graph, batch)) / BATCH,
        single_s=_seconds(lambda: score(graph, batch[:1])),
    )


def _seconds(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    # A clock of low resolution may see nothing.
    return max(statistics.median(times), 1e-9)
