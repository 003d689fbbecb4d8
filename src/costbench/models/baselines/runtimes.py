"""Runtimes from the analytical estimate and a kernel's work: formulas with one to six coefficients.

All coefficients are non-negative, so that each has a meaning (a launch takes time, a byte takes time). They
are fitted to training programs by the mean relative error, which is what MAPE measures: the least of
sum_i w_i |x_i . c - y_i| / y_i over c >= 0 is a linear program. Settings may ask for the mean log error
instead, which is not linear in c. A least-squares fit of runtimes would be decided by the few longest
kernels. The published procedure scales the estimate on each test program
(`costbench.experiments.evaluation.fusion.scale_estimates`).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Self

import numpy as np

from costbench.arrays import F64, AnyFloat
from costbench.errors import DataError
from costbench.models.baselines.kernel_tables import KernelTable
from costbench.models.baselines.spec import BaselineSpec

_ROUNDED, _LEAST_NS = 0.01, 1e-3
"""Log error below which its absolute value is rounded off, and the least sum of columns."""


@dataclass(frozen=True)
class UnscaledEstimate:
    """The analytical estimate e, in ns, as it is."""

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Returns the model; nothing is fitted."""
        return cls()

    def predict(self, table: KernelTable) -> F64:
        """Returns e, float64 [D]."""
        return table.analytical_ns


@dataclass(frozen=True)
class ScaledEstimate:
    """The analytical estimate e times one constant: a e.

    Attributes:
        factor: a, the weighted median of measured / e. With weights w e / measured it minimises the mean
            relative error sum w |a e - measured| / measured, with weights w the mean log error.
    """

    factor: float

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Returns the model of least error on `train`, of the kind of the settings."""
        ratios = train.runtime_ns / train.analytical_ns
        shares = train.row_weights if spec.error == "log" else train.row_weights / ratios
        return cls(weighted_median(ratios, shares))

    def predict(self, table: KernelTable) -> F64:
        """Returns a e, float64 [D]."""
        return self.factor * table.analytical_ns


@dataclass(frozen=True)
class LaunchAndEstimate:
    """A launch and the analytical estimate e: a + b e.

    Attributes:
        launch_ns: a, not negative.
        slope: b, not negative.
    """

    launch_ns: float
    slope: float

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Returns the model of least error on `train`, of the kind of the settings."""
        columns = columns_of(train)[:, :2]
        return cls(*fit_columns(columns, train, spec).tolist())

    def predict(self, table: KernelTable) -> F64:
        """Returns a + b e, float64 [D]."""
        return self.launch_ns + self.slope * table.analytical_ns


