"""Sections about variants, and from which budget on networks keep their order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from costbench.metrics.rows import MetricRow, write_rows
from costbench.reports.results import Results, load_results
from costbench.reports.sections.models import (
    ablation_section,
    budget_sentence,
    learning_section,
    training_sentence,
)
from costbench.reports.sections.overview import missing_section
from costbench.reports.tables.learning_curves import Curves, Point
from costbench.reports.training_runs import Budget, Selected
from tests.reports.conftest import fusion_rows, make_row, rows_of, variant_rows


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


COLUMNS = {"tile": "validation/tau"}


def point(steps: int, value: float) -> Point:
    return Point(steps, value, 100.0 - value, value)


SETTLED = Curves(
    "tile",
    "random",
    "tpu_v2",
    "validation/tau",
    {
        "learned": (point(400, 0.5), point(1600, 0.8), point(6400, 0.9)),
        "lstm": (point(400, 0.6), point(1600, 0.7), point(6400, 0.8)),
    },
    2000.0,
    256,
)


def test_the_sentence_names_the_budget_and_the_order() -> None:
    text = budget_sentence(SETTLED)
    assert "on validation programs the order of the networks is the same from 1,600 steps on" in text
    assert "(learned, lstm, the best first)" in text
    assert "The ablations see the samples of 2,000 such steps, so their order is not one of short" in text


def test_ablations_with_a_smaller_budget_say_so() -> None:
    assert budget_sentence(replace(SETTLED, ablations=400.0)).endswith(
        "The ablations see the samples of 400 such steps, which may be too few for their order."
    )
    assert "ablations" not in budget_sentence(replace(SETTLED, ablations=None))


def test_an_order_that_still_changes_is_not_settled() -> None:
    networks = {"learned": (point(400, 0.5), point(1600, 0.8)), "lstm": (point(400, 0.6), point(1600, 0.7))}
    text = budget_sentence(replace(SETTLED, networks=networks))
    assert (
        "is not settled by the last budget (learned, lstm, the best first); by test error it is not" in text
    )
    assert text.endswith("which may be too few for their order.")


def test_errors_by_budget_stand_beside_the_baseline() -> None:
    text = training_sentence(SETTLED, "boosted trees", 42.25)
    assert "of training: learned 99.5 (400), 99.2 (1,600), 99.1 (6,400); lstm 99.4 (400)," in text
    assert "the strongest baseline, boosted trees, has 42.2." in text
    untested = {"learned": (Point(400, 0.5), point(1600, 0.8))}
    assert ": learned 99.2 (1,600);" in training_sentence(replace(SETTLED, networks=untested), "trees", 1.0)


def test_a_figure_with_the_ceilings_and_a_table(tmp_path: Path) -> None:
    variants = ("curve-lstm-400", "curve-lstm-1600", "rate-gat-lstm-1e-3")
    rows = [row for name in variants for row in variant_rows(name, "tile", [4.0, 2.0, 1.0])]
    ceiling = [
        make_row(model="measured_again", application=a, program=p, metric="kendall_tau", value=0.99)
        for a, p in {(row.application, row.program) for row in rows_of()}
    ]
    write_rows(tmp_path / "r.jsonl", [*rows_of(), *rows, *ceiling])
    results = load_results(tmp_path / "r.jsonl")
    selected = [
        Selected(Budget("curves-tile", "tile", "random", "tpu_v2", name, 0, steps, 8, 32, 4), 0.5)
        for name, steps in zip(variants, (400, 1600, 500), strict=True)
    ]
    section = learning_section(results, selected, [one.budget for one in selected], COLUMNS, tmp_path)
    assert section is not None
    # rows_of() has the analytical model alone as a baseline.
    assert len(section.paragraphs) == 2
    assert "the strongest baseline, analytical, has " in section.paragraphs[1]
    assert [table.name for table in section.tables] == [
        "curves_tile_random_tpu_v2",
        "rates_tile_random_tpu_v2",
    ]
    assert [figure.path.name for figure in section.figures] == ["curves_tile_random_tpu_v2.svg"]
    drawn = section.figures[0].path.read_text()
    assert "measured again" in drawn
    assert "budget of the ablations" not in drawn


def test_without_curves_and_rates_there_is_no_section(tmp_path: Path) -> None:
    write_rows(tmp_path / "r.jsonl", rows_of())
    assert learning_section(load_results(tmp_path / "r.jsonl"), [], [], COLUMNS, tmp_path) is None
