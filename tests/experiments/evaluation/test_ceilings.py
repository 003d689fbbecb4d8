"""Ceilings know the machine: one measures again, the other is the machine without irregular code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.experiments.evaluation.unfitted import CEILINGS
from costbench.hardware.device import Device
from costbench.metrics.ranking import kendall_tau
from costbench.target import Target, load_target
from tests.experiments.kernels import all_tiles, tanh_kernel

TARGET = load_target("tpu_v2")


def machine(**timing: float) -> Target:
    return replace(TARGET, timing=replace(TARGET.timing, **timing))


@pytest.mark.parametrize("name", sorted(CEILINGS))
def test_costs_are_positive_and_do_not_depend_on_company(name: str) -> None:
    nest, tiles = loop_nest(tanh_kernel()), all_tiles(tanh_kernel())
    for predict in CEILINGS[name](TARGET, (0, 5)).values():
        cost = predict(nest, tiles)
        assert cost.shape == (len(tiles),)
        assert (cost > 0.0).all()
        assert np.array_equal(predict(nest, tiles[3:4]), cost[3:4])


def test_another_measurement_has_noise_of_its_own() -> None:
    nest, tiles = loop_nest(tanh_kernel()), all_tiles(tanh_kernel())
    first, second = (predict(nest, tiles) for predict in CEILINGS["measured_again"](TARGET, (0, 5)).values())
    measured = Device(machine(failure_rate=0.0)).measure_nest(nest, nest.extents(tiles)).runtime_ns
    assert not np.array_equal(first, measured)
    assert not np.array_equal(first, second)
    assert first == pytest.approx(measured, rel=0.2)
    assert kendall_tau(first, measured) > 0.9


def test_without_noise_another_measurement_is_the_same() -> None:
    nest, tiles = loop_nest(tanh_kernel()), all_tiles(tanh_kernel())
    quiet = machine(noise_sd=0.0, noise_short_ns=0.0, failure_rate=0.0)
    (again,) = (predict(nest, tiles) for predict in CEILINGS["measured_again"](quiet, (3,)).values())
    assert np.array_equal(again, Device(quiet).measure_nest(nest, nest.extents(tiles)).runtime_ns)


def test_the_regular_machine_differs_by_its_code_alone() -> None:
    nest, tiles = loop_nest(tanh_kernel()), all_tiles(tanh_kernel())
    extents = nest.extents(tiles)
    predict = CEILINGS["regular_machine"](TARGET, (0,))[0]
    quiet = {"noise_sd": 0.0, "noise_short_ns": 0.0, "failure_rate": 0.0}
    regular = Device(machine(**quiet, codegen_compute_sd=0.0, codegen_transfer_sd=0.0))
    assert predict(nest, tiles) == pytest.approx(regular.measure_nest(nest, extents).runtime_ns, abs=0.51)
    irregular = Device(machine(**quiet)).measure_nest(nest, extents).runtime_ns
    assert predict(nest, tiles) != pytest.approx(irregular, abs=0.51)
