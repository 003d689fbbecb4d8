"""Baselines that nothing is fitted for are as ignorant as said, per decision; ceilings know the machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costbench.baselines import BASELINES, expand
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.spaces import TileSizes
from costbench.experiments.evaluation.unfitted import TILE_MODELS, IterationModel, RandomModel
from costbench.hardware.device import Device
from costbench.metrics.ranking import kendall_tau
from costbench.target import Target, load_target
from tests.experiments.kernels import all_tiles, tanh_kernel


def test_ceilings_are_left_out_by_a_name() -> None:
    assert expand(["learned", "baselines"]) == ("learned", *BASELINES)
    without = expand(["baselines_without_ceilings"])
    assert {*BASELINES} - {*without} == {"measured_again", "regular_machine"}


def test_random_costs_do_not_depend_on_company() -> None:
    kernel, tiles = tanh_kernel(), all_tiles(tanh_kernel())
    cost = RandomModel(3).predict(kernel, tiles)
    assert np.array_equal(RandomModel(3).predict(kernel, tiles[2:5]), cost[2:5])
    assert np.array_equal(RandomModel(3).predict(tanh_kernel(), tiles), cost)


def test_random_costs_differ_between_seeds_tiles_and_kernels() -> None:
    kernel, tiles = tanh_kernel(), all_tiles(tanh_kernel())
    cost = RandomModel(3).predict(kernel, tiles)
    assert len(np.unique(cost)) == len(tiles)
    assert (cost > 0).all()
    assert (cost < 1).all()
    assert not np.array_equal(RandomModel(4).predict(kernel, tiles), cost)
    other = RandomModel(3).predict(tanh_kernel(128), tiles)
    assert not np.array_equal(other, cost)


def test_random_costs_rank_nothing() -> None:
    kernel = tanh_kernel(8 * 997)
    # 500 tiles of a made-up shape: tau of independent rankings has a standard deviation of 0.03.
    bounds = np.stack([np.arange(1, 501), np.ones(500, dtype=np.int64)], axis=1)
    tiles = TileSizes(np.zeros((500, 0), dtype=np.int64), bounds)
    assert abs(kendall_tau(RandomModel(0).predict(kernel, tiles), bounds[:, 0])) < 0.1


def test_iterations_by_hand() -> None:
    # f32[64, 512] is 8 by 4 native tiles; tiles of 3 by 2 take 3 times 2 iterations.
    tiles = TileSizes(np.zeros((3, 0), dtype=np.int64), np.array([[8, 4], [3, 2], [1, 1]]))
    assert IterationModel().predict(tanh_kernel(), tiles).tolist() == [1.0, 6.0, 32.0]


TARGET = load_target("tpu_v2")


def machine(**timing: float) -> Target:
    return replace(TARGET, timing=replace(TARGET.timing, **timing))


@pytest.mark.parametrize("name", TILE_MODELS)
def test_costs_are_finite_and_do_not_depend_on_company(name: str) -> None:
    nest, tiles = loop_nest(tanh_kernel()), all_tiles(tanh_kernel())
    for predict in TILE_MODELS[name](TARGET, (0, 5)).values():
        cost = predict(nest, tiles)
        assert cost.shape == (len(tiles),)
        assert np.isfinite(cost).all()
        assert not BASELINES[name].is_ceiling or (cost > 0.0).all()
        assert np.array_equal(predict(nest, tiles[3:4]), cost[3:4])


def test_seeds() -> None:
    """What is drawn is drawn for each seed, what is computed is computed once."""
    seeds = {name: tuple(build(TARGET, (0, 5))) for name, build in TILE_MODELS.items()}
    assert seeds["analytical"] == (0,)
    assert {name for name, several in seeds.items() if several == (0, 5)} == {"random", "measured_again"}


def test_another_measurement_has_noise_of_its_own() -> None:
    nest, tiles = loop_nest(tanh_kernel()), all_tiles(tanh_kernel())
    by_seed = TILE_MODELS["measured_again"](TARGET, (0, 5))
    first, second = (predict(nest, tiles) for predict in by_seed.values())
    measured = Device(machine(failure_rate=0.0)).measure_nest(nest, nest.extents(tiles)).runtime_ns
    assert not np.array_equal(first, measured)
    assert not np.array_equal(first, second)
    assert first == pytest.approx(measured, rel=0.2)
    assert kendall_tau(first, measured) > 0.9


def test_without_noise_another_measurement_is_the_same() -> None:
    nest, tiles = loop_nest(tanh_kernel()), all_tiles(tanh_kernel())
    quiet = machine(noise_sd=0.0, noise_short_ns=0.0, failure_rate=0.0)
    (again,) = (predict(nest, tiles) for predict in TILE_MODELS["measured_again"](quiet, (3,)).values())
    assert np.array_equal(again, Device(quiet).measure_nest(nest, nest.extents(tiles)).runtime_ns)


def test_the_regular_machine_differs_by_its_code_alone() -> None:
    nest, tiles = loop_nest(tanh_kernel()), all_tiles(tanh_kernel())
    extents = nest.extents(tiles)
    predict = TILE_MODELS["regular_machine"](TARGET, (0,))[0]
    quiet = {"noise_sd": 0.0, "noise_short_ns": 0.0, "failure_rate": 0.0}
    regular = Device(machine(**quiet, codegen_compute_sd=0.0, codegen_transfer_sd=0.0))
    assert predict(nest, tiles) == pytest.approx(regular.measure_nest(nest, extents).runtime_ns, abs=0.51)
    irregular = Device(machine(**quiet)).measure_nest(nest, extents).runtime_ns
    assert predict(nest, tiles) != pytest.approx(irregular, abs=0.51)
