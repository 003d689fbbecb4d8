"""How models stand to the strongest baseline, on rows whose means and intervals are known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from costbench.metrics.rows import MetricRow
from costbench.reports.baseline_comparison import (
    Estimate,
    Standing,
    Standings,
    rank_models,
    strongest_baseline,
)
from costbench.reports.claims.claim import Side
from costbench.reports.frame import frame_of
from costbench.reports.scores import score_index
from tests.reports.conftest import make_row, results_of_rows


def model_rows(model: str, errors: Sequence[float], **changes: object) -> list[MetricRow]:
    """Errors and one correlation for programs of the fusion task, an application each."""
    named = {"task": "fusion", "chip": "tpu_v3", "model": model, **changes}
    return [
        make_row(**named, application=f"a{i}", program=f"p{i}", metric=metric, value=value)
        for i, error in enumerate(errors)
        for metric, value in (("mape_ge5us", error), ("kendall_tau_ge5us", 0.5))
    ]


def _standings(*rows: list[MetricRow]) -> Standings:
    results = results_of_rows(*rows)
    return rank_models(results, results.cells[0], 0)


def test_models_are_ranked_and_held_against_the_strongest_baseline() -> None:
    found = _standings(
        model_rows("analytical", [40.0] * 6),
        model_rows("trees", [20.0] * 6),
        model_rows("learned", [10.0] * 3 + [20.0] * 2 + [40.0]),
        model_rows("hybrid", [5.0] * 6),
    )
    assert found.strongest == "trees"
    assert [one.model for one in found.models] == ["hybrid", "learned", "trees", "analytical"]
    hybrid, learned, trees, analytical = found.models
    # All programs alike: every resample gives the same numbers.
    expected = Estimate(*[pytest.approx(-15.0)] * 3)
    assert (hybrid.won, hybrid.difference, hybrid.sign) == (1.0, expected, -1)
    assert (analytical.won, analytical.difference, analytical.sign) == (
        0.0,
        Estimate(*[pytest.approx(20.0)] * 3),
        1,
    )
    assert (trees.won, trees.difference, trees.sign) == (None, None, 0)
    # Three won, two ties, one lost; 2^(-2/6) of 20 in the geometric mean.
    assert learned.won == pytest.approx(4 / 6)
    assert learned.error.value == pytest.approx(20.0 * 2.0 ** (-1 / 3))
    assert learned.difference is not None
    assert learned.difference.value == pytest.approx(20.0 * (2.0 ** (-1 / 3) - 1.0))
    assert learned.difference.low < learned.difference.value < learned.difference.high
    assert (learned.tau, learned.programs, learned.seeds) == (0.5, 6, 1)


def test_seeds_widen_intervals() -> None:
    found = _standings(
        model_rows("trees", [20.0] * 6),
        model_rows("learned", [10.0] * 6, seed=0),
        model_rows("learned", [14.0] * 6, seed=1),
    )
    own = found.of("learned")
    assert own is not None
    # Two seeds 4 apart: standard error 2, one degree of freedom, t is 12.71; an error is not below 0.
    assert own.error.value == pytest.approx(12.0)
    assert (own.error.low, own.error.high) == (0.0, pytest.approx(12.0 + 2.0 * 12.71, rel=0.02))
    assert own.seeds == 2


def test_few_programs_cannot_tell() -> None:
    found = _standings(model_rows("trees", [20.0] * 5), model_rows("learned", [10.0] * 5))
    own = found.of("learned")
    assert own is not None
    assert own.difference is not None
    assert (own.difference.sign, own.sign) == (-1, 0)


def test_without_baselines_models_are_only_ranked() -> None:
    found = _standings(model_rows("learned", [10.0] * 6))
    assert found.strongest is None
    assert found.models[0].difference is None
    assert found.of("trees") is None


def test_only_common_programs_are_compared() -> None:
    found = _standings(model_rows("trees", [20.0] * 6), model_rows("learned", [10.0] * 6 + [90.0]))
    own = found.of("learned")
    assert own is not None
    assert (own.programs, own.compared, own.won) == (7, 6, 1.0)
    assert isinstance(own, Standing)


def _rows(model: str, values: list[float], metric: str = "mape_ge5us", **changes: object) -> list[MetricRow]:
    return [
        make_row(task="fusion", model=model, metric=metric, program=f"p{i}", value=value, **changes)
        for i, value in enumerate(values)
    ]


def _strongest(rows: list[MetricRow], metric: str = "mape_ge5us", side: Side | None = None) -> str | None:
    return strongest_baseline(score_index(frame_of(rows)), "fusion", metric, side or Side())


def test_the_least_geometric_mean_wins_and_networks_do_not_take_part() -> None:
    rows = [
        *_rows("learned", [0.1, 0.1]),
        *_rows("lpm2021", [0.1, 0.1]),
        # Geometric means of 4, 6 and 5; arithmetic ones of 8.5, 6 and 13.
        *_rows("trees", [1.0, 16.0]),
        *_rows("analytical", [6.0, 6.0]),
        *_rows("analytical_linear", [1.0, 25.0]),
    ]
    assert _strongest(rows) == "trees"


def test_the_greatest_mean_correlation_wins() -> None:
    tau = "kendall_tau_ge5us"
    rows = [*_rows("analytical", [0.9, 0.5], tau), *_rows("trees", [0.8, 0.7], tau)]
    assert _strongest(rows, tau) == "trees"


def test_programs_that_a_baseline_lacks_count_for_none() -> None:
    # Over both of its programs the mean of `trees` is 2; over the shared one it is 4, the other's 3.
    rows = [*_rows("trees", [4.0, 1.0]), *_rows("analytical", [3.0])]
    assert _strongest(rows) == "analytical"


def test_seeds_are_averaged_and_the_first_of_equals_is_taken() -> None:
    rows = [
        *_rows("analytical", [3.0]),
        *_rows("random", [1.0], seed=0),
        *_rows("random", [5.0], seed=1),
        *_rows("trees", [3.0]),
    ]
    assert _strongest(rows) == "analytical"


def test_each_split_and_chip_has_its_own() -> None:
    rows = [
        *_rows("analytical", [1.0]),
        *_rows("trees", [2.0]),
        *_rows("analytical", [2.0], split="folds", chip="tpu_v3"),
        *_rows("trees", [1.0], split="folds", chip="tpu_v3"),
    ]
    assert _strongest(rows) == "analytical"
    assert _strongest(rows, side=Side(split="folds", chip="tpu_v3")) == "trees"
    assert _strongest(rows, side=Side(split="manual")) is None
