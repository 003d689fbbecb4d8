"""Runtimes from the analytical estimate and a kernel's work: formulas with one to six coefficients.

All coefficients are non-negative, so that each has a meaning (a launch takes time, a byte takes time). They
are fitted to training programs by the mean relative error. The published procedure instead scales the
estimate on each test program (`costbench.experiments.evaluation.fusion.scaled_estimates`).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Self

import numpy as np

from costbench.arrays import F64
from costbench.models.baselines.relative_error import least_relative_error, weighted_median
from costbench.models.baselines.spec import BaselineSpec
from costbench.models.baselines.table import KernelTable


@dataclass(frozen=True)
class Unscaled:
    """The analytical estimate e, in ns, as it is."""

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Return the model; nothing is fitted."""
        return cls()

    def predict(self, table: KernelTable) -> F64:
        """Return e, float64 [D]."""
        return table.analytical_ns


@dataclass(frozen=True)
class Constant:
    """The analytical estimate e times one constant: a e.

    Attributes:
        factor: a, the weighted median of measured / e with weights w e / measured, which minimises the mean
            relative error sum w |a e - measured| / measured.
    """

    factor: float

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Return the model of least relative error on `train`."""
        ratios = train.runtime_ns / train.analytical_ns
        return cls(weighted_median(ratios, train.row_weights / ratios))

    def predict(self, table: KernelTable) -> F64:
        """Return a e, float64 [D]."""
        return self.factor * table.analytical_ns


@dataclass(frozen=True)
class Launch:
    """A launch and the analytical estimate e: a + b e.

    Attributes:
        launch_ns: a, not negative.
        slope: b, not negative.
    """

    launch_ns: float
    slope: float

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Return the model of least relative error on `train`."""
        found = least_relative_error(columns_of(train)[:, :2], train.runtime_ns, train.row_weights)
        return cls(*found.tolist())

    def predict(self, table: KernelTable) -> F64:
        """Return a + b e, float64 [D]."""
        return self.launch_ns + self.slope * table.analytical_ns


@dataclass(frozen=True)
class Linear:
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
        """Return the model of least relative error on `train`."""
        return cls(*least_relative_error(columns_of(train), train.runtime_ns, train.row_weights).tolist())

    def predict(self, table: KernelTable) -> F64:
        """Return the sum, float64 [D]."""
        # Term by term: the last bit of a BLAS product depends on how many rows there are.
        total = np.zeros(len(table))
        for coefficient, column in zip(astuple(self), columns_of(table).T, strict=True):
            total += coefficient * column
        return total


def columns_of(table: KernelTable) -> F64:
    """Return 1, the estimate and the static performance features, float64 [D, 6]."""
    return np.column_stack([np.ones(len(table)), table.analytical_ns, table.static])
