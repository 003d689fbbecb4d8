"""What belongs to the paper, and averages over kernels and programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.reports.papers.printed import printed_table
from costbench.reports.tables.tpugraphs import (
    LOSSES,
    NETWORKS,
    Place,
    flat_collections,
    is_of_paper,
    kernel_mean,
    layout_mean,
    layout_places,
    layout_scores,
    tile_places,
)
from tests.reports.tpugraphs.rows import layout_rows, results_of, tile_rows

PLACE = Place("random", "tpu_v3")


def test_variants_are_those_of_table_8_and_6() -> None:
    assert set(printed_table("tile_variants").labels) == {f"{n}-{loss}" for n in NETWORKS for loss in LOSSES}
    assert is_of_paper("late-gcn-mse")
    assert is_of_paper("full-listmle")
    assert not is_of_paper("mse")


def test_kernels_weigh_alike(tmp_path: Path) -> None:
    results = results_of(tmp_path, tile_rows({"early-sage-listmle": [2.0, 10.0]}))
    # One kernel of 2 and three of 10.
    assert kernel_mean(results, PLACE, "early-sage-listmle", "kernel_top_1") == pytest.approx(8.0)
    assert kernel_mean(results, PLACE, "late-sage-mse", "kernel_top_1") is None
    assert tile_places(results) == (PLACE,)
    assert layout_places(results) == ()


def test_collections_are_apart(tmp_path: Path) -> None:
    rows = layout_rows({("gst-listmle", "xla:random"): [0.2, 0.6], ("gst-listmle", "nlp:random"): [0.9]})
    chance = layout_rows({("main", "xla:random"): [0.1, -0.1]}, "random")
    results = results_of(tmp_path, rows, chance)
    assert layout_places(results) == (PLACE,)
    assert layout_mean(results, PLACE, "gst-listmle", "xla:random", "kendall_tau") == pytest.approx(0.4)
    assert layout_mean(results, PLACE, "random", "xla:random", "kendall_tau") == pytest.approx(0.0)
    assert layout_mean(results, PLACE, "gst-listmle", "nlp:default", "kendall_tau") is None
    assert layout_scores(results, PLACE, "gst-listmle", "nlp:random", "top_1") == {"nlp0": 10.0}
    flat = flat_collections(results)
    assert flat["layout/random/tpu_v3/learned@gst-listmle/xla:random/kendall_tau_mean"] == pytest.approx(0.4)
    assert flat["layout/random/tpu_v3/random/xla:random/opa_mean"] == pytest.approx(0.7)
