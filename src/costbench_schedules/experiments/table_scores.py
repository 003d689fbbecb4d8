"""Scores of searches of tuning tables: every choice counts what its second measurement says.

After t trials a search has chosen the configuration with the least first measurement so far. F(t) is the
second measurement of that choice; before anything ran, it is the median of the table, for a search without a
result is worth no more than a guess.

- `trials_to_95`: the first t with best / F(t) >= 0.95, the best being the least second measurement of the
  table; all trials where that never happens, and then `reached_95` is 0, else 1. The expected number of
  trials of a strategy that is run again until it succeeds is the mean of the former over the mean of the
  latter (expected running time: Hansen et al., "COCO", Optimization Methods and Software 36, 2021). Likewise
  `trials_to_99`.
- `best_at_N`: best / F(N).
- `auc`: the performance score of Willemsen et al., "A methodology for comparing optimization algorithms for
  auto-tuning", Future Generation Computer Systems (2024), as their code computes it
  (github.com/AutoTuningAssociation/autotuning_methodology), in trials instead of seconds:

      P = 1/T sum over t = 1 .. T of (B(t) - F(t)) / (B(t) - best)

  B(t) is what random search without replacement reaches on average after t trials, computed, not sampled
  (`random_curve`). 0 is random search, 1 finds the best at once, below 0 is worse than random search. T is
  the first t at which B(t) has gone 95% of the way from the median of the table to its best, or the number
  of trials if that is less: later, little is left to divide by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from costbench.arrays import F64, I64
from costbench_schedules.records.tuning_table import TuningTable

SHARES: Mapping[str, float] = {"95": 0.95, "99": 0.99}
"""Shares of the best speed by the end of the names of their metrics."""
AFTER = (10, 20, 50, 100, 200, 500)
"""Trials after which the best so far is a metric."""
CUTOFF = 0.95
"""Share of the way from the median to the best at which the area under the curve ends."""
_POINTS = 60
"""Points of a curve, at most: evenly spaced on a logarithmic axis."""
COLUMNS = ("kernel", "device", "strategy", "repeat", "metric", "value")


def choices(table: TuningTable, order: I64) -> I64:
    """Returns the configuration that is chosen after each trial, int64 [t]; -1 before any ran.

    Args:
        table: table that was searched.
        order: numbers of the measured configurations in order, int64 [t].
    """
    latest = fastest_so_far(table.first_ns[order])
    return np.where(latest >= 0, order[latest], -1).astype(np.int64)


def fastest_so_far(runtime_ns: F64) -> I64:
    """Returns the position of the least of the runtimes so far, int64 [n]; -1 while all are infinite."""
    improved = runtime_ns < np.append(np.inf, np.minimum.accumulate(runtime_ns)[:-1])
    return np.maximum.accumulate(np.where(improved, np.arange(len(runtime_ns)), -1))


def curve(table: TuningTable, order: I64, trials: int) -> F64:
    """Returns F(t) in ns for t = 1 .. trials, float64 [trials]; a search that ended keeps its choice."""
    chosen = choices(table, order)[:trials]
    values = np.where(chosen >= 0, table.second_ns[chosen], _median(table))
    missing = trials - len(values)
    return np.pad(values, (0, missing), mode="edge") if len(values) else np.full(trials, _median(table))


@lru_cache(maxsize=64)
def random_curve(table: TuningTable, trials: int) -> F64:
    """Returns B(t) in ns for t = 1 .. trials, float64 [trials]: the mean of F(t) over all random orders.

    With the n configurations ranked by their first measurement from r = 0, failures last, the choice after t
    draws has rank r or more with probability C(n - r, t) / C(n, t).
    """
    n = len(table)
    by_first = np.argsort(table.first_ns, kind="stable")
    values = np.where(table.failed, _median(table), table.second_ns)[by_first]
    ranks = np.arange(n + 1)
    at_least = np.ones(n + 1)
    result = np.empty(trials)
    for drawn in range(trials):
        if drawn < n:
            at_least = at_least * np.maximum(0.0, n - ranks - drawn) / (n - drawn)
        result[drawn] = (at_least[:-1] - at_least[1:]) @ values
    return result


def score(table: TuningTable, order: I64, trials: int) -> dict[str, float]:
    """Returns the metrics of a search by name, see the module.

    Args:
        table: table that was searched.
        order: numbers of the measured configurations in order, int64 [t].
        trials: number of trials of the search.
    """
    values = curve(table, order, trials)
    metrics: dict[str, float] = {}
    for end, share in SHARES.items():
        fast = values <= table.best_ns / share
        reached = bool(fast.any())
        metrics[f"trials_to_{end}"] = float(np.argmax(fast) + 1 if reached else trials)
        metrics[f"reached_{end}"] = float(reached)
    metrics |= {
        f"best_at_{count}": float(table.best_ns / values[count - 1]) for count in AFTER if count <= trials
    }
    baseline = random_curve(table, trials)
    end_of_area = area_end(table, trials)
    left = baseline[:end_of_area] - table.best_ns
    gained = baseline[:end_of_area] - values[:end_of_area]
    # Where all configurations are equally fast, no search is better than another.
    metrics["auc"] = float(np.mean(np.divide(gained, left, out=np.zeros_like(left), where=left > 0.0)))
    return metrics


def area_end(table: TuningTable, trials: int) -> int:
    """Returns T, see the module."""
    baseline = random_curve(table, trials)
    target = table.best_ns + (1.0 - CUTOFF) * (_median(table) - table.best_ns)
    there = baseline <= target
    return int(np.argmax(there)) + 1 if there.any() else trials


@dataclass(frozen=True, eq=False)
class TableSearches:
    """All repeats of a strategy on a table.

    Attributes:
        table: table that was searched.
        strategy: name of the strategy.
        trials: number of trials.
        orders: numbers of the measured configurations in order, int64 [t] for each repeat.
    """

    table: TuningTable
    strategy: str
    trials: int
    orders: Sequence[I64]

    def curves(self) -> F64:
        """Returns best / F(t), float64 [repeats, trials]: the share of the best speed so far."""
        return np.stack([self.table.best_ns / curve(self.table, order, self.trials) for order in self.orders])

    def curve_points(self) -> dict[str, object]:
        """Returns the progress of the searches in percent of the best speed, as reports read curves."""
        return curve_points(100.0 * self.curves(), self.table.device, self.table.kernel, self.strategy)


def curve_points(speeds: F64, target: str, workload: str, arm: str) -> dict[str, object]:
    """Returns median and quartiles over repeats after some of the trials, as reports read curves.

    Args:
        speeds: speed after each trial, float64 [repeats, trials].
        target: target or device of the table.
        workload: workload or kernel of the table.
        arm: name of the way of searching.
    """
    trials = np.unique(np.round(np.geomspace(1, speeds.shape[1], _POINTS)).astype(np.int64))
    low, median, high = np.quantile(speeds[:, trials - 1], (0.25, 0.5, 0.75), axis=0).tolist()
    names: dict[str, object] = {"target": target, "workload": workload, "arm": arm, "repeats": len(speeds)}
    return names | {"trials": trials.tolist(), "median": median, "low": low, "high": high}


def score_rows(searches: Iterable[TableSearches]) -> pd.DataFrame:
    """Returns a row for each table, strategy, repeat and metric, with the columns `COLUMNS`."""
    rows = [
        (search.table.kernel, search.table.device, search.strategy, repeat, metric, value)
        for search in searches
        for repeat, order in enumerate(search.orders)
        for metric, value in score(search.table, order, search.trials).items()
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS])


@lru_cache(maxsize=64)
def _median(table: TuningTable) -> float:
    return float(np.median(table.second_ns[~table.failed]))
