"""Progress of searches against trials, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from costbench_schedules.experiments.repeats import best_by_trial


def test_best_by_trial_with_one_and_two_measurements() -> None:
    runtime_ns = np.array([math.inf, 5.0, 6.0, 4.0, 4.5, 1.0, 0.5])
    assert best_by_trial(runtime_ns, 7).tolist() == [math.inf, 5.0, 5.0, 4.0, 4.0, 1.0, 0.5]
    # The seventh measurement is half a trial, and a search that has ended keeps its best.
    assert best_by_trial(runtime_ns, 4, 2).tolist() == [5.0, 4.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="at least 1"):
        best_by_trial(runtime_ns, 7, 0)


def test_the_fastest_by_first_measurements_has_its_second() -> None:
    """Of failures there is no second one; a slower second measurement of a better choice counts."""
    first = np.array([math.inf, 5.0, 7.0, 4.0])
    second = np.array([math.inf, 5.5, 3.0, 6.0])
    assert best_by_trial(first, 5, 1, second).tolist() == [math.inf, 5.5, 5.5, 6.0, 6.0]
    assert best_by_trial(first, 2, 2, second).tolist() == [5.5, 6.0]
