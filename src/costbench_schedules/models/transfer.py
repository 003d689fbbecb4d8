"""Transfer from earlier workloads: a global model plus a local one (autotvm2018, equation 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from costbench.arrays import F64
from costbench_schedules.models.learner import ScheduleModel

Features = TypeVar("Features")


@dataclass(frozen=True, eq=False)
class Corrected(Generic[Features]):
    """f(x) = f_global(x) + f_local(x), a `ScheduleModel`.

    Attributes:
        earlier: f_global, fitted to other workloads or another machine on features that mean the same there.
        local: f_local, fitted with `Samples.start` = f_global, so that it learns what that one leaves over.
    """

    earlier: ScheduleModel[Features]
    local: ScheduleModel[Features]

    def predict(self, features: Features, /) -> F64:
        """Returns the sum of both predictions, float64 [n]."""
        return self.earlier.predict(features) + self.local.predict(features)
