"""Recorded runtimes of a real machine: the kernels of programs in many fusion configs, as Parquet tables.

    data/xla_cpu/
        programs/             manifest.json and the programs, with the layouts that the machine uses
        MACHINE/              records of one machine; those of another stand beside it
            machine.json      processor, memory, versions, flags, how was measured
            card.json         counts, what was left out and why, agreement of the two measurements
            kernels.parquet   one row a distinct kernel of a program
            configs.parquet   one row a fusion config of a program

A kernel is a view of the program in `programs/`, as in shards of the fusion task. It was measured where it
runs, inside the whole program under the config `config`, so its inputs are in the caches where the kernels
before it left them. Two rounds measured every config, at different times and in another order; each runtime
is a mean over the places in the program at which the kernel runs of the minimum over repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from costbench.artifacts import atomic_path, read_bytes, read_json
from costbench.datasets.parquet_files import read_parquet
from costbench.errors import DataError
from costbench.programs.manifest import ProgramEntry, load_manifest

PROGRAMS, MACHINE, CARD = "programs", "machine.json", "card.json"
KERNELS, CONFIGS = "kernels.parquet", "configs.parquet"
XLA_DEFAULT, UNFUSED, DEFAULT, RANDOM = "xla", "unfused", "costbench", "random"
"""Origins of configs: what XLA fuses by itself, nothing fused, the default of `compiler.fusion`, drawn.

