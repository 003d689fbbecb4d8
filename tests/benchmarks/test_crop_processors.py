"""Choices on one processor are scored by what it measured, programs being matched with another one's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.crop_processors import CROP, MEASURED_THERE, MIN_PROGRAMS, main, match_programs, score_model
from costbench_schedules.llvm.operations import KINDS
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.programs import PROGRAMS, EstimatedPrograms, write_estimated

MATMUL, CONV = (parse_operator(name) for name in ("matmul:m=16,n=16,k=16", "C6"))


def programs(
    numbers: list[int], native_ns: list[int], total: list[float], *, operators: tuple[str, ...] = ("m",)
) -> EstimatedPrograms:
    """Programs of a matrix product, the last operator of `operators`."""
    count = len(numbers)
    own = tuple(MATMUL if name == "m" else CONV for name in operators)
    columns = {
        "operator": np.full(count, len(own) - 1, dtype=np.int16),
        "number": np.array(numbers, dtype=np.int64),
        "searched": np.zeros(count, dtype=np.bool_),
        "native_ns": np.array(native_ns, dtype=np.int64),
        "generic_ns": np.array(native_ns, dtype=np.int64),
        "again_ns": np.zeros(count, dtype=np.int64),
        "analysed": np.ones(count, dtype=np.bool_),
        "lanes": np.zeros((count, len(KINDS))),
    }
    names = ("total", "throughput", "roofline", "instructions", "total@other")
    return EstimatedPrograms(own, columns, {name: np.array(total) for name in names})


NUMBERS = list(range(MIN_PROGRAMS))
UP = [10 * (number + 1) for number in NUMBERS]


def test_programs_are_matched_by_operator_and_number() -> None:
    ours = programs(NUMBERS, UP, [1.0 * each for each in UP])
    theirs = programs([*NUMBERS[::-1], 77], [*UP, 5], [2.0] * 11, operators=("c", "m"))
    found = match_programs(ours, theirs, "there")
    assert found.runtime_ns.tolist() == UP
    assert found.costs[MEASURED_THERE].tolist() == UP[::-1]
    assert list(found.costs)[:3] == [CROP, "crop, there", "crop, other"]


def test_scores_by_hand() -> None:
    ours = programs(NUMBERS, UP, [2.0 * each for each in UP])
    found = match_programs(ours, programs(NUMBERS, UP[::-1], [1.0] * MIN_PROGRAMS), "there")
    own = score_model(found, CROP)
    assert (own.top_1.tolist(), own.tau.tolist(), own.error) == ([1.0], [pytest.approx(1.0)], 100.0)
    reverse = score_model(found, MEASURED_THERE)
    # It chooses 100 ns where 10 are best; its first five are 100 to 60.
    assert (reverse.top_1.tolist(), reverse.top_5.tolist()) == ([0.1], [pytest.approx(1 / 6)])
    assert reverse.tau.tolist() == [pytest.approx(-1.0)]
    assert score_model(found, "instructions").error is None


def test_the_table_names_every_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, runtime in (("here", UP), ("there", UP[::-1])):
        write_estimated(tmp_path / name / PROGRAMS, programs(NUMBERS, runtime, [1.0 * each for each in UP]))
    folders = [str(tmp_path / "here"), "--there", str(tmp_path / "there")]
    assert main(folders) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "10 programs of 1 operators"
    assert [line[:28].strip() for line in lines[2:]] == [
        CROP, "crop, amd_epyc_zen4", "crop, other", MEASURED_THERE, "throughput", "roofline",
        "instructions", "random",
    ]  # fmt: skip
    assert lines[2].split()[1:] == ["1.000", "1.000", "1.000", "0%"]


def test_too_few_programs_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_estimated(tmp_path / PROGRAMS, programs(NUMBERS[1:], UP[1:], [1.0] * (MIN_PROGRAMS - 1)))
    assert main([str(tmp_path), "--there", str(tmp_path)]) == 1
    assert "no operator has programs" in capsys.readouterr().err
