"""The paper's numbers are complete, agree with themselves, and find their counterparts."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.errors import ParamsError
from costbench.metrics.averages import geometric_mean
from costbench.reports.papers import PAPERS, PaperTable, corpus_of_paper, tile_table_of_paper


def _table(split: str) -> PaperTable:
    table = tile_table_of_paper(split)
    assert table is not None
    return table


@pytest.mark.parametrize(("split", "rows"), [("random", 8), ("manual", 6)])
@pytest.mark.parametrize("model", ["learned", "analytical"])
def test_printed_averages_follow_from_printed_rows(split: str, rows: int, model: str) -> None:
    table = _table(split)
    assert len(table.rows) == rows
    for metric, unit in (("ape", 0.1), ("tau", 0.01)):
        values = [row.score(metric, model) for row in table.rows]
        # The paper cuts some digits rather than rounding them, so one unit of the last digit either way.
        assert table.median.score(metric, model) == pytest.approx(np.median(values), abs=unit)
        assert table.geometric_mean.score(metric, model) == pytest.approx(geometric_mean(values), abs=unit)


def test_rows_find_their_programs() -> None:
    manual = _table("manual")
    second = manual.row_for("WaveRNN", "wavernn_2_b32_train_bf16")
    assert second is not None
    assert second.label == "WaveRNN 2"
    assert manual.row_for("WaveRNN", "wavernn_3_b1_infer_bf16") is None
    third = _table("random").row_for("WaveRNN", "wavernn_3_b1_infer_bf16")
    assert third is not None
    assert third.ape_learned == 1.5


def test_programs_are_put_in_the_papers_order() -> None:
    programs = (("Own", "user_mine"), ("RNN", "rnn"), ("ConvDRAW", "convdraw"))
    assert _table("random").ordered(programs) == (
        ("ConvDRAW", "convdraw"),
        ("RNN", "rnn"),
        ("Own", "user_mine"),
    )


def test_other_splits_have_no_table() -> None:
    assert tile_table_of_paper("own") is None


@pytest.mark.parametrize(
    ("paper", "split", "sums"),
    [
        ("lpm2021", "random", (109, 94, 24.8, 207.9)),
        ("lpm2021", "manual", (107, 92, 24.8, 208.0)),
        ("lpm2020", "random", (109, 94, 24.8, 207.9)),
        ("lpm2020", "manual", (104, 91, 24.3, 207.3)),
    ],
)
def test_sets_add_up_to_what_the_text_says(paper: str, split: str, sums: tuple[float, ...]) -> None:
    """25 million tile samples, 208 million fusion kernels (lpm2021), 207 million (lpm2020, manual split)."""
    corpus = corpus_of_paper(paper)
    rows = [corpus.row_for(split, part) for part in ("train", "validation", "test")]
    names = ("tile_programs", "fusion_programs", "tile_samples", "fusion_kernels")
    found = [sum(getattr(row, name) for row in rows) for name in names]
    assert (*found[:2], found[2] / 1e6, found[3] / 1e6) == pytest.approx(sums)
    assert corpus.row_for(split, "dropped") is None


def test_both_versions_have_a_table() -> None:
    assert [corpus_of_paper(name).paper for name in PAPERS] == ["lpm2021", "lpm2020"]
    with pytest.raises(ParamsError, match="lpm1999"):
        corpus_of_paper("lpm1999")
