"""Rows of all tables that were searched, of processors and of GPUs, for claims that rest on them together.

A program is a table, its application the kind of operator or the kernel, and `seed` a repeat. `speed_100` is
the speed after 100 trials in percent of the best, both by second measurements; `trials_to_95` counts one more
than all trials where 95% was never reached; `speedup_transfer` is of processors alone. Rows of processors
exist a second time with the operator's name (`conv2d:all`), for claims about one operator: there an
application is a workload, which several processors may have, and programs have names of their own, since
applications are looked up by program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from costbench.metrics.rows import MetricRow
from costbench_schedules.reports.autotvm2018 import results as schedule_results
from costbench_schedules.reports.autotvm2018.results import BEST, ScheduleResults
from costbench_schedules.reports.gpus import results as gpu_results
from costbench_schedules.reports.gpus.results import GpuResults

TABLES, TARGETS = "tables", "targets"
"""Splits: tables of processors' own targets and of GPUs; of all targets but the first processor's own."""
DEVICES = "CPU and GPUs"
"""In place of a chip."""
SPEED, TRIALS = "speed_100", "trials_to_95"
_NATIVE, _GFLOPS, _FASTEST, _SPEEDUP = "native", "gflops_100", "gflops_best", "speedup_transfer"
_SHARE, _SHARE_TWICE, _REACHED = "best_at_100", "best_at_200", "reached_95"
_TWICE = ("random", "genetic")
"""Strategies that claims also see measure twice in a trial."""


def rows_of_tables(schedules: ScheduleResults, gpu: GpuResults) -> tuple[MetricRow, ...]:
    """Returns the rows of all tables that were searched, of the repeats that all searches have.

    Claims are about programs that all repeats of a side were run on.
    """
    rows = (*_of_schedules(schedules), *_of_gpus(gpu))
    repeats: dict[str, dict[tuple[str, str, str], set[int]]] = {}
    for row in rows:
        of_group = repeats.setdefault(row.kernels, {})
        of_group.setdefault((row.split, row.program, row.model), set()).add(row.seed)
    shared = {kernels: set.intersection(*of_group.values()) for kernels, of_group in repeats.items()}
    return tuple(row for row in rows if row.seed in shared[row.kernels])


def _of_schedules(results: ScheduleResults) -> Iterator[MetricRow]:
    rows = [row for row in results.rows if row.split == schedule_results.SPLIT]
    best = {(row.chip, row.program): row.value for row in rows if row.metric == _FASTEST}
    for row in rows:
        if row.model == BEST or row.metric not in (_GFLOPS, TRIALS, _SPEEDUP):
            continue
        first = row.chip == _NATIVE
        name = row.program if first else f"{row.program}, {row.chip}"
        row_of_table = replace(row, chip=DEVICES, program=name)
        if row.kernels != "all":
            named = f"{row.application} {name}"
            row_of_table = replace(row_of_table, program=named, application=row.program)
        if row.metric == _GFLOPS:
            speed = 100.0 * row.value / best[row.chip, row.program]
            row_of_table = replace(row_of_table, metric=SPEED, value=speed)
        if row.chip.endswith(_NATIVE):
            yield replace(row_of_table, split=TABLES)
        if not first:
            yield replace(row_of_table, split=TARGETS)


def _of_gpus(results: GpuResults) -> Iterator[MetricRow]:
    rows = [row for row in results.rows if row.split == gpu_results.SPLIT and row.model != BEST]
    reached = {(row.program, row.model, row.seed): row.value for row in rows if row.metric == _REACHED}
    for row in rows:
        of_table = replace(row, split=TABLES, chip=DEVICES)
        if row.metric == _SHARE:
            yield replace(of_table, metric=SPEED, value=100.0 * row.value)
        elif row.metric == _SHARE_TWICE and row.model in _TWICE:
            yield replace(of_table, model=f"{row.model}-x2", metric=SPEED, value=100.0 * row.value)
        elif row.metric == TRIALS:
            never = 1.0 - reached[row.program, row.model, row.seed]
            trials = replace(of_table, value=row.value + never)
            yield trials
            yield replace(trials, split=TARGETS)
