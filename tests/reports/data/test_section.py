"""The data section has a figure and a paragraph for each task with samples, and only for these."""

from __future__ import annotations

from pathlib import Path

from costbench.reports.data.dataset_card import read_cards
from costbench.reports.data.evidence import read_audits, read_counts
from costbench.reports.data.section import data_section
from costbench.reports.page import Section
from tests.reports.evidence_files import write_evidence


def _section(folder: Path, tasks: tuple[str, ...]) -> Section:
    files = write_evidence(folder, tasks)
    cards, counts, audits = read_cards(files.card), read_counts(files.counts), read_audits(files.audits)
    return data_section(cards, counts, audits, folder)


def test_tile_data_alone(tmp_path: Path) -> None:
    section = _section(tmp_path, ("tile",))
    assert [figure.path.name for figure in section.figures] == ["applications_tile.svg", "dataset_tile.svg"]
    assert [table.name for table in section.tables] == [
        "corpus_tpu_v2",
        "dataset",
        "dataset_distributions",
        "leakage",
    ]
    assert len(section.paragraphs) == 2
    assert "600 samples of 30 kernels from 3 programs of 2 applications" in section.paragraphs[1]
    assert "RNN has 5 times the samples of SSD" in section.paragraphs[1]
    assert "20.0 times as long as the fastest in the median kernel, 50 times or more" in section.paragraphs[1]


def test_all_tasks(tmp_path: Path) -> None:
    section = _section(tmp_path, ("tile", "fusion", "layout"))
    assert len(section.figures) == 6
    fusion, layout = section.paragraphs[2:]
    # 12 of 30 kernels take less than 5 us.
    assert "30 kernels (28 different) from 1,500 fusion configurations of 3 programs" in fusion
    assert "40% take less than 5 µs (lpm2021: about 50%)" in fusion
    assert "26 nodes on average, 2 to 99 (lpm2021: 41, 1 to 1,000)" in fusion
    assert "the slowest takes 20.00 times as long as the fastest in the median program, 99.00" in layout
