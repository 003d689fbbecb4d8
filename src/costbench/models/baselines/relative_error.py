"""Fits non-negative coefficients to runtimes by the mean relative error, which is what MAPE measures.

The least of sum_i w_i |x_i . c - y_i| / y_i over c >= 0 is a linear program. A least-squares fit of runtimes
would be decided by the few longest kernels, one of logarithms is not linear in c.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import F64
from costbench.errors import DataError


def weighted_median(values: F64, weights: F64) -> float:
    """Return the least m with sum of weights of (values <= m) >= half of all; it minimises sum w |value - m|.

    Args:
        values: float64 [n].
        weights: float64 [n], positive.

    Raises:
        DataError: for no values.
    """
    if not len(values):
        raise DataError("no kernels to fit a baseline to", expected="one or more")
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    return float(values[order[int(np.searchsorted(sums, 0.5 * sums[-1]))]])


def least_relative_error(columns: F64, runtime_ns: F64, weights: F64) -> F64:
    """Return c >= 0 that minimises sum_i w_i |x_i . c / y_i - 1|, float64 [m].

    With A_i = x_i / y_i the dual program is: maximise sum_i d_i subject to A^T d <= 0 and |d_i| <= w_i. It
    has only m constraints, and their multipliers are c.

    Args:
        columns: x, float64 [n, m], not negative.
        runtime_ns: y, float64 [n], positive.
        weights: w, float64 [n], positive.

    Raises:
        DataError: for no rows, or values that are not finite.
    """
    from scipy.optimize import linprog

    if not len(columns):
        raise DataError("no kernels to fit a baseline to", expected="one or more")
    if not np.isfinite(columns).all() or not (runtime_ns > 0.0).all():
        raise DataError("not finite", where="features", expected="finite numbers and positive runtimes")
    ratios = columns / runtime_ns[:, None]
    weights = weights / weights.sum()
    # The solver's tolerances are absolute, while bytes per ns and FLOPs per ns differ by orders of magnitude.
    # Not by BLAS, whose last bits depend on the processor: runtimes that are equal but for these would rank.
    scale = (weights[:, None] * ratios).sum(axis=0)
    scale[scale == 0.0] = 1.0
    # Weights near 1 / n come close to the solver's tolerance of 1e-7: it gets them in units of 1 / n.
    limits = (weights * len(columns)).tolist()
    solved = linprog(
        -np.ones(len(columns)),
        A_ub=(ratios / scale).T,
        b_ub=np.zeros(columns.shape[1]),
        bounds=[(-limit, limit) for limit in limits],
        method="highs-ds",
    )
    if not solved.success:
        raise DataError(f"no fit of runtimes: {solved.message}", expected="a linear program with an optimum")
    found: F64 = np.maximum(-np.asarray(solved.ineqlin.marginals), 0.0) / scale
    return found
