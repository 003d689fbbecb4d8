"""Budgets of a search, and what searches over whole programs are charged.

A budget limits charged seconds, evaluations, both or neither. It is immutable; charging it returns a new one
with less left, so one budget can be passed from kernel to kernel of a program. Seconds are added in the order
of spending, so a trace that adds up its own seconds gets the same floating-point digits.

Charged seconds do not depend on the computer that searches run on. Hardware seconds are those of the
simulated machine plus the compile time of the real compiler. TpuGraphs (table 10) gives 44 to 135 s for six
programs of similar size. The two of them that are in the corpus, ResNet-50 and Inception v3 in training, took
13 ms per instruction of ours, so the charge can be per instruction instead of the same for every program. For
comparison: lpm2021 (section 4) tried 50,000 configs of a program in at most 4 hours on 50 machines, 14.4 s
each. Model seconds are evaluations times a rate, measured once with `benchmarks/fusion_scoring.py` on one
core: 0.6, 0.8 and 2.2 ms a config for programs of 495, 1,663 and 6,866 instructions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from costbench.arrays import F64


@dataclass(frozen=True)
class MeasurementBudget:
    """Limits, and the amounts spent so far.

    Attributes:
        seconds: limit on the time charged; None for no limit.
        evaluations: limit on the number of decisions scored; None for no limit.
        spent_seconds: time charged so far.
        spent_evaluations: decisions scored so far.

    Raises:
        ValueError: for a number that is negative or not finite, or if more is spent than the limits allow.
    """

    seconds: float | None = None
    evaluations: int | None = None
    spent_seconds: float = 0.0
    spent_evaluations: int = 0

    def __post_init__(self) -> None:
        for name in ("seconds", "evaluations", "spent_seconds", "spent_evaluations"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}, expected a finite number of at least 0")
        if self.spent_seconds > self._seconds_limit or self.spent_evaluations > self._evaluations_limit:
            raise ValueError(
                f"{self.spent_seconds} s and {self.spent_evaluations} evaluations spent, expected at most "
                f"{self._seconds_limit} s and {self._evaluations_limit} evaluations"
            )

    def evaluations_left(self, wanted: int) -> int:
        """Returns how many of `wanted` evaluations the limits allow to start, whatever time they take."""
        if self.spent_seconds >= self._seconds_limit:
            return 0
        return int(min(wanted, self._evaluations_limit - self.spent_evaluations))

    def pays_for(self, number: int, seconds: float) -> bool:
        """Says whether the time limit is enough for evaluations of `seconds` each, however many."""
        return number <= self._seconds_limit / seconds

    def affordable(self, seconds: F64) -> int:
        """Returns how many of the first evaluations, which take `seconds` [n], fit into what is left."""
        within = self._running_seconds(seconds) <= self._seconds_limit
        fitting = len(within) if within.all() else int(np.argmin(within))
        return int(min(fitting, self._evaluations_limit - self.spent_evaluations))

    def charge(self, seconds: F64) -> MeasurementBudget:
        """Returns the budget after evaluations that took `seconds` [n].

        Raises:
            ValueError: if they do not fit.
        """
        if not len(seconds):
            return self
        total = float(self._running_seconds(seconds)[-1])
        return MeasurementBudget(self.seconds, self.evaluations, total, self.spent_evaluations + len(seconds))

    @property
    def _seconds_limit(self) -> float:
        return math.inf if self.seconds is None else self.seconds

    @property
    def _evaluations_limit(self) -> float:
        return math.inf if self.evaluations is None else self.evaluations

    def _running_seconds(self, seconds: F64) -> F64:
        # cumsum adds sequentially; sum adds pairwise and may differ in the last digit.
        result: F64 = np.cumsum(np.concatenate([[self.spent_seconds], seconds]))[1:]
        return result


TABLE_10_COMPILE_S: Mapping[str, float] = {
    "bert_pretraining.4x4.fp16": 45.0,
    "inception_v3_batch_128_train": 135.0,
    "mlperf_bert_batch_24_2x2": 104.0,
    "resnet50.4x4.fp16": 126.0,
    "resnet_v1_50_official_batch_128_bf16": 99.0,
    "tf2_bert_pretrain_dynamic_batch_size": 44.0,
}
"""Seconds that compiling takes (tpugraphs2023, table 10; the row of the seventh program is missing)."""
COMPILE_S = statistics.median(TABLE_10_COMPILE_S.values())
COMPILE_S_PER_INSTRUCTION = 0.013
"""Seconds for each of our instructions, from the two programs of that table that are in the corpus."""
LPM2021_CONFIG_S = 4 * 3600 * 50 / 50_000


@dataclass(frozen=True)
class ProgramCharge:
    """Seconds charged for measuring a program, besides those of running it.

    Attributes:
        compile_s: compiling it.
        repeat_s: detecting that a config gives a program that was measured before.

    Raises:
        ValueError: for a time that is negative or no number, or a `repeat_s` of 0, with which a search could
            never end.
    """

    compile_s: float
    repeat_s: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.compile_s < math.inf:
            raise ValueError(f"compile_s is {self.compile_s}, expected seconds, at least 0")
        if not 0.0 < self.repeat_s < math.inf:
            raise ValueError(f"repeat_s is {self.repeat_s}, expected seconds, above 0")


@dataclass(frozen=True)
class Charging:
    """Seconds charged for a program of any size.

    Attributes:
        compile_s: seconds for compiling a program, whatever its size.
        compile_s_per_instruction: seconds on top for each instruction of the program.
        repeat_s: seconds for a config that gives a program measured before.
        evaluation_s: seconds for a prediction, whatever the size of the program.
        evaluation_s_per_instruction: seconds on top for each instruction of the program.

    Raises:
        ValueError: for a number that is negative or not finite, or if predictions take no time at all.
    """

    compile_s: float = COMPILE_S
    compile_s_per_instruction: float = 0.0
    repeat_s: float = 1.0
    evaluation_s: float = 5e-4
    evaluation_s_per_instruction: float = 2.5e-7

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0.0 <= value < math.inf:
                raise ValueError(f"{field.name} is {value}, expected seconds, at least 0")
        if self.repeat_s == 0.0 or self.evaluation_s == 0.0:
            raise ValueError("repeat_s, evaluation_s: above 0, a search would never end")

    def measuring(self, num_instructions: int) -> ProgramCharge:
        """Returns the charge for measuring a program."""
        compile_s = self.compile_s + self.compile_s_per_instruction * num_instructions
        return ProgramCharge(compile_s, self.repeat_s)

    def predicting_s(self, num_instructions: int) -> float:
        """Returns the seconds charged for one prediction of a program."""
        return self.evaluation_s + self.evaluation_s_per_instruction * num_instructions


def minutes(number: float) -> MeasurementBudget:
    """Returns a budget of `number` minutes of hardware time."""
    return MeasurementBudget(seconds=60.0 * number)
