"""Chips of the user's own are found by the name in their file."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from costbench.artifacts import write_json
from costbench.errors import TargetError
from costbench.experiments.chips import chip_files, chip_of
from costbench.experiments.parameter_file import load_params
from costbench.target import load_target


def test_files_by_name(tmp_path: Path) -> None:
    own = replace(load_target("tpu_v3"), name="mine")
    write_json(tmp_path / "chip.yaml", asdict(own))
    file = str(tmp_path / "chip.yaml")
    write_json(tmp_path / "params.yaml", {"generate": {"chips": ["tpu_v2", file]}})
    assert chip_files(load_params(tmp_path / "params.yaml")) == {"mine": file}
    assert chip_of("mine", file) == own
    assert chip_of("tpu_v2", "").name == "tpu_v2"
    with pytest.raises(TargetError, match="unknown chip 'mine'"):
        chip_of("mine", "")


@pytest.mark.parametrize("content", [{}, {"generate": {}}, {"generate": {"chips": "tpu_v2"}}])
def test_without_chips_there_are_no_files(tmp_path: Path, content: dict[str, object]) -> None:
    write_json(tmp_path / "params.yaml", content)
    assert chip_files(load_params(tmp_path / "params.yaml")) == {}
