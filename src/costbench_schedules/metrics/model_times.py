"""Wall times of cost models of schedules: facts of the machine at hand, no results (decision 0034)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelTime:
    """Wall times of a model on this machine, in seconds.

    Attributes:
        target: of the recorded table.
        workload: by name.
        application: its operator.
        arm: whose model.
        fit_s: of fitting it to `fitted` schedules.
        predict_s: of predicting `predicted` schedules.
        fitted: number of schedules.
        predicted: number of schedules.
    """

    target: str
    workload: str
    application: str
    arm: str
    fit_s: float
    predict_s: float
    fitted: int
    predicted: int
