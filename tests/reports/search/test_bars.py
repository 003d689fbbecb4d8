"""Names of bars, and which of a figure's are there."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.rows import write_rows
from costbench.reports.figures.programs import COLOURS
from costbench.reports.searches import (
    FIGURE_4,
    IN_COMPILER,
    Bar,
    Place,
    absent,
    best_known,
    colour,
    figure_5,
    key,
    load_searches,
    there,
    title,
)
from tests.reports.search_rows import fusion_search_rows, tile_rows


def _place(folder: Path, rows: list) -> Place:  # type: ignore[type-arg]
    write_rows(folder / "rows.jsonl", rows)
    return load_searches(folder / "rows.jsonl").places[0]


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
    assert {bar: (title(bar), key(bar)) for bar in named} == named


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


def test_what_was_not_run_is_named(tmp_path: Path) -> None:
    place = _place(tmp_path, [row for row in tile_rows() if row.model not in ("hybrid", "random")])
    assert absent(FIGURE_4, place) == "Not run here: hybrid 10; random 10."
    assert there(FIGURE_4, place)[:2] == FIGURE_4[:2]
    assert absent(FIGURE_4, _place(tmp_path, tile_rows())) == ""


def test_best_known_is_the_best_of_all_searches(tmp_path: Path) -> None:
    place = _place(tmp_path, fusion_search_rows())
    assert best_known(place) == (Bar("best known", "all"),)
    assert best_known(_place(tmp_path, tile_rows())) == ()
