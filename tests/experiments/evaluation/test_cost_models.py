"""Every entry of the table of cost models keeps what a cost model promises."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.experiments.evaluation.unfitted import COST_MODELS, ModelSources
from costbench.target import load_target
from tests.experiments.kernels import all_tiles, tanh_kernel

SOURCES = ModelSources(load_target("tpu_v2").architecture, (0, 5))


@pytest.mark.parametrize("name", sorted(COST_MODELS))
def test_costs_are_finite_and_do_not_depend_on_company(name: str) -> None:
    nest, tiles = loop_nest(tanh_kernel()), all_tiles(tanh_kernel())
    for predict in COST_MODELS[name](SOURCES).values():
        cost = predict(nest, tiles)
        assert cost.shape == (len(tiles),)
        assert np.isfinite(cost).all()
        assert np.array_equal(predict(nest, tiles[3:4]), cost[3:4])


def test_seeds() -> None:
    assert {name: tuple(build(SOURCES)) for name, build in COST_MODELS.items()} == {
        "analytical": (0,),
        "iterations": (0,),
        "random": (0, 5),
    }
