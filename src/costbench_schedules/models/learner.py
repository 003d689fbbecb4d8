"""Interfaces of cost models of schedules: what fits them, and what is fitted.

Features are an array [n, F] for trees and a batch of loop trees for networks: anything with a length whose
samples can be selected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, Self, TypeVar

import numpy as np

from costbench.arrays import F64, I64

Features_contra = TypeVar("Features_contra", contravariant=True)
Objective = Literal["rank", "regression"]
"""What a model is fitted to: equation 2 of autotvm2018, or the squared error of `Samples.speed`."""


class Selectable(Protocol):
    """Features of several samples."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: I64, /) -> Self:
        """Returns the features of these samples, which may repeat."""
        ...


@dataclass(frozen=True, eq=False)
class Samples:
    """Measured runtimes of n schedules; `samples_of` makes them.

    Attributes:
        runtime_ns: runtimes, infinite for a schedule that failed, float64 [n].
        speed: (lowest runtime of the group) / runtime, float64 [n]: 1 for the fastest, 0 for failures.
            AutoTVM's own tuner regresses on this: an error of a fast schedule weighs more than the same
            relative error of a slow one, and workloads of any size share one scale.
        groups: number of the workload and machine that each belongs to, int64 [n]. Runtimes are compared
            within a group only.
        start: costs by an earlier model, to which the fitted one is added, float64 [n]; 0 without one.
    """

    runtime_ns: F64
    speed: F64
    groups: I64
    start: F64

    def __len__(self) -> int:
        return len(self.runtime_ns)

    def select(self, indices: I64) -> Samples:
        """Returns some samples, which may repeat; speeds stay relative to the fastest of all."""
        return Samples(
            self.runtime_ns[indices], self.speed[indices], self.groups[indices], self.start[indices]
        )


def samples_of(runtime_ns: F64, groups: I64 | None = None, start: F64 | None = None) -> Samples:
    """Returns samples; by default all of one group, without an earlier model.

    Raises:
        ValueError: for no runtimes, runtimes that are no times, or arrays of different lengths.
    """
    count = len(runtime_ns)
    groups = np.zeros(count, dtype=np.int64) if groups is None else groups
    start = np.zeros(count) if start is None else start
    if not count or len(groups) != count or len(start) != count:
        raise ValueError(f"{count} runtimes, {len(groups)} groups, {len(start)} starting costs")
    if not (runtime_ns > 0.0).all():
        raise ValueError("runtime_ns: expected numbers above 0, infinite for failures")
    speed = np.zeros(count)
    for group in np.unique(groups):
        members = groups == group
        best_ns = runtime_ns[members].min()
        if np.isfinite(best_ns):
            speed[members] = best_ns / runtime_ns[members]
    return Samples(runtime_ns.astype(np.float64), speed, groups, start)


class ScheduleModel(Protocol[Features_contra]):
    """Predicts costs of schedules."""

    def predict(self, features: Features_contra, /) -> F64:
        """Returns the cost of each schedule, finite float64 [n]; lower is faster.

        By the regression objective a cost is minus the predicted `Samples.speed`; by the rank objective only
        the order of costs has a meaning. Up to rounding a cost does not depend on the other schedules.
        """
        ...


class Learner(Protocol[Features_contra]):
    """Fits models of one kind."""

    def fit(
        self, features: Features_contra, samples: Samples, seed: int, /
    ) -> ScheduleModel[Features_contra]:
        """Returns a model of some measurements; equal arguments give an equal model.

        Where `samples.start` is given, start + prediction is fitted, and the model predicts the second term.
        """
        ...
