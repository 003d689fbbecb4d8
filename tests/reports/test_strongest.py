"""The strongest baseline is the one with the best mean on the programs that all of them have."""

from __future__ import annotations

from costbench.metrics.rows import MetricRow
from costbench.reports.baseline_comparison import strongest_baseline
from costbench.reports.claims.claim import Side
from costbench.reports.frame import frame_of
from costbench.reports.scores import score_index
from tests.reports.conftest import make_row


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
