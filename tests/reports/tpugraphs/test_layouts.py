"""Tables 2, 6 and 7 from rows worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.reports.declarations import declared_tables
from costbench.reports.sections.tpugraphs import DECLARED
from costbench.reports.tables import tpugraphs
from costbench.reports.tables.tpugraphs import Place
from tests.reports.tpugraphs.rows import layout_rows, results_of, tile_rows

PLACE = Place("random", "tpu_v3")
TAUS = {
    ("gst-listmle", "xla:random"): [0.2, 0.6],
    ("gst-listmle", "xla:default"): [0.1, 0.2],
    ("full-listmle", "xla:random"): [0.5, 0.5],
    ("gst-listmle", "nlp:random"): [0.9],
}


def test_table_2_takes_the_papers_best_models(tmp_path: Path) -> None:
    results = results_of(tmp_path, layout_rows(TAUS), tile_rows({"early-sage-listmle": [2.0, 10.0]}))
    table = tpugraphs.best_table(results, PLACE, PLACE)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["layout:xla:random"][:4] == pytest.approx((0.4, 10.0, 5.0, 1.0))
    assert rows["layout:xla:random"][4:] == (0.19, 0.34, 19.8, 10.9, 12.3, 5.7, 9.7, 1.6)
    assert rows["layout:nlp:default"][:4] == (None, None, None, None)
    assert rows["tile:xla"][:4] == pytest.approx((0.8, 8.0, 4.0, 0.8))
    alone = tpugraphs.best_table(results, None, None)
    assert all(value is None for row in alone.rows for value in row[1:5])
    assert alone.notes[1].endswith("Ours: not run.")


def test_table_6_compares_training_on_one_collection(tmp_path: Path) -> None:
    chance = layout_rows({("main", "xla:random"): [0.1, -0.1]}, "random")
    results = results_of(tmp_path, layout_rows(TAUS), chance)
    table, _ = declared_tables(DECLARED, results.frame)["tpugraphs"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["Full Graph"][0] == pytest.approx(0.5)
    assert rows["Random"][0] == pytest.approx(0.0)
    assert rows["MSE loss"][0] is None
    assert rows["GST"][4:6] == (0.13, 0.32)


def test_table_7_has_our_programs_above_theirs(tmp_path: Path) -> None:
    results = results_of(tmp_path, layout_rows(TAUS))
    _, table = declared_tables(DECLARED, results.frame)["tpugraphs"]
    ours = [row for row in table.rows if row[0] == "ours"]
    # GST, whole graphs and MSE on random configs, then GST near the default: tau and top-1 each.
    assert ours == [
        ("ours", "xla0", 0.2, 10.0, 0.5, 10.0, None, None, 0.1, 10.0),
        ("ours", "xla1", 0.6, 10.0, 0.5, 10.0, None, None, 0.2, 10.0),
    ]
    assert len(table.rows) == 2 + 7


def test_every_model_is_on_the_table_of_collections(tmp_path: Path) -> None:
    chance = layout_rows({("main", "xla:random"): [0.1, -0.1]}, "random")
    table = tpugraphs.collection_table(results_of(tmp_path, layout_rows(TAUS), chance), PLACE)
    assert [row[:4] for row in table.rows] == [
        ("layout:xla:random", "learned", "full-listmle", 2),
        ("layout:xla:random", "learned", "gst-listmle", 2),
        ("layout:xla:random", "random", "main", 2),
        ("layout:xla:default", "learned", "gst-listmle", 2),
        ("layout:nlp:random", "learned", "gst-listmle", 1),
    ]
    assert table.rows[1][4:] == pytest.approx((0.4, 0.7, 10.0, 5.0, 1.0))
