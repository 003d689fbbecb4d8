"""Turns searches of recorded tables into result rows, and tables into facts, as reports read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from costbench.arrays import F64, I64
from costbench.metrics.rows import MAIN, MetricRow
from costbench_schedules.experiments.model_tests import FOLDS, TRANSFER, ModelTest
from costbench_schedules.experiments.recorded_tables import TableFile, measured_twice, table_of
from costbench_schedules.experiments.repeats import (
    BEST,
    MetricsFile,
    Provenance,
    RepeatedSearch,
    best_by_trial,
)
from costbench_schedules.experiments.table_search import SCRATCH
from costbench_schedules.records.agreement import (
    TRUSTED_TAU,
    agreement,
    agreement_afterwards,
    confirmed_gflops,
)
from costbench_schedules.records.second_measurements import ENOUGH
from costbench_schedules.records.table import WHILE_RECORDING

SPLIT = "recorded"
AFTER = (25, 50, 100, 200, 400, 800)
"""Trials after which rows say how fast the best schedule was."""


def gflops_by_trial(
    table: TableFile, decisions: Sequence[int] | I64, trials: int, measurements: int = 1
) -> F64:
    """Returns GFLOPS of the fastest schedule so far after each trial, float64 [trials]; 0 while all failed.

    The fastest is that of first measurements; its speed is that of the second.

    Args:
        table: table that was searched.
        decisions: numbers of the configurations in the order of their measurement.
        trials: number of trials.
        measurements: number of measurements of a trial.

    Raises:
        ValueError: for a table without second measurements.
    """
    twice = measured_twice(table)
    if twice is None:
        raise ValueError(f"{table.path}: no second measurements")
    measured = twice.select(np.asarray(decisions, dtype=np.int64))
    best_ns = best_by_trial(measured.first_ns, trials, measurements, measured.second_ns)
    return np.asarray(table_of(table).space.operator.flops / best_ns, dtype=np.float64)


def best_gflops(file: TableFile) -> float:
    """Returns the speed that the fastest schedule of a table is expected to have when measured again."""
    table, twice = table_of(file), measured_twice(file)
    return float(table.gflops.max()) if twice is None else table.space.operator.flops / twice.best_ns


def trials_to_enough(search: RepeatedSearch) -> F64:
    """Returns the trials until `ENOUGH` of the best speed, one more than all if never, [repeats]."""
    return search.trials_until(ENOUGH * best_gflops(search.table))


def rows_of_searches(searches: Sequence[RepeatedSearch], provenance: Provenance) -> Iterator[MetricRow]:
    """Yields the rows of all searches: metrics of each repeat, over `all` and again by operator.

    - `gflops_N`: speed of the fastest schedule after N trials, measured again;
    - `trials_to_95`: see `trials_to_enough`;
    - `speedup_transfer`: of an arm with an earlier model, the trials of the same search without one divided
      by its own, both to 95%;
    - of what was recorded, under the name `best`: `gflops_best` (see `best_gflops`), `configs`, `failed`, and
      `gflops_confirmed` where it is known, see `agreement.confirmed_gflops`.
    """
    enough = {
        (search.table.target, search.table.workload, search.arm): trials_to_enough(search)
        for search in searches
    }
    by_table: dict[TableFile, dict[tuple[str, str, int], Mapping[str, float]]] = {}
    for search in searches:
        table = search.table
        entries = by_table.setdefault(table, {(BEST, MAIN, 0): _recorded_metrics(table)})
        trials = enough[table.target, table.workload, search.arm]
        scratch = enough.get((table.target, table.workload, SCRATCH.get(search.arm, "")))
        for repeat, speeds in enumerate(search.speeds):
            metrics = {f"gflops_{n}": float(speeds[n - 1]) for n in AFTER if n <= search.trials}
            metrics["trials_to_95"] = float(trials[repeat])
            if scratch is not None:
                metrics["speedup_transfer"] = float(scratch[repeat] / trials[repeat])
            entries[search.arm, MAIN, repeat] = metrics
    for table, entries in by_table.items():
        origin = provenance.origin(SPLIT, table.target, table.operator, table.workload)
        for kernels in ("all", f"{table.operator}:all"):
            yield from origin.rows(kernels, entries)


def _recorded_metrics(file: TableFile) -> dict[str, float]:
    table = table_of(file)
    confirmed = confirmed_gflops(table)
    return {
        "gflops_best": best_gflops(file),
        "configs": float(len(table)),
        "failed": float(np.count_nonzero(table.failed)),
    } | ({} if confirmed is None else {"gflops_confirmed": confirmed})


def rows_of_tests(
    tests: Sequence[tuple[ModelTest, MetricsFile]], provenance: Provenance
) -> Iterator[MetricRow]:
    """Yields the rows of tests: split `transfer` or `folds`, metrics as in `model_tests.evaluate_model`."""
    for test, result in tests:
        split = TRANSFER if test.split == TRANSFER else FOLDS
        for file in test.tested:
            origin = provenance.origin(split, test.target, file.operator, file.workload)
            yield from origin.rows("all", {(test.model, MAIN, test.seed): result.metrics[file.workload]})


def facts_of(file: TableFile) -> dict[str, object]:
    """Returns what is known of a table, as `reports` reads it."""
    table = table_of(file)
    ran = ~table.failed
    twice = measured_twice(file)
    runtime_ns = np.where(ran, table.columns["runtime_ns"], np.inf) if twice is None else twice.second_ns
    best_ns = float(runtime_ns.min()) if twice is None else twice.best_ns
    after, _ = agreement_afterwards(table)
    again = after if after.pairs else agreement(table, WHILE_RECORDING)
    return {
        "target": file.target,
        "workload": table.workload,
        "operator": table.space.operator.text,
        "processor": str(table.host.get("processor", "unknown")),
        "configs": len(table),
        "failed": int(np.count_nonzero(table.failed)),
        "best_gflops": best_gflops(file),
        "fast_share": float(np.mean(ENOUGH * runtime_ns <= best_ns)),
        "median_gflops": float(np.median(table.gflops[ran])) if ran.any() else 0.0,
        "tau": again.tau,
        "spread": again.p90_ratio,
        "trusted": again.tau is not None and again.tau >= TRUSTED_TAU,
        "scored": twice is not None and twice.confirmed,
    }
