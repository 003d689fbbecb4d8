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

from costbench.metrics.rows import write_rows
from costbench.reports.figures.searches import Groups, draw_speedups
from costbench.reports.searches import Bar, Place, load_searches
from tests.reports.search_rows import search_rows

BAR, OTHER = Bar("hardware", "default-1m"), Bar("hardware", "default-10m")


def _groups(folder: Path, speedups: list[list[float]], more: list[list[float]] | None = None) -> Groups:
    rows = search_rows("fusion", (BAR.model, BAR.budget), speedups)
    rows += search_rows("fusion", (OTHER.model, OTHER.budget), more or [])
    write_rows(folder / "rows.jsonl", rows)
    (place,) = load_searches(folder / "rows.jsonl").places
    return Groups((place,), ("programs",))


def _drawn(groups: Groups, *bars: Bar, cut: tuple[Bar, ...] = ()) -> Axes:
    axes = Figure().subplots()
    draw_speedups(axes, groups, bars, (), cut)
    return axes


def _rectangles(axes: Axes) -> list[tuple[float, float]]:
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [(r.get_y(), r.get_y() + r.get_height()) for r in found]


def test_bars_go_up_for_gains_and_down_for_losses(tmp_path: Path) -> None:
    axes = _drawn(_groups(tmp_path, [[1.2], [0.9]]), BAR)
    # The paper's order: ConvDRAW, then RNN, then their geometric mean.
    expected = [(1.0, 0.9), (1.0, 1.2), (1.0, (1.2 * 0.9) ** 0.5)]
    assert np.array(_rectangles(axes)) == pytest.approx(np.array(expected))
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert labels == ["ConvDRAW", "RNN", "geom.\nmean"]
    assert not [c for c in axes.containers if isinstance(c, ErrorbarContainer)]


def test_whiskers_go_from_the_lowest_to_the_highest_repeat(tmp_path: Path) -> None:
    axes = _drawn(_groups(tmp_path, [[1.2, 1.1, 1.5], [1.0, 1.0, 1.0]]), BAR)
    (errors,) = (c for c in axes.containers if isinstance(c, ErrorbarContainer))
    (segments,) = errors.lines[2]
    # One program varies; neither the other nor the mean has a whisker.
    assert [tuple(segment[:, 1]) for segment in segments.get_segments()] == [pytest.approx((1.1, 1.5))]


def test_very_different_speedups_have_a_logarithmic_axis(tmp_path: Path) -> None:
    assert _drawn(_groups(tmp_path, [[1.2], [0.9]]), BAR).get_yscale() == "linear"
    axes = _drawn(_groups(tmp_path, [[1.2], [0.2]]), BAR)
    assert axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0.2", "0.3", "0.5", "0.7", "1"]


def test_cut_bars_leave_the_axis_to_others_and_are_named(tmp_path: Path) -> None:
    groups = _groups(tmp_path, [[1.2], [1.1]], [[0.1], [1.15]])
    axes = _drawn(groups, BAR, OTHER, cut=(OTHER,))
    assert axes.get_ylim()[0] > 0.9
    assert [text.get_text() for text in axes.texts] == ["↓0.1", "↓0.34", "programs"]


def test_places_follow_each_other(tmp_path: Path) -> None:
    place: Place = _groups(tmp_path, [[1.2], [0.9]]).places[0]
    groups = Groups((place, place), ("one", "two"))
    assert groups.ticks == pytest.approx([0.0, 1.0, 2.35, 3.7, 4.7, 6.05])
    assert len(groups.labels) == 6
    assert groups.speedups(OTHER)[0] == pytest.approx([np.nan] * 6, nan_ok=True)


def test_long_names_are_broken_between_their_parts(tmp_path: Path) -> None:
    rows = search_rows("fusion", (BAR.model, BAR.budget), [[1.2], [1.1]])
    names = ("transformer_lm_small_b8_train_f32", "AutoCompletionOfWords_b8_infer_bf16")
    renamed = [replace(row, application="A", program=name) for row, name in zip(rows, names, strict=True)]
    write_rows(tmp_path / "rows.jsonl", renamed)
    (place,) = load_searches(tmp_path / "rows.jsonl").places
    labels = Groups((place,), ("",)).labels
    assert labels == ["Auto\nCompletionOf\nWords\ninfer", "transformer_\nlm_small\ntrain", "geom.\nmean"]
