"""The leakage audit and the card as tables."""

from __future__ import annotations

from pathlib import Path

from costbench.reports.data.dataset_card import read_cards
from costbench.reports.data.evidence import read_audits
from costbench.reports.data.evidence_tables import dataset_tables, leakage_table
from tests.reports.evidence_files import write_evidence


def test_tables_of_evidence(tmp_path: Path) -> None:
    files = write_evidence(tmp_path, ("tile", "layout"))
    leakage = leakage_table(read_audits(files.audits))
    assert leakage.rows == (
        ("tile", "random", "tpu_v2", "rnn", 10, 1, 10.0, 25.0),
        ("tile", "random", "tpu_v2", "all", 10, 1, 10.0, 25.0),
    )
    counts, spread = dataset_tables(read_cards(files.card))
    assert counts.rows[0] == ("tile", "tpu_v2", 3, 2, 30, 28, 600, 2, 1.5)
    # Only what a card says has a row.
    assert [row[0] for row in spread.rows] == ["tile"] * 3 + ["layout"] * 3
    assert spread.rows[0] == ("tile", "tpu_v2", "tile sizes in a kernel's space", 2, 3, 20, 50, 99, 25.5)
    assert spread.text(0, 8) == "25.50"
    assert spread.text(0, 7) == "99"
