from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.tile_space import tile_space
from costbench.errors import TargetError
from costbench.hardware.calibration import (
    ALL_FORMULAS,
    PRIORS,
    SCALED_BANDWIDTH_SD,
    SCALED_SD,
    UNMEASURED,
    Draw,
    Recorded,
    ensemble_text,
    fidelity,
    fit,
    leave_one_out,
    load_ensemble,
    lower_runs,
    machines_by_rule,
    read_ensemble,
    sample_machine,
    sample_scaling,
    scale_timing,
    with_values,
    without_codegen,
)
from costbench.hardware.fidelity import RecordedKernel
from costbench.hardware.simulator import simulate
from costbench.target import Formulas, Target, available_targets, load_target
from tests.compiler import small_kernels as small
from tests.hardware.machines import changed, with_rules

V3 = load_target("tpu_v3")


def recorded(target: Target) -> list[Recorded]:
    """Exact runs of three kernels on a machine."""
    runs = []
    for make in (small.elementwise, small.copy, small.dot):
        kernel = make()
        space = tile_space(kernel, target.architecture)
        tiles = space.decode(space.legal_ids())
        runtime = np.rint(simulate(kernel, tiles, target).runtime_ns).astype(np.int64)
        nest = loop_nest(kernel)
        item = RecordedKernel(kernel.module.name, kernel, tiles, runtime)
        runs.append(Recorded(item, nest, nest.extents(tiles)))
    return runs


def test_a_fit_finds_the_machine_that_the_runs_come_from() -> None:
    values = {name: value for name, (value, _) in PRIORS.items()}
    expected = with_values(without_codegen(V3), np.log(list(values.values())))
    values |= {"transfer_ns": 100.0, "dot_drain_ns": 400.0, "read_gb_per_s": 400.0}
    true = with_values(without_codegen(V3), np.log(list(values.values())))
    runs = recorded(true)
    machine = fit(runs, V3).target
    before, after = fidelity(runs, expected), fidelity(runs, without_codegen(machine))
    assert before.mape > 10.0
    assert after.mape < 1.0
    assert machine.timing.dot_drain_ns == pytest.approx(400.0, rel=0.1)
    # What these kernels do not show stays at what was expected before.
    for name in ("convolution_drain_ns", "random_cycles", "cross_lane_ns"):
        assert getattr(machine.timing, name) == pytest.approx(PRIORS[name][0], rel=1e-6), name


def test_a_fit_keeps_what_it_does_not_fit() -> None:
    machine = fit(recorded(V3), V3).target
    assert machine.architecture == V3.architecture
    assert machine.timing.codegen_compute_sd == V3.timing.codegen_compute_sd
    assert machine.timing.failure_rate == V3.timing.failure_rate


def test_scaling_to_another_chip() -> None:
    v2 = load_target("tpu_v2")
    scaled = scale_timing(V3, v2)
    assert scaled.architecture == v2.architecture
    assert scaled.timing.launch_ns == pytest.approx(V3.timing.launch_ns * 940 / 700)
    assert scaled.timing.read_gb_per_s == pytest.approx(V3.timing.read_gb_per_s * 350 / 450)
    assert scaled.timing.bank_ns == pytest.approx(V3.timing.bank_ns * 450 / 350)
    assert scaled.timing.weight_load_cycles == V3.timing.weight_load_cycles


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
    first, again, other = (sample_machine(runs, V3, 0, number) for number in (0, 0, 1))
    assert first == again
    assert first.architecture == V3.architecture
    for name in (*UNMEASURED, "random_cycles"):
        assert getattr(first.timing, name) != getattr(other.timing, name), name
    assert first.timing.failure_rate == V3.timing.failure_rate


def test_machines_take_turns_at_the_formulas() -> None:
    runs = recorded(V3)[:1]
    sampled = [sample_machine(runs, V3, 0, number) for number in range(30)]
    assert len(ALL_FORMULAS) == 27
    assert ALL_FORMULAS[0] == Formulas()
    assert {machine.formulas for machine in sampled[:27]} == set(ALL_FORMULAS)
    by_rule = {(rule, choice): numbers for rule, choice, numbers in machines_by_rule(sampled)}
    assert [len(numbers) for (rule, _), numbers in by_rule.items() if rule == "overlap"] >= [9, 9, 9]
    assert all(sampled[number].formulas.chunks == "bursts" for number in by_rule["chunks", "bursts"])
    # Another chip keeps them.
    assert sampled[0].formulas == scale_timing(sampled[0], load_target("tpu_v2")).formulas


def test_numbers_are_fitted_to_the_formulas() -> None:
    true = with_rules(
        with_values(without_codegen(V3), np.log([value for value, _ in PRIORS.values()])), overlap="share"
    )
    runs = recorded(true)
    same, other = (fit(runs, with_rules(V3, overlap=overlap)) for overlap in ("share", "maximum"))
    assert same.target.formulas.overlap == "share"
    # The machine that the runs come from is the priors', so only another formula costs anything.
    assert same.cost < 0.1 < other.cost
    assert fidelity(runs, without_codegen(same.target)).mape < 0.1


def test_drawn_scalings_spread_around_the_public_ratios() -> None:
    v2 = load_target("tpu_v2")
    centre = scale_timing(V3, v2).timing
    timings = [sample_scaling(V3, v2, 0, number).timing for number in range(200)]
    for name, sd in (("launch_ns", SCALED_SD), ("read_gb_per_s", SCALED_BANDWIDTH_SD)):
        logs = np.log([getattr(one, name) / getattr(centre, name) for one in timings])
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
    (item,) = lower_runs([kernel])
    assert item.extents.tolist() == loop_nest(kernel.kernel).extents(kernel.tile_sizes).tolist()


def test_a_written_ensemble_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "chip.ensemble.json"
    machines = [
        changed(V3, launch_ns=123.456),
        with_rules(changed(V3, launch_ns=7.0), overlap="share", edges="rows"),
    ]
    file.write_text(ensemble_text(machines), "utf-8")
    read = read_ensemble(file, V3)
    assert [one.name for one in read] == ["tpu_v3/0", "tpu_v3/1"]
    assert [one.timing.launch_ns for one in read] == [123.5, 7.0]
    assert [one.formulas for one in read] == [machine.formulas for machine in machines]
    assert read[0].architecture == V3.architecture


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        "[]",
        '{"machines": 3}',
        '{"machines": [{"launch_ns": 1}]}',
        '{"machines": [{"formulas": {"edges": "none"}, "timing": {}}]}',
    ],
)
def test_a_broken_ensemble_is_one_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "chip.ensemble.json"
    file.write_text(text, "utf-8")
    with pytest.raises(TargetError, match=r"chip\.ensemble\.json"):
        read_ensemble(file, V3)


@pytest.mark.parametrize("chip", available_targets())
def test_every_chip_ships_with_an_ensemble(chip: str) -> None:
    target = load_target(chip)
    machines = load_ensemble(target)
    assert len(machines) == 32
    assert len({one.timing for one in machines}) == 32
    # Every combination of rules, each once before any comes again.
    assert {one.formulas for one in machines} == {one.formulas for one in machines[:27]} == set(ALL_FORMULAS)
    # The chip lies inside its ensemble, parameter by parameter.
    for name, value in vars(target.timing).items():
        values = [getattr(one.timing, name) for one in machines]
        assert min(values) <= value <= max(values), name


def test_a_chip_of_your_own_has_none() -> None:
    assert load_ensemble(changed(V3, launch_ns=1.0)) == ()
    assert load_ensemble(replace(V3, name="other")) == ()
