"""Seconds charged to searches over whole programs, independent of the computer that they run on.

Hardware seconds are those of the simulated machine plus the compile time of the real compiler. TpuGraphs
(table 10) gives 44 to 135 s for six programs of similar size. The two of them that are in the corpus,
ResNet-50 and Inception v3 in training, took 13 ms per instruction of ours, so the charge can be per
instruction instead of the same for every program. For comparison: lpm2021 (section 4) tried 50,000 configs of
a program in at most 4 hours on 50 machines, 14.4 s each.

Model seconds are evaluations times a rate, measured once with `benchmarks/fusion_scoring.py` on one core:
0.6, 0.8 and 2.2 ms a config for programs of 495, 1,663 and 6,866 instructions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, fields

from costbench.autotuning.budget import MeasurementBudget

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
        """Return the charge for measuring a program."""
        compile_s = self.compile_s + self.compile_s_per_instruction * num_instructions
        return ProgramCharge(compile_s, self.repeat_s)

    def predicting_s(self, num_instructions: int) -> float:
        """Return the seconds charged for one prediction of a program."""
        return self.evaluation_s + self.evaluation_s_per_instruction * num_instructions


def minutes(number: float) -> MeasurementBudget:
    """Return a budget of `number` minutes of hardware time."""
    return MeasurementBudget(seconds=60.0 * number)
