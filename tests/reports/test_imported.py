"""Reports on an imported data set, whose split is its own: its measures, tables, figures and words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costbench.metrics.rows import MetricRow, write_rows
from costbench.reports.baseline_comparison import rank_models
from costbench.reports.inputs import Front, ReportInputs
from costbench.reports.report import write_report
from costbench.reports.results import load_results
from costbench.reports.sections.overview import conclusions
from costbench.reports.tables.programs import program_table
from costbench.reports.tables.variants import ablation_tables
from costbench.reports.training_guard import TrainingGuard
from tests.reports.conftest import make_row, rows_of
from tests.reports.evidence_files import write_evidence
from tests.sentences import numbers

SCORES = {"learned": ([4.0, 1.0], [0.75, 0.25]), "trees": ([2.0, 8.0], [0.5, 0.5])}
"""Top-1 slowdown in percent and tau of two programs; geometric means 2 and 4."""


def tile_rows(**changes: object) -> list[MetricRow]:
    return [
        make_row(
            **{"split": "own", "chip": "tpu_v3", "model": model, "application": name, "program": name}
            | {"metric": metric, "value": values[place]}
            | changes
        )
        for model, scores in SCORES.items()
        for metric, values in zip(("kernel_top_1", "kendall_tau"), scores, strict=True)
        for place, name in enumerate(("bert", "unet"))
    ]


def layout_rows(variant: str, top_1: float) -> list[MetricRow]:
    values = {"top_1": top_1, "kendall_tau": 0.5}
    where = {"task": "layout", "split": "own", "chip": "tpu_v3", "variant": variant, "application": "bert"}
    return [
        make_row(**where, program="bert", kernels=group, metric=metric, value=value)
        for group in ("all", "xla:random")
        for metric, value in values.items()
    ]


def written(folder: Path, rows: list[MetricRow], split: Path | None) -> ReportInputs:
    write_rows(folder / "given" / "rows.jsonl", rows)
    return ReportInputs((folder / "given" / "rows.jsonl",), split)


def test_imported_tiles_are_judged_by_their_kernels(tmp_path: Path) -> None:
    results = load_results(written(tmp_path, tile_rows(), None).rows[0])
    (cell,) = results.cells
    found = rank_models(results, cell, seed=0)
    assert found.strongest == "trees"
    assert {one.model: one.error.value for one in found.models} == pytest.approx(
        {"learned": 2.0, "trees": 4.0}
    )
    table = program_table(cell, None, found.strongest)
    keys = [column.key for column in table.columns]
    assert keys == ["application", "program", "top1_learned", "top1_trees", "tau_learned", "tau_trees"]
    assert table.rows[0] == ("bert", "bert", 4.0, 2.0, 0.75, 0.5)
    assert "Tile-Size APE" not in table.notes[0]
    front = Front((cell,), {cell.name: found}, TrainingGuard())
    (conclusion,) = conclusions(lambda task: front)
    assert "Tile-Size APE" not in conclusion.answer
    assert numbers(conclusion.answer.replace("Top-1", "").replace("%", " "))[:2] == [2.0, 4.0]


def test_variants_of_imported_layouts_have_a_table(tmp_path: Path) -> None:
    rows = [*layout_rows("main", 3.0), *layout_rows("gcn", 5.0)]
    (table,) = ablation_tables(load_results(written(tmp_path, rows, None).rows[0]))
    assert table.name == "variants_own_tpu_v3"
    columns = [column.key for column in table.columns]
    places = [columns.index(name) for name in ("label", "layout_mean", "layout_tau")]
    texts = [[table.text(row, place) for place in places] for row in range(len(table.rows))]
    assert texts == [["main model", "3.0", "0.50"], ["given: gcn", "5.0", "0.50"]]


def test_the_main_layout_model_alone_is_no_variant(tmp_path: Path) -> None:
    assert ablation_tables(load_results(written(tmp_path, layout_rows("main", 3.0), None).rows[0])) == ()


@pytest.mark.parametrize("beside_simulated", [False, True])
def test_a_page_of_imported_results(tmp_path: Path, *, beside_simulated: bool) -> None:
    rows = [*tile_rows(), *layout_rows("main", 3.0), *(rows_of() if beside_simulated else [])]
    if beside_simulated:
        write_evidence(tmp_path)
    report = write_report(written(tmp_path, rows, tmp_path if beside_simulated else None), tmp_path / "out")
    page = report.pages[0].read_text("utf-8")
    assert "imported" in page
    assert ("simulated tpu_v2" in page) == beside_simulated
    summary = json.loads(report.summary.read_text("utf-8"))
    assert summary["tile/own/tpu_v3/learned/top1_mean"] == pytest.approx(2.0)
    metrics = json.loads(report.metrics.read_text("utf-8"))
    error = pytest.approx(2.0) if not beside_simulated else summary["tile/random/tpu_v2/learned/ape_mean"]
    assert metrics["tile"]["learned"] == error
    names = {path.stem for path in report.tables}
    assert {"tile_own_tpu_v3", "baselines_tile_own_tpu_v3", "layout_own_tpu_v3"} <= names
    for path in report.tables:
        assert "nan" not in path.read_text("utf-8").casefold().split(), path.name
