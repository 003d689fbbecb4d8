"""The leakage audit and the card as tables."""

from __future__ import annotations

from pathlib import Path

from costbench.reports.evidence import read_audits, read_cards
from costbench.reports.evidence_tables import dataset_tables, leakage_table
from tests.reports.evidence_files import write_evidence


def test_tables_of_evidence(tmp_path: Path) -> None:
    audits_file, card_file, _ = write_evidence(tmp_path)
    leakage = leakage_table(read_audits(audits_file))
    assert leakage.rows == (
        ("random", "tpu_v2", "rnn", 10, 1, 10.0, 25.0),
        ("random", "tpu_v2", "all", 10, 1, 10.0, 25.0),
    )
    counts, spread = dataset_tables(read_cards(card_file))
    assert counts.rows == (("tpu_v2", 3, 3, 30, 28, 600, 2, 1.5),)
    assert spread.rows[0] == ("tpu_v2", "tile sizes in a kernel's space", 2, 3, 20, 50, 99)
    # What the card does not say is a dash, not a zero.
    assert spread.rows[1][2:] == (None,) * 5
