"""Best validation values come from training histories, whichever end of the metric is good."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.artifacts import write_text
from costbench.errors import DataError
from costbench.reports.data.budgets import Budget
from costbench.reports.data.selected import Selected, read_selected, rises

COLUMNS = {"tile": "validation/tau", "fusion": "validation/mape"}


def cell(folder: Path, task: str, variant: str, values: str) -> tuple[Path, Budget]:
    place = folder / f"{task}-random-tpu_v2-{variant}-s0"
    lines = [f"{epoch},{100 * epoch},{value}" for epoch, value in enumerate(values.split(), start=1)]
    write_text(place / "history.csv", "\n".join([f"epoch,step,{COLUMNS[task]}", *lines]) + "\n")
    return place, Budget("e", task, "random", "tpu_v2", variant, 0, 300, 8, 32, 3)


def test_the_best_epoch_counts(tmp_path: Path) -> None:
    cells = [
        cell(tmp_path, "tile", "a", "0.5 0.7 0.6"),
        cell(tmp_path, "fusion", "b", "50.0 40.0 45.0"),
        cell(tmp_path, "tile", "main", "0.9"),
    ]
    paths, budgets = zip(*cells, strict=True)
    found = read_selected(paths, budgets, COLUMNS, lambda variant: variant != "main")
    assert found == (Selected(budgets[0], 0.7), Selected(budgets[1], 40.0))
    assert read_selected(paths, budgets, {}, lambda _: True) == ()


def test_directions() -> None:
    assert rises("validation/tau")
    assert rises("validation/opa")
    assert not rises("validation/mape")
    assert not rises("validation/slowdown")


def test_a_history_without_the_column_is_an_error_that_names_it(tmp_path: Path) -> None:
    place, budget = cell(tmp_path, "tile", "a", "0.5")
    with pytest.raises(DataError, match="'validation/ape'"):
        read_selected([place], [budget], {"tile": "validation/ape"}, lambda _: True)
