"""Curves of searches are read strictly and averaged as step lines."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.reports.figures.search_curves import (
    SearchPath,
    draw_search,
    mean_path,
    paths_from_start,
    read_paths,
    seconds_to_reach,
    write_path_figure,
)
from tests.reports.conftest import draw_twice, searches_of_rows
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
    (place,) = searches_of_rows(fusion_search_rows()).results
    paths = [ONE, replace(ONE, start="random", model="model and hardware"), replace(ONE, chip="tpu_v3")]
    assert paths_from_start(paths, place, "default") == {"hardware": [ONE]}
    _, text = draw_twice(lambda folder: write_path_figure(paths, place, folder), tmp_path)
    for shown in ("minutes of hardware", "from a random configuration", "best known"):
        assert shown in text
    assert write_path_figure([], place, tmp_path) == ()


CURVE = ("toy, fusion", 5e6, (10.0, 20.0, 30.0), (5e6, 4e6, 4e6), (6e6, 4e6, math.nan))


def test_equal_searches_give_equal_files(tmp_path: Path) -> None:
    name, text = draw_twice(lambda folder: draw_search(folder / "a", *CURVE), tmp_path)
    assert name == "a.svg"
    assert all(part in text for part in ("toy, fusion", "default", "best so far", "measured"))


def test_a_search_that_measured_nothing_shows_the_default(tmp_path: Path) -> None:
    svg, _ = draw_search(tmp_path / "empty", "toy, tile", 5e6, (), ())
    assert "default" in svg.read_text()
