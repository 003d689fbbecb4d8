"""Searches are grouped by place, and averaged as their descriptions say."""

from __future__ import annotations

import pytest

from costbench.reports.figures.programs import COLOURS
from costbench.reports.results import GAINS
from costbench.reports.searches import (
    FIGURE_4,
    IN_COMPILER,
    PREDICTED,
    SECONDS,
    SLOWDOWN,
    SPEEDUP,
    Bar,
    Searches,
    SearchResults,
    absent,
    bar_key,
    bars_with_results,
    best_known,
    colour,
    figure_5,
    load_searches,
    title,
)
from tests.reports.conftest import PROGRAMS, searches_of_rows
from tests.reports.search_rows import fusion_search_rows, search_rows, tile_rows
from tests.sentences import listed

LEARNED, EXHAUSTIVE = Bar("learned", "top10"), Bar("exhaustive", "all")


def _place(*rows: list) -> SearchResults:  # type: ignore[type-arg]
    (place,) = searches_of_rows(*rows).results
    return place


def test_budgets_are_read_from_their_names() -> None:
    assert (LEARNED.top_k, LEARNED.start, LEARNED.minutes) == (10, None, None)
    search = Bar("hardware", "random-2.5m")
    assert (search.top_k, search.start, search.minutes) == (None, "random", 2.5)
    assert (EXHAUSTIVE.top_k, Bar("x", "topmost").top_k, Bar("x", "other-1m").start) == (None, None, None)


def test_places_stand_in_the_order_of_reports() -> None:
    rows = [
        *fusion_search_rows(),
        *tile_rows(split="manual"),
        *tile_rows(split=GAINS),
        *tile_rows(chip="tpu_v3"),
        *tile_rows(),
    ]
    searches = searches_of_rows(rows)
    assert [(place.task, place.name) for place in searches.results] == [
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
    folds = [*tile_rows(split="folds"), *tile_rows(split=GAINS), *tile_rows()]
    searches = searches_of_rows(folds)
    assert [place.split for place in searches.results] == ["folds", "random", GAINS]
    assert [searches.beside(place) is None for place in searches.results] == [False, True, True]
    # As the paper's table 2 has them, what it has not behind them.
    assert [application for application, _ in first.programs] == ["ConvDRAW", "RNN", "Own"]


def test_repeats_have_a_median_and_programs_a_mean() -> None:
    bar = ("hardware", "default-1m")
    costs = {"hardware_seconds": 30.0}
    place = _place(search_rows("fusion", bar, [[3.0, 1.0, 2.0], [8.0, 8.0, 9.0]], costs))
    (name, _), (other, _) = ((program, 0) for _, program in PROGRAMS[:2])
    assert place.repeats(Bar(*bar), SPEEDUP, name) == (3.0, 1.0, 2.0)
    assert place.score(Bar(*bar), SPEEDUP, name) == 2.0
    assert place.score(Bar(*bar), SPEEDUP, other) == 8.0
    # Speed-ups have the geometric mean, costs the arithmetic one.
    assert place.mean(Bar(*bar), SPEEDUP) == pytest.approx(4.0)
    assert place.mean(Bar(*bar), SECONDS) == 30.0
    assert place.mean(Bar(*bar), PREDICTED) is None
    assert place.mean(LEARNED, SPEEDUP) is None


def test_seconds_are_compared_over_the_same_programs_only() -> None:
    place = _place(tile_rows())
    # 200 seconds against 4, for each of the three programs.
    assert place.fewer_seconds(LEARNED, EXHAUSTIVE) == 50.0
    assert place.mean(LEARNED, SLOWDOWN) == pytest.approx(0.05)
    assert place.fewer_seconds(Bar("learned", "compiler"), EXHAUSTIVE) is None
    short = [row for row in tile_rows() if row.model != "exhaustive" or row.program != PROGRAMS[0][1]]
    place = _place(short)
    assert not place.complete(LEARNED, EXHAUSTIVE)
    assert place.fewer_seconds(LEARNED, EXHAUSTIVE) is None


def test_what_depends_on_no_search_is_no_bar() -> None:
    facts = search_rows("tile", ("best", "main"), [[1.0]], {"num_tiles": 64.0})
    place = _place(tile_rows(), [row for row in facts if row.metric == "num_tiles"])
    assert Bar("best", "main") not in place.bars
    assert place.fact("num_tiles", PROGRAMS[0][1]) == 64.0
    assert place.fact("num_tiles", PROGRAMS[1][1]) is None


def test_without_a_file_there_are_no_searches() -> None:
    assert load_searches(None).results == ()
    assert Searches().of("tile") == ()


def test_bars_have_names_for_people_and_for_files() -> None:
    named = {
        IN_COMPILER: ("learned 1, in the compiler", "learned_compiler"),
        Bar("hybrid", "top10"): ("hybrid 10", "hybrid_top10"),
        Bar("tuned", "top20"): ("best of sweep 20", "tuned_top20"),
        Bar("exhaustive", "all"): ("exhaustive", "exhaustive_all"),
        Bar("hardware", "random-1m"): ("hardware 1 min", "hardware_1m"),
        Bar("best known", "all"): ("best known", "best_known_all"),
        Bar("sample", "all"): ("all candidates", "sample_all"),
    }
    assert {bar: (title(bar), bar_key(bar)) for bar in named} == named


def test_colours_are_those_of_other_figures() -> None:
    assert colour("learned") == colour("model and hardware") == COLOURS["learned"]
    assert colour("hybrid") == colour("hybrid and hardware") == COLOURS["hybrid"]
    assert colour("analytical") == colour("analytical and hardware") == COLOURS["analytical"]
    shown = [bar.model for bar in FIGURE_4]
    assert len({colour(model) for model in shown}) == len(set(shown))
    assert colour("unheard of") == "#777777"


def test_figure_5_has_the_minutes_of_its_paper() -> None:
    bars = figure_5("default", "lpm2021")
    assert [bar.budget for bar in bars] == ["default-1m", "default-10m"] * 4
    assert [bar.model for bar in bars[::2]] == [
        "hardware",
        "model and hardware",
        "hybrid and hardware",
        "analytical and hardware",
    ]
    assert {bar.budget for bar in figure_5("random", "lpm2020")} == {"random-5m"}


def test_what_was_not_run_is_named() -> None:
    place = _place([row for row in tile_rows() if row.model not in ("hybrid", "random")])
    assert listed(absent(FIGURE_4, place)) == ["hybrid 10", "random 10"]
    assert bars_with_results(FIGURE_4, place)[:2] == FIGURE_4[:2]
    assert absent(FIGURE_4, _place(tile_rows())) == ""


def test_best_known_is_the_best_of_all_searches() -> None:
    place = _place(fusion_search_rows())
    assert best_known(place) == (Bar("best known", "all"),)
    assert best_known(_place(tile_rows())) == ()
