"""Recorded tables of schedules as tuning tables, with a second measurement or an estimate of it.

A recorded table has a first measurement of every schedule and a second one of some: of the fastest, and of
schedules drawn at random. For the others the expected second measurement is estimated from the first, by
Tweedie's formula on logarithms (Efron, "Tweedie's formula and selection bias", JASA 106, 2011, section 2):

    E[m | y] = y + s^2 d/dy log f(y)

with y the logarithm of the first measurement, m its mean, s the noise, f the density of y over the table. At
the fast end the density rises, so that the estimate is slower than the measurement: the winner's curse.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.arrays import F64, I64
from costbench.errors import DataError
from costbench_schedules.records.table import RecordedTable, read_table
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.spaces.parameter_space import ParameterSpace

_MIN_PAIRS = 20
"""Repeated measurements from which on the noise is known well enough."""
_NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


def read_recorded(path: Path) -> TuningTable:
    """Reads a recorded table as a tuning table.

    Raises:
        DataError: naming the file, as `read_table` and `tuning_table`.
    """
    table = read_table(path)
    try:
        return tuning_table(table)
    except ValueError as error:
        raise DataError(str(error), where=path, expected="a recorded table") from error


def tuning_table(table: RecordedTable) -> TuningTable:
    """Returns what was measured of a table of schedules as a tuning table.

    Schedules that were not measured are left out.

    Raises:
        ValueError: if none ran, or fewer than 20 were measured again, so that the noise is unknown.
    """
    numbers = np.flatnonzero(table.columns["measured"]).astype(np.int64)
    rows = table.space.rows(numbers.tolist())
    failed = table.failed[numbers]
    codes = table.columns["reason"][numbers]
    first = np.where(failed, np.inf, table.columns["runtime_ns"][numbers].astype(np.float64))
    again = _again(table)[numbers]
    pairs = np.isfinite(first) & np.isfinite(again)
    if np.count_nonzero(pairs) < _MIN_PAIRS:
        raise ValueError(f"fewer than {_MIN_PAIRS} schedules were measured twice, so the noise is unknown")
    second = first.copy()
    logs = np.log(first[~failed])
    ratios = np.log(again[pairs] / first[pairs])
    noise = _NORMAL_MAD * float(np.median(np.abs(ratios - np.median(ratios)))) / np.sqrt(2.0)
    second[~failed] = np.exp(expected_means(logs, noise))
    second[pairs] = again[pairs]
    return TuningTable(
        table.workload,
        f"{table.host.get('processor', 'unknown')} ({table.target})",
        ParameterSpace({knob.name: knob.values for knob in table.space.knobs}, rows),
        first,
        second,
        table.columns["seconds"][numbers].astype(np.float64),
        tuple(table.reasons[code - 1] if code else "" for code in codes.tolist()),
        np.where(pairs, 2, np.where(failed, 0, 1)),
    )


def expected_means(values: F64, noise: float) -> F64:
    """Returns the expected mean of each noisy value, float64 [n], by Tweedie's formula.

    The density is a sum of normal ones around all values, as wide as Silverman's rule says but at least as
    wide as the noise, which is already in the values.

    Args:
        values: measured values, float64 [n].
        noise: standard deviation of the noise.
    """
    low, high = np.quantile(values, (0.25, 0.75))
    spread = min(float(np.std(values)), float(high - low) / 1.34) or float(np.std(values))
    width = max(0.9 * spread * len(values) ** -0.2, noise)
    if width == 0.0:
        return values.copy()
    apart = (values[None, :] - values[:, None]) / width
    weights = np.exp(-0.5 * apart**2)
    slopes = (weights * apart).sum(axis=1) / weights.sum(axis=1) / width
    return np.asarray(values + noise**2 * slopes, dtype=np.float64)


def _again(table: RecordedTable) -> F64:
    """Returns the first repeated measurement of each schedule, float64 [n]; infinite without one."""
    result = np.full(len(table), np.inf)
    repeats: I64 = table.repeats[table.repeats[:, 1] > 0]
    # In order of round, so that measurements after recording win over those while it: they are independent
    # of a drift of the machine.
    for number, runtime in repeats[np.argsort(repeats[:, 3], kind="stable"), :2].tolist():
        result[number] = runtime
    return result
