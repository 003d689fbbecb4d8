"""Error against the share of training programs, as far as shares were run."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.rows import write_rows
from costbench.reports.figures.variants import write_scaling_figure
from costbench.reports.results import Results, Testbed, load_results
from tests.reports.conftest import rows_of, variant_rows

PLACE = Testbed("random", "tpu_v2")


def _results(folder: Path, *variants: str) -> Results:
    rows = [row for name in variants for row in variant_rows(name, "tile", [4.0, 2.0, 1.0])]
    write_rows(folder / "r.jsonl", [*rows_of(), *rows])
    return load_results(folder / "r.jsonl")


def test_two_shares_make_a_line(tmp_path: Path) -> None:
    svg, png = write_scaling_figure(_results(tmp_path, "scale-25", "scale-100"), PLACE, tmp_path)
    assert (svg.name, png.name) == ("scaling_random_tpu_v2.svg", "scaling_random_tpu_v2.png")
    text = svg.read_text()
    assert "share of the training programs" in text
    # No second panel for a task that was not run.
    assert text.count("share of the training programs") == 1


def test_one_share_makes_none(tmp_path: Path) -> None:
    assert write_scaling_figure(_results(tmp_path, "scale-100"), PLACE, tmp_path) == ()
    assert not list(tmp_path.glob("*.svg"))
