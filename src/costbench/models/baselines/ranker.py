"""A linear ranker of tile sizes, fitted by the pairwise logistic loss, as networks can be, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from costbench.arrays import F64
from costbench.models.baselines.kernel_tables import KernelTable
from costbench.models.baselines.runtimes import sum_columns
from costbench.models.baselines.spec import BaselineSpec

_MAX_ITERATIONS = 200


@dataclass(frozen=True)
class LinearRanker:
    """The cost of a decision is a weighted sum of its features: s = sum_j w_j x_j.

    x are the features of the decision alone: those of its kernel are equal for all decisions of the kernel,
    so in a weighted sum they change no order.

    Attributes:
        weights: w, one number for each feature of a decision.
    """

    weights: tuple[float, ...]

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Returns the ranker of least loss, which is convex and has one minimum where `spec.ridge` > 0.

        The loss is the mean over kernels, weighted, of the mean of log(1 + exp(s_i - s_j)) over their pairs
        of decisions with runtimes y_i < y_j, plus ridge |w|^2 for features in units of their standard
        deviation within kernels.
        """
        from scipy.optimize import minimize

        pairs = _Pairs(train)
        minimum = minimize(
            pairs.loss,
            np.zeros(pairs.features.shape[1]),
            args=(spec.ridge,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _MAX_ITERATIONS},
        )
        return cls(tuple((minimum.x / pairs.deviation).tolist()))

    def predict(self, table: KernelTable) -> F64:
        """Returns s, float64 [D]; lower is faster."""
        return sum_columns(self.weights, table.decisions)


class _Pairs:
    """All pairs of decisions of the same kernel, the faster one first.

    Attributes:
        deviation: standard deviation of each feature within kernels, 1 for constant ones, float64 [F].
        features: features without the mean of the kernel, in units of the deviation, float64 [D, F].
    """

    def __init__(self, table: KernelTable) -> None:
        starts = np.cumsum(table.counts) - table.counts
        centred = table.decisions.astype(np.float64)
        kernel = np.repeat(np.arange(len(table.counts)), table.counts)
        centred -= (np.add.reduceat(centred, starts, axis=0) / table.counts[:, None])[kernel]
        deviation = np.sqrt((centred**2).mean(axis=0))
        self.deviation: F64 = np.where(deviation > 1e-9, deviation, 1.0)
        self.features: F64 = np.where(deviation > 1e-9, centred / self.deviation, 0.0)
        faster, slower, weights = [], [], []
        share = table.kernel_weights / table.kernel_weights.sum()
        for first, count, weight in zip(starts.tolist(), table.counts.tolist(), share.tolist(), strict=True):
            runtime_ns = table.runtime_ns[first : first + count]
            i, j = np.nonzero(runtime_ns[:, None] < runtime_ns)
            faster.append(first + i)
            slower.append(first + j)
            weights.append(np.full(len(i), weight / max(len(i), 1)))
        self._faster, self._slower = np.concatenate(faster), np.concatenate(slower)
        self._weights = np.concatenate(weights)

    def loss(self, weights: F64, ridge: float) -> tuple[float, F64]:
        """Returns the loss and its gradient, float64 [F]."""
        scores = self.features @ weights
        margin = scores[self._faster] - scores[self._slower]
        value = float(self._weights @ np.logaddexp(0.0, margin)) + ridge * float(weights @ weights)
        # The derivative of log(1 + exp(m)), 1 / (1 + exp(-m)), without overflow.
        slope = self._weights * np.exp(margin - np.logaddexp(0.0, margin))
        size = len(scores)
        by_score = np.bincount(self._faster, slope, size) - np.bincount(self._slower, slope, size)
        gradient: F64 = self.features.T @ by_score + 2.0 * ridge * weights
        return value, gradient
