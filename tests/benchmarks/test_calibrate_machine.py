from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.calibrate_machine import (
    PRIORS,
    Recorded,
    fidelity,
    fit,
    main,
    scaled,
    with_values,
    without_codegen,
    write_timing,
)
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.tiling.space import tile_space
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


def test_written_timing_is_read_again(tmp_path: Path, repository: Path) -> None:
    source = repository / "src" / "costbench" / "chips" / "tpu_v3.yaml"
    file = tmp_path / "chip.yaml"
    file.write_text(source.read_text("utf-8"), "utf-8")
    log_values = np.log([value * 1.23456 for value, _ in PRIORS.values()])
    write_timing(file, with_values(V3, log_values))
    found = load_target(file)
    assert found.architecture == V3.architecture
    for name, (value, _) in PRIORS.items():
        assert getattr(found.timing, name) == pytest.approx(value * 1.23456, rel=5e-4), name
    assert file.read_text("utf-8").splitlines()[:2] == source.read_text("utf-8").splitlines()[:2]


def test_the_shipped_chips_are_what_the_benchmark_writes(
    tmp_path: Path, repository: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anybody can make the numbers in the chips' files again."""
    chips = repository / "src" / "costbench" / "chips"
    for name in ("tpu_v2.yaml", "tpu_v3.yaml"):
        (tmp_path / name).write_text((chips / name).read_text("utf-8"), "utf-8")
    tuning = shared_data / "real_tpu" / "tile_calibration.pb"
    arguments = ["--write", tmp_path / "tpu_v3.yaml", "--scaled", tmp_path / "tpu_v2.yaml"]
    main([str(a) for a in (tuning, *arguments, "--json", tmp_path / "out.json")])
    assert "each kernel as predicted by a fit to the others" in capsys.readouterr().out
    for name in ("tpu_v2", "tpu_v3"):
        written, shipped = load_target(tmp_path / f"{name}.yaml"), load_target(name)
        for parameter in vars(shipped.timing):
            # Parameters that trade against each other move a little with the arithmetic of another machine.
            expected = getattr(shipped.timing, parameter)
            assert getattr(written.timing, parameter) == pytest.approx(expected, rel=0.02), parameter
    report = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert report["after"]["overall"]["kendall_tau"] >= 0.80
    ranked = [k["kendall_tau"] for k in report["leave_one_out"] if k["num_runs"] >= 5]
    assert np.mean(ranked) >= 0.85
