"""Overheads on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.artifacts import write_json
from costbench.errors import DataError
from costbench.metrics.overhead import Overhead, read_overheads, write_overheads

ONE = Overhead("random", "tpu_v3", "RNN", "b", 40.0, 0.5, 0.2, 0.01, 0.1)


def test_all_experiments_are_read_in_the_order_of_programs(tmp_path: Path) -> None:
    write_overheads(tmp_path / "x" / "b.json", [ONE])
    write_overheads(tmp_path / "y" / "a.json", [replace(ONE, program="a")])
    overheads = read_overheads(tmp_path / name for name in ("x", "none", "y"))
    assert [overhead.program for overhead in overheads] == ["a", "b"]
    assert overheads[1] == ONE


@pytest.mark.parametrize(
    ("content", "message"),
    [({}, "no list"), ([{"split": "random"}], "missing"), ([{**vars(ONE), "run_s": 0.0}], "run_s is 0.0")],
)
def test_damaged_files_are_named(tmp_path: Path, content: object, message: str) -> None:
    write_json(tmp_path / "p.json", content)
    with pytest.raises(DataError, match=message) as caught:
        read_overheads([tmp_path])
    assert "p.json" in str(caught.value)
