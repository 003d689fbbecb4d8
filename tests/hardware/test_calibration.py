from __future__ import annotations

import numpy as np
import pytest

from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.tile_space import tile_space
from costbench.hardware.calibration import (
    PRIORS,
    SCALED_BANDWIDTH_SD,
    SCALED_SD,
    UNMEASURED,
    Draw,
    Recorded,
    drawn_machine,
    drawn_scaling,
    fidelity,
    fit,
    leave_one_out,
    lowered_runs,
    scaled,
    with_values,
    without_codegen,
)
from costbench.hardware.fidelity import RecordedKernel
from costbench.hardware.simulator import simulate
from costbench.target import Target, load_target
from tests.compiler import small_kernels as small

V3 = load_target("tpu_v3")


def recorded(target: Target) -> list[Recorded]:
    """Exact runs of three kernels on a machine."""
    found = []
    for make in (small.elementwise, small.copy, small.dot):
        kernel = make()
        space = tile_space(kernel, target.architecture)
        tiles = space.decode(space.legal_ids())
        runtime = np.rint(simulate(kernel, tiles, target).runtime_ns).astype(np.int64)
        nest = loop_nest(kernel)
        item = RecordedKernel(kernel.module.name, kernel, tiles, runtime)
        found.append(Recorded(item, nest, nest.extents(tiles)))
    return found


def test_a_fit_finds_the_machine_that_the_runs_come_from() -> None:
    values = {name: value for name, (value, _) in PRIORS.items()}
    expected = with_values(without_codegen(V3), np.log(list(values.values())))
    values |= {"transfer_ns": 100.0, "dot_drain_ns": 400.0, "read_gb_per_s": 400.0}
    true = with_values(without_codegen(V3), np.log(list(values.values())))
    runs = recorded(true)
    found = fit(runs, V3).target
    before, after = fidelity(runs, expected), fidelity(runs, without_codegen(found))
    assert before.mape > 10.0
    assert after.mape < 1.0
    assert found.timing.dot_drain_ns == pytest.approx(400.0, rel=0.1)
    # What these kernels do not show stays at what was expected before.
    for name in ("convolution_drain_ns", "random_cycles", "cross_lane_ns"):
        assert getattr(found.timing, name) == pytest.approx(PRIORS[name][0], rel=1e-6), name


def test_a_fit_keeps_what_it_does_not_fit() -> None:
    found = fit(recorded(V3), V3).target
    assert found.architecture == V3.architecture
    assert found.timing.codegen_compute_sd == V3.timing.codegen_compute_sd
    assert found.timing.failure_rate == V3.timing.failure_rate


def test_scaling_to_another_chip() -> None:
    v2 = load_target("tpu_v2")
    found = scaled(V3, v2)
    assert found.architecture == v2.architecture
    assert found.timing.launch_ns == pytest.approx(V3.timing.launch_ns * 940 / 700)
    assert found.timing.read_gb_per_s == pytest.approx(V3.timing.read_gb_per_s * 350 / 450)
    assert found.timing.bank_ns == pytest.approx(V3.timing.bank_ns * 450 / 350)
    assert found.timing.weight_load_cycles == V3.timing.weight_load_cycles


def test_a_draw_moves_priors_and_weights() -> None:
    runs = recorded(V3)
    names = list(PRIORS)
    deviations = np.zeros(len(PRIORS))
    deviations[names.index("random_cycles")] = 1.0
    even = np.ones(len(runs))
    plain = fit(runs, V3).target.timing
    moved = fit(runs, V3, draw=Draw(even, deviations)).target.timing
    # No kernel draws random bits, so its parameter stays at the centre: one standard deviation up.
    assert moved.random_cycles == pytest.approx(4.0 * np.exp(1.0), rel=1e-4)
    assert moved.dot_drain_ns == pytest.approx(plain.dot_drain_ns, rel=0.02)
    # A kernel without weight does not count: the third one is the only dot.
    ignored = fit(runs, V3, draw=Draw(np.array([1.5, 1.5, 0.0]), np.zeros(len(PRIORS)))).target.timing
    assert ignored.dot_drain_ns == pytest.approx(PRIORS["dot_drain_ns"][0], rel=1e-3)


def test_drawn_machines_are_reproducible_and_differ() -> None:
    runs = recorded(V3)
    first, again, other = (drawn_machine(runs, V3, 0, number) for number in (0, 0, 1))
    assert first == again
    assert first.architecture == V3.architecture
    for name in (*UNMEASURED, "random_cycles"):
        assert getattr(first.timing, name) != getattr(other.timing, name), name
    assert first.timing.failure_rate == V3.timing.failure_rate


def test_drawn_scalings_spread_around_the_public_ratios() -> None:
    v2 = load_target("tpu_v2")
    centre = scaled(V3, v2).timing
    drawn = [drawn_scaling(V3, v2, 0, number).timing for number in range(200)]
    for name, sd in (("launch_ns", SCALED_SD), ("read_gb_per_s", SCALED_BANDWIDTH_SD)):
        logs = np.log([getattr(one, name) / getattr(centre, name) for one in drawn])
        assert logs.mean() == pytest.approx(0.0, abs=4 * sd / np.sqrt(200))
        assert logs.std() == pytest.approx(sd, rel=0.2)


def test_a_kernel_left_out_is_predicted_by_the_others() -> None:
    true = with_values(without_codegen(V3), np.log([value for value, _ in PRIORS.values()]))
    runs = recorded(true)
    held = leave_one_out(runs, V3)
    assert [kernel.name for kernel in held.kernels] == [item.kernel.name for item in runs]
    # The machine is the priors', so that nothing is lost without a kernel.
    assert held.mape < 1.0


def test_lowered_runs_keep_the_tiles() -> None:
    (kernel, *_) = [item.kernel for item in recorded(V3)]
    (item,) = lowered_runs([kernel])
    assert item.extents.tolist() == loop_nest(kernel.kernel).extents(kernel.tile_sizes).tolist()
