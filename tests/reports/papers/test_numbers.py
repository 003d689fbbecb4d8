"""The paper's numbers are complete, agree with themselves, and find their counterparts."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.errors import ParamsError
from costbench.metrics.averages import geometric_mean
from costbench.reports.papers.printed import (
    PAPERS,
    PrintedGrid,
    PrintedTable,
    ablation_of_paper,
    corpus_of_paper,
    earlier_table,
    fixed_settings,
    main_table,
    searches_of_paper,
    tuned_settings,
)


def _table(split: str, task: str = "tile") -> PrintedTable:
    table = main_table(task, split)
    assert table is not None
    return table


@pytest.mark.parametrize(("split", "rows"), [("random", 8), ("manual", 6)])
@pytest.mark.parametrize("model", ["learned", "analytical"])
@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_printed_averages_follow_from_printed_rows(task: str, split: str, rows: int, model: str) -> None:
    table = _table(split, task)
    assert len(table.rows) == rows
    # One pair of means of table 8 is off by more: 18.1 and 0.88 are printed where rows give 18.6 and 0.87.
    odd = (task, split, model) == ("fusion", "manual", "analytical")
    for metric, unit in (("error", 0.6 if odd else 0.1), ("tau", 0.015 if odd else 0.01)):
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
    assert third.error_learned == 1.5


def test_programs_are_put_in_the_papers_order() -> None:
    programs = (("Own", "user_mine"), ("RNN", "rnn"), ("ConvDRAW", "convdraw"))
    assert _table("random").ordered(programs) == (
        ("ConvDRAW", "convdraw"),
        ("RNN", "rnn"),
        ("Own", "user_mine"),
    )


def test_other_splits_have_no_table() -> None:
    assert main_table("tile", "own") is None
    assert main_table("layout", "random") is None
    assert earlier_table("tile", "manual") is None


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


@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_medians_of_the_earlier_version_follow_from_its_rows(task: str) -> None:
    table = earlier_table(task, "random")
    assert table is not None
    assert [row.label for row in table.rows] == [row.label for row in _table("random", task).rows]
    for index, column in enumerate(table.columns):
        unit = 0.1 if column.startswith("error") else 0.01
        values = [row.values[index] for row in table.rows]
        assert table.median[index] == pytest.approx(np.median(values), abs=unit)
    assert table.value("SSD", "tau_analytical") in (0.76, 0.77)
    assert table.value("Own", "tau_analytical") is None


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="has not 2 values"):
        PrintedGrid("p", "Table 1", "tpu_v2", ("a", "b"), (), (1.0,))


def test_ablations_agree_with_what_the_text_says() -> None:
    """Section 6.1: 3.8 for edge direction, 5 for static features, 2.6 for the tile, 10.9 for the loss."""
    inputs = {one.variant: one for one in ablation_of_paper("inputs").variants}
    vanilla = inputs["vanilla"]
    assert vanilla.tile is not None
    assert vanilla.fusion is not None
    for variant, task, gain in (
        ("undirected", "fusion", 3.8),
        ("static_node", "fusion", -5.0),
        ("tile_kernel", "tile", 2.6),
        ("mse", "tile", 10.9),
    ):
        assert getattr(inputs[variant], task).mean - getattr(vanilla, task).mean == pytest.approx(gain)
    networks = {one.variant: one for one in ablation_of_paper("networks").variants}
    assert len(networks) == 12
    # The selected models are those of table 2.
    lstm, transformer = networks["graphsage-lstm"].tile, networks["graphsage-transformer"].fusion
    assert lstm is not None
    assert transformer is not None
    assert lstm.mean == _table("random").geometric_mean.error_learned
    assert transformer.mean == _table("random", "fusion").geometric_mean.error_learned
    # And so are their deviations, with n - 1: the last digit is cut.
    for task, deviation in (("tile", lstm.deviation), ("fusion", transformer.deviation)):
        values = [row.error_learned for row in _table("random", task).rows]
        assert deviation == pytest.approx(np.std(values, ddof=1), abs=0.1)


def test_searches_are_as_the_text_says() -> None:
    """Sections 7 of lpm2021 and 6.3 of lpm2020; a caption contradicts the text."""
    later, earlier = searches_of_paper("lpm2021"), searches_of_paper("lpm2020")
    assert (later.top_k, later.hardware_minutes, later.repeats) == (10, (1.0, 10.0), (10, 3))
    assert (earlier.top_k, earlier.hardware_minutes, earlier.repeats) == (None, (5.0,), (20,))
    assert {one.model_minutes for one in (later, earlier)} == {60.0}


def test_settings_are_those_of_all_twelve_networks() -> None:
    names = [one.variant for one in ablation_of_paper("networks").variants]
    for task in ("tile", "fusion"):
        assert [row.variant for row in tuned_settings(task).rows] == names
    assert [row.value for row in fixed_settings().rows][:3] == ["256", "20", "3"]
    best = next(row for row in tuned_settings("tile").rows if row.variant == "graphsage-lstm")
    assert (best.hidden, best.learning_rate, best.decay, best.loss) == (1024, 0.000386, 0.98, "hinge")
