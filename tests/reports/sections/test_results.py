"""Sections of a task's results: which tables they have, what leaks, and what difference it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.metrics.rows import MetricRow
from costbench.reports.dataset_files import read_leakage
from costbench.reports.page import Section
from costbench.reports.sections.analytical import analytical_section
from costbench.reports.sections.results import cell_sections
from tests.reports.conftest import fusion_rows, kind_rows, loss_rows, report_data, rows_of
from tests.reports.evidence_files import write_evidence
from tests.sentences import numbers


def _section(folder: Path, rows: list[MetricRow], leaked: int) -> Section:
    leakage = read_leakage(write_evidence(folder).audits)
    leakage = leakage.assign(leaked_kernels=leaked, share_of_kernels=leaked / 10)
    return next(cell_sections(report_data(folder, rows, leakage=leakage)))


def test_leaks_are_counted_and_left_out(tmp_path: Path) -> None:
    unseen = [row for row in rows_of(kernels="unseen") if row.model == "learned"]
    section = _section(tmp_path, [*rows_of(), *unseen], 3)
    # Shares of kernels and runtime in percent; APE and tau of the learned model without and with them.
    assert numbers(section.paragraphs[1].replace("%", " ")) == [30.0, 25.0, 0.6, 0.6, 0.8, 0.8]
    names = [table.name for table in section.tables]
    assert names == [
        "baselines_tile_random_tpu_v2",
        "tile_random_tpu_v2",
        "unseen_tile_random_tpu_v2",
        "comparison_tile_random_tpu_v2",
    ]
    # What stands beside the paper's numbers and the baselines are shown at once.
    assert section.folded == tuple(names[2:])
    assert not section.folded_figures


def test_where_nothing_leaks_there_is_nothing_to_leave_out(tmp_path: Path) -> None:
    section = _section(tmp_path, [*rows_of(), *rows_of(kernels="unseen")], 0)
    # Programs, then geometric means of 4, 1, 0 (as 0.05) and of 2, 8, 5, each with the mean of tau, and those
    # of random orders.
    assert numbers(section.paragraphs[0].replace("%", " "))[:5] == [3, 0.6, 0.8, 4.3, 0.7]
    assert numbers(section.paragraphs[1]) == []
    assert not [table for table in section.tables if table.name.startswith("unseen")]


def test_layouts_state_more_than_a_geometric_mean(tmp_path: Path) -> None:
    section = _section(tmp_path, loss_rows(), 0)
    told = [numbers(text.replace("%", " ")) for text in section.paragraphs]
    # Arithmetic mean, median and share above 5% of each model, after the 5 of the sentence.
    assert told[1][-9:] == [8.0, 4.0, 33, 14.0, 2.0, 33, 8.0, 8.0, 100]
    # What the default loses: two of three gain more than 1%, one more than 10%.
    assert told[2] == [14.0, 2.0, 67, 1, 33, 10]
    # The best of ten of each.
    assert told[3] == [4.0, 7.0, 4.0]
    baselines, by_program = section.tables[:2]
    chance = next(row for row in baselines.data.to_dict("records") if row["model"] == "random")
    assert chance["arithmetic_mean"] == chance["median"] == pytest.approx(8.0)
    assert (chance["above_5"], chance["top_10_above_5"]) == (100.0, 0.0)
    assert "top1_random" in by_program.data.columns
    above = next(row for row in by_program.data.to_dict("records") if "above" in row["application"])
    assert above["top1_default_first"] == pytest.approx(100.0 / 3.0)
    assert above["tau_learned"] is None


def test_the_analytical_model_has_a_section_if_it_was_evaluated(tmp_path: Path) -> None:
    without = [row for row in rows_of() if row.model == "learned"]
    assert analytical_section(report_data(tmp_path, without)) is None
    rows = kind_rows({"all": [(20.0, 0.9, 10.0, 1000.0), None, None]})
    section = analytical_section(report_data(tmp_path, rows))
    assert section is not None
    assert [table.name for table in section.tables] == ["analytical_tpu_v2", "analytical_kinds_tpu_v2"]
    # One paragraph about all, one about the chip.
    assert len(section.paragraphs) == 2
    assert "RNN 20.0%" in section.paragraphs[1]


def test_fusion_has_a_section_like_tiles(tmp_path: Path) -> None:
    section = _section(tmp_path, fusion_rows(), 0)
    # Kernels from 5 us of three programs; geometric means of 4, 1, 2, of 2, 1, 1, and of 8, 27, 64.
    shown = numbers(section.paragraphs[0].replace("%", " "))
    assert shown == [3, 5, 2.0, 0.9, 1.3, 0.95, 24.0, 0.7]
    names = [table.name for table in section.tables]
    assert names == [
        "baselines_fusion_random_tpu_v2",
        "fusion_random_tpu_v2",
        "fusion_random_tpu_v2_short",
        "comparison_fusion_random_tpu_v2",
    ]
    errors = [row for row in section.tables[3].rows if "MAPE" in str(row[1])]
    assert [row[0] for row in errors] == ["hybrid", "analytical"]
    # 7/3 - 33, and better on each program.
    assert errors[1][3] == 7 / 3 - 33
    assert errors[1][6] == 1.0
