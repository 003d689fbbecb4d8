"""Progress of a search against the number of trials, where a trial is one or more measurements.

autotvm2018 (Figure 4) also gives random and genetic search two measurements per trial ("Random x2", "GA x2"),
to show what a model is worth against twice as much hardware.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import F64


def best_by_trial(scores: F64, measurements: int = 1) -> F64:
    """Returns the lowest score after every complete trial, float64 [n // measurements].

    Args:
        scores: measured, float64 [n], in order; infinite for failures.
        measurements: of a trial.

    Raises:
        ValueError: for fewer than one measurement per trial.
    """
    if measurements < 1:
        raise ValueError(f"measurements is {measurements}, expected at least 1")
    best: F64 = np.minimum.accumulate(np.asarray(scores, dtype=np.float64))
    return best[measurements - 1 :: measurements]
