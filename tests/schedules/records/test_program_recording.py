"""Recording of programs: halves, resuming, what is left out, damaged files; no compiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.errors import DataError
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.program_recording import DrawSpec, record_programs, record_same
from costbench_schedules.records.programs import SLOW, DrawnPrograms, EstimatedPrograms, read_programs
from costbench_schedules.spaces.space import ScheduleSpace
from tests.schedules.records.made_up_programs import FAILED, MadeUpMachine

OPERATOR = parse_operator("matmul:m=16,n=24,k=12")
SPEC = DrawSpec(random=12, searched=18, batch=6, slowest=2.0, again=2)
FILE = "matmul-16x24x12.arrow"


def record(folder: Path, machine: MadeUpMachine, stop_after: int = 99) -> DrawnPrograms:
    batches = 0

    def count(_: DrawnPrograms) -> None:
        nonlocal batches
        batches += 1
        if batches == stop_after:
            raise KeyboardInterrupt

    return record_programs(SPEC, OPERATOR, machine, folder, count)


def test_half_is_drawn_at_random_and_half_near_the_fastest(tmp_path: Path) -> None:
    table = record(tmp_path, MadeUpMachine())
    runtime, searched = table.columns["native_ns"], table.columns["searched"]
    assert searched.tolist() == [False] * 12 + [True] * 18
    assert len(set(table.columns["number"].tolist())) == 30
    ran = runtime > 0
    assert runtime[ran & searched].min() < runtime[ran & ~searched].min()
    assert np.median(runtime[ran & searched]) < np.median(runtime[ran & ~searched])


def test_what_is_missing_has_its_reason(tmp_path: Path) -> None:
    table = record(tmp_path, MadeUpMachine())
    space = ScheduleSpace(OPERATOR)
    runtime, numbers = table.columns["native_ns"], table.columns["number"]
    for index, problem in enumerate(table.problems):
        [row] = space.rows([int(numbers[index])])
        if numbers[index] % FAILED == 0:
            assert problem == "crash"
            assert runtime[index] == 0
        elif problem == SLOW:
            fastest = runtime[: (index // 6 + 1) * 6]
            assert runtime[index] > 2.0 * fastest[fastest > 0].min()
            assert table.columns["generic_ns"][index] == 0
        else:
            assert table.columns["generic_ns"][index] == pytest.approx(2 * runtime[index], abs=1)
            assert problem == ("features: odd" if row.sum() % 2 else "")
        assert bool(table.features[index]) == (problem == "")
    again = table.columns["again_ns"] > 0
    assert again.sum() == 4
    assert all(not table.problems[index] for index in np.flatnonzero(again))


def test_a_stopped_recording_continues_to_the_same_bytes(tmp_path: Path) -> None:
    record(tmp_path / "whole", MadeUpMachine())
    for stop in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            record(tmp_path / "parts", MadeUpMachine(), stop)
    record(tmp_path / "parts", MadeUpMachine())
    assert (tmp_path / "parts" / FILE).read_bytes() == (tmp_path / "whole" / FILE).read_bytes()
    machine = MadeUpMachine()
    record(tmp_path / "parts", machine)
    assert machine.native.asked == 0


def test_another_machine_does_not_continue(tmp_path: Path) -> None:
    record(tmp_path, MadeUpMachine())
    with pytest.raises(DataError, match="host"):
        record(tmp_path, MadeUpMachine("another"))


def elsewhere(result: DrawnPrograms) -> EstimatedPrograms:
    """What `estimate-networks` keeps of a recording; its second operator is the recorded one."""
    columns = dict(result.columns)
    columns["operator"] = np.ones(len(result), dtype=np.int16)
    columns["analysed"] = np.array([bool(item) for item in result.features])
    return EstimatedPrograms((parse_operator("C6"), OPERATOR), columns, {})


def test_programs_of_another_machine_are_recorded_on_this_one(tmp_path: Path) -> None:
    theirs = record(tmp_path / "there", MadeUpMachine("another"))
    whole = record_same(SPEC, elsewhere(theirs), OPERATOR, MadeUpMachine(), tmp_path / "here", print)
    kept = np.array([bool(item) for item in theirs.features]) & (theirs.columns["native_ns"] > 0)
    for name in ("number", "searched"):
        assert whole.columns[name].tolist() == theirs.columns[name][kept].tolist()
    assert whole.columns["searched"].any()
    assert (whole.columns["again_ns"] > 0).sum() == 4
    assert read_programs(tmp_path / "here" / FILE).facts["host"]["processor"] == "made up"


def test_fewer_of_them_are_the_first_of_either_kind(tmp_path: Path) -> None:
    theirs = record(tmp_path / "there", MadeUpMachine())
    two = replace(SPEC, random=2, searched=1, batch=2)
    programs = record_same(two, elsewhere(theirs), OPERATOR, MadeUpMachine(), tmp_path / "here", print)
    assert programs.columns["searched"].tolist() == [False, False, True]
    # Others are not a continuation of these.
    with pytest.raises(DataError, match="draw"):
        record_same(SPEC, elsewhere(theirs), OPERATOR, MadeUpMachine(), tmp_path / "here", print)


def test_nothing_is_recorded_of_an_operator_that_was_not(tmp_path: Path) -> None:
    theirs = record(tmp_path / "there", MadeUpMachine())
    other = parse_operator("matmul:m=8,n=8,k=8")
    assert len(record_same(SPEC, elsewhere(theirs), other, MadeUpMachine(), tmp_path, print)) == 0


def test_a_damaged_file_is_an_error_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(b"no arrow")
    with pytest.raises(DataError, match="record-networks") as caught:
        read_programs(path)
    assert "\n" not in str(caught.value)
