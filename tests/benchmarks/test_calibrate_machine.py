from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.calibrate_machine import main, write_timing
from costbench.hardware.calibration import PRIORS, load_ensemble, read_ensemble, with_values
from costbench.target import load_target

V3 = load_target("tpu_v3")


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
    arguments = ["--write", tmp_path / "tpu_v3.yaml", "--scaled", tmp_path / "tpu_v2.yaml", "--machines", 2]
    main([str(a) for a in (tuning, *arguments, "--json", tmp_path / "out.json")])
    assert "each kernel as predicted by a fit to the others" in capsys.readouterr().out
    for name in ("tpu_v2", "tpu_v3"):
        written, shipped = load_target(tmp_path / f"{name}.yaml"), load_target(name)
        for parameter in vars(shipped.timing):
            # Parameters that trade against each other move a little with the arithmetic of another machine.
            expected = getattr(shipped.timing, parameter)
            assert getattr(written.timing, parameter) == pytest.approx(expected, rel=0.02), parameter
    for name in ("tpu_v2", "tpu_v3"):
        drawn = read_ensemble(tmp_path / f"{name}.ensemble.json", load_target(name))
        for one, shipped in zip(drawn, load_ensemble(load_target(name))[:2], strict=True):
            # Parameters that trade against each other move more where kernels have little weight.
            expected = list(vars(shipped.timing).values())
            assert list(vars(one.timing).values()) == pytest.approx(expected, rel=0.1), name
    report = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert report["after"]["overall"]["kendall_tau"] >= 0.80
    ranked = [k["kendall_tau"] for k in report["leave_one_out"] if k["num_runs"] >= 5]
    assert np.mean(ranked) >= 0.85
