"""The section on schedules, from files as the stage `schedules` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.artifacts import write_json
from costbench.errors import DataError
from costbench.reports.claims.evaluation import NOT_EVALUATED, evaluate_claims
from costbench.reports.frame import frame_of
from costbench_schedules.reports.autotvm2018 import library
from costbench_schedules.reports.autotvm2018.results import (
    ScheduleResults,
    load_schedules,
    write_machine_times,
)
from costbench_schedules.reports.autotvm2018.searches import (
    arms_table,
    curve_figures,
    flat_schedules,
    panels,
    workloads_table,
)
from costbench_schedules.reports.autotvm2018.section import flat_models, schedule_rows, schedule_section
from costbench_schedules.reports.curves import in_order
from costbench_schedules.reports.gpus.results import GpuResults
from costbench_schedules.reports.page import schedule_claims
from costbench_schedules.reports.table_claims import rows_of_tables
from tests.schedules.reports.autotvm2018.files import WORKLOADS, write_schedule_files
from tests.sentences import numbers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_schedule_files(tmp_path)


def test_order_of_workloads() -> None:
    names = ["matmul-1024", "C10", "matmul-256", "C2"]
    assert sorted(names, key=in_order) == ["C2", "C10", "matmul-256", "matmul-1024"]


def test_without_searches_there_is_no_section(tmp_path: Path) -> None:
    results = load_schedules(tmp_path)
    assert schedule_section(results, tmp_path) is None
    assert schedule_rows(results) == ()
    assert flat_schedules(results) == {}
    assert write_machine_times(results, tmp_path) == ()


def test_panels_are_of_workloads_with_what_is_compared(folder: Path) -> None:
    by_name = {figure.name: panels(load_schedules(folder), figure) for figure in curve_figures()}
    shown = tuple(("native", name) for name in WORKLOADS)
    assert by_name["figure4"] == by_name["figure6"] == shown
    assert not any(by_name[name] for name in ("figure5", "figure7", "figure8", "figure9a", "figure9d"))


def test_section_names_the_processor_and_what_is_missing(folder: Path) -> None:
    section = schedule_section(load_schedules(folder), folder / "figures")
    assert section is not None
    text = " ".join(section.paragraphs)
    assert "a processor" in text
    # Configurations, sub-spaces, shares of fast ones in percent, and the lead over random search.
    assert {8000, 8, 2.0} <= set(numbers(text.replace("%", " ")))
    missing = {figure.name for figure in curve_figures() if f"({figure.title})" in text}
    assert missing == {figure.name for figure in curve_figures()} - {"figure4", "figure6"}
    assert [figure.path.name for figure in section.figures] == [
        "autotvm2018_figure4.svg",
        "autotvm2018_figure6.svg",
    ]
    assert all(figure.path.is_file() for figure in section.figures)


def test_tables_and_headline_numbers(folder: Path) -> None:
    results = load_schedules(folder)
    arms = {line[0]: line for line in arms_table(results, "native").rows}
    assert arms["random"][1:] == (8, None, pytest.approx(20.0), None, pytest.approx(101.0))
    assert arms["gbt-rank"][1:] == (0, None, pytest.approx(40.0), None, None)
    assert workloads_table(results, "native").rows[0] == ("C2", "random", None, 20.0, None, 101.0, 100.0)
    flat = flat_schedules(results)
    assert flat["schedule/native/C2/gbt-rank/gflops_100"] == 40.0
    assert flat["schedule/native/all/treegru-rank/share_100"] == pytest.approx(50.0)


def test_models_without_a_search_have_a_table(folder: Path) -> None:
    results = load_schedules(folder)
    section = schedule_section(results, folder / "figures")
    assert section is not None
    (table,) = [one for one in section.tables if one.name == "schedule_models_transfer_native"]
    assert table.rows == (
        ("gbt-rank", 2, pytest.approx(0.7), 20.0, 4.0, 2.0, 0.0),
        ("traffic", 2, pytest.approx(0.25), 20.0, 4.0, 2.0, 0.0),
    )
    assert "Tested on C7, C8" in table.notes[0]
    flat = flat_models(results)
    assert flat["schedule/models/transfer/native/gbt-rank/kendall_tau_mean"] == pytest.approx(0.7)


def test_claims_are_decided_on_the_rows(folder: Path) -> None:
    results = load_schedules(folder)
    own = tuple(claim for claim in schedule_claims() if claim.paper == "autotvm2018")
    by_name = {
        one.claim.id.partition(".")[2]: one
        for one in evaluate_claims(
            own, frame_of((*schedule_rows(results), *rows_of_tables(results, GpuResults()))), 0, 200
        )
    }
    against_random = by_name["model_vs_random_search"]
    # 40 against 20.
    assert (against_random.verdict, against_random.n) == ("holds", 8)
    assert against_random.effect == pytest.approx(2.0)
    assert by_name["diversity"].verdict == "holds"
    assert by_name["gbt_faster_than_treegru"].verdict == "holds"
    assert by_name["gbt_faster_than_treegru"].effect == pytest.approx(8.0)
    assert by_name["transfer_speedup"].verdict == NOT_EVALUATED
    assert by_name["end_to_end_gain"].missing[0].startswith("live runs")
    flat = flat_schedules(results, list(by_name.values()))
    assert flat["schedule/claims/model_vs_random_search/effect"] == pytest.approx(2.0)
    assert "schedule/claims/transfer_speedup/effect" not in flat


def test_wall_times_go_to_the_machine(folder: Path) -> None:
    (path,) = write_machine_times(load_schedules(folder), folder / "machine")
    assert path.name == "schedule_wall_times.json"
    assert "8.0" in path.read_text()


def test_a_broken_file_is_named(folder: Path) -> None:
    write_json(folder / "curves.json", [{"target": "native"}])
    with pytest.raises(DataError, match=r"curves\.json"):
        load_schedules(folder)
    write_json(folder / "curves.json", {})
    with pytest.raises(DataError, match="no list"):
        load_schedules(folder)


def with_library(folder: Path, processor: str = "a processor") -> ScheduleResults:
    data = folder / "data"
    speeds = {name: 125.0 if name == "C2" else 50.0 for name in (*WORKLOADS, "matmul-256")}
    content = {
        "processor_name": processor,
        "remark": "a library",
        "workloads": {name: {"gflops": speed, "way": "x"} for name, speed in speeds.items()},
    }
    write_json(data / "library.json", content)
    return load_schedules(folder, data)


def test_operators_are_compared_with_the_library(folder: Path) -> None:
    results = with_library(folder)
    part = library.library_part(results, folder / "figures")
    assert part is not None
    # 90 GFLOPS everywhere, measured again, against 125 once and 50 seven times: (0.72 * 1.8^7)^(1/8).
    [table] = part.tables
    assert table.rows[0] == ("C2", 90.0, 125.0, pytest.approx(0.72))
    assert table.rows[-1][3] == pytest.approx((0.72 * 1.8**7) ** (1 / 8))
    assert 7 in numbers(part.paragraphs[0])
    assert part.figures[0].path.name == "autotvm2018_figure10.svg"
    assert {row.program for row in library.library_rows(results)} == set(WORKLOADS)
    assert flat_schedules(results)["schedule/native/C2/library_gflops"] == 125.0
    own = [claim for claim in schedule_claims() if claim.id == "autotvm2018.single_operator_vs_library"]
    [claim] = evaluate_claims(own, frame_of(schedule_rows(results)), 0, 200)
    assert (claim.verdict, claim.n) == ("holds", 8)


def test_convolutions_are_added_up_as_often_as_they_occur(folder: Path) -> None:
    part = library.resnet_part(with_library(folder), folder)
    assert part is not None
    # C2 to C9 occur 4, 1, 1, 1, 3, 1, 1 and 3 times.
    [table] = part.tables
    assert {15, 21} <= set(numbers(table.title))
    assert sum(library.RESNET18.values()) == 21
    # C2: four times 2 * 56^2 * 64 * 64 * 9 operations at 90 and at 125 GFLOPS.
    assert table.rows[0] == ("C2", 4, pytest.approx(9.248440 / 0.9), pytest.approx(7.398752))
    assert table.rows[-1][2] == pytest.approx(sum(line[2] for line in table.rows[:-1]))


def test_another_processors_library_is_not_compared(folder: Path) -> None:
    results = with_library(folder, "another")
    part = library.library_part(results, folder)
    assert part is not None
    assert part.tables == ()
    assert "(another)" in part.paragraphs[0]
    assert library.library_rows(results) == ()
    assert library.resnet_part(results, folder) is None


def test_without_times_of_the_library_nothing_is_said(folder: Path) -> None:
    results = load_schedules(folder, folder)
    assert library.library_part(results, folder) is None
    write_json(folder / "library.json", {"workloads": {"C2": {"gflops": "fast"}}})
    with pytest.raises(DataError, match=r"library\.json.*workloads\.C2"):
        library.library_part(results, folder)
