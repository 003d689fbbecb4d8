"""The parts of the page about searches."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from costbench.artifacts import write_json
from costbench.metrics.rows import MetricRow
from costbench.reports.claims.claim import load_claims
from costbench.reports.claims.evaluation import NOT_EVALUATED, UNDECIDED, evaluate_claims
from costbench.reports.figures.search_curves import SearchPath
from costbench.reports.inputs import ReportInputs
from costbench.reports.page import Section
from costbench.reports.results import GAINS
from costbench.reports.searches import Searches
from costbench.reports.sections.searches import flat_searches, search_sections
from tests.reports.conftest import PROGRAMS, report_data, rows_of, searches_of_rows
from tests.reports.search_rows import TILE_SPEEDUPS, fusion_search_rows, tile_rows
from tests.sentences import numbers


def _sections(folder: Path, rows: list[MetricRow], paths: tuple[SearchPath, ...] = ()) -> dict[str, Section]:
    searches = searches_of_rows(rows)
    findings = evaluate_claims(load_claims(), searches.frame, 0, resamples=100)
    write_json(folder / "search.json", [asdict(path) for path in paths])
    inputs = ReportInputs((), search_paths=folder / "search.json")
    data = report_data(folder, rows_of(), inputs=inputs, searches=searches, findings=findings)
    return {section.anchor: section for section in search_sections(data)}


def test_both_tasks_with_figures_tables_and_what_the_papers_say(tmp_path: Path) -> None:
    found = _sections(tmp_path, [*tile_rows(), *tile_rows(split=GAINS), *fusion_search_rows()])
    tile, fusion = found["tile-search"], found["fusion-search"]
    assert [figure.path.stem for figure in tile.figures] == [
        "lpm2021_figure4_random_tpu_v2",
        "tile_search_random_tpu_v2",
    ]
    assert numbers(tile.paragraphs[0].replace("%", " "))[1:3] == [50, 5.0]
    assert [table.name for table in tile.tables] == [
        "tile_search_claims",
        "lpm2021_figure4_random_tpu_v2",
        "tile_search_random_tpu_v2",
        "lpm2021_figure4_gains_tpu_v2",
        "tile_search_gains_tpu_v2",
    ]
    assert [figure.path.stem for figure in fusion.figures] == [
        "lpm2021_figure5_random_tpu_v2",
        "lpm2020_figure4_random_tpu_v2",
    ]
    # Repeats of lpm2021 in its text and its caption.
    assert {10, 3} <= set(numbers(fusion.paragraphs[0]))
    assert numbers(fusion.paragraphs[1])[:2] == [1.063, 1.063]
    assert numbers(fusion.paragraphs[1])[-1] == 5000
    said = fusion.tables[0]
    assert len(said.rows) == 7
    assert said.rows[0][2] == "1.5"
    # Three programs are too few.
    assert {row[-1] for row in said.rows} == {UNDECIDED}


def test_curves_say_how_long_hardware_alone_needs(tmp_path: Path) -> None:
    seconds = (0.0, 60.0, 300.0, 600.0)
    lines = {"hardware": (1.0, 1.0, 1.2, 1.3), "model and hardware": (1.0, 1.2, 1.2, 1.2)}
    paths = tuple(
        SearchPath("fusion", "random", "tpu_v2", RNN, model, start, seconds, line, line, line)
        for model, line in lines.items()
        for start in ("default", "random")
    )
    found = _sections(tmp_path, fusion_search_rows(), paths)["fusion-search"]
    assert found.figures[-1].path.stem == "fusion_search_random_tpu_v2"
    assert 5.0 in numbers(found.paragraphs[1])
    slow = tuple(replace(path, median=(1.0,) * 4) if path.model == "hardware" else path for path in paths)
    found = _sections(tmp_path, fusion_search_rows(), slow)["fusion-search"]
    assert 5.0 not in numbers(found.paragraphs[1])
    assert 10 in numbers(found.paragraphs[1])


def test_what_a_small_profile_leaves_out_is_said(tmp_path: Path) -> None:
    tile = [row for row in tile_rows() if row.model in ("learned", "analytical", "exhaustive")]
    fusion = [
        row
        for row in fusion_search_rows((1,))
        if row.model == "hardware" and row.variant.startswith("default")
    ]
    found = _sections(tmp_path, [*tile, *fusion])
    for bar in ("hybrid 10", "random 10"):
        assert bar in found["tile-search"].figures[0].caption
    (figure,) = found["fusion-search"].figures
    for bar in ("best known", "hardware 10 min", "random configuration"):
        assert bar in figure.caption.casefold()
    said = found["fusion-search"].tables[0]
    assert {row[-1] for row in said.rows} == {NOT_EVALUATED}
    assert any("lpm2021.fusion_search_near_best" in note for note in said.notes)


def test_without_searches_there_are_no_parts(tmp_path: Path) -> None:
    assert list(search_sections(report_data(tmp_path, rows_of()))) == []


RNN = PROGRAMS[0][1]


@pytest.fixture
def flat() -> dict[str, float]:
    return flat_searches(searches_of_rows([*tile_rows(), *fusion_search_rows()]))


def test_figure_4_is_complete(flat: dict[str, float]) -> None:
    prefix = "autotune/tile/random/tpu_v2"
    assert flat[f"{prefix}/{RNN}/exhaustive/all/speedup"] == 1.25
    for (model, budget), (speedups, slowdown, *_) in TILE_SPEEDUPS.items():
        if budget == "top1":
            continue
        for (_, program), speedup in zip(PROGRAMS, speedups, strict=True):
            assert flat[f"{prefix}/{program}/{model}/{budget}/speedup"] == speedup
            assert flat[f"{prefix}/{program}/{model}/{budget}/slowdown"] == slowdown


def test_means_and_totals_of_all_budgets(flat: dict[str, float]) -> None:
    prefix = "autotune/tile/random/tpu_v2/all/learned"
    assert flat[f"{prefix}/top10/speedup_mean"] == pytest.approx(1.8 ** (1 / 3))
    assert flat[f"{prefix}/top10/slowdown_mean"] == pytest.approx(0.05)
    assert flat[f"{prefix}/top10/num_measured_total"] == 30.0
    assert flat[f"{prefix}/top1/hardware_seconds_total"] == 1.5
    assert flat[f"{prefix}/top10/fewer_hardware_seconds"] == 50.0
    assert f"{prefix}/compiler/fewer_hardware_seconds" not in flat
    assert f"autotune/tile/random/tpu_v2/{RNN}/learned/top1/speedup" not in flat


def test_figure_5_has_medians_and_whiskers(flat: dict[str, float]) -> None:
    prefix = "autotune/fusion/random/tpu_v2"
    own = f"{prefix}/{RNN}/default/model_and_hardware/10m"
    ends = [flat[f"{own}/speedup_{end}"] for end in ("median", "min", "max")]
    assert ends == [1.2, 1.1, 1.2]
    assert flat[f"{prefix}/{RNN}/random/hardware/5m/speedup_median"] == 0.5
    assert flat[f"{prefix}/{RNN}/best_known/all/speedup_median"] == 1.3
    assert flat[f"{prefix}/all/best_known/all/slowdown_mean"] == 0.0
    assert flat[f"{prefix}/{RNN}/default/hardware/240m/speedup_median"] == 1.2
    assert flat[f"{prefix}/all/default/hardware/1m/num_measured_mean"] == 4.0
    assert flat[f"{prefix}/all/default/hardware/1m/hardware_seconds_mean"] == 59.0


def test_nothing_has_no_keys() -> None:
    assert flat_searches(Searches()) == {}


def test_captions_are_of_bars_or_of_the_curves_of_many_programs(tmp_path: Path) -> None:
    rows = [*tile_rows(), *fusion_search_rows()]
    copies = [replace(row, program=f"{row.program}_{number}") for row in rows for number in range(9)]
    for name, shown, told in (("few", rows, "empty bar"), ("many", copies, "dashed curve")):
        folder = tmp_path / name
        folder.mkdir()
        for section in _sections(folder, shown).values():
            assert told in section.figures[0].caption.casefold()
