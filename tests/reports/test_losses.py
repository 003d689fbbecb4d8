"""Losses that are far from alike: what their geometric mean hides."""

from __future__ import annotations

import pytest

from costbench.baselines import BASELINES
from costbench.metrics.measures import error_measure, tau_measure
from costbench.reports.losses import AVERAGES, SKEWED, average, spread
from costbench.tasks import LEARNED

ERROR = error_measure("top_1", "top1", "Top-1 slowdown (%)")
LOSSES = [0.0, 0.0, 1.0, 5.0, 64.0]


def test_a_share_is_of_programs_strictly_above() -> None:
    shares = {kind: average(ERROR, kind, LOSSES) for kind in ("above_1", "above_5", "above_10")}
    # 5 and 64 are above 1%, 64 alone above 5% and 10%.
    assert shares == pytest.approx({"above_1": 40.0, "above_5": 20.0, "above_10": 20.0})


def test_a_correlation_has_no_such_share() -> None:
    tau = tau_measure("kendall_tau", "tau", "Kendall's τ")
    assert average(tau, "above_5", [0.5]) is None
    assert average(tau, "mean", [0.5, 0.7]) == pytest.approx(0.6)


def test_without_programs_there_is_nothing() -> None:
    assert [average(ERROR, kind, []) for kind in AVERAGES] == [None] * len(AVERAGES)
    assert spread(ERROR, []) == {}


def test_the_geometric_mean_hides_what_the_others_tell() -> None:
    # 0 counts as 0.05: the fifth root of 0.05 * 0.05 * 1 * 5 * 64.
    assert average(ERROR, "geometric_mean", LOSSES) == pytest.approx(0.8 ** (1 / 5))
    assert spread(ERROR, LOSSES) == pytest.approx(
        {"mean": 14.0, "median": 1.0, "above_1": 40.0, "above_5": 20.0, "above_10": 20.0}
    )


def test_skewed_tasks_and_their_models_exist() -> None:
    assert set(SKEWED) <= set(LEARNED)
    assert {model for task in SKEWED.values() for model in (task.default, task.chance)} <= set(BASELINES)
