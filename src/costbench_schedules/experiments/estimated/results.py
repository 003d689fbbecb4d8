"""Turns searches of programs with estimates into result rows and curves, as reports read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64
from costbench.metrics.rows import MAIN, MetricRow, RowOrigin
from costbench_schedules.experiments.estimated.programs import TablePrograms
from costbench_schedules.experiments.tables.tables import TableFile

SCHEDULE, SPLIT, BEST = "schedule", "estimated", "best"
ENOUGH = (90, 95, 99)
"""Percent of the fastest program's speed that rows count trials to."""
_POINTS = 60
"""Of a curve, at most: evenly spaced on a logarithmic axis."""


@dataclass(frozen=True, eq=False)
class Found:
    """All repeats of an arm on a table.

    Attributes:
        table: that was searched.
        arm: by name.
        shares: speed of the best program so far in percent of the fastest that has an estimate, after each
            trial, float64 [repeats, trials].
    """

    table: TableFile
    arm: str
    shares: F64


def shares_of(programs: TablePrograms, decisions: Sequence[int], trials: int) -> F64:
    """Returns one line of `Found.shares`; a search that ran out of programs keeps its best."""
    runtime = programs.table.columns["runtime_ns"][np.asarray(decisions, dtype=np.int64)]
    best = np.minimum.accumulate(runtime.astype(np.float64))[:trials]
    best = np.pad(best, (0, trials - len(best)), mode="edge")
    return np.asarray(100.0 * programs.runtime_ns.min() / best)


def trials_to(shares: F64, percent: float) -> F64:
    """Returns the trials until a share is reached, one more than all where it never is, [repeats]."""
    reached = shares >= percent
    first = np.where(reached.any(axis=1), np.argmax(reached, axis=1), shares.shape[1])
    return np.asarray(first + 1, dtype=np.float64)


def rows_of(
    found: Iterable[Found], programs: dict[TableFile, TablePrograms], origin: tuple[str, str, str]
) -> Iterator[MetricRow]:
    """Yields rows of the split `estimated`, of each repeat: `trials_to_90`, `_95`, `_99` and `share_end`.

    The program is a workload, the model an arm, the seed a repeat. Model `best` has `programs`, how many of
    the table have estimates, `configs`, how many it has, and `enough_95`, how many reach that share.

    Args:
        found: searches of each table and arm.
        programs: of each table.
        origin: digests of parameters and data, revision of the code.
    """
    by_table: dict[TableFile, list[Found]] = {}
    for one in found:
        by_table.setdefault(one.table, []).append(one)
    for table, several in by_table.items():
        speeds = programs[table].runtime_ns.min() / programs[table].runtime_ns
        entries: dict[tuple[str, str, int], dict[str, float]] = {
            (BEST, MAIN, 0): {
                "programs": float(len(speeds)),
                "configs": float(len(programs[table].table)),
                "enough_95": float(np.count_nonzero(speeds >= 0.95)),
            }
        }
        for one in several:
            reached = {percent: trials_to(one.shares, percent) for percent in ENOUGH}
            for repeat, line in enumerate(one.shares):
                entries[one.arm, MAIN, repeat] = {
                    f"trials_to_{percent}": float(counts[repeat]) for percent, counts in reached.items()
                } | {"share_end": float(line[-1])}
        place = RowOrigin(SCHEDULE, SPLIT, table.target, table.operator, table.workload, *origin)
        yield from place.rows("all", entries)


def curve_of(one: Found) -> dict[str, object]:
    """Returns median and quartiles over repeats after some of the trials, as reports read them."""
    trials = np.unique(np.round(np.geomspace(1, one.shares.shape[1], _POINTS)).astype(np.int64))
    low, median, high = np.quantile(one.shares[:, trials - 1], (0.25, 0.5, 0.75), axis=0).tolist()
    names = {"target": one.table.target, "workload": one.table.workload, "arm": one.arm}
    numbers = {"trials": trials.tolist(), "median": median, "low": low, "high": high}
    return {**names, "repeats": len(one.shares), **numbers}
