"""Turns searches into result rows, curves and facts of the tables, as reports read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64
from costbench.metrics.rows import MAIN, MetricRow, RowOrigin
from costbench_schedules.experiments.tables.arms import ARMS, SCRATCH
from costbench_schedules.experiments.tables.tables import TableFile, runtimes, table_of
from costbench_schedules.records.agreement import (
    TRUSTED_TAU,
    agreement,
    agreement_afterwards,
    confirmed_gflops,
)
from costbench_schedules.records.table import WHILE_RECORDING
from costbench_schedules.search.trials import best_by_trial

SCHEDULE, SPLIT, BEST = "schedule", "recorded", "best"
AFTER = (25, 50, 100, 200, 400, 800)
"""Trials after which rows say what was found."""
ENOUGH = 0.95
"""Share of the fastest recorded speed from which on a schedule counts as fast. Chosen, not derived: 90% was
taken first and left after a look at table C6, where random search finds so much at once
(docs/schedule_models.md)."""
_POINTS = 60
"""Of a curve, at most: evenly spaced on a logarithmic axis."""


@dataclass(frozen=True)
class Searched:
    """All repeats of an arm on a table.

    Attributes:
        table: that was searched.
        arm: by name.
        trials: of each repeat.
        gflops: best so far after each trial, float64 [repeats, trials].
    """

    table: TableFile
    arm: str
    trials: int
    gflops: F64

    @property
    def key(self) -> tuple[str, str, str]:
        """Returns target, workload and arm."""
        return self.table.target, self.table.workload, self.arm

    @property
    def to_enough(self) -> F64:
        """Returns the trials until `ENOUGH` of the fastest speed, one more than all if never, [repeats]."""
        reached = self.gflops >= ENOUGH * table_of(self.table).gflops.max()
        first = np.where(reached.any(axis=1), np.argmax(reached, axis=1), self.trials)
        return np.asarray(first + 1, dtype=np.float64)


def progress(table: TableFile, arm: str, decisions: Sequence[int], trials: int) -> F64:
    """Returns the best GFLOPS after each trial of a search, float64 [trials]; 0 while all have failed.

    A search that ran out of configurations keeps its best.
    """
    scores = runtimes(table)[np.asarray(decisions, dtype=np.int64)]
    best = best_by_trial(scores, ARMS[arm].measurements)[:trials]
    best = np.pad(best, (0, trials - len(best)), mode="edge")
    return np.asarray(table_of(table).space.operator.flops / best, dtype=np.float64)


def rows_of(found: Sequence[Searched], digests: tuple[str, str], revision: str) -> Iterator[MetricRow]:
    """Yields the rows of all searches: metrics of each repeat, over `all` and again by operator.

    - `gflops_N`: speed of the best schedule after N trials;
    - `trials_to_95`: see `Searched.to_enough`;
    - `speedup_transfer`: of an arm with an earlier model, the trials of the same search without one divided
      by its own, both to 95%;
    - of what was recorded, under the name `best`: `gflops_best`, `configs`, `failed`, and `gflops_confirmed`
      where it is known, see `agreement.confirmed_gflops`.

    Args:
        found: the searches.
        digests: of parameters and tables.
        revision: of the code.
    """
    scratch = {one.key: one.to_enough for one in found}
    by_table: dict[TableFile, dict[tuple[str, str, int], Mapping[str, float]]] = {}
    for one in found:
        own = by_table.setdefault(one.table, {(BEST, MAIN, 0): _recorded(one.table)})
        before = scratch.get((one.table.target, one.table.workload, SCRATCH.get(one.arm, "")))
        for repeat, metrics in enumerate(_metrics(one)):
            if before is not None:
                metrics["speedup_transfer"] = float(before[repeat] / one.to_enough[repeat])
            own[one.arm, MAIN, repeat] = metrics
    for table, entries in by_table.items():
        origin = RowOrigin(
            SCHEDULE, SPLIT, table.target, table.operator, table.workload, digests[0], digests[1], revision
        )
        for kernels in ("all", f"{table.operator}:all"):
            yield from origin.rows(kernels, entries)


def _metrics(one: Searched) -> list[dict[str, float]]:
    reached = one.to_enough
    return [
        {f"gflops_{n}": float(line[n - 1]) for n in AFTER if n <= one.trials}
        | {"trials_to_95": float(reached[repeat])}
        for repeat, line in enumerate(one.gflops)
    ]


def _recorded(file: TableFile) -> dict[str, float]:
    table = table_of(file)
    confirmed = confirmed_gflops(table)
    return {
        "gflops_best": float(table.gflops.max()),
        "configs": float(len(table)),
        "failed": float(np.count_nonzero(table.failed)),
    } | ({} if confirmed is None else {"gflops_confirmed": confirmed})


def curve_of(one: Searched) -> dict[str, object]:
    """Returns median and quartiles over repeats after some of the trials, as `reports` reads them."""
    trials = np.unique(np.round(np.geomspace(1, one.trials, _POINTS)).astype(np.int64))
    low, median, high = np.quantile(one.gflops[:, trials - 1], (0.25, 0.5, 0.75), axis=0).tolist()
    names = dict(zip(("target", "workload", "arm"), one.key, strict=True))
    numbers = {"trials": trials.tolist(), "median": median, "low": low, "high": high}
    return {**names, "repeats": len(one.gflops), **numbers}


def facts_of(file: TableFile) -> dict[str, object]:
    """Returns what is known of a table, as `reports` reads it."""
    table = table_of(file)
    ran = ~table.failed
    after, _ = agreement_afterwards(table)
    again = after if after.pairs else agreement(table, WHILE_RECORDING)
    return {
        "target": table.target,
        "workload": table.workload,
        "operator": table.space.operator.text,
        "processor": str(table.host.get("processor", "unknown")),
        "configs": len(table),
        "failed": int(np.count_nonzero(table.failed)),
        "best_gflops": float(table.gflops.max()),
        "fast_share": float(np.mean(table.gflops >= ENOUGH * table.gflops.max())),
        "median_gflops": float(np.median(table.gflops[ran])) if ran.any() else 0.0,
        "tau": again.tau,
        "spread": again.p90_ratio,
        "trusted": again.tau is not None and again.tau >= TRUSTED_TAU,
    }
