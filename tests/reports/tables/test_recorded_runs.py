"""What the first page says of recorded runs follows from the rows beside the chip."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.reports.sections.overview import overview_section
from costbench.reports.tables import machines
from costbench.reports.tables.machines import agreement_of, recorded_runs_table
from tests.reports.conftest import report_data, rows_of
from tests.reports.test_baseline_comparison import model_rows

_ROWS = """program,item,use,runs,recorded_us,simulated_us,error_percent,tau,lacks
A,one,fitted,20,10,11,4,0.9,
A,two,fitted,2,5,5,8,,the inside
B,whole,test,100,1000,500,40,0.1,much
"""


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chip.recorded_runs.csv").write_text(_ROWS, "utf-8")
    monkeypatch.setattr(machines, "chip_file", lambda chip, ending: tmp_path / f"{chip}{ending}")


@pytest.mark.usefixtures("rows")
def test_fitted_kernels_and_the_test_are_kept_apart() -> None:
    found = agreement_of("chip")
    assert found is not None
    assert [found[name] for name in ("kernels", "runs", "test_runs", "program")] == [2, 22, 100, "B"]
    # Two kernels count once each; one of them ranks nothing.
    assert (found["fitted_error"], found["fitted_tau"]) == (6.0, 0.9)
    assert (found["test_ratio"], found["test_error"], found["test_tau"]) == (0.5, 40.0, 0.1)
    assert agreement_of("other") is None


@pytest.mark.usefixtures("rows")
def test_a_row_for_each_kernel_and_program() -> None:
    table = recorded_runs_table("chip")
    assert table.name == "recorded_runs_chip"
    assert [row[1] for row in table.rows] == ["one", "two", "whole"]
    assert table.rows[1][7] is None
    assert recorded_runs_table("other").rows == ()


def test_the_first_page_has_what_was_fitted_and_what_failed(tmp_path: Path) -> None:
    measured = overview_section(report_data(tmp_path, model_rows("learned", [1.0] * 6)))
    assert [table.name for table in measured.tables] == ["recorded_runs_tpu_v3", "machines_tpu_v3"]
    uses = [row[2] for row in measured.tables[0].rows]
    assert uses == ["fitted"] * 7 + ["test"]
    agreement = agreement_of("tpu_v3")
    assert agreement is not None
    assert f"{agreement['test_ratio']:.2f} of its time" in measured.paragraphs[0]
    # Nothing was recorded of the other chip.
    other = overview_section(report_data(tmp_path, rows_of())).tables
    assert [table.name for table in other] == ["machines_tpu_v2"]
