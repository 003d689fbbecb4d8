"""Which packed rows a repeated cell is held against; `test_packed_cells` repeats whole cells."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from costbench.experiments.archive import ROWS, Part, PartEntry, table_of
from costbench.experiments.packed_cells import PackedExperiment
from costbench.experiments.repeated_cells import RepeatedCell, _Repeated
from costbench.metrics.rows import MetricRow
from tests.reports.conftest import make_row

CELL = "tile-fold1-tpu_v2-main-s0"
FIRST, SECOND = (make_row(split="folds", program="p1", metric=name, value=3.0) for name in ("tau", "ape"))
OF_FOLD_2 = make_row(split="folds", program="p2", metric="tau", value=5.0)


def repeated(*packed: MetricRow) -> _Repeated:
    """A cell that tested p1, beside an archive with these rows."""
    table = table_of(ROWS, [("evaluate", "e", *astuple(row)) for row in packed])
    part = Part(PartEntry("", "", "", "", len(packed), 2), {ROWS: table})
    cell_of: dict[tuple[str | int, ...], str] = {("folds", "tpu_v2", "p1", "learned", "main", 0): CELL}
    return _Repeated(PackedExperiment("e", part), frozenset({CELL}), Path("generate"), cell_of=cell_of)


def test_rows_of_other_folds_are_of_other_cells() -> None:
    """On folds, cells share split, variant and seed."""
    (cell,) = repeated(FIRST, SECOND, OF_FOLD_2).compared([FIRST, SECOND])
    assert cell == RepeatedCell(f"e/{CELL}", 2, 2, 0.0)


@pytest.mark.parametrize(
    ("rows", "difference"),
    [
        ([FIRST], math.inf),
        ([FIRST, replace(SECOND, value=math.nan)], math.inf),
        ([FIRST, replace(SECOND, value=3.3)], 0.1),
    ],
    ids=["missing", "not-finite", "differs"],
)
def test_one_of_two_rows_is_not_repeated(rows: list[MetricRow], difference: float) -> None:
    (cell,) = repeated(FIRST, SECOND, OF_FOLD_2).compared(rows)
    assert (cell.rows, cell.equal) == (2, 1)
    assert cell.difference == pytest.approx(difference)
