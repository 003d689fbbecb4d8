"""Programs of networks with what the analytical model says of them: what a repository keeps of a recording.

Features of a program take some 10 KB, its estimates 200 bytes. Folder of a recording that is kept:

    programs.arrow    all programs of all operators, a row each: columns below
    sampled.arrow     features of one program of each operator, from which its estimates follow
    curves.arrow      programs that differ in one tile, where they are recorded; format of programs.arrow
    card.json         machine, how programs were drawn, noise, digests

    column            type         unit, meaning
    operator          int16        position in the list of operators, in the metadata
    number            int64        configuration of the unrestricted space of the operator
    searched          bool         whether it was drawn from the neighbours of the fastest so far
    native_ns         int64        measured for the processor itself; 0 where it failed
    generic_ns        int64        measured for the least processor of the family; 0 where left out
    again_ns          int64        native runtime, measured again; 0 where it was not
    analysed          bool         whether features were taken, which slow programs have not
    NAME              float32      estimates, one column each; 0 without features
    lanes             float32 [k]  executed lanes by kind of operation, see `compiler.llvm.operations.KINDS`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from costbench.arrays import F64, AnyArray
from costbench.errors import CostbenchError, DataError
from costbench_schedules.llvm.operations import KINDS
from costbench_schedules.operators.operators import Operator, parse_operator
from costbench_schedules.records.networks.arrow_file import read_arrow, write_arrow

PROGRAMS, SAMPLED, CURVES, CARD = "programs.arrow", "sampled.arrow", "curves.arrow", "card.json"
VERSION = 1
_LANES = "lanes"
_COLUMNS: Mapping[str, tuple[Any, Any]] = {
    "operator": (np.int16, pa.int16()),
    "number": (np.int64, pa.int64()),
    "searched": (np.bool_, pa.bool_()),
    "native_ns": (np.int64, pa.int64()),
    "generic_ns": (np.int64, pa.int64()),
    "again_ns": (np.int64, pa.int64()),
    "analysed": (np.bool_, pa.bool_()),
}


@dataclass(frozen=True, eq=False)
class EstimatedPrograms:
    """The n programs of several operators.

    Attributes:
        operators: what they compute.
        columns: of the file by name, [n] each; `lanes` is [n, len(KINDS)].
        estimates: float64 [n] by name.
    """

    operators: tuple[Operator, ...]
    columns: Mapping[str, AnyArray]
    estimates: Mapping[str, F64]

    def __len__(self) -> int:
        return len(self.columns["number"])


def write_estimated(path: Path, found: EstimatedPrograms) -> None:
    """Writes programs atomically; equal programs give equal bytes.

    Raises:
        DataError: naming the file, if it cannot be written.
    """
    facts = {
        "version": VERSION,
        "operators": [operator.text for operator in found.operators],
        "estimates": list(found.estimates),
        "kinds": list(KINDS),
    }
    kinds = {name: kind for name, (_, kind) in _COLUMNS.items()} | dict.fromkeys(
        found.estimates, pa.float32()
    )
    arrays = [pa.array(found.columns[name], kind) for name, (_, kind) in _COLUMNS.items()]
    arrays += [pa.array(values.astype(np.float32)) for values in found.estimates.values()]
    lanes = found.columns[_LANES].astype(np.float32)
    arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(lanes.ravel()), lanes.shape[1]))
    fields = [pa.field(name, kind, nullable=False) for name, kind in kinds.items()]
    fields.append(pa.field(_LANES, arrays[-1].type, nullable=False))
    write_arrow(path, facts, pa.schema(fields), arrays)


def read_estimated(path: Path) -> EstimatedPrograms:
    """Reads what `write_estimated` wrote.

    Raises:
        DataError: naming the file, if it is missing, damaged or of another version.
    """
    expected = f"programs of version {VERSION}, written by `costbench estimate-networks`"
    try:
        facts, found = read_arrow(path)
        if facts["version"] != VERSION or facts["kinds"] != list(KINDS):
            raise ValueError("another version")
        columns = {name: found.column(name).to_numpy() for name in _COLUMNS}
        lanes = found.column(_LANES).combine_chunks().flatten().to_numpy()
        columns[_LANES] = lanes.reshape(-1, len(KINDS))
        operators = tuple(parse_operator(text) for text in facts["operators"])
        estimates = {name: found.column(name).to_numpy().astype(np.float64) for name in facts["estimates"]}
    except (OSError, ValueError, KeyError, pa.ArrowException, CostbenchError) as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"cannot be read: {problem}", where=path, expected=expected) from error
    places = columns["operator"]
    if len(places) and not 0 <= places.min() <= places.max() < len(operators):
        raise DataError("names operators that it does not have", where=path, field="operator")
    return EstimatedPrograms(operators, columns, estimates)
