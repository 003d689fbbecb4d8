"""Scores of searches over repeats, and over tables.

A number of a table is over its repeats, with the percentile interval of repeats that are drawn with
replacement. Over tables, tables are what is drawn: those that exist are a sample of kernels and devices.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from costbench.arrays import F64
from costbench.metrics.intervals import paired_bootstrap
from costbench.rng import stream
from costbench_schedules.experiments.table_scores import SHARES

_RESAMPLES = 2_000
_TAIL = 0.025
_MIN_TABLES = 3
_TABLE, _KEYS = ["kernel", "device"], ["kernel", "device", "strategy"]
_OVER_TABLES = ["strategy", "metric", "value", "low", "high", "tables"]


def summarise(rows: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Returns each metric of each table and strategy over repeats, with an interval.

    Trials until a share of the best are expected ones, see `table_scores`; infinite where no repeat came
    there. Other metrics are means.

    Args:
        rows: rows of `table_scores.score_rows`.
        seed: seed of the resamples.

    Returns:
        the columns kernel, device, strategy, metric, value, low, high.
    """
    results = []
    for (kernel, device, strategy), group in rows.groupby(_KEYS, sort=True):
        table = group.pivot(index="repeat", columns="metric", values="value")
        count = len(table)
        # The same draws for all strategies, which begin with the same random numbers in each repeat.
        draws = stream(seed, "repeats", str(kernel), str(device), count).integers(
            count, size=(_RESAMPLES, count)
        )
        for metric in table.columns:
            values = table[metric].to_numpy(dtype=np.float64)
            end = str(metric).removeprefix("trials_to_")
            reached = table[f"reached_{end}"].to_numpy(dtype=np.float64) if end in SHARES else np.ones(count)
            estimate, resampled = _ratio(values, reached), _ratio(values[draws], reached[draws])
            low, high = np.quantile(resampled, (_TAIL, 1.0 - _TAIL), method="inverted_cdf")
            results.append((kernel, device, strategy, metric, float(estimate), float(low), float(high)))
    return pd.DataFrame(results, columns=[*_KEYS, "metric", "value", "low", "high"])


def _ratio(values: F64, reached: F64) -> F64:
    """Returns the ratio of both means over the last axis, infinite where nothing was reached."""
    with np.errstate(divide="ignore"):
        return np.asarray(values.mean(axis=-1) / reached.mean(axis=-1), dtype=np.float64)


def expected_trials(rows: pd.DataFrame, end: str) -> pd.DataFrame:
    """Returns the expected trials until a share of the best, a row per table, a column per strategy.

    Where no repeat came there, the trials of all repeats stand for it, as if the last one had been a success:
    the number is at least that.

    Args:
        rows: rows of `table_scores.score_rows`.
        end: key of `table_scores.SHARES`.
    """
    chosen = rows[rows["metric"].isin([f"trials_to_{end}", f"reached_{end}"])]
    sums = chosen.groupby([*_KEYS, "metric"])["value"].sum().unstack("metric")
    trials: pd.Series[float] = sums[f"trials_to_{end}"] / sums[f"reached_{end}"].clip(lower=1.0)
    return trials.rename("trials").reset_index().pivot(index=_TABLE, columns="strategy", values="trials")


def over_tables(rows: pd.DataFrame, reference: str, seed: int = 0) -> pd.DataFrame:
    """Returns each strategy over all tables, with intervals of which tables are the unit.

    - `auc`: mean over tables;
    - `trials_to_95_ratio`, `trials_to_99_ratio`: geometric mean over tables of the expected trials
      (`expected_trials`) divided by those of the reference, below 1 where fewer are needed.

    Args:
        rows: rows of `table_scores.score_rows`.
        reference: strategy that trials are compared with.
        seed: seed of the resamples.

    Returns:
        the columns strategy, metric, value, low, high, tables; of tables that both strategies searched.
        Below three tables there is no interval: low and high are NaN.
    """
    if rows.empty:
        return pd.DataFrame(columns=_OVER_TABLES)
    results = []
    areas = rows[rows["metric"] == "auc"].groupby(_KEYS)["value"].mean().unstack("strategy")
    trials = {end: expected_trials(rows, end) for end in SHARES}
    for strategy in sorted(rows["strategy"].unique()):
        area = areas[strategy].dropna()
        results.append((strategy, "auc", *_interval(area.to_numpy(), np.zeros(len(area)), seed), len(area)))
        for end, table in trials.items():
            left, right = (np.log(table[name].to_numpy(dtype=np.float64)) for name in (strategy, reference))
            both = np.isfinite(left) & np.isfinite(right)
            if not both.any():
                continue
            left, right = left[both], right[both]
            ratio = np.exp(_interval(left, right, seed))
            results.append((strategy, f"trials_to_{end}_ratio", *ratio.tolist(), len(left)))
    return pd.DataFrame(results, columns=_OVER_TABLES)


def _interval(left: F64, right: F64, seed: int) -> tuple[float, float, float]:
    """Returns the mean difference and its interval."""
    if len(left) < _MIN_TABLES:
        return float(np.mean(left - right)), np.nan, np.nan
    interval = paired_bootstrap(left, right, stream(seed, "tables"))
    return interval.difference, interval.low, interval.high


def compare_with_best(rows: pd.DataFrame, peers: Iterable[str], seed: int = 0) -> pd.DataFrame:
    """Returns `over_tables` against the best of some peers: the one with the fewest expected trials to 95%.

    Best by the geometric mean over the tables that all peers with results searched. To choose it after the
    fact favours the peers.

    Args:
        rows: rows of `table_scores.score_rows`.
        peers: names of strategies; those without rows are left out.
        seed: seed of the resamples.

    Returns:
        the columns of `over_tables`, and `reference`, the name of the best peer.

    Raises:
        ValueError: if no peer has rows.
    """
    trials = expected_trials(rows, "95")
    names = [name for name in peers if name in trials.columns]
    if not names:
        raise ValueError(f"none of {', '.join(peers)} has rows")
    means = np.log(trials[names].dropna()).mean()
    reference = str(means.idxmin())
    return over_tables(rows, reference, seed).assign(reference=reference)
