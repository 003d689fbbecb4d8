"""One table has every model of a cell, held against the strongest baseline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from costbench.metrics.rows import write_rows
from costbench.reports.baseline_comparison import standings
from costbench.reports.results import Cell, load_results
from costbench.reports.tables.programs import baselines_table
from tests.reports.test_standings import model_rows


def test_rows_say_what_a_model_is_and_how_it_stands(make_cell: Callable[..., Cell], tmp_path: Path) -> None:
    rows = [
        *model_rows("learned", [10.0] * 6, split="folds"),
        *model_rows("analytical_constant", [20.0] * 6, split="folds"),
        *model_rows("trees", [16.0] * 6, split="folds"),
        *model_rows("mine:MyModel", [12.0] * 6, split="folds"),
    ]
    write_rows(tmp_path / "r.jsonl", rows)
    results = load_results(tmp_path / "r.jsonl")
    cell = results.cells[0]
    table = baselines_table(cell, standings(results, cell, 0))
    assert table.name == "baselines_fusion_folds_tpu_v3"
    assert "folds over applications, tpu_v3" in table.title
    assert [row[:2] for row in table.rows] == [
        ("learned", "network"),
        ("MyModel", "yours"),
        ("boosted trees", "strongest baseline"),
        ("analytical x constant", "baseline"),
    ]
    shown = [[table.text(row, column) for column in range(2, 13)] for row in (0, 2, 3)]
    assert shown[0] == ["10.0", "10.0", "10.0", "–", "0.50", "100", "-6.0", "-6.0", "-6.0", "6", "1"]
    assert shown[1] == ["16.0", "16.0", "16.0", "–", "0.50", "–", "–", "–", "–", "6", "1"]
    assert shown[2][5:9] == ["0", "4.0", "4.0", "4.0"]


def test_ceilings_are_rows_below_the_models_and_no_models(tmp_path: Path) -> None:
    rows = [
        *model_rows("learned", [10.0] * 6, split="folds"),
        *model_rows("trees", [16.0] * 6, split="folds"),
        *model_rows("regular_machine", [2.0] * 6, split="folds"),
        *model_rows("measured_again", [0.5] * 6, split="folds"),
    ]
    write_rows(tmp_path / "r.jsonl", rows)
    results = load_results(tmp_path / "r.jsonl")
    cell = results.cells[0]
    assert cell.models == ("learned", "trees")
    assert cell.ceilings == ("measured_again", "regular_machine")
    found = standings(results, cell, 0)
    assert found.strongest == "trees"
    table = baselines_table(cell, found)
    assert table.summary_rows == 2
    assert [row[:3] for row in table.rows[2:]] == [
        ("measured again", "ceiling", 0.5),
        ("machine without irregular code", "ceiling", 2.0),
    ]
    assert [table.text(3, column) for column in range(3, 13)] == [*["–"] * 3, "0.50", *["–"] * 4, "6", "1"]
    assert "Ceilings know the machine and are no models." in table.notes[-1]
