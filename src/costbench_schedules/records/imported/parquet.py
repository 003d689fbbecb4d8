"""Tuning tables as Parquet files KERNEL-DEVICE.parquet: a row per configuration, a column per parameter.

    column         type     unit, meaning
    (parameters)   any      value of a tuning parameter
    first_ns       float64  measurement that searches see; NaN where the configuration failed
    second_ns      float64  independent measurement that choices are scored by; likewise
    repeats        int64    runs behind both
    failed         string   reason for which there is no time, or empty
    seconds        float64  time that a search is charged; may be missing

Names of kernel and device are in the metadata of the schema, or else in the name of the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from costbench.arrays import F64
from costbench.artifacts import atomic_path, parse_json, read_bytes
from costbench.datasets import parquet_files
from costbench.errors import DataError, one_line
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.spaces.parameter_space import ParameterSpace

PARQUET = ".parquet"
MAGIC = b"PAR1"
_MEASURED = ("first_ns", "second_ns", "repeats", "failed")
_SECONDS = "seconds"
_KEY = b"costbench.tuning"


def read_parquet(path: Path) -> TuningTable:
    """Reads a table and checks it.

    Raises:
        DataError: naming the file and the column, if it is missing, damaged, or holds what cannot be.
    """
    data = read_bytes(path)
    try:
        return _table_of(parquet_files.read_parquet(data), path)
    except DataError as error:
        raise error.recast(DataError, where=path) from error
    except (OSError, ValueError, pa.ArrowException) as error:
        expected = "a tuning table in Parquet"
        raise DataError(f"cannot be read: {one_line(error)}", where=path, expected=expected) from error


def _table_of(arrow: pa.Table, path: Path) -> TuningTable:
    facts = parse_json((arrow.schema.metadata or {}).get(_KEY, b"{}"), path)
    if not isinstance(facts, dict):
        raise ValueError("its facts are no object")
    for name in _MEASURED:
        if name not in arrow.column_names:
            expected = "parameters, " + ", ".join(_MEASURED)
            raise DataError("no such column", where=path, field=name, expected=expected)
    names = [name for name in arrow.column_names if name not in (*_MEASURED, _SECONDS)]
    if not names or not arrow.num_rows:
        raise DataError("no configurations", where=path, expected="a column per parameter, and rows")
    parameters: dict[str, tuple[Any, ...]] = {}
    columns = []
    for name in names:
        parameters[name], indices = _encode(arrow.column(name).to_pylist(), path, name)
        columns.append(indices)
    reasons = tuple(str(reason or "") for reason in arrow.column("failed").to_pylist())
    ran = np.array([not reason for reason in reasons])
    first, second = (np.where(ran, _numbers(arrow, name, path), np.inf) for name in _MEASURED[:2])
    seconds = _numbers(arrow, _SECONDS, path) if _SECONDS in arrow.column_names else np.zeros(len(ran))
    repeats = _numbers(arrow, "repeats", path)
    if not np.all(np.isfinite(repeats)) or np.any(repeats < 0):
        raise DataError("no numbers of runs", where=path, field="repeats", expected="a number in each row")
    kernel, _, device = path.name.removesuffix(PARQUET).partition("-")
    return TuningTable(
        str(facts.get("kernel", kernel)),
        str(facts.get("device", device or "unknown")),
        ParameterSpace(parameters, np.stack(columns, axis=1)),
        first,
        second,
        seconds,
        reasons,
        repeats.astype(np.int64),
    )


def write_parquet(path: Path, table: TuningTable) -> None:
    """Writes a table atomically; equal tables give equal bytes.

    Raises:
        DataError: naming the file, if it cannot be written, and a parameter named like another column.
    """
    for name in (*_MEASURED, _SECONDS):
        if name in table.space.parameters:
            expected = "another name; the table has a column of its own"
            raise DataError("a parameter of this name", where=path, field=name, expected=expected)
    columns: dict[str, Any] = {
        name: [values[index] for index in indices.tolist()]
        for indices, (name, values) in zip(table.space.listed.T, table.space.parameters.items(), strict=True)
    }
    for name, values in (("first_ns", table.first_ns), ("second_ns", table.second_ns)):
        columns[name] = np.where(np.isfinite(values), values, np.nan)
    columns |= {"repeats": table.repeats, "failed": list(table.reasons), _SECONDS: table.seconds}
    facts = json.dumps({"kernel": table.kernel, "device": table.device}, sort_keys=True).encode()
    try:
        arrow = pa.table(columns).replace_schema_metadata({_KEY: facts})
    except pa.ArrowException as error:
        expected = "values of one type for each parameter"
        raise DataError(one_line(error), where=path, expected=expected) from error
    with atomic_path(path) as temporary:
        pq.write_table(arrow, temporary, compression="zstd")


def _encode(values: list[Any], path: Path, name: str) -> tuple[tuple[Any, ...], np.ndarray[Any, Any]]:
    """Returns the distinct values of a parameter, numbers in ascending order, and their indices."""
    plain = [tuple(value) if isinstance(value, list) else value for value in values]
    distinct = list(dict.fromkeys(plain))
    if any(value is None or value != value for value in distinct):
        raise DataError("a missing value", where=path, field=name, expected="a value in each row")
    if all(isinstance(value, int | float) for value in distinct):
        distinct.sort()
    numbers = {value: index for index, value in enumerate(distinct)}
    return tuple(distinct), np.array([numbers[value] for value in plain], dtype=np.int64)


def _numbers(arrow: pa.Table, name: str, path: Path) -> F64:
    try:
        return np.asarray(arrow.column(name).to_numpy(), dtype=np.float64)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise DataError("no numbers", where=path, field=name, expected="a column of numbers") from error
