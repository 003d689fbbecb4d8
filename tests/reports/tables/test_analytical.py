"""Where the analytical model does well: two programs and their kinds of kernels, by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from costbench.reports.sections.analytical import (
    analytical_scores,
    application_table,
    kind_table,
    summarise_scores,
)
from tests.reports.conftest import kind_rows, make_row, results_of_rows
from tests.sentences import numbers

# (APE, tau, kernels, best ns) of RNN and ConvDRAW. RNN loses 200 of 1,000 ns, 190 of them in contractions;
# ConvDRAW 50 of 1,000.
_SCORES: dict[str, list[tuple[float, float, float, float] | None]] = {
    "all": [(20.0, 0.9, 10.0, 1000.0), (5.0, 0.6, 4.0, 1000.0), None],
    "contraction": [(25.0, 0.5, 5.0, 760.0), (2.0, 0.7, 2.0, 500.0), None],
    "reduction": [(10 / 2.4, 0.8, 5.0, 240.0), (8.0, 0.6, 2.0, 500.0), None],
}


@pytest.fixture
def scores() -> pd.DataFrame:
    # Another chip and another split's result for the same program: neither counts twice.
    rows = [*kind_rows(_SCORES), make_row(chip="tpu_v3", model="analytical", value=99.0)]
    return analytical_scores(results_of_rows(rows), "tpu_v2")


def test_kinds(scores: pd.DataFrame) -> None:
    rows = kind_table(scores, "tpu_v2").data.set_index("kind").to_dict("index")
    assert list(rows) == ["contraction", "reduction", "all"]
    contraction = rows["contraction"]
    assert contraction["kernels"] == 7.0
    assert contraction["share_of_runtime"] == pytest.approx(100 * 1260 / 2000)
    # 25% of 760 and 2% of 500, of 250 in all.
    assert contraction["share_of_loss"] == pytest.approx(100 * (190 + 10) / 250)
    assert contraction["ape_pooled"] == pytest.approx(100 * 200 / 1260)
    assert contraction["ape_mean"] == pytest.approx(50**0.5)
    assert (contraction["tau_mean"], contraction["tau_min"]) == (pytest.approx(0.6), 0.5)
    assert rows["all"]["ape_pooled"] == pytest.approx(12.5)


def test_applications(scores: pd.DataFrame) -> None:
    table = application_table(scores, "tpu_v2")
    rows = table.data.set_index("application").to_dict("index")
    assert list(rows) == ["ConvDRAW", "RNN", "All programs"]
    rnn, draw = rows["RNN"], rows["ConvDRAW"]
    assert (rnn["ape_place"], rnn["tau_place"]) == ("above", "above")
    assert (draw["ape_place"], draw["tau_place"]) == ("inside", "below")
    assert (rnn["worst_kind"], draw["worst_kind"]) == ("contraction", "reduction")
    assert rnn["worst_share"] == pytest.approx(95.0)
    assert draw["worst_ape"] == pytest.approx(8.0)
    assert rows["All programs"]["ape"] == pytest.approx(10.0)
    # The extremes of lpm2021's tables 2 and 8.
    assert {1.2, 13.1, 0.55, 0.92} <= set(numbers(table.notes[0].replace("%", " ")))


def test_what_stands_out(scores: pd.DataFrame) -> None:
    summary: Any = summarise_scores(scores)
    draw, rnn = summary["applications"]
    assert (draw["name"], draw["ape_place"], draw["tau_place"], draw["tau"]) == (
        "ConvDRAW",
        "inside",
        "below",
        pytest.approx(0.6),
    )
    assert (rnn["ape_place"], rnn["ape"]) == ("above", pytest.approx(20.0))
    assert (rnn["worst_kind"], rnn["worst_share"], rnn["worst_ape"]) == (
        "contraction",
        pytest.approx(95.0),
        pytest.approx(25.0),
    )
    lost, best, worst = (summary["kinds"][name] for name in ("most_lost", "best_ranked", "worst_ranked"))
    assert (lost["name"], lost["share_of_loss"]) == ("contraction", pytest.approx(80.0))
    assert (best["name"], best["tau"]) == ("reduction", pytest.approx(0.7))
    assert (worst["name"], worst["tau"]) == ("contraction", pytest.approx(0.6))


def test_without_results_there_is_nothing_to_say(scores: pd.DataFrame) -> None:
    nothing = scores.iloc[:0]
    assert summarise_scores(nothing) is None
    assert kind_table(nothing, "tpu_v2").rows == ()
    assert application_table(nothing, "tpu_v2").rows == ()
