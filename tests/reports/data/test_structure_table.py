"""Kernels of new structure are counted, and errors on them stand beside those on all."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.metrics.rows import write_rows
from costbench.reports.data.structure_table import (
    NEW_STRUCTURE,
    share_of_structures,
    structure_sentence,
    structure_table,
)
from costbench.reports.results import load_results
from costbench.reports.summary import summarise
from tests.reports.conftest import PROGRAMS, make_row, rows_of


def test_shares_and_errors(tmp_path: Path) -> None:
    counts = [
        make_row(model="best", application=a, program=p, metric="kernels", kernels=group, value=float(count))
        for group, numbers in (("all", (10, 20, 10)), (NEW_STRUCTURE, (5, 5)))
        for (a, p), count in zip(PROGRAMS, numbers, strict=False)
    ]
    new = [row for row in rows_of(kernels=NEW_STRUCTURE) if row.application != "Own"]
    write_rows(tmp_path / "r.jsonl", [*rows_of(), *counts, *new])
    results = load_results(tmp_path / "r.jsonl")
    cell = results.cells[0]
    part = results.part(cell, NEW_STRUCTURE)
    table = structure_table(cell, part, "random")
    keys = [column.key for column in table.columns]
    assert keys[2:] == [
        "kernels",
        "known",
        *(f"{m}_{p}" for m in ("learned", "analytical", "random") for p in ("all", "new")),
    ]
    rows = {row[0]: row for row in table.rows}
    assert rows["ConvDRAW"][2:6] == (20.0, 75.0, 1.0, 1.0)
    # A program without kernels of new structure.
    assert rows["Own"][2:6] == (10.0, 100.0, 0.0, None)
    # Of 40 kernels 10 are new; 4 and 1 in the geometric mean, without the third program.
    assert rows["All, geometric mean"][2:6] == (40.0, 75.0, pytest.approx(2.0), pytest.approx(2.0))
    assert structure_sentence(cell, part).startswith("Extents aside, the operator graphs of 75.0%")
    assert share_of_structures(cell, part) == pytest.approx(0.75)
    summary = summarise(results, {})
    assert summary["leakage/tile/random/tpu_v2/share_of_structures"] == pytest.approx(0.75)
    assert summary["tile/random/tpu_v2/learned/new_structure_ape_mean"] == pytest.approx(2.0)
    assert structure_table(cell, None, None).rows == ()
    assert structure_sentence(cell, None) == ""
