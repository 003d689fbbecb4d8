"""Reads what the stage `schedules` leaves behind about tuning tables of GPUs.

Rows have the task `schedule` and the split `gpu`: `chip` is the device, `application` the kernel, `program`
KERNEL-DEVICE, `model` the strategy, `seed` the repeat; metrics are those of
`costbench_schedules.experiments.table_scores`. In the split `between-gpus` `variant` is another device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from costbench.arrays import F64
from costbench.metrics.measures import geometric_mean
from costbench.metrics.rows import MetricRow, read_rows
from costbench.reports.dataset_files import read_list
from costbench.reports.frame import flatten, frame_of, select
from costbench.rng import stream
from costbench_schedules.experiments.table_scores import SHARES
from costbench_schedules.experiments.table_summary import expected_trials, over_tables
from costbench_schedules.metrics import GpuFacts, TrialsRatio
from costbench_schedules.reports.curves import NO_CURVES, read_curves

SPLIT, BETWEEN, BEST = "gpu", "between-gpus", "best"
KERNEL_TUNER = "kernel-tuner"
"""Beginning of the names of Kernel Tuner's own strategies."""
RANDOM = "random"
_RESAMPLES, _TAIL = 2_000, 0.025
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

    @cached_property
    def development(self) -> frozenset[tuple[str, str]]:
        """Returns kernel and device of the tables that strategies were made on."""
        return frozenset((table.kernel, table.device) for table in self.tables if table.development)

    @cached_property
    def unseen(self) -> pd.DataFrame:
        """Returns the scores on all other tables."""
        keys = zip(self.scores["kernel"], self.scores["device"], strict=True)
        return self.scores[[key not in self.development for key in keys]]

    def trials(self, end: str) -> pd.DataFrame:
        """Returns expected trials until a share of the best, a row for each table, a column per strategy."""
        return expected_trials(self.scores, end)

    @cached_property
    def reference(self) -> str:
        """Returns the strategy that trials are compared with.

        It is Kernel Tuner's best, else random search, else the best of all. The best has the least geometric
        mean of expected trials to 95%, over the tables that no strategy was made on where there are any. It
        is chosen on tables that it is compared on, which favours it.
        """
        trials = expected_trials(self.scores if self.unseen.empty else self.unseen, "95")
        names = [str(name) for name in trials]
        peers = [name for name in names if name.startswith(KERNEL_TUNER)]
        peers = peers or [name for name in names if name == RANDOM] or names
        return min(peers, key=lambda name: geometric_mean(trials[name].dropna()))

    def ratios(self, strategy: str) -> Mapping[tuple[str, str], TrialsRatio]:
        """Returns trials to 95% over those of `reference` by table, with intervals over repeats.

        Repeats of both begin with the same random numbers, and are drawn together.
        """
        by_table = self.scores[self.scores["metric"].isin(["trials_to_95", "reached_95"])]
        ratios = {}
        for key, rows in by_table.groupby(["kernel", "device"], sort=True):
            values = rows.pivot(index="repeat", columns=["strategy", "metric"], values="value")
            names = [name for name in (strategy, self.reference) if name in {*rows["strategy"]}]
            # Repeats that both have.
            common = values[names].dropna()
            if len(names) < 2 or common.empty:
                continue
            sides = [
                common[name][["trials_to_95", "reached_95"]].to_numpy(dtype=np.float64) for name in names
            ]
            count = len(sides[0])
            draws = stream(0, "repeats of tables", *map(str, key), count).integers(
                count, size=(_RESAMPLES, count)
            )
            resampled = _expected(sides[0][draws]) / _expected(sides[1][draws])
            low, high = np.quantile(resampled, (_TAIL, 1.0 - _TAIL))
            ratio = float(_expected(sides[0]) / _expected(sides[1]))
            ratios[str(key[0]), str(key[1])] = TrialsRatio(ratio, float(low), float(high))
        return ratios


def _expected(values: F64) -> F64:
    """Returns expected trials of repeats, [..., repeats, (trials, reached)], as `expected_trials` does."""
    sums = values.sum(axis=-2)
    return np.asarray(sums[..., 0] / np.maximum(1.0, sums[..., 1]))


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
    """Returns numbers for `summary.json`: `gpu/{kernel}/{device}/{strategy}/{metric}`, and ratios.

    Metrics are `auc`, the shares of searches that came there, `reached_95` and `reached_99`, and expected
    trials, `trials_to_95` and `trials_to_99` (see `expected_trials`: at least these where no search did).
    `gpu/{kernel}/{device}/development` is 1 of a table that strategies were made on, else 0.
    `gpu/ratios/{unseen, all}/{strategy}/{trials_to_95, trials_to_99}`, with `_low` and `_high`, are trials
    over those of `reference`, geometric means over tables, with intervals whose unit is a table; `unseen` are
    the tables that no strategy was made on.
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
    flat = flatten(numbers, "gpu/{kernel}/{device}/{strategy}", numbers.columns.drop(keys))
    flat |= {
        f"gpu/{table.kernel}/{table.device}/development": float(table.development) for table in results.tables
    }
    for name, scores in (("unseen", results.unseen), ("all", results.scores)):
        frame = over_tables(scores, results.reference)
        for row in frame[frame["metric"] != "auc"].dropna(subset="value").to_dict("records"):
            prefix = f"gpu/ratios/{name}/{row['strategy']}/{str(row['metric']).removesuffix('_ratio')}"
            ends = {"": row["value"], "_low": row["low"], "_high": row["high"]}
            flat |= {prefix + end: float(value) for end, value in ends.items() if value == value}
    return flat
