"""Searches are grouped by place, and averaged as their descriptions say."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.metrics.rows import write_rows
from costbench.reports.searches import (
    GAINS,
    PREDICTED,
    SECONDS,
    SLOWDOWN,
    SPEEDUP,
    Bar,
    Place,
    Searches,
    load_searches,
)
from tests.reports.conftest import PROGRAMS
from tests.reports.search_rows import fusion_search_rows, search_rows, tile_rows

LEARNED, EXHAUSTIVE = Bar("learned", "top10"), Bar("exhaustive", "all")


def _place(folder: Path, *rows: list) -> Place:  # type: ignore[type-arg]
    write_rows(folder / "rows.jsonl", [row for several in rows for row in several])
    (place,) = load_searches(folder / "rows.jsonl").places
    return place


def test_budgets_are_read_from_their_names() -> None:
    assert (LEARNED.top_k, LEARNED.start, LEARNED.minutes) == (10, None, None)
    search = Bar("hardware", "random-2.5m")
    assert (search.top_k, search.start, search.minutes) == (None, "random", 2.5)
    assert (EXHAUSTIVE.top_k, Bar("x", "topmost").top_k, Bar("x", "other-1m").start) == (None, None, None)


def test_places_stand_in_the_order_of_reports(tmp_path: Path) -> None:
    rows = [
        *fusion_search_rows(),
        *tile_rows(split="manual"),
        *tile_rows(split=GAINS),
        *tile_rows(chip="tpu_v3"),
        *tile_rows(),
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    searches = load_searches(tmp_path / "rows.jsonl")
    assert [(place.task, place.name) for place in searches.places] == [
        ("tile", "random_tpu_v2"),
        ("tile", "random_tpu_v3"),
        ("tile", "gains_tpu_v2"),
        ("tile", "manual_tpu_v2"),
        ("fusion", "random_tpu_v2"),
    ]
    assert len(searches.frame) == len(rows)
    first, other, gains, manual = searches.of("tile")
    assert searches.beside(first) is gains
    assert searches.beside(other) is None
    assert searches.beside(manual) is None
    # As the paper's table 2 has them, what it has not behind them.
    assert [application for application, _ in first.programs] == ["ConvDRAW", "RNN", "Own"]


def test_repeats_have_a_median_and_programs_a_mean(tmp_path: Path) -> None:
    bar = ("hardware", "default-1m")
    costs = {"hardware_seconds": 30.0}
    place = _place(tmp_path, search_rows("fusion", bar, [[3.0, 1.0, 2.0], [8.0, 8.0, 9.0]], costs))
    (name, _), (other, _) = ((program, 0) for _, program in PROGRAMS[:2])
    assert place.repeats(Bar(*bar), SPEEDUP, name) == (3.0, 1.0, 2.0)
    assert place.score(Bar(*bar), SPEEDUP, name) == 2.0
    assert place.score(Bar(*bar), SPEEDUP, other) == 8.0
    # Speed-ups have the geometric mean, costs the arithmetic one.
    assert place.mean(Bar(*bar), SPEEDUP) == pytest.approx(4.0)
    assert place.mean(Bar(*bar), SECONDS) == 30.0
    assert place.mean(Bar(*bar), PREDICTED) is None
    assert place.mean(LEARNED, SPEEDUP) is None


def test_seconds_are_compared_over_the_same_programs_only(tmp_path: Path) -> None:
    place = _place(tmp_path, tile_rows())
    # 200 seconds against 4, for each of the three programs.
    assert place.fewer_seconds(LEARNED, EXHAUSTIVE) == 50.0
    assert place.mean(LEARNED, SLOWDOWN) == pytest.approx(0.05)
    assert place.fewer_seconds(Bar("learned", "compiler"), EXHAUSTIVE) is None
    short = [row for row in tile_rows() if row.model != "exhaustive" or row.program != PROGRAMS[0][1]]
    place = _place(tmp_path, short)
    assert not place.complete(LEARNED, EXHAUSTIVE)
    assert place.fewer_seconds(LEARNED, EXHAUSTIVE) is None


def test_what_depends_on_no_search_is_no_bar(tmp_path: Path) -> None:
    facts = search_rows("tile", ("best", "main"), [[1.0]], {"num_tiles": 64.0})
    place = _place(tmp_path, tile_rows(), [row for row in facts if row.metric == "num_tiles"])
    assert Bar("best", "main") not in place.bars
    assert place.fact("num_tiles", PROGRAMS[0][1]) == 64.0
    assert place.fact("num_tiles", PROGRAMS[1][1]) is None


def test_without_a_file_there_are_no_searches() -> None:
    assert load_searches(None).places == ()
    assert Searches().of("tile") == ()
