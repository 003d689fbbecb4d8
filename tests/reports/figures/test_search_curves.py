"""Curves of searches are read strictly and averaged as step lines."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.metrics.rows import write_rows
from costbench.reports.figures.search_curves import (
    SearchCurve,
    SearchPath,
    draw_search,
    mean_path,
    paths_from_start,
    read_paths,
    seconds_to_reach,
    write_path_figure,
)
from costbench.reports.searches import load_searches
from tests.reports.search_rows import fusion_search_rows

ONE = SearchPath(
    *("fusion", "random", "tpu_v2", "a", "hardware", "default"),
    *((0.0, 10.0, 30.0), (1.0, 2.0, 8.0), (1.0, 1.0, 1.0), (1.0, 9.0, 9.0)),
)
OTHER = replace(
    ONE, program="b", seconds=(0.0, 20.0), median=(1.0, 2.0), lowest=(1.0, 1.0), highest=(1.0, 2.0)
)


def test_the_mean_is_over_what_each_program_has_by_then() -> None:
    seconds, means = mean_path([ONE, OTHER])
    assert list(seconds) == [0.0, 10.0, 20.0, 30.0]
    assert means == pytest.approx([1.0, 2.0**0.5, 2.0, 4.0])
    assert seconds_to_reach([ONE, OTHER], 2.0) == 20.0
    assert seconds_to_reach([ONE, OTHER], 1.0) == 0.0
    assert seconds_to_reach([ONE, OTHER], 4.1) is None


def test_files_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    path.write_text(json.dumps([asdict(ONE), asdict(OTHER)]))
    assert read_paths(path) == (ONE, OTHER)
    assert read_paths(None) == ()
    for broken, problem in (
        ([{**asdict(ONE), "seconds": [0.0]}], "equally many"),
        ([{**asdict(ONE), "seconds": [0.0, 30.0, 10.0]}], "ascending"),
        ([{**asdict(ONE), "median": [0.0, 1.0, 1.0]}], "above 0"),
        ([asdict(ONE), {"task": "fusion"}], r"\[1\]"),
        ({"a": 1}, "a list of objects"),
    ):
        path.write_text(json.dumps(broken))
        with pytest.raises(DataError, match=problem):
            read_paths(path)


def test_a_panel_for_each_start(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", fusion_search_rows())
    (place,) = load_searches(tmp_path / "rows.jsonl").results
    paths = [ONE, replace(ONE, start="random", model="model and hardware"), replace(ONE, chip="tpu_v3")]
    assert paths_from_start(paths, place, "default") == {"hardware": [ONE]}
    svg, png = write_path_figure(paths, place, tmp_path / "one")
    again = write_path_figure(paths, place, tmp_path / "two")
    assert [svg.read_bytes(), png.read_bytes()] == [path.read_bytes() for path in again]
    text = svg.read_text()
    for shown in ("minutes of hardware", "from a random configuration", "best known"):
        assert shown in text
    assert write_path_figure([], place, tmp_path) == ()


CURVE = SearchCurve("toy, fusion", 5e6, (10.0, 20.0, 30.0), (5e6, 4e6, 4e6), (6e6, 4e6, math.nan))


def test_equal_searches_give_equal_files(tmp_path: Path) -> None:
    first, second = draw_search(CURVE, tmp_path / "a"), draw_search(CURVE, tmp_path / "b")
    assert [path.name for path in first] == ["a.svg", "a.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    text = first[0].read_text()
    assert all(part in text for part in ("toy, fusion", "default", "best so far", "measured"))


def test_a_search_that_measured_nothing_shows_the_default(tmp_path: Path) -> None:
    svg, _ = draw_search(SearchCurve("toy, tile", 5e6, (), ()), tmp_path / "empty")
    assert "default" in svg.read_text()
