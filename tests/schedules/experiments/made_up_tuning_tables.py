"""Tuning tables of two made-up kernels on three devices, and a section that searches them in a second."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from costbench_schedules.experiments.gpu_tuning import GpuTuning
from costbench_schedules.records.imported.parquet import write_parquet
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.spaces.parameter_space import ParameterSpace

VALUES = (1, 2, 4, 8, 16, 32)
OPTIMA = {
    ("blur", "small"): (4, 2, 3),
    ("blur", "large"): (4, 3, 3),
    ("blur", "other"): (1, 1, 1),
    ("sum", "small"): (0, 0, 5),
}
SECTION = GpuTuning(("random", "genetic", "gbt-rank"), 40, 3, ("blur-small",))


def made_up_tuning_table(kernel: str, device: str) -> TuningTable:
    """Times grow with the distance from the optimum; every seventh configuration failed."""
    rows = np.array([*product(range(len(VALUES)), repeat=3)])
    runtime = 1000.0 * np.exp(0.3 * np.abs(rows - np.array(OPTIMA[kernel, device])).sum(axis=1))
    failed = np.arange(len(rows)) % 7 == 6
    runtime = np.where(failed, np.inf, runtime)
    reasons = tuple("does not compile" if has_failed else "" for has_failed in failed)
    space = ParameterSpace(dict.fromkeys(("block", "tile", "unroll"), VALUES), rows)
    repeats = np.where(failed, 0, 16)
    return TuningTable(kernel, device, space, runtime, 1.01 * runtime, np.zeros(len(rows)), reasons, repeats)


def write_tuning_tables(folder: Path) -> None:
    """Writes all tables as KERNEL-DEVICE.parquet."""
    for kernel, device in OPTIMA:
        write_parquet(folder / f"{kernel}-{device}.parquet", made_up_tuning_table(kernel, device))
