"""Reads what the stage `autotune` leaves behind about schedules.

Rows have the type of all result rows: `task` is `schedule`, `split` is `recorded`, `chip` the target that
code was built for, `program` the workload, `application` its operator, `model` the arm, `seed` the repeat.
`kernels` is `all`; every row exists a second time with the operator's name (`conv2d:all`), for claims about
one operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.metrics.rows import MetricRow, read_rows
from costbench.reports.dataset_files import parse_data
from costbench_schedules.metrics.model_times import ModelTime

SCHEDULE, SPLIT = "schedule", "recorded"
ROWS_FILE, CURVES_FILE, TABLES_FILE = "rows.jsonl", "curves.json", "tables.json"
TIMES_FILE = "wall_times.json"
BEST = "best"
"""In place of an arm: what was recorded, whatever searches for it."""


@dataclass(frozen=True)
class Curve:
    """Progress of the searches of one arm: GFLOPS of the best schedule so far, over the repeats.

    Attributes:
        target: that was built for.
        workload: by name.
        arm: way of searching.
        repeats: number of searches.
        trials: after which the values are taken, ascending.
        median: over repeats.
        low: lower quartile.
        high: upper quartile.
    """

    target: str
    workload: str
    arm: str
    repeats: int
    trials: tuple[int, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.trials or {len(self.median), len(self.low), len(self.high)} != {len(self.trials)}:
            raise ValueError("trials, median, low and high: equally many, at least one")


@dataclass(frozen=True)
class RecordedFacts:
    """What is known of a recorded table.

    Attributes:
        target: that was built for.
        workload: by name.
        operator: description with all extents.
        processor: that was measured on.
        configs: number of configurations.
        failed: those that failed.
        best_gflops: of the fastest.
        fast_share: share of the configurations that have at least 95% of its speed.
        median_gflops: of those that ran.
        tau: rank correlation of repeated with first measurements; None where nothing was repeated.
        spread: 90th percentile of the ratio of two measurements of one configuration.
        trusted: whether tau is high enough for an order of schedules to be the machine's, not the noise's.
    """

    target: str
    workload: str
    operator: str
    processor: str
    configs: int
    failed: int
    best_gflops: float
    fast_share: float
    median_gflops: float
    tau: float | None
    spread: float
    trusted: bool


@dataclass(frozen=True)
class ScheduleResults:
    """All results on schedules; empty where the stage was not run for them.

    Attributes:
        rows: see the module's description.
        curves: of searches.
        tables: what was recorded.
        times: of models, which differ from machine to machine.
        data: folder of the recorded tables and of what was measured beside them; None without one.
    """

    rows: tuple[MetricRow, ...] = ()
    curves: tuple[Curve, ...] = ()
    tables: tuple[RecordedFacts, ...] = ()
    times: tuple[ModelTime, ...] = ()
    data: Path | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """Returns the targets that were searched on; the processor's own before others."""
        return tuple(sorted({one.target for one in self.curves}, key=lambda name: (name != "native", name)))

    def workloads(self, target: str) -> tuple[str, ...]:
        """Returns the workloads that were searched on a target, C1 to C12 before others."""
        return tuple(sorted({one.workload for one in self.curves if one.target == target}, key=in_order))

    @property
    def processors(self) -> tuple[str, ...]:
        """Returns the names of the processors that were measured on, sorted."""
        return tuple(sorted({one.processor for one in self.tables}))

    @cached_property
    def _curves(self) -> Mapping[tuple[str, str, str], Curve]:
        return {(one.target, one.workload, one.arm): one for one in self.curves}

    def curve(self, target: str, workload: str, arm: str) -> Curve | None:
        """Returns the curve of an arm; None where it was not run."""
        return self._curves.get((target, workload, arm))

    @cached_property
    def _values(self) -> Mapping[tuple[str, str, str, str], tuple[float, ...]]:
        found: dict[tuple[str, str, str, str], list[float]] = {}
        for row in self.rows:
            if row.kernels == "all" and row.split == SPLIT:
                found.setdefault((row.chip, row.program, row.model, row.metric), []).append(row.value)
        return {key: tuple(values) for key, values in found.items()}

    def repeats(self, target: str, workload: str, arm: str, metric: str) -> tuple[float, ...]:
        """Returns a metric of each repeat; nothing where the arm was not run."""
        return self._values.get((target, workload, arm, metric), ())

    def median(self, target: str, workload: str, arm: str, metric: str) -> float | None:
        """Returns the median over repeats of a metric, or None where the arm was not run."""
        found = self.repeats(target, workload, arm, metric)
        return float(np.median(found)) if found else None


def in_order(workload: str) -> tuple[str, int, str]:
    """Returns a sort key of workloads: C2 before C10 before matmul-256."""
    head = workload.rstrip("0123456789")
    number = workload[len(head) :]
    return head, int(number) if number else 0, workload


def load_schedules(folder: Path, data: Path | None = None) -> ScheduleResults:
    """Returns the results in the folder `schedule` of the stage `autotune`; empty ones without rows.

    Raises:
        DataError: naming the file, if one is missing or malformed.
    """
    if not (folder / ROWS_FILE).is_file():
        return ScheduleResults()
    return ScheduleResults(
        rows=read_rows(folder / ROWS_FILE),
        curves=_listed(Curve, folder / CURVES_FILE),
        tables=_listed(RecordedFacts, folder / TABLES_FILE),
        times=_listed(ModelTime, folder / TIMES_FILE) if (folder / TIMES_FILE).exists() else (),
        data=data,
    )


_Entry = TypeVar("_Entry", Curve, RecordedFacts, ModelTime)


def _listed(cls: type[_Entry], path: Path) -> tuple[_Entry, ...]:
    content = read_json(path)
    if not isinstance(content, list):
        raise DataError("no list", where=path, expected="a list of objects")
    return tuple(parse_data(cls, one, path, f"[{number}]") for number, one in enumerate(content))