The kernels of XLA's own default are those that it made, where they are named; its `fused` is the nearest
config."""
VERSION = 1
_NAMES = pa.dictionary(pa.int32(), pa.string())
_POSITIONS = pa.list_(pa.int32())
_FINGERPRINTS = pa.list_(pa.binary(16))


@dataclass(frozen=True)
class RecordColumn:
    """A column of a table.

    Attributes:
        type: Arrow type of the values.
        meaning: description of a value, with its unit.
    """

    type: pa.DataType
    meaning: str


def _measured(number: str) -> dict[str, RecordColumn]:
    return {
        f"{number}_ns": RecordColumn(pa.int64(), "runtime in ns, minimum of the repeats, at least 1"),
        f"{number}_median_ns": RecordColumn(pa.int64(), "the same with the median of the repeats"),
        f"{number}_repeats": RecordColumn(pa.int32(), "runs of the program that were timed"),
        f"{number}_cpu": RecordColumn(pa.float32(), "processor time over wall time of these runs"),
    }


KERNEL_COLUMNS: Mapping[str, RecordColumn] = {
    "program": RecordColumn(_NAMES, "name of the program"),
    "application": RecordColumn(_NAMES, "family of the program, which splits by application keep together"),
    "fingerprint": RecordColumn(pa.binary(16), "fingerprint of the kernel"),
    "computation": RecordColumn(pa.int32(), "position of the computation that the kernel is part of"),
    "inputs": RecordColumn(_POSITIONS, "positions of the values read from memory, ascending"),
    "instructions": RecordColumn(_POSITIONS, "positions of the kernel's instructions, ascending"),
    "outputs": RecordColumn(_POSITIONS, "positions of instructions whose values leave it, ascending"),
    "config": RecordColumn(pa.int32(), "number of the first config with the kernel, which it was timed in"),
    "places": RecordColumn(pa.int32(), "kernels of that config with this fingerprint"),
    "default_runs": RecordColumn(pa.int64(), "runs of such kernels in a run of the default; 0 for none"),
    "operations": RecordColumn(pa.int32(), "operations that the machine's compiler made of the kernel"),
    **_measured("first"),
    **_measured("second"),
}
"""Columns of `kernels.parquet`; `second_*` are 0 until the second round."""
CONFIG_COLUMNS: Mapping[str, RecordColumn] = {
    "program": RecordColumn(_NAMES, "name of the program"),
    "application": RecordColumn(_NAMES, "family of the program"),
    "config": RecordColumn(pa.int32(), "number of the config in its program, from 0"),
    "origin": RecordColumn(pa.string(), f"`{XLA_DEFAULT}`, `{UNFUSED}`, `{DEFAULT}` or `{RANDOM}`"),
    "fused": RecordColumn(pa.list_(pa.int8()), "1 for every edge of the fusion space that is fused, else 0"),
    "fingerprints": RecordColumn(_FINGERPRINTS, "distinct kernels of the config"),
    "runs": RecordColumn(pa.list_(pa.int64()), "runs of each of them in one run of the program"),
    "compile_seconds": RecordColumn(pa.float32(), "processor time of the compilation"),
    "outside_ns": RecordColumn(pa.int64(), "time of operations of no kernel in a run, first round"),
    **_measured("first"),
    **_measured("second"),
}
"""Columns of `configs.parquet`; the runtimes are those of the whole program."""


@dataclass(frozen=True, eq=False)
class MachineRecords:
    """The records of one machine.

    Attributes:
        folder: folder of the machine, in the folder of all records.
        machine: content of `machine.json`.
        entries: programs with records, by name.
        kernels: rows of `KERNEL_COLUMNS`, those of a program together.
        configs: rows of `CONFIG_COLUMNS`, those of a program together and by number.
    """

    folder: Path
    machine: Mapping[str, Any]
    entries: Mapping[str, ProgramEntry]
    kernels: pd.DataFrame
    configs: pd.DataFrame

    @property
    def programs_folder(self) -> Path:
        """Returns the folder of the programs that kernels are views of."""
        return self.folder.parent / PROGRAMS


def machines(folder: Path) -> tuple[str, ...]:
    """Returns the names of the machines with records, in order."""
    return tuple(path.parent.name for path in sorted(folder.glob(f"*/{MACHINE}")))


def open_records(folder: Path, machine: str) -> MachineRecords:
    """Reads the records of a machine.

    Args:
        folder: folder of the records of all machines, such as `data/xla_cpu`.
        machine: name of the machine's folder in it.

    Raises:
        DataError: if there are none, a file is damaged, or the manifest does not list a program of theirs.
    """
    path = folder / machine / MACHINE
    if not path.exists():
        names = ", ".join(machines(folder)) or "records of `costbench measure --record`"
        raise DataError("no records of such a machine", where=folder / machine, expected=names)
    facts = read_json(path)
    if not isinstance(facts, dict) or facts.get("version") != VERSION:
        raise DataError("is of another version", where=path, field="version", expected=str(VERSION))
    kernels = read_table(path.parent / KERNELS, KERNEL_COLUMNS)
    configs = read_table(path.parent / CONFIGS, CONFIG_COLUMNS)
    listed = {entry.name: entry for entry in load_manifest(folder / PROGRAMS)}
    measured = configs["program"].unique().tolist()
    for program in measured:
        if program not in listed:
            raise DataError(f"has no program {program!r}", where=folder / PROGRAMS, expected="all measured")
    return MachineRecords(path.parent, facts, {name: listed[name] for name in measured}, kernels, configs)


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, RecordColumn]) -> None:
    """Writes rows atomically.

    Raises:
        DataError: if the file cannot be written.
    """
    table = pa.Table.from_pylist(list(rows), schema=_schema(columns))
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=19)


def read_table(path: Path, columns: Mapping[str, RecordColumn]) -> pd.DataFrame:
    """Returns the rows of a file.

    Raises:
        DataError: if it is missing, damaged, or has other columns, naming the row of a value that is empty or
            NaN.
    """
    data = read_bytes(path)
    try:
        table = read_parquet(data)
    except DataError as error:
        raise error.recast(DataError, where=path) from error
    schema = _schema(columns)
    for name in schema.names:
        if name not in table.schema.names or table.schema.field(name).type != schema.field(name).type:
            raise DataError(
                "missing or of another type", where=path, field=name, expected=columns[name].meaning
            )
        values = table.column(name)
        row = pc.index(values.is_null(nan_is_null=True), True).as_py()
        if row >= 0:
            problem = f"row {row} is {'empty' if values[row].as_py() is None else 'NaN'}"
            raise DataError(problem, where=path, field=name, expected=columns[name].meaning)
    # Arrow has no way from lists of values of fixed size to pandas, from other lists it has.
    plain = [
        field.with_type(pa.list_(pa.binary())) if field.type == _FINGERPRINTS else field
        for field in table.schema
    ]
    frame: pd.DataFrame = table.cast(pa.schema(plain)).to_pandas()
    return frame


def _schema(columns: Mapping[str, RecordColumn]) -> pa.Schema:
    return pa.schema(
        [
            pa.field(name, c.type, nullable=False, metadata={"meaning": c.meaning})
            for name, c in columns.items()
        ]
    )
