"""Analysis of a table's programs: a sample in random order, resuming, what is refused; no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costbench.errors import DataError
from costbench_schedules.operators.operators import Operator
from costbench_schedules.records.program_recording import ANALYSED_BATCH, analyse_table
from costbench_schedules.records.programs import DrawnPrograms
from costbench_schedules.records.table import RecordedTable
from costbench_schedules.spaces.space import ScheduleSpace, Value
from tests.schedules.experiments.made_up_tables import made_up_table

FILE = "matmul-32x32x32.arrow"


class MadeUpAnalyzer:
    """Returns the choices as text; what is vectorised cannot be analysed."""

    def __init__(self) -> None:
        self.host: Mapping[str, Any] = {"processor": "this one"}
        self.targets: list[str] = []

    def features(self, operator: Operator, choices: Mapping[str, Value], target: str, /) -> bytes:
        """Returns `sorted(choices)` as bytes."""
        self.targets.append(target)
        if choices["unroll"] == 512:
            raise DataError("too long")
        return repr(sorted(choices.items())).encode()


@pytest.fixture(scope="module")
def table() -> RecordedTable:
    return replace(made_up_table("matmul-256"), host={"processor": "another", "mcpu": "znver4"})


def analysed(
    table: RecordedTable, folder: Path, most: int, batches: int = 99, machine: MadeUpAnalyzer | None = None
) -> DrawnPrograms:
    left = iter(range(batches - 1, -1, -1))
    return analyse_table(table, machine or MadeUpAnalyzer(), folder, most, lambda _: next(left) > 0)


def test_programs_that_ran_come_with_their_measurements(table: RecordedTable, tmp_path: Path) -> None:
    machine = MadeUpAnalyzer()
    programs = analysed(table, tmp_path, 50, machine=machine)
    assert len(programs) == 50
    assert set(machine.targets) == {"znver4"}
    number_of = {number: row for row, number in enumerate(table.unrestricted_numbers(np.arange(len(table))))}
    rows = [number_of[number] for number in programs.columns["number"].tolist()]
    assert len(set(rows)) == 50
    assert rows != sorted(rows)
    assert not table.failed[rows].any()
    assert programs.columns["native_ns"].tolist() == table.columns["runtime_ns"][rows].tolist()
    whole = ScheduleSpace(table.space.operator)
    for number, row, content, problem in zip(
        programs.columns["number"].tolist(), rows, programs.features, programs.problems, strict=True
    ):
        choices = whole.choices(whole.rows([number])[0])
        assert choices == table.space.choices(table.space.rows([row])[0])
        expected = b"" if choices["unroll"] == 512 else repr(sorted(choices.items())).encode()
        assert content == expected
        assert problem == ("" if expected else "features: too long")


def test_a_stopped_analysis_continues_to_the_same_bytes(table: RecordedTable, tmp_path: Path) -> None:
    analysed(table, tmp_path / "whole", 50)
    assert len(analysed(table, tmp_path / "parts", 50, 1)) == ANALYSED_BATCH
    assert len(analysed(table, tmp_path / "parts", 50)) == 50
    assert (tmp_path / "parts" / FILE).read_bytes() == (tmp_path / "whole" / FILE).read_bytes()
    machine = MadeUpAnalyzer()
    analysed(table, tmp_path / "parts", 50, machine=machine)
    assert machine.targets == []


def test_without_a_limit_every_program_that_ran_is_analysed(table: RecordedTable, tmp_path: Path) -> None:
    assert len(analysed(table, tmp_path, 0)) == np.count_nonzero(~table.failed)


def test_features_of_another_table_are_refused(table: RecordedTable, tmp_path: Path) -> None:
    analysed(table, tmp_path, 20)
    with pytest.raises(DataError, match="another folder"):
        analysed(replace(table, target="generic"), tmp_path, 40)


def test_features_of_another_processors_table_are_refused(table: RecordedTable, tmp_path: Path) -> None:
    analysed(table, tmp_path, 20)
    with pytest.raises(DataError, match="another folder"):
        analysed(replace(table, host={**table.host, "processor": "a third"}), tmp_path, 40)
