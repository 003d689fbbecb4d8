"""Schedules as a search problem: the evaluator that measures, and spaces of a list of configurations.

All strategies run on them, on this machine and on recorded tables alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from costbench.arrays import I64
from costbench.artifacts import digest_bytes
from costbench.autotuning.evaluators import Evaluation, Measured, Source
from costbench.autotuning.search import TuningProblem
from costbench.autotuning.trace import Subject
from costbench.search.space import Rows, Seen
from costbench_schedules.spaces.space import ScheduleSpace


def schedule_problem(space: ScheduleSpace, machine: str) -> TuningProblem[I64]:
    """Returns the search for the fastest schedule of a space.

    Args:
        space: space that the configurations are of.
        machine: name of what they are measured on, for the trace.
    """
    chosen = ";".join(",".join(map(str, ids.tolist())) for ids in space.chosen)
    fingerprint = digest_bytes(f"{space.operator.text};{chosen}".encode())[:32]
    subject = Subject("schedule", machine, space.operator.text, fingerprint, space.size)
    return TuningProblem(subject, space)


class MeasuringSchedules(Protocol):
    """A processor, or a table of what was measured on one."""

    def measure(self, space: ScheduleSpace, rows: Rows, /) -> Measured:
        """Builds and runs configurations [n, m] of a space."""
        ...


@dataclass(frozen=True)
class ScheduleEvaluator:
    """An `Evaluator` of configurations, int64 [n, m]; scores are runtimes in ns.

    Attributes:
        space: space that the configurations are of.
        device: device that measures them.
        name: name of the device.
    """

    space: ScheduleSpace
    device: MeasuringSchedules
    name: str

    source: ClassVar[Source] = "device"

    def evaluate(self, decisions: I64) -> Evaluation:
        """Returns runtimes, infinite for failures, and the processor time of builds and runs."""
        measured = self.device.measure(self.space, decisions)
        scores = np.where(measured.failed, np.inf, measured.runtime_ns.astype(np.float64))
        return Evaluation(scores, measured.run_seconds)

    def recall(self, decisions: I64) -> None:
        """Does nothing: every measurement is charged what it took."""


class EnumeratedSpace(ScheduleSpace):
    """Some configurations of a schedule space, numbered as there. It draws from them; other moves leave them.

    Args:
        space: space that the configurations are of.
        listed: configurations that are legal, [k, m], distinct.

    Attributes:
        listed: configurations that are legal.
    """

    def __init__(self, space: ScheduleSpace, listed: I64) -> None:
        choices = zip(space.knobs, space.chosen, strict=True)
        super().__init__(space.operator, {knob.name: ids.tolist() for knob, ids in choices})
        self.listed = listed

    def draw(self, rng: np.random.Generator, count: int, seen: Seen) -> I64:
        """Returns up to `count` configurations of the list that are not in `seen`, in random order."""
        return rng.permutation(self.listed[seen.fresh(self.listed)])[:count]
