"""Features of schedules together with the machine that their runtimes are of."""

from __future__ import annotations

from dataclasses import dataclass

from costbench.arrays import F32, I64


@dataclass(frozen=True, eq=False)
class HeadedFeatures:
    """Features of n samples.

    Attributes:
        values: float32 [n, F] of rows, [n, T, F] of sequences.
        machines: int64 [n], number of the machine that each sample was or will be measured on.
    """

    values: F32
    machines: I64

    def __len__(self) -> int:
        return len(self.machines)

    def __getitem__(self, places: I64, /) -> HeadedFeatures:
        return HeadedFeatures(self.values[places], self.machines[places])
