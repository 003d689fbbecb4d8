"""Cycles of small loops, counted by hand on a processor with round numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costbench.errors import DataError
from costbench_schedules.crop.estimate import Estimator
from costbench_schedules.devices.processor import OperationCost, Processor
from costbench_schedules.llvm.features import ProgramFeatures, bins_of
from tests.schedules.crop.machines import CORE, ROUND, features, without_fused
from tests.schedules.llvm import kernels

HUNDRED = {("entry", "loop"): 1, ("loop", "loop"): 99, ("loop", "done"): 1}


def cycles(text: str, processor: Processor = ROUND) -> float:
    """Returns cycles of an iteration of a loop that repeats itself."""
    block_costs = Estimator(processor).blocks(features(text, HUNDRED))
    return next(block.cycles for block in block_costs if block.name == "kernel:loop")


@pytest.mark.parametrize(
    ("lanes", "accumulators", "expected"),
    [
        (8, 1, 4.0),  # one chain: the latency
        (8, 4, 4.0),  # four chains fit into the latency
        (8, 8, 4.0),  # eight at two a cycle: both
        (8, 12, 6.0),  # twelve at two a cycle
        (16, 12, 12.0),  # of two registers each
        (32, 1, 4.0),  # four registers side by side
    ],
)
def test_chains_are_bound_by_latency_or_throughput(lanes: int, accumulators: int, expected: float) -> None:
    processor = replace(ROUND, core=replace(CORE, vector_registers=64))
    # The first iteration comes from the entry; ninety-nine are steady.
    assert cycles(kernels.vector_loop(lanes, accumulators), processor) == pytest.approx(expected, rel=0.06)


def test_without_fused_operations_a_chain_is_longer() -> None:
    assert cycles(kernels.vector_loop(8, 1), without_fused()) == pytest.approx(2.0, rel=0.06)


def test_narrow_entry_bounds_independent_work() -> None:
    # Eight multiply-adds, an addition, a comparison and a branch enter one at a time.
    narrow = replace(ROUND, core=replace(CORE, width=1))
    assert cycles(kernels.vector_loop(8, 8), narrow) == pytest.approx(11.0, rel=0.06)


def test_vectors_beyond_the_registers_cost_loads_and_stores() -> None:
    fits = cycles(kernels.vector_loop(8, 16))
    spilled = cycles(kernels.vector_loop(8, 24))
    assert fits == pytest.approx(8.0, rel=0.06)
    # Eight of 24 sums are stored, a cycle each, which the 12 cycles of multiply-adds hide.
    assert spilled == pytest.approx(12.0, rel=0.1)
    slow = dict(ROUND.operations) | {"store": replace(ROUND.operations["store"], inverse={"256": 3.0})}
    assert cycles(kernels.vector_loop(8, 24), replace(ROUND, operations=slow)) == pytest.approx(
        24.0, rel=0.15
    )


ACCUMULATED = """
define void @kernel(ptr %out, ptr %data) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr %data, i64 %i
  %x = load float, ptr %at
  %old = load float, ptr %out
  %new = fadd float %old, %x
  store float %new, ptr %out
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 100
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def test_sums_in_memory_wait_for_the_store_before() -> None:
    # Two cycles until the load can begin, 4 of the load and 1 of the addition.
    assert cycles(ACCUMULATED) == pytest.approx(7.0, rel=0.06)


TWO_BLOCKS = """
define void @kernel(ptr %out) {
entry:
  br label %first
first:
  %i = phi i64 [ 0, %entry ], [ %next, %second ]
  %a = phi <8 x float> [ zeroinitializer, %entry ], [ %a.next, %second ]
  %b = phi <8 x float> [ zeroinitializer, %entry ], [ %b.next, %second ]
  %a.next = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %a, <8 x float> %a, <8 x float> %a)
  br label %second
second:
  %b.next = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %b, <8 x float> %b, <8 x float> %b)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 100
  br i1 %more, label %first, label %done
done:
  store <8 x float> %a.next, ptr %out
  ret void
}
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
"""


def test_iterations_of_a_loop_of_two_blocks_overlap() -> None:
    counts = {
        ("entry", "first"): 1,
        ("second", "first"): 999,
        ("first", "second"): 1000,
        ("second", "done"): 1,
    }
    block_costs = Estimator(ROUND).blocks(features(TWO_BLOCKS, counts))
    by_name = {block.name: block.cycles for block in block_costs}
    # Two chains of four cycles side by side, however blocks divide them.
    assert by_name["kernel:first"] + by_name["kernel:second"] == pytest.approx(4.0, rel=0.03)


