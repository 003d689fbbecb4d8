"""The benchmark of `featurize` measures the file that it is given, and its ratios follow from its times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.featurize import PROGRAMS, Measured, main


def test_ratios_follow_from_times() -> None:
    found = Measured("p", 300, featurize_s=3.0, parse_s=0.5, verify_s=2.0)
    assert found.ratios == {"over_parse": 6.0, "over_verify": 1.5, "instructions_per_s": 100.0}


def test_a_row_for_each_program(
    capsys: pytest.CaptureFixture[str], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    assert main([PROGRAMS[0], "--rounds", "1", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["program"] == PROGRAMS[0]
    assert row["instructions"] > 100
    assert row["featurize_s"] > row["parse_s"] > 0.0
    assert row["over_parse"] == row["featurize_s"] / row["parse_s"]
