"""Averages over programs, by hand."""

from __future__ import annotations

import pytest

from costbench.metrics.measures import AVERAGES
from costbench.tasks import LEARNED

APE, TAU = LEARNED["tile"].measures


def test_averages_by_hand() -> None:
    found = {kind: APE.average(kind, [1.0, 4.0, 16.0]) for kind in AVERAGES}
    # Around 7: -6, -3, 9; their squares add up to 126.
    expected = {"median": 4.0, "geometric_mean": 4.0, "mean": 7.0, "standard_deviation": 63.0**0.5}
    assert found == pytest.approx(expected)


def test_what_does_not_exist_is_none() -> None:
    assert [APE.average(kind, []) for kind in AVERAGES] == [None] * 4
    assert APE.average("standard_deviation", [1.0]) is None
    assert TAU.average("geometric_mean", [0.5, -0.5]) is None


def test_means_are_geometric_for_errors_only() -> None:
    assert APE.mean([0.0, 5.0]) == pytest.approx(0.5)  # 0 counts as 0.05
    assert TAU.mean([0.5, -0.5]) == 0.0