def gathers(cost: OperationCost | None) -> float:
    text = """define void @kernel(ptr %p, <8 x i64> %q) {
  %at = getelementptr float, ptr %p, <8 x i64> %q
  %x = call <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr> %at, {ON}, <8 x float> poison)
  ret void
}
declare <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr>, <8 x i1>, <8 x float>)
""".replace("{ON}", "<8 x i1> splat (i1 true)")
    operations = dict(ROUND.operations) | ({} if cost is None else {"gather": cost})
    return Estimator(replace(ROUND, operations=operations)).runtime_ns(features(text, {}))


def test_a_gather_costs_what_is_described_or_loads_and_shuffles() -> None:
    # Eight loads of four bytes at two a cycle and as many shuffles, a latency of four and of one.
    assert gathers(None) == pytest.approx(9.0, abs=1.0)
    assert gathers(OperationCost(50.0, {"256": 20.0})) > gathers(None) + 40.0


def far(distance: int) -> ProgramFeatures:
    return features(ACCUMULATED, HUNDRED, (int(bins_of(np.array([distance]))[0]),))


def test_breakdown_adds_up_and_names_the_level() -> None:
    estimator = Estimator(ROUND)
    near, middle, away = (estimator.breakdown(far(distance)) for distance in (0, 2048, 1 << 24))
    assert near.memory == pytest.approx({"L2": 0.0, "RAM": 0.0}, abs=1e-6)
    assert middle.memory["L2"] > 500.0
    # Of 2048 other lines, more than seven are in the line's set of the second cache once in 100,000 times.
    assert middle.memory["RAM"] == pytest.approx(0.0, abs=0.1)
    assert away.memory["RAM"] > 5000.0
    for distance, parts in ((0, near), (2048, middle), (1 << 24, away)):
        assert parts.total == pytest.approx(estimator.runtime_ns(far(distance)))
    assert [item.total for item in (near, middle, away)] == sorted(
        item.total for item in (near, middle, away)
    )


def test_exits_of_long_loops_are_mispredicted_and_of_short_ones_are_not() -> None:
    short = {("entry", "loop"): 10, ("loop", "loop"): 90, ("loop", "done"): 10}
    text = kernels.vector_loop(8, 1)
    estimator = Estimator(ROUND)
    assert estimator.breakdown(features(text, short)).branches == 0.0
    assert estimator.breakdown(features(text, HUNDRED)).branches >= CORE.mispredict


def test_imbalance_is_what_the_busiest_thread_does_beyond_the_mean() -> None:
    program_features = features(kernels.vector_loop(8, 1), HUNDRED)
    counts = np.stack([program_features.counts[0, 0] * 3, program_features.counts[0, 0] * 10])
    program_features = replace(program_features, threads=np.array([4]), counts=counts[None])
    parts = Estimator(ROUND, threads=4).breakdown(program_features)
    # Ten iterations over four threads: the busiest has 3, the mean is 2.5.
    assert parts.compute / parts.imbalance == pytest.approx(2.5 / 0.5)


def test_a_thread_that_does_everything_is_waited_for() -> None:
    program_features = features(
        kernels.vector_loop(8, 1), {edge: 1000 * count for edge, count in HUNDRED.items()}
    )
    busiest = program_features.counts[0, 0]
    # All four tasks enter the function; the loop is of one of them.
    entry = program_features.static.edges[:, 0] == -1
    counts = np.stack([busiest, np.where(entry, 4 * busiest, busiest)])
    program_features = replace(program_features, threads=np.array([4]), counts=counts[None])
    parts = Estimator(ROUND, threads=4).breakdown(program_features)
    assert parts.imbalance / parts.compute == pytest.approx(3.0, rel=0.01)


def test_shares_of_blocks_sum_to_one() -> None:
    block_costs = Estimator(ROUND).blocks(features(kernels.vector_loop(8, 12), HUNDRED))
    assert sum(block.share for block in block_costs) == pytest.approx(1.0)
    assert block_costs[0].name == "kernel:loop"


def test_predictions_are_the_same_bytes_again() -> None:
    program_features = features(kernels.vector_loop(16, 24), HUNDRED, (3, 30, 60))
    assert Estimator(ROUND).runtime_ns(program_features) == Estimator(ROUND).runtime_ns(program_features)


def test_more_threads_than_there_are_is_an_error() -> None:
    with pytest.raises(DataError, match="expected 1 to 4"):
        Estimator(ROUND, threads=5)
