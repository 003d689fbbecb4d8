from __future__ import annotations

import pytest

from benchmarks.simulation_throughput import throughput
from costbench.target import load_target
from tests.compiler import small_kernels as small


def test_rates_belong_together() -> None:
    kernels = [small.convolution(), small.elementwise()]
    found = throughput(kernels, load_target("tpu_v3"), tiles=500, repeats=1, baseline_s=0.2)
    assert found.num_kernels == 2
    assert found.num_samples == 500 + 33
    assert found.ratio * found.tile_by_tile_per_second == pytest.approx(found.simulated_per_second)
    assert found.choose_ms_per_kernel > 0
