"""Rooflines, throughputs and instruction counts by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costbench_schedules.crop.simple_estimates import (
    executed_lanes,
    instruction_count,
    roofline_ns,
    throughput_ns,
)
from costbench_schedules.llvm.operations import KINDS
from tests.schedules.crop.machines import ROUND, features

LOOP = """
define void @kernel(ptr %x) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr <8 x float>, ptr %x, i64 %i
  %old = load <8 x float>, ptr %at
  %new = fmul <8 x float> %old, %old
  %sum = fadd <8 x float> %new, %old
  store <8 x float> %sum, ptr %at
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 100
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
COUNTS = {("entry", "loop"): 1, ("loop", "loop"): 99, ("loop", "done"): 1}


def test_lanes_and_instructions_are_those_of_a_hundred_iterations() -> None:
    lanes = dict(zip(KINDS, executed_lanes(features(LOOP, COUNTS)).tolist(), strict=True))
    assert lanes["load"] == lanes["store"] == lanes["add"] == lanes["multiply"] == 800
    assert lanes["multiply_add"] == lanes["gather"] == 0
    # Load, multiplication, addition, store, index, comparison and branch; the first block has a branch.
    assert instruction_count(features(LOOP, COUNTS)) == 100 * 7 + 1


def test_a_roofline_is_the_slower_of_arithmetic_and_lines() -> None:
    # 1,600 operations at 2 * 8 lanes / 0.5 cycles, at 1 GHz.
    near = features(LOOP, COUNTS)
    assert roofline_ns(near, ROUND) == pytest.approx(1600 / 32)
    # Two samples of first accesses stand for 500 lines from RAM, which take 10 cycles each.
    far = replace(features(LOOP, COUNTS, (0,)), touched=500)
    assert roofline_ns(far, ROUND) == pytest.approx(500 * 10)


def test_throughput_is_that_of_the_busiest_resource() -> None:
    # A store takes 1 cycle of its resource; seven operations at a width of four take 1.75.
    assert throughput_ns(features(LOOP, COUNTS), ROUND) == pytest.approx(100 * 1.75 + 1 / 4, abs=1.0)
    narrow = replace(ROUND, core=replace(ROUND.core, width=8))
    assert throughput_ns(features(LOOP, COUNTS), narrow) == pytest.approx(100 * 1.0, abs=1.5)
    assert np.isfinite(throughput_ns(features(LOOP, {}), ROUND))
