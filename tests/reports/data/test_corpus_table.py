"""Table 1: our counts beside those that both versions of the paper print."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from costbench.reports.data.corpus_table import corpus_tables
from costbench.reports.data.evidence import read_counts
from costbench.reports.rendering import to_csv, to_markdown
from tests.reports.evidence_files import write_evidence


def _rows(folder: Path, tasks: tuple[str, ...]) -> dict[str, dict[str, str]]:
    (table,) = corpus_tables(read_counts(write_evidence(folder, tasks).counts))
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
    assert corpus_tables(()) == ()


def test_millions_are_printed_as_in_the_papers(tmp_path: Path) -> None:
    (table,) = corpus_tables(read_counts(write_evidence(tmp_path).counts))
    text = to_markdown(table)
    assert "| random | train | 1 | 93 | 93 | 18 | 400 | 21.8M | 21.8M |" in text
