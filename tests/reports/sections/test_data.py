"""The data section: its tables, and a figure and a paragraph for each task with samples."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from costbench.reports.dataset_files import read_cards, read_leakage, read_set_counts
from costbench.reports.page import Section
from costbench.reports.rendering import to_csv, to_markdown
from costbench.reports.sections.data import corpus_tables, data_section, dataset_tables, leakage_table
from tests.reports.conftest import report_data, rows_of
from tests.reports.evidence_files import write_evidence
from tests.sentences import numbers


def _section(folder: Path, tasks: tuple[str, ...]) -> Section:
    files = write_evidence(folder, tasks)
    data = report_data(
        folder,
        rows_of(),
        cards=read_cards(files.card),
        set_counts=read_set_counts(files.counts),
        leakage=read_leakage(files.audits),
    )
    section = data_section(data)
    assert section is not None
    return section


def test_tile_data_alone(tmp_path: Path) -> None:
    section = _section(tmp_path, ("tile",))
    assert [figure.path.name for figure in section.figures] == ["applications_tile.svg", "dataset_tile.svg"]
    assert [table.name for table in section.tables] == [
        "corpus_tpu_v2",
        "dataset",
        "dataset_distributions",
        "leakage",
    ]
    _, tile = section.paragraphs
    # Samples, kernels, programs, applications; RNN has 5 times the samples of SSD; tile sizes of a kernel in
    # the median and at most; how many times slower than the fastest tile size the slowest is, in the median
    # kernel and in a tenth of them.
    assert numbers(tile) == [600, 30, 3, 2, 5, 20, 99, 20.0, 50]
    assert tile.index("RNN") < tile.index("SSD")


def test_all_tasks(tmp_path: Path) -> None:
    section = _section(tmp_path, ("tile", "fusion", "layout"))
    assert len(section.figures) == 6
    fusion, layout = section.paragraphs[2:]
    # Kernels, different ones, configurations, programs, times the samples; 12 of 30 kernels take less than
    # 5 us, the paper's 50%; nodes on average, at least and at most, the paper's beside them.
    shown = numbers(fusion.replace("%", " "))
    assert shown == [30, 28, 1500, 3, 5, 40, 5, 50, 26, 2, 99, 41, 1, 1000]
    assert numbers(layout) == [600, 3, 20.0, 99.0]


def test_tables_of_evidence(tmp_path: Path) -> None:
    files = write_evidence(tmp_path, ("tile", "layout"))
    leakage = leakage_table(read_leakage(files.audits))
    assert leakage.rows == (
        ("tile", "random", "tpu_v2", "rnn", 10, 1, 10.0, 25.0),
        ("tile", "random", "tpu_v2", "all", 10, 1, 10.0, 25.0),
    )
    counts, spread = dataset_tables(read_cards(files.card))
    assert counts.rows[0] == ("tile", "tpu_v2", 3, 2, 30, 28, 600, 2, 1.5)
    # Only what a card says has a row.
    assert [row[0] for row in spread.rows] == ["tile"] * 3 + ["layout"] * 3
    assert spread.rows[0][:2] == ("tile", "tpu_v2")
    assert spread.rows[0][3:] == (2, 3, 20, 50, 99, 25.5)
    assert spread.text(0, 8) == "25.50"
    assert spread.text(0, 7) == "99"


def _rows(folder: Path, tasks: tuple[str, ...]) -> dict[str, dict[str, str]]:
    (table,) = corpus_tables(read_set_counts(write_evidence(folder, tasks).counts))
    return {row["set"]: row for row in csv.DictReader(io.StringIO(to_csv(table)))}


def test_ours_and_theirs(tmp_path: Path) -> None:
    rows = _rows(tmp_path, ("tile", "fusion", "layout"))
    assert list(rows) == ["train", "validation", "test", "all", "dropped"]
    train = rows["train"]
    assert (train["tile_programs"], train["tile_kernels"], train["tile_samples"]) == ("1", "18", "400")
    assert (train["tile_programs_lpm2021"], train["tile_samples_lpm2021"]) == ("93", "21800000")
    assert (train["fusion_programs"], train["fusion_samples_lpm2020"]) == ("1", "157500000")
    # 21.8 + 1.6 + 1.4 million, and ours without what is dropped.
    assert (rows["all"]["tile_samples_lpm2020"], rows["all"]["tile_samples"]) == ("24800000", "550")
    assert (rows["dropped"]["tile_samples"], rows["dropped"]["tile_samples_lpm2021"]) == ("50", "")


def test_without_fusion_data_there_are_no_columns_for_them(tmp_path: Path) -> None:
    assert not [key for key in _rows(tmp_path, ("tile", "layout"))["train"] if key.startswith("fusion")]
    assert corpus_tables(read_set_counts(None)) == ()


def test_millions_are_printed_as_in_the_papers(tmp_path: Path) -> None:
    (table,) = corpus_tables(read_set_counts(write_evidence(tmp_path).counts))
    text = to_markdown(table)
    assert "| random | train | 1 | 93 | 93 | 18 | 400 | 21.8M | 21.8M |" in text
