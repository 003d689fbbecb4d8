"""Validation metrics of a network, gathered kernel by kernel."""

from __future__ import annotations

import math

import numpy as np

from costbench.arrays import F64
from costbench.metrics.measures import mean_without_nan
from costbench.metrics.ranking import PairCounts, count_pairs, tau_of
from costbench.metrics.selection import tile_size_ape
from costbench.models.spec import Predicts

VALIDATION_TAU = "validation/tau"
VALIDATION_APE = "validation/ape"
VALIDATION_SLOWDOWN = "validation/slowdown"
VALIDATION_OPA = "validation/opa"
VALIDATION_MAPE = "validation/mape"
# Twenty orders of magnitude too much is as wrong as any more, and its exponential is finite.
_LARGEST_LOG_RATIO = 46.0


class ValidationScores:
    """Scores of one epoch's validation kernels.

    Args:
        predicts: what the network's output means.
    """

    def __init__(self, predicts: Predicts) -> None:
        self._predicts = predicts
        self._pairs: list[PairCounts] = []
        self._chosen_ns: list[float] = []
        self._best_ns: list[float] = []
        self._log_ratios: list[F64] = []

    def add(self, costs: F64, runtime_ns: F64) -> None:
        """Adds one kernel: costs and measured runtimes of its decisions, float64 [n] each."""
        if len(costs) > 1:
            self._pairs.append(count_pairs(costs, runtime_ns))
            self._chosen_ns.append(float(runtime_ns[np.argmin(costs)]))
            self._best_ns.append(float(runtime_ns.min()))
        if self._predicts == "log_runtime_ns":
            self._log_ratios.append(costs - np.log(runtime_ns))

    def metrics(self) -> dict[str, float]:
        """Returns the scores over all kernels.

        - `validation/tau`: Kendall's tau within a kernel, averaged over kernels that have two or more
          decisions (0 where no kernel ranks anything);
        - `validation/opa`: share of their pairs with different runtimes that are in the right order, all
          kernels
          together (0 likewise), by which tpugraphs2023 chooses models (section 4.3);
        - `validation/ape`: Tile-Size APE over the same kernels, in percent;
        - `validation/slowdown`: the mean over them of runtime of the decision predicted fastest / that of the
          fastest - 1, a fraction (tpugraphs2023, equation 1, with k = 1): every kernel counts alike, so no
          long one dominates;
        - `validation/mape`: where log runtimes are predicted, the mean over all decisions of
          100 |predicted - measured| / measured.
        """
        values: dict[str, float] = {}
        if self._pairs:
            tau = mean_without_nan([tau_of(pairs) for pairs in self._pairs])
            values[VALIDATION_TAU] = 0.0 if math.isnan(tau) else tau
            ordered = sum(pairs.total - pairs.tied_measured for pairs in self._pairs)
            values[VALIDATION_OPA] = sum(pairs.concordant for pairs in self._pairs) / max(ordered, 1)
            values[VALIDATION_APE] = tile_size_ape(self._chosen_ns, self._best_ns)
            slowdowns = np.array(self._chosen_ns) / np.array(self._best_ns) - 1.0
            values[VALIDATION_SLOWDOWN] = float(slowdowns.mean())
        if self._log_ratios:
            ratios = np.minimum(np.concatenate(self._log_ratios), _LARGEST_LOG_RATIO)
            values[VALIDATION_MAPE] = float(100.0 * np.mean(np.abs(np.expm1(ratios))))
        return values
