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
