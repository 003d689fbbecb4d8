"""Reads what the stage `schedules` leaves behind about tuning tables of GPUs.

Rows have the task `schedule` and the split `gpu`: `chip` is the device, `application` the kernel, `program`
KERNEL-DEVICE, `model` the strategy, `seed` the repeat; metrics are those of
`costbench_schedules.experiments.table_scores`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd

from costbench.metrics.rows import MetricRow, read_rows
from costbench.reports.frame import frame_of, select
from costbench_schedules.experiments.table_scores import SHARES
from costbench_schedules.experiments.table_summary import expected_trials
from costbench_schedules.metrics import GpuFacts
from costbench_schedules.reports.curves import NO_CURVES, read_curves, read_list

SPLIT, BEST = "gpu", "best"
ROWS_FILE, CURVES_FILE, TABLES_FILE = "rows.jsonl", "curves.json", "tables.json"
_COLUMNS = {"application": "kernel", "chip": "device", "model": "strategy", "seed": "repeat"}


@dataclass(frozen=True, eq=False)
class GpuResults:
    """All results on tuning tables; empty where none were searched.

    Attributes:
        rows: result rows, see the module's description.
        curves: share of the best speed against trials, see `read_curves`; `workload` is the kernel, `target`
            the device, `arm` the strategy.
        tables: facts of the tables, in order of kernel and device.
    """

    rows: tuple[MetricRow, ...] = ()
    curves: pd.DataFrame = field(default_factory=NO_CURVES.copy)
    tables: tuple[GpuFacts, ...] = ()

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Returns the scores of all searches as `table_summary` takes them: a row for each metric."""
        frame = select(frame_of(self.rows), split=SPLIT)
        frame = frame[frame["model"] != BEST].rename(columns=_COLUMNS)
        return frame[[*_COLUMNS.values(), "metric", "value"]].reset_index(drop=True)

    @property
    def strategies(self) -> tuple[str, ...]:
        """Returns the strategies in the order of the curves."""
        return tuple(self.curves["arm"].unique())

    @property
    def development(self) -> tuple[str, ...]:
        """Returns KERNEL-DEVICE of the tables that strategies were made on."""
        return tuple(f"{table.kernel}-{table.device}" for table in self.tables if table.development)


def load_gpus(folder: Path) -> GpuResults:
    """Returns the results in the folder `gpus` of the stage `schedules`; empty ones without rows.

    Raises:
        DataError: naming the file, if one is missing or malformed.
    """
    if not (folder / ROWS_FILE).is_file():
        return GpuResults()
    curves = read_curves(folder / CURVES_FILE)
    return GpuResults(read_rows(folder / ROWS_FILE), curves, read_list(GpuFacts, folder / TABLES_FILE))


def flat_gpus(results: GpuResults) -> Mapping[str, float]:
    """Returns `gpu/{kernel}/{device}/{strategy}/{metric}` for `summary.json`.

    Metrics are `auc`, the shares of searches that came there, `reached_95` and `reached_99`, and expected
    trials, `trials_to_95` and `trials_to_99` (see `expected_trials`: at least these where no search did).
    """
    if results.scores.empty:
        return {}
    keys = ["kernel", "device", "strategy"]
    means = results.scores.groupby([*keys, "metric"])["value"].mean().unstack("metric")
    for end in SHARES:
        trials = expected_trials(results.scores, end).reset_index().melt(keys[:2], value_name="trials")
        means[f"trials_to_{end}"] = trials.set_index(keys)["trials"]
    numbers = means[
        [*(f"trials_to_{end}" for end in SHARES), "reached_95", "reached_99", "auc"]
    ].reset_index()
    return {
        f"gpu/{row['kernel']}/{row['device']}/{row['strategy']}/{metric}": float(row[metric])
        for row in numbers.to_dict("records")
        for metric in numbers.columns.drop(keys)
    }
