"""The part about variants, and the list of what was not run."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.rows import MetricRow, write_rows
from costbench.reports.results import Results, load_results
from costbench.reports.sections.ablation import ablation_section, missing_section
from tests.reports.conftest import fusion_rows, rows_of, variant_rows


def _results(folder: Path, rows: list[MetricRow]) -> Results:
    write_rows(folder / "r.jsonl", rows)
    return load_results(folder / "r.jsonl")


def test_networks_have_a_figure_and_inputs_none(tmp_path: Path) -> None:
    inputs = [*rows_of(), *variant_rows("mse", "tile", [1.0] * 3)]
    section = ablation_section(_results(tmp_path, inputs), tmp_path)
    assert section is not None
    assert (section.figures, len(section.tables)) == ((), 1)
    networks = [*inputs, *variant_rows("gat-lstm", "tile", [1.0] * 3)]
    section = ablation_section(_results(tmp_path, networks), tmp_path)
    assert section is not None
    assert (len(section.figures), len(section.tables)) == (1, 2)
    assert section.figures[0].path.name == "networks_random_tpu_v2.svg"


def test_without_variants_there_is_no_section(tmp_path: Path) -> None:
    results = _results(tmp_path, rows_of())
    assert ablation_section(results, tmp_path) is None
    missing = missing_section(results)
    assert missing is not None
    assert len(missing.paragraphs) == 6


def test_nothing_missing_is_no_section(tmp_path: Path) -> None:
    rows = [*rows_of(), *rows_of("manual"), *fusion_rows(), *fusion_rows("manual")]
    for variant in ("mse", "gat-lstm", "lpm2020-lstm"):
        rows += variant_rows(variant, "tile", [1.0] * 3)
    assert missing_section(_results(tmp_path, rows)) is None
