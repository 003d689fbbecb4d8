"""Scores schedules of an operator by measuring them, so that searches, budgets and traces work on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.autotuning.evaluators import Evaluation, Source
from costbench.compiler.schedule.space import ScheduleSpace
from costbench.hardware.cpu.device import Rows, ScheduleDevice


@dataclass(frozen=True)
class ScheduleEvaluator:
    """Measures schedules on a processor or replays them; an `Evaluator` of rows.

    Attributes:
        space: what rows are configurations of.
        device: measures them.
        name: of the device.
    """

    space: ScheduleSpace
    device: ScheduleDevice
    name: str

    @property
    def source(self) -> Source:
        """Measured."""
        return "device"

    def evaluate(self, decisions: Rows) -> Evaluation:
        """Returns measured nanoseconds, infinite for failures, and the seconds charged for each."""
        measured = self.device.measure(self.space, decisions)
        scores = np.where(measured.failed, np.inf, measured.runtime_ns.astype(np.float64))
        return Evaluation(scores, measured.run_seconds)

    def recall(self, decisions: Rows) -> None:
        """Does nothing: every schedule is built and run."""
