"""Reads tuning tables from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.spaces.parameter_space import ParameterSpace

_MEASURED = ("first_ns", "second_ns", "repeats", "failed")


def read_tuning_table(path: Path) -> TuningTable:
    """Returns the table in a Parquet file KERNEL-DEVICE.parquet."""
    frame = pd.read_parquet(path)
    kernel, _, device = path.stem.partition("-")
    names = [name for name in frame.columns if name not in _MEASURED]
    parameters = {name: tuple(sorted(frame[name].unique().tolist())) for name in names}
    listed = np.stack([np.searchsorted(parameters[name], frame[name]) for name in names], axis=1)
    failed = frame["failed"].to_numpy(dtype=str)
    first, second = (
        np.where(failed == "", frame[name].to_numpy(dtype=np.float64), np.inf)
        for name in ("first_ns", "second_ns")
    )
    return TuningTable(
        kernel,
        device,
        ParameterSpace(parameters, listed),
        first,
        second,
        np.zeros(len(frame)),
        tuple(failed.tolist()),
        frame["repeats"].to_numpy(dtype=np.int64),
    )
