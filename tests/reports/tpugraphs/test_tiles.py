"""Tables 8 and 9 from rows worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.reports.declarations import declared_tables
from costbench.reports.sections.tpugraphs import DECLARED
from tests.reports.tpugraphs.rows import results_of, tile_rows


def test_table_8_has_every_line_of_the_paper(tmp_path: Path) -> None:
    results = results_of(tmp_path, tile_rows({"early-sage-listmle": [2.0, 10.0], "mlp-mse": [40.0, 40.0]}))
    table, _ = declared_tables(DECLARED, results.frame)["tpugraphs"]
    assert table.name == "tpugraphs2023_table8_random_tpu_v3"
    assert len(table.rows) == 10
    first, last = table.rows[0], table.rows[-1]
    # Our top-1, top-5, top-10 and OPA, then theirs, validation before test.
    assert first[:2] == ("ListMLE", "EarlySAGE")
    assert first[2:6] == pytest.approx((8.0, 4.0, 0.8, 0.9))
    assert first[6:] == (10.5, 9.1, 3.0, 4.2, 1.8, 2.8)
    assert (last[:3], last[6]) == (("MSE", "MLP", 40.0), 117.5)
    assert table.rows[1][2:6] == (None, None, None, None)
    assert table.notes[1].startswith("Not run: early-gcn-listmle, late-sage-listmle")


def test_table_9_has_our_programs_above_theirs(tmp_path: Path) -> None:
    results = results_of(tmp_path, tile_rows({"late-gcn-listmle": [2.0, 10.0], "mlp-mse": [40.0, 40.0]}))
    _, table = declared_tables(DECLARED, results.frame)["tpugraphs"]
    keys = [column.key for column in table.columns]
    ours = [row for row in table.rows if row[0] == "ours"]
    assert [row[1:3] for row in ours] == [("p0", 1.0), ("p1", 3.0)]
    assert [row[keys.index("k1_late-gcn")] for row in ours] == [2.0, 10.0]
    assert [row[keys.index("k2_late-gcn")] for row in ours] == [1.0, 5.0]
    assert [row[keys.index("k1_mlp")] for row in ours] == [None, None]
    theirs = {row[1]: row for row in table.rows if row[0] == "paper"}
    assert len(theirs) == 7
    assert theirs["unet_3d.4x4.bf16"][keys.index("k1_early-sage")] == 48
