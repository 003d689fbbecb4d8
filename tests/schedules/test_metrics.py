"""Rank correlation within groups by hand."""

from __future__ import annotations

import numpy as np
import pytest

from costbench_schedules.metrics import tau_within_groups


def test_groups_count_alike() -> None:
    """Three in order (1), two reversed (-1), two that rank nothing (0)."""
    costs = np.array([1.0, 2.0, 3.0, 9.0, 8.0, 5.0, 5.0])
    runtimes = np.array([10.0, 20.0, 30.0, 1.0, 2.0, 4.0, 3.0])
    groups = np.array([0, 0, 0, 1, 1, 7, 7])
    assert tau_within_groups(costs, runtimes, groups) == pytest.approx(0.0)
    assert tau_within_groups(costs[:5], runtimes[:5], groups[:5]) == pytest.approx(0.0)
    assert tau_within_groups(costs[:3], runtimes[:3], groups[:3]) == pytest.approx(1.0)
