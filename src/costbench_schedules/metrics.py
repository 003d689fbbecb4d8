"""Measures of cost models of schedules (rank correlation, wall times), and facts of tuning tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64, I64
from costbench.metrics.ranking import kendall_tau


def tau_within_groups(costs: F64, runtimes: F64, groups: I64) -> float:
    """Returns the mean over groups of Kendall's tau-b between predicted costs and runtimes.

    A group in which one of both is constant counts as 0: a constant prediction ranks nothing.

    Args:
        costs: predicted costs, [n].
        runtimes: measured runtimes, [n].
        groups: number of each sample's group, [n]; at least one sample.
    """
    masks = (groups == group for group in np.unique(groups))
    return float(np.mean([np.nan_to_num(kendall_tau(costs[mask], runtimes[mask])) for mask in masks]))


@dataclass(frozen=True)
class ModelTime:
    """Wall times of a model on this machine, in seconds.

    Attributes:
        target: target of the recorded table.
        workload: name of the workload.
        application: kind of its operator.
        arm: name of the arm that the model guides.
        fit_s: time of fitting it to `fitted` schedules.
        predict_s: time of predicting `predicted` schedules.
        fitted: number of schedules that it is fitted to.
        predicted: number of schedules that it predicts.
    """

    target: str
    workload: str
    application: str
    arm: str
    fit_s: float
    predict_s: float
    fitted: int
    predicted: int


@dataclass(frozen=True)
class GpuFacts:
    """What is known of a tuning table, as reports read it.

    Attributes:
        kernel: name of the kernel.
        device: name of the device.
        configs: number of configurations.
        failed: number of those that failed.
        best_ns: least second measurement.
        random_trials_to_95: expected random draws until 95% of the best speed.
        auc_until: trials after which the area under the curve ends.
        development: whether strategies were made on it.
    """

    kernel: str
    device: str
    configs: int
    failed: int
    best_ns: float
    random_trials_to_95: float
    auc_until: int
    development: bool


@dataclass(frozen=True)
class TrialsRatio:
    """Trials of a search over those of another, below 1 where fewer are needed.

    Attributes:
        value: ratio.
        low: lower end of the 95% interval over repeats.
        high: upper end of that interval.
    """

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """Returns the ratio with its interval as tables have it."""
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"
