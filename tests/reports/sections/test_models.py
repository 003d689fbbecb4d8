"""Sections about variants, and from which budget on networks keep their order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.reports.inputs import ReportInputs, ReportParams
from costbench.reports.sections.models import ablation_section, learning_section, summarise_curves
from costbench.reports.tables.learning_curves import Curves, learning_curves
from costbench.reports.training_runs import Budget, Selected
from tests.reports.conftest import curve_points, make_row, report_data, results_of_rows, rows_of, variant_rows
from tests.sentences import numbers


def test_networks_have_a_figure_and_inputs_none(tmp_path: Path) -> None:
    inputs = [*rows_of(), *variant_rows("mse", "tile", [1.0] * 3)]
    section = ablation_section(report_data(tmp_path, inputs))
    assert section is not None
    assert (section.figures, len(section.tables)) == ((), 1)
    networks = [*inputs, *variant_rows("gat-lstm", "tile", [1.0] * 3)]
    section = ablation_section(report_data(tmp_path, networks))
    assert section is not None
    assert (len(section.figures), len(section.tables)) == (1, 2)
    assert section.figures[0].path.name == "networks_random_tpu_v2.svg"


def test_without_variants_there_is_no_section(tmp_path: Path) -> None:
    assert ablation_section(report_data(tmp_path, rows_of())) is None


COLUMNS = {"tile": "validation/tau"}


def point(steps: int, value: float) -> tuple[float, ...]:
    return (steps, value, 100.0 - value, value)


SETTLED = Curves(
    "tile",
    "random",
    "tpu_v2",
    "validation/tau",
    curve_points(
        {
            "learned": [point(400, 0.5), point(1600, 0.8), point(6400, 0.9)],
            "lstm": [point(400, 0.6), point(1600, 0.7), point(6400, 0.8)],
        }
    ),
    2000.0,
    256,
)


def test_the_budget_from_which_on_networks_keep_their_order() -> None:
    results = results_of_rows(rows_of())
    summary = summarise_curves(results, SETTLED)
    assert (summary["settled"], summary["order"]) == (1600, ("learned", "lstm"))
    # Ablations of 2,000 steps are enough for it, those of 400 or of a budget that is not known are not.
    assert summary["enough"]
    assert not summarise_curves(results, replace(SETTLED, ablations=400.0))["enough"]
    assert not summarise_curves(results, replace(SETTLED, ablations=None))["enough"]


def test_an_order_that_still_changes_is_not_settled() -> None:
    changing = {"learned": [point(400, 0.5), point(1600, 0.8)], "lstm": [point(400, 0.6), point(1600, 0.7)]}
    curves = replace(SETTLED, points=curve_points(changing))
    summary = summarise_curves(results_of_rows(rows_of()), curves)
    assert (summary["settled"], summary["settled_by_test"], summary["enough"]) == (None, None, False)
    assert summary["order"] == ("learned", "lstm")


def test_errors_by_budget_stand_beside_the_baseline() -> None:
    results = results_of_rows(rows_of())
    summary = summarise_curves(results, SETTLED)
    errors = summary["errors"]
    assert isinstance(errors, dict)
    assert errors["learned"] == [(400, 99.5), (1600, 99.2), (6400, 99.1)]
    # rows_of() has the analytical model and random orders as baselines: 2, 8 and 5 in the geometric mean.
    assert (summary["baseline"], summary["baseline_error"]) == ("analytical", pytest.approx(80.0 ** (1 / 3)))
    untested = curve_points({"learned": [(400, 0.5), point(1600, 0.8)]})
    assert summarise_curves(results, replace(SETTLED, points=untested))["errors"] == {
        "learned": [(1600, 99.2)]
    }


def test_a_figure_with_the_ceilings_and_a_table(tmp_path: Path) -> None:
    variants = ("curve-lstm-400", "curve-lstm-1600", "rate-gat-lstm-1e-3")
    rows = [row for name in variants for row in variant_rows(name, "tile", [4.0, 2.0, 1.0])]
    ceiling = [
        make_row(model="measured_again", application=a, program=p, metric="kendall_tau", value=0.99)
        for a, p in {(row.application, row.program) for row in rows_of()}
    ]
    data = report_data(
        tmp_path, [*rows_of(), *rows, *ceiling], inputs=ReportInputs((), params=ReportParams(0, COLUMNS, ""))
    )
    selected = [
        Selected(Budget("curves-tile", "tile", "random", "tpu_v2", name, 0, steps, 8, 32, 4), 0.5)
        for name, steps in zip(variants, (400, 1600, 500), strict=True)
    ]
    curves = learning_curves(data.results, selected, [run.budget for run in selected], COLUMNS)
    section = learning_section(replace(data, selected=tuple(selected), curves=curves))
    assert section is not None
    assert len(section.paragraphs) == 2
    # Errors with their steps, and the baseline's.
    assert numbers(section.paragraphs[1]) == [2.0, 400, 2.0, 1600, 4.3]
    assert [table.name for table in section.tables] == [
        "curves_tile_random_tpu_v2",
        "rates_tile_random_tpu_v2",
    ]
    assert [figure.path.name for figure in section.figures] == ["curves_tile_random_tpu_v2.svg"]
    drawn = section.figures[0].path.read_text()
    assert "measured again" in drawn
    assert "ablations" not in drawn


def test_without_curves_and_rates_there_is_no_section(tmp_path: Path) -> None:
    assert learning_section(report_data(tmp_path, rows_of())) is None
