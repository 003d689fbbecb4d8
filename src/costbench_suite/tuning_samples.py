"""Tuning spaces of kernels on real GPUs as tables: configurations and two measurements of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import pyarrow as pa

from costbench.installation import installed_files
from costbench_schedules.records.imported.parquet import read_parquet
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.spaces.parameter_space import ParameterSpace
from costbench_suite.kernel_samples import DECISIONS
from costbench_suite.samples import Samples, leave_one_out

_FOLDER = "data/gpu_tuning/"
_MEASURED = ("id", "decision", "scored", "runtime_ns", "again_ns")


def read_tuning_tables() -> tuple[TuningTable, ...]:
    """Returns the tables that come with costbench, by name.

    Raises:
        DataError: for a damaged one.
    """
    paths = [path for name, path in installed_files().items() if name.startswith(_FOLDER)]
    return tuple(read_parquet(path) for path in sorted(paths) if path.suffix == ".parquet")


def tuning_samples() -> Samples:
    """Returns the samples of these tables; each is tested in a fold of its own, by what all others tell.

    Raises:
        DataError: for a damaged table.
    """
    tables = read_tuning_tables()
    applications = {table.name: table.name for table in tables}
    return Samples(applications, leave_one_out(applications), _tables(tables))


def _tables(tables: tuple[TuningTable, ...]) -> Iterator[Mapping[str, pa.Table]]:
    """Yields the table of the decisions of each tuning table.

    `scored` says which configurations ran. Parameters of all kernels are columns, of numbers; one that a
    kernel has not is NaN there, and a value that is no number counts as its position among the values.
    """
    names = dict.fromkeys(name for table in tables for name in table.space.parameters)
    for table in tables:
        columns = {name: np.full(len(table), np.nan) for name in names}
        for indices, (name, values) in zip(table.space.listed.T, table.space.parameters.items(), strict=True):
            are_numbers = all(isinstance(value, int | float) for value in values)
            numbers = np.array(values if are_numbers else range(len(values)), dtype=np.float64)
            columns[name] = numbers[indices]
        decisions = pa.table(
            {
                "id": [table.name] * len(table),
                "decision": np.arange(len(table), dtype=np.int32),
                "scored": ~table.failed,
                **columns,
                "runtime_ns": np.where(table.failed, np.nan, table.first_ns),
                "again_ns": np.where(table.failed, np.nan, table.second_ns),
            }
        )
        yield {DECISIONS: decisions}


def table_of_rows(rows: pd.DataFrame) -> TuningTable:
    """Returns the tuning table that rows of `decisions` are of: configurations whose values are numbers."""
    kernel, _, device = str(rows["id"].iloc[0]).partition("-")
    values = rows.drop(columns=list(_MEASURED)).dropna(axis="columns", how="all")
    parameters, listed = {}, []
    for name in values:
        distinct, indices = np.unique(values[name].to_numpy(), return_inverse=True)
        parameters[str(name)] = tuple(distinct.tolist())
        listed.append(indices)
    ran = rows["scored"].to_numpy()
    first, second = (
        np.where(ran, rows[column].to_numpy(dtype=np.float64), np.inf)
        for column in ("runtime_ns", "again_ns")
    )
    return TuningTable(
        kernel,
        device,
        ParameterSpace(parameters, np.stack(listed, axis=1)),
        first,
        second,
        np.zeros(len(rows)),
        tuple("" if is_known else "failed" for is_known in ran),
        np.where(ran, 2, 0).astype(np.int64),
    )
