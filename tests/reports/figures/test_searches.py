"""Bars stand on one, where they should, with whiskers over their repeats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from costbench.reports.figures.searches import (
    Groups,
    Row,
    draw_speedup_curves,
    draw_speedups,
    write_fusion_figure,
    write_tile_figure,
    write_top_k_figure,
)
from costbench.reports.results import GAINS
from costbench.reports.searches import Bar, SearchResults
from tests.reports.conftest import draw_twice, searches_of_rows
from tests.reports.search_rows import fusion_search_rows, search_rows, tile_rows

BAR, OTHER = Bar("hardware", "default-1m"), Bar("hardware", "default-10m")


def _groups(speedups: list[list[float]], more: list[list[float]] | None = None) -> Groups:
    rows = search_rows("fusion", (BAR.model, BAR.budget), speedups)
    rows += search_rows("fusion", (OTHER.model, OTHER.budget), more or [])
    (place,) = searches_of_rows(rows).results
    return Groups((place,), ("programs",))


def _drawn(groups: Groups, *bars: Bar, cut: tuple[Bar, ...] = ()) -> Axes:
    axes = Figure().subplots()
    draw_speedups(axes, groups, Row(bars, "speed-up", cut=cut))
    return axes


def _rectangles(axes: Axes) -> list[tuple[float, float]]:
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [(r.get_y(), r.get_y() + r.get_height()) for r in found]


def test_bars_go_up_for_gains_and_down_for_losses() -> None:
    axes = _drawn(_groups([[1.2], [0.9]]), BAR)
    # The paper's order: ConvDRAW, then RNN, then their geometric mean.
    expected = [(1.0, 0.9), (1.0, 1.2), (1.0, (1.2 * 0.9) ** 0.5)]
    assert np.array(_rectangles(axes)) == pytest.approx(np.array(expected))
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert labels == ["ConvDRAW", "RNN", "geom.\nmean"]
    assert not [c for c in axes.containers if isinstance(c, ErrorbarContainer)]


def test_whiskers_go_from_the_lowest_to_the_highest_repeat() -> None:
    axes = _drawn(_groups([[1.2, 1.1, 1.5], [1.0, 1.0, 1.0]]), BAR)
    (errors,) = (c for c in axes.containers if isinstance(c, ErrorbarContainer))
    (segments,) = errors.lines[2]
    # One program varies; neither the other nor the mean has a whisker.
    assert [tuple(segment[:, 1]) for segment in segments.get_segments()] == [pytest.approx((1.1, 1.5))]


def test_very_different_speedups_have_a_logarithmic_axis() -> None:
    assert _drawn(_groups([[1.2], [0.9]]), BAR).get_yscale() == "linear"
    axes = _drawn(_groups([[1.2], [0.2]]), BAR)
    assert axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0.2", "0.3", "0.5", "0.7", "1"]


def test_cut_bars_leave_the_axis_to_others_and_are_named() -> None:
    groups = _groups([[1.2], [1.1]], [[0.1], [1.15]])
    axes = _drawn(groups, BAR, OTHER, cut=(OTHER,))
    assert axes.get_ylim()[0] > 0.9
    assert [text.get_text() for text in axes.texts] == ["↓0.1", "↓0.34", "programs"]


def test_places_follow_each_other() -> None:
    place: SearchResults = _groups([[1.2], [0.9]]).results[0]
    groups = Groups((place, place), ("one", "two"))
    assert groups.ticks == pytest.approx([0.0, 1.0, 2.35, 3.7, 4.7, 6.05])
    assert len(groups.labels) == 6
    assert groups.speedups(OTHER)[0] == pytest.approx([np.nan] * 6, nan_ok=True)


def test_long_names_are_broken_between_their_parts() -> None:
    rows = search_rows("fusion", (BAR.model, BAR.budget), [[1.2], [1.1]])
    names = ("transformer_lm_small_b8_train_f32", "AutoCompletionOfWords_b8_infer_bf16")
    renamed = [replace(row, application="A", program=name) for row, name in zip(rows, names, strict=True)]
    (place,) = searches_of_rows(renamed).results
    labels = Groups((place,), ("",)).labels
    assert labels == ["Auto\nCompletionOf\nWords\ninfer", "transformer_\nlm_small\ntrain", "geom.\nmean"]


PLACES = searches_of_rows(tile_rows(), tile_rows(split=GAINS)).results
FUSION_PLACES = searches_of_rows(fusion_search_rows()).results


def test_figure_4_has_test_programs_and_those_that_gain_most(tmp_path: Path) -> None:
    name, text = draw_twice(lambda folder: write_tile_figure(PLACES, folder), tmp_path)
    assert name == "lpm2021_figure4_random_tpu_v2.svg"
    for shown in (
        "exhaustive",
        "learned 1, in the compiler",
        "hybrid 10",
        "test programs",
        "gain most",
        "↓0.25",
    ):
        assert shown in text
    alone, _ = write_tile_figure(PLACES[:1], tmp_path / "alone")
    assert "gain most" not in alone.read_text()


def test_speedups_of_many_programs_are_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = _groups([[1.2, 1.4, 1.3], [0.9]], [[20.0], [1.0]])
    axes = Figure().subplots()
    draw_speedup_curves(axes, groups.results[0], Row((BAR, OTHER), "speed-up", (BAR,), (OTHER,)))
    drawn = [line for line in axes.get_lines() if line.get_color() != "#444444"]
    curves = {str(line.get_linestyle()): np.asarray(line.get_ydata()).tolist() for line in drawn}
    # Medians over repeats; the curve that may leave the panel does not stretch it.
    assert curves == {"--": [0.9, 1.3], "-": [1.0, 20.0]}
    assert axes.get_ylim()[1] < 1.4
    monkeypatch.setattr("costbench.reports.figures.searches.MOST_NAMED", 2)
    svg, _ = write_tile_figure(PLACES, tmp_path)
    text = svg.read_text()
    for shown in ("exhaustive", "learned 1, in the compiler", "test programs", "gain most", "3 programs"):
        assert shown in text
    fusion, _ = write_fusion_figure(FUSION_PLACES, "lpm2021", tmp_path)
    assert "random configuration" in fusion.read_text()


def test_curves_are_over_measurements_and_over_seconds(tmp_path: Path) -> None:
    name, text = draw_twice(lambda folder: write_top_k_figure(PLACES, folder), tmp_path)
    assert name == "tile_search_random_tpu_v2.svg"
    for shown in ("tile sizes measured per kernel", "hardware seconds per program", "alternating"):
        assert shown in text


def test_there_are_no_figures_of_nothing(tmp_path: Path) -> None:
    places = searches_of_rows(search_rows("tile", ("iterations", "compiler"), [[1.0]])).results
    assert write_tile_figure(places, tmp_path) == ()
    assert write_top_k_figure(places, tmp_path) == ()


def test_figures_of_both_papers(tmp_path: Path) -> None:
    name, text = draw_twice(lambda folder: write_fusion_figure(FUSION_PLACES, "lpm2021", folder), tmp_path)
    assert name == "lpm2021_figure5_random_tpu_v2.svg"
    for shown in (
        "hardware 1 min",
        "hybrid, then hardware 10 min",
        "best known",
        "random configuration",
    ):
        assert shown in text
    earlier, _ = write_fusion_figure(FUSION_PLACES, "lpm2020", tmp_path)
    assert earlier.name == "lpm2020_figure4_random_tpu_v2.svg"
    assert "hardware 5 min" in earlier.read_text()
    assert "hardware 10 min" not in earlier.read_text()


def test_what_has_other_minutes_has_no_figure(tmp_path: Path) -> None:
    other = searches_of_rows(fusion_search_rows((2,))).results
    assert write_fusion_figure(other, "lpm2021", tmp_path) == ()
