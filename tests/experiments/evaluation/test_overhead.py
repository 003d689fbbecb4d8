"""What is timed, and what is charged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costbench.arrays import F64, I64
from costbench.autotuning.charging import Charging
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.experiments.evaluation import overhead
from costbench.experiments.evaluation.overhead import MeasuredProgram, measure_overhead
from tests.datasets.test_layout_graphs import small_graph


def test_medians_of_three_and_the_charge_of_every_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(overhead.time, "perf_counter", lambda: clock[0])
    asked: list[int] = []

    def score(graph: LayoutGraph, rows: I64) -> F64:
        asked.append(len(rows))
        clock[0] += 0.01 * len(rows) if len(rows) > 1 else 0.5
        return np.zeros(len(rows))

    costs = iter([9.0, 1.0, 3.0, 2.0])

    def extract() -> None:
        clock[0] += next(costs)

    graph = replace(small_graph(3), runtime_ns=np.array([10**9, 3 * 10**9, 2 * 10**9], np.int64))
    charging = Charging(compile_s=1.0, compile_s_per_instruction=0.5)
    found = measure_overhead(MeasuredProgram("random", "tpu_v3", "RNN", graph), extract, score, charging)
    # Five nodes; the first extraction is not counted.
    assert (found.compile_s, found.run_s, found.extraction_s) == (3.5, 2.0, 2.0)
    assert (found.batch_s, found.single_s) == (pytest.approx(0.01), pytest.approx(0.5))
    assert sorted(set(asked)) == [1, 100]
    assert (found.program, found.application) == ("net", "RNN")
