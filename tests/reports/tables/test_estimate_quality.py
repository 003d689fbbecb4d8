"""Models against the quality of the estimate that they read."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.reports.results import Results
from costbench.reports.sections.estimates import (
    estimates_section,
    flat_qualities,
    quality_scores,
    quality_table,
    write_quality_figure,
)
from costbench.reports.tables.variants import ablation_tables
from tests.reports.conftest import PROGRAMS, draw_twice, make_row, report_data, results_of_rows, rows_of

# Error (of both programs, so that the geometric mean is the middle one) and tau.
SCORES = {
    ("analytical", "main"): (30.0, 0.7),
    ("analytical", "roofline"): (90.0, 0.2),
    ("analytical", "expert"): (20.0, 0.8),
    ("hybrid", "main"): (8.0, 0.85),
    ("hybrid", "roofline"): (12.0, 0.8),
    ("hybrid", "expert"): (6.0, 0.9),
    ("trees_analytical", "main"): (9.0, 0.84),
    ("trees_analytical", "roofline"): (14.0, 0.75),
    ("learned", "main"): (10.0, 0.83),
    ("trees", "main"): (15.0, 0.8),
    ("best", "main"): (1.0, 1.0),
}


def results_of_scores(scores: dict[tuple[str, str], tuple[float, float]]) -> Results:
    rows = []
    for (model, variant), (error, tau) in scores.items():
        for (application, program), factor in zip(PROGRAMS[:2], (0.5, 2.0), strict=True):
            names = {"application": application, "program": program, "model": model, "variant": variant}
            place = {"split": "folds", "chip": "tpu_v3", **names}
            rows.append(make_row(**place, metric="tile_size_ape", value=error * factor))
            rows.append(make_row(**place, metric="kendall_tau", value=tau))
    return results_of_rows(rows)


@pytest.fixture(autouse=True)
def _unknown_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are of a chip without a file: its compiler's estimate is that of the quality `compiler`."""
    monkeypatch.setattr("costbench.reports.sections.estimates.available_targets", lambda: ())


@pytest.fixture
def results() -> Results:
    return results_of_scores(SCORES)


def test_scores_by_quality_from_crude_to_expert(results: Results) -> None:
    (scores,) = quality_scores(results)
    assert (scores.task, scores.own, scores.num_programs) == ("tile", "compiler", 2)
    assert scores.qualities == ["roofline", "compiler", "expert"]
    means = scores.scores.set_index(["quality", "model"])
    assert means["error"]["compiler", "hybrid"] == pytest.approx(8.0)
    assert means["tau"]["expert", "analytical"] == pytest.approx(0.8)
    assert ("expert", "trees_analytical") not in means.index
    assert means["error"][""].to_dict() == {"learned": pytest.approx(10.0), "trees": pytest.approx(15.0)}


def test_the_table_has_a_row_for_each_quality_and_for_those_without(results: Results) -> None:
    table = quality_table(quality_scores(results)[0])
    assert table.name == "estimates_tile_folds_tpu_v3"
    assert [row[0] for row in table.rows] == [
        "roofline", "compiler, in use", "expert", "no estimate: learned", "no estimate: boosted trees"
    ]  # fmt: skip
    assert table.rows[0][1:5] == (pytest.approx(90.0), pytest.approx(12.0), pytest.approx(14.0), None)
    assert table.rows[2][3] is None
    assert table.rows[3][4] == pytest.approx(10.0)


def test_the_section_says_with_which_qualities_a_network_is_beaten(results: Results, tmp_path: Path) -> None:
    section = estimates_section(report_data(tmp_path, rows_of(), results=results))
    assert section is not None
    text = " ".join(section.paragraphs)
    assert "the network alone errs by 10.0%" in text
    assert "With less: hybrids with compiler, expert; estimates as they are: none." in text
    assert [figure.path.name for figure in section.figures] == ["estimates_tile_folds_tpu_v3.svg"]


def test_figures_are_the_same_bytes(results: Results, tmp_path: Path) -> None:
    (scores,) = quality_scores(results)
    name, text = draw_twice(lambda folder: write_quality_figure(scores, folder), tmp_path)
    assert name == "estimates_tile_folds_tpu_v3.svg"
    assert text.lstrip().startswith("<?xml")


def test_numbers_of_the_summary(results: Results) -> None:
    numbers = flat_qualities(results)
    assert numbers["estimates/tile/folds/tpu_v3/roofline/analytical/error_mean"] == pytest.approx(90.0)
    assert numbers["estimates/tile/folds/tpu_v3/compiler/hybrid/tau_mean"] == pytest.approx(0.85)
    assert len(numbers) == 2 * 8


def test_one_quality_alone_shows_nothing(tmp_path: Path) -> None:
    results = results_of_scores({key: value for key, value in SCORES.items() if key[1] == "main"})
    assert quality_scores(results) == ()
    assert estimates_section(report_data(tmp_path, rows_of(), results=results)) is None


def test_qualities_are_no_ablations(results: Results) -> None:
    assert all("expert" not in str(row) for table in ablation_tables(results) for row in table.rows)
