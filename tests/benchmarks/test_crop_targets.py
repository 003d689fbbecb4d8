"""Descriptions restricted to an instruction set, and scores on times of another build."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.crop_processors import FEWEST
from benchmarks.crop_targets import SETS, main, restricted
from costbench_schedules.devices.processor import OPTIONAL, load_processor
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.networks.drawn import DrawnPrograms, write_programs
from tests.schedules.crop.machines import features
from tests.schedules.crop.test_plain import COUNTS, LOOP


def recording(folder: Path, count: int) -> None:
    """Equal programs of which the next one always takes longer, more so for the generic target."""
    columns = {
        "number": np.arange(count),
        "searched": np.zeros(count, dtype=np.bool_),
        "native_ns": 100 + np.arange(count),
        "generic_ns": 200 + 5 * np.arange(count),
        "clean": np.full(count, 3, dtype=np.uint8),
        "again_ns": np.zeros(count, dtype=np.int64),
    }
    contents = (features(LOOP, COUNTS, (1, 40)).to_bytes(),) * count
    operator = parse_operator("matmul:m=8,n=8,k=8")
    write_programs(
        folder / "matmul-8x8x8.arrow", DrawnPrograms(operator, {}, columns, ("",) * count, contents)
    )


def test_an_instruction_set_takes_vectors_registers_and_operations_away() -> None:
    whole = load_processor("amd_epyc_zen5")
    generic, third = (restricted(whole, SETS[name]) for name in ("generic", "x86-64-v3"))
    assert (generic.core.vector_bits, generic.core.vector_registers, generic.core.fused) == (128, 16, False)
    assert (third.core.vector_bits, third.core.vector_registers, third.core.fused) == (256, 16, True)
    assert set(whole.operations) - set(generic.operations) == set(OPTIONAL)
    assert third.operations == whole.operations
    assert generic.core.ghz == whole.core.ghz
    # A set does not give what the processor does not have.
    assert restricted(generic, SETS["x86-64-v3"]).core == generic.core


def test_what_another_build_took_is_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording(tmp_path, FEWEST + 2)
    assert main([str(tmp_path), "--processor", "amd_epyc_zen5", "--sets", "generic"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("generic: 12 programs of 1 operators")
    assert [line[:28].strip() for line in lines[2:]] == ["crop", "crop, all of it", "measured there"]
    # The native build's order is that of the generic one.
    assert lines[4].split()[2:5] == ["1.000", "1.000", "1.000"]


def test_measured_times_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording(tmp_path, FEWEST)
    kept = tmp_path / "out" / "x86-64-v3" / "matmul-8x8x8.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({"numbers": list(range(FEWEST)), "runtime_ns": [0, *range(50, 49 + FEWEST)]}))
    options = ["--processor", "amd_epyc_zen5", "--sets", "x86-64-v3", "--out", str(tmp_path / "out")]
    assert main([str(tmp_path), *options]) == 0
    # One failed.
    assert capsys.readouterr().out.startswith("x86-64-v3: 9 programs of 1 operators")


def test_without_programs_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--processor", "amd_epyc_zen5"]) == 1
    assert "no programs with features" in capsys.readouterr().err
