from __future__ import annotations

import pytest

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.hardware.compute import ComputeTime, compute_time, kernel_work
from costbench.hardware.machine import machine_numbers
from costbench.hardware.vector_unit import vector_rates
from costbench.hlo.builder import ModuleBuilder
from tests.compiler import small_kernels as small
from tests.compiler.laid_out import laid_out
from tests.compiler.small_kernels import finish
from tests.hardware.machines import machine


def compute(kernel: Kernel, extents: tuple[int, ...], **timing: float) -> ComputeTime:
    numbers = machine_numbers(machine(**timing))
    packed, tile, moving = laid_out(kernel, extents)
    work = kernel_work(loop_nest(kernel))
    return compute_time(packed, work.contraction, vector_rates(work.vector, numbers), tile, moving, numbers)


def test_a_dot_with_prologue_and_epilogue() -> None:
    b = ModuleBuilder()
    left = b.op("exponential", b.parameter("f32[64,512]"))
    product = b.dot(left, b.parameter("f32[512,384]"))
    kernel = finish(b, b.reduce(b.op("negate", product), (1,)))
    found = compute(
        kernel,
        (8, 3, 2),
        vector_cycles=1.0,
        transcendental_cycles=10.0,
        accumulate_cycles=100.0,
        dot_drain_ns=7.0,
        cross_lane_ns=50.0,
    )
    # Half of the depth: 2 blocks x 3 columns x 64 rows, and the drain.
    assert found.matrix_ns == 2 * 3 * 64 + 7
    # 8 x 2 registers of exponentials (two simple operations and a transcendental), 24 registers of sums.
    assert found.vector_ns == 16 * (2 + 10) + 24 * 100
    # 24 registers negated and 24 reduced over lanes.
    assert found.epilogue_ns == 24 + 24 + 50


def test_without_a_contraction_everything_runs_in_every_iteration() -> None:
    for tile, registers in (((32, 4), 128), ((8, 1), 8)):
        found = compute(small.unary(times=2), tile, vector_cycles=1.0)
        assert found.vector_ns == 2 * registers
        assert found.matrix_ns == found.epilogue_ns == 0


def test_alike_values_are_summed_before_they_are_priced() -> None:
    # Element types differ, tiles do not.
    b = ModuleBuilder()
    value = b.op("negate", b.parameter("f32[256,512]"))
    kernel = finish(b, b.op("negate", b.convert(value, "bf16")))
    assert compute(kernel, (32, 4), vector_cycles=1.0).vector_ns == pytest.approx(3 * 128)
