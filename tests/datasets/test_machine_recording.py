"""Names of machines whose records stand beside each other, and whose records are used here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costbench.datasets.machine_recording import check_machine_name, processor_name, recorded_processor
from costbench.errors import DataError


def describe(folder: Path, processor: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "machine.json").write_text(json.dumps({"version": 1, "processor": processor}))
    return folder


def test_records_of_another_processor_are_not_replaced(tmp_path: Path) -> None:
    describe(tmp_path / "desk", "some other processor")
    describe(tmp_path / "here", processor_name())
    for name in ("new", "here"):
        check_machine_name(tmp_path, name)
    with pytest.raises(DataError, match="desk: --machine: has records of another machine, some other proc"):
        check_machine_name(tmp_path, "desk")


@pytest.mark.parametrize("name", ["", "..", "a/b", "programs"])
def test_names_that_are_no_folders_of_machines(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"^--machine: .* is no name of a machine"):
        check_machine_name(tmp_path, name)


def test_a_damaged_description_names_the_file(tmp_path: Path) -> None:
    path = describe(tmp_path / "desk", "a processor") / "machine.json"
    assert recorded_processor(path.parent) == "a processor"
    path.write_text('{"version": 1}')
    with pytest.raises(DataError, match=r"machine\.json: processor: is no description of a machine"):
        recorded_processor(path.parent)
