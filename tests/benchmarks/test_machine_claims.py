from __future__ import annotations

import numpy as np
import pytest

from benchmarks.machine_claims import (
    STATEMENTS,
    TEST,
    TRAINING,
    Workload,
    fused_program,
    launch_and_slope,
    prepared,
    strongest_parameter,
    tile_figures,
    tiled_kernels,
)
from costbench.hardware.ensemble import load_ensemble
from costbench.target import load_target

V3 = load_target("tpu_v3")


def test_programs_for_constants_and_for_figures_differ() -> None:
    assert not set(TRAINING) & set(TEST)


def test_launch_and_slope_are_recovered_from_runtimes_that_have_them() -> None:
    predicted = np.geomspace(100.0, 1e6, 200)
    assert launch_and_slope(predicted, 2000.0 + 1.5 * predicted) == pytest.approx((2000.0, 1.5), rel=1e-3)


def test_the_parameter_that_a_figure_follows_is_named() -> None:
    ensemble = load_ensemble(V3)
    values = [-machine.timing.launch_ns for machine in ensemble]
    name, tau = strongest_parameter(ensemble, values)
    assert name == "launch_ns"
    assert tau == pytest.approx(-1.0)


def test_every_machine_runs_the_same_tiles() -> None:
    """On another machine the figures differ, and a model that knows the runtimes has no error."""
    program = prepared("wavernn_2_b32_train_bf16")
    kernels = tiled_kernels(program, V3)
    assert kernels
    work = Workload({program.name: kernels}, {})
    shipped = tile_figures(work, V3)
    assert set(shipped) == {name for name in STATEMENTS if name.startswith("tiles")}
    assert tile_figures(work, V3) == shipped
    assert tile_figures(work, load_ensemble(V3)[0]) != shipped
    assert (
        shipped["tiles: best of the analytical model's ten, APE, %"]
        <= (shipped["tiles: analytical model, Tile-Size APE, %"])
    )


def test_the_default_fusion_comes_first() -> None:
    program = fused_program(prepared("wavernn_2_b32_train_bf16"), V3, 4)
    assert len(program.cuts) == 5
    assert set(program.default.tolist()) <= {n for cut in program.cuts[0].kernels for n in cut.tolist()}
    assert set(program.analytical) == set(program.nests)
