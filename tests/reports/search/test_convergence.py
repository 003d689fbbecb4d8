from __future__ import annotations

import math
from pathlib import Path

from costbench.reports.figures.search_curves import SearchCurve, draw_search

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
