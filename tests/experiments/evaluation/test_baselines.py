"""What the models that know nothing must still be: deterministic, per decision, and as ignorant as said."""

from __future__ import annotations

import numpy as np

from costbench.compiler.spaces import TileSizes
from costbench.experiments.evaluation.baselines import IterationModel, RandomModel
from costbench.metrics.ranking import kendall_tau
from tests.experiments.kernels import all_tiles, tanh_kernel


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
