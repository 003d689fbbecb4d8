"""Gains of searches on a machine that exists, by hand, and the section that shows them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from costbench.artifacts import CHECKSUMS_FILE
from costbench.datasets.machine_searches import CARD, read_card, read_searches, write_searches
from costbench.errors import DataError
from costbench.reports.inputs import ReportData, ReportInputs, ReportParams
from costbench.reports.machine_searches import flat_machine_searches, search_gains
from costbench.reports.sections.searches import machine_searches_section


def row(program: str, arm: str = "hardware", **changes: Any) -> dict[str, Any]:
    return {
        "program": program,
        "application": program,
        "start": "xla",
        "arm": arm,
        "budget_s": 60.0,
        "spent_s": 58.0,
        "measured": 10,
        "predicted": 0,
        "own_ns": 2_000_000,
        "chosen_ns": 1_000_000,
        "gain": 2.0,
        "low": 1.5,
        "high": 2.5,
        "is_own": False,
        "difference": 1e-7,
    } | changes


ROWS = [
    row("a"),
    row("b", gain=0.5, low=0.4, high=0.6),
    row("c", gain=1.0, low=1.0, high=1.0, is_own=True, spent_s=55.0),
    row("d", gain=4.0, low=0.9, high=17.0, measured=30),
    row("a", "analytical and hardware", predicted=1_000),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_searches(tmp_path, ROWS, {"machine": {"processor": "made up"}})
    return tmp_path


def test_gains_by_hand(folder: Path) -> None:
    gains, rows = search_gains(str(folder))
    assert len(rows) == 5
    by_model, alone = gains.itertuples()
    assert (alone.arm, alone.start, alone.programs) == ("hardware", "xla", 4)
    # 2 x 0.5 x 1 x 4, of which the fourth root.
    assert alone.gain == pytest.approx(4 ** (1 / 4))
    assert alone.low < alone.gain < alone.high
    # One program beyond the noise to each side, one within it, one that stays as it is.
    assert (alone.faster, alone.slower, alone.own) == (25.0, 25.0, 25.0)
    assert (alone.seconds, alone.measured) == ((3 * 58.0 + 55.0) / 4, 15.0)
    assert (by_model.gain, by_model.predicted) == (pytest.approx(2.0), 1_000.0)


def test_numbers_of_the_summary(folder: Path) -> None:
    numbers = flat_machine_searches(str(folder))
    assert numbers["fusion_search/xla_cpu/xla/hardware/gain_mean"] == pytest.approx(4 ** (1 / 4))
    assert numbers["fusion_search/xla_cpu/xla/analytical_and_hardware/programs"] == 1.0
    assert numbers["fusion_search/xla_cpu/xla/hardware/faster"] == 25.0
    assert flat_machine_searches("") == {}


def test_rows_come_back_in_one_order_and_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    write_searches(again, ROWS[::-1], {"machine": {"processor": "made up"}})
    assert (again / "searches.parquet").read_bytes() == (folder / "searches.parquet").read_bytes()
    assert read_searches(folder).iloc[1]["program"] == "a"
    assert read_card(folder) == {"machine": {"processor": "made up"}}
    assert len(read_searches(tmp_path / "nowhere")) == 0


def test_what_is_no_result_is_one_line(folder: Path) -> None:
    write_searches(folder, [row("a", gain=0.0)], {})
    with pytest.raises(DataError, match="a gain that is none"):
        search_gains(str(folder))
    (folder / "searches.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="damaged"):
        search_gains(str(folder))
    (folder / CHECKSUMS_FILE).unlink()
    with pytest.raises(DataError, match="no Parquet"):
        search_gains(str(folder))
    (folder / CARD).write_text("[]")
    with pytest.raises(DataError, match="is no card"):
        read_card(folder)


def test_the_section_has_a_row_for_each_kind_and_each_search(folder: Path) -> None:
    data = cast(
        "ReportData",
        SimpleNamespace(
            inputs=ReportInputs((), params=ReportParams(0, {}, "", machine_searches=str(folder)))
        ),
    )
    section = machine_searches_section(data)
    assert section is not None
    kinds, searches = section.tables
    assert [len(table.rows) for table in (kinds, searches)] == [2, 5]
    assert kinds.rows[1][:2] == ("XLA's own fusions", "hardware")
    # Runtimes are shown in milliseconds.
    assert [column.header for column in searches.columns[3:5]] == ["XLA's own", "chosen"]
    assert searches.rows[0][3:5] == (2.0, 1.0)
    assert "4 programs" in section.paragraphs[0]
    nothing = cast("ReportData", SimpleNamespace(inputs=ReportInputs(())))
    assert machine_searches_section(nothing) is None
