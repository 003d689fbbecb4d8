"""Errors of predicted runtimes against measured ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from costbench.metrics.checks import not_empty, paired, positive


def mape(predicted_ns: npt.ArrayLike, runtime_ns: npt.ArrayLike) -> float:
    """Mean absolute percentage error: 100 / n * sum |predicted - measured| / measured (lpm2021, section 5.2).

    Raises:
        DataError: for arrays that are empty, of different lengths or not finite, or a runtime <= 0.
    """
    predicted, measured = paired(predicted_ns, runtime_ns, ("predicted_ns", "runtime_ns"))
    positive(not_empty(measured, "runtime_ns"), "runtime_ns")
    return float(100.0 * np.mean(np.abs(predicted - measured) / measured))