@dataclass(frozen=True)
class LinearInWork:
    """A launch, the analytical estimate e and the kernel's work: a + b e + c f + d r + g w + h s.

    f are FLOPs, r and w bytes read and written, s evaluations of special functions: the static performance
    features.

    Attributes:
        launch_ns: a; no coefficient is negative.
        slope: b.
        ns_per_flop: c.
        ns_per_byte_read: d.
        ns_per_byte_written: g.
        ns_per_transcendental: h.
    """

    launch_ns: float
    slope: float
    ns_per_flop: float
    ns_per_byte_read: float
    ns_per_byte_written: float
    ns_per_transcendental: float

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Returns the model of least error on `train`, of the kind of the settings."""
        return cls(*fit_columns(columns_of(train), train, spec).tolist())

    def predict(self, table: KernelTable) -> F64:
        """Returns the sum, float64 [D]."""
        return sum_columns(astuple(self), columns_of(table))


def columns_of(table: KernelTable) -> F64:
    """Returns 1, the estimate and the static performance features, float64 [D, 6]."""
    return np.column_stack([np.ones(len(table)), table.analytical_ns, table.static])


def sum_columns(coefficients: tuple[float, ...], columns: AnyFloat) -> F64:
    """Returns the weighted sum of columns [n, m], float64 [n], by coefficients [m]."""
    # Term by term: the last bit of a BLAS product depends on how many rows there are.
    total = np.zeros(len(columns))
    for coefficient, column in zip(coefficients, columns.T, strict=True):
        total += coefficient * column.astype(np.float64)
    return total


def weighted_median(values: F64, weights: F64) -> float:
    """Returns the least m with sum of weights of (values <= m) >= half; it minimises sum w |value - m|.

    Args:
        values: values, float64 [n].
        weights: weights, float64 [n], positive.

    Raises:
        DataError: for no values.
    """
    if not len(values):
        raise DataError("no kernels to fit a baseline to", expected="one or more")
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    return float(values[order[int(np.searchsorted(sums, 0.5 * sums[-1]))]])


def fit_columns(columns: F64, train: KernelTable, spec: BaselineSpec) -> F64:
    """Returns coefficients of columns [D, m] with the least error, of the kind of the settings, float64 [m].

    Raises:
        DataError: for no rows, or values that are not finite.
    """
    least = least_log_error if spec.error == "log" else least_relative_error
    return least(columns, train.runtime_ns, train.row_weights)


def least_log_error(columns: F64, runtime_ns: F64, weights: F64) -> F64:
    """Returns c >= 0 that minimises sum_i w_i |log(x_i . c / y_i)|, float64 [m], near zero rounded off.

    Arguments and errors are those of `least_relative_error`. The sum is not convex: L-BFGS goes down, over
    log(c), from coefficients of which each alone explains a quarter of the kernels that have its work.
    """
    from scipy.optimize import minimize

    _check_finite(columns, runtime_ns)
    share, used = weights / weights.sum(), (columns > 0.0).any(axis=0)
    work, logs = columns[:, used], np.log(runtime_ns)
    start = [float(np.quantile(runtime_ns[x > 0.0] / x[x > 0.0], 0.25)) for x in work.T]

    def error(log_coefficients: F64) -> tuple[float, F64]:
        parts = work * np.exp(log_coefficients)
        total = np.maximum(parts.sum(axis=1), _LEAST_NS)
        difference = np.log(total) - logs
        size = np.sqrt(difference**2 + _ROUNDED**2)
        slope = (share * difference / size / total)[:, None] * parts
        return float(share @ size), slope.sum(axis=0)

    optimum = minimize(error, np.log(start), jac=True, method="L-BFGS-B")
    coefficients: F64 = np.zeros(columns.shape[1])
    coefficients[used] = np.exp(optimum.x)
    return coefficients


def _check_finite(columns: F64, runtime_ns: F64) -> None:
    if not len(columns):
        raise DataError("no kernels to fit a baseline to", expected="one or more")
    if not np.isfinite(columns).all() or not (runtime_ns > 0.0).all():
        raise DataError("not finite", where="features", expected="finite numbers and positive runtimes")


def least_relative_error(columns: F64, runtime_ns: F64, weights: F64) -> F64:
    """Returns c >= 0 that minimises sum_i w_i |x_i . c / y_i - 1|, float64 [m].

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

    _check_finite(columns, runtime_ns)
    ratios = columns / runtime_ns[:, None]
    weights = weights / weights.sum()
    # The solver's tolerances are absolute, while bytes per ns and FLOPs per ns differ by orders of magnitude.
    # Not by BLAS, whose last bits depend on the processor: runtimes that are equal but for these would rank.
    scale = (weights[:, None] * ratios).sum(axis=0)
    scale[scale == 0.0] = 1.0
    # Weights near 1 / n come close to the solver's tolerance of 1e-7: it gets them in units of 1 / n.
    limits = (weights * len(columns)).tolist()
    solution = linprog(
        -np.ones(len(columns)),
        A_ub=(ratios / scale).T,
        b_ub=np.zeros(columns.shape[1]),
        bounds=[(-limit, limit) for limit in limits],
        method="highs-ds",
    )
    if not solution.success:
        problem = f"no fit of runtimes: {solution.message}"
        raise DataError(problem, expected="a linear program with an optimum")
    coefficients: F64 = np.maximum(-np.asarray(solution.ineqlin.marginals), 0.0) / scale
    return coefficients
