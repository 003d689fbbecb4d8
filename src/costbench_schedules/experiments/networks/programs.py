"""The recorded programs of networks with everything that models read, loaded once in each process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from costbench.arrays import F32, F64, I64
from costbench_schedules.features.primitives import primitive_sequences
from costbench_schedules.features.vectors import REPRESENTATIONS
from costbench_schedules.operators.networks import networks
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.networks.estimated import PROGRAMS, EstimatedPrograms, read_estimated
from costbench_schedules.spaces.space import ScheduleSpace

FEWEST = 10
"""Programs that an operator needs for a choice among them to say anything."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The programs that were analysed and ran for both targets, n in all.

    Attributes:
        operators: description of each operator.
        groups: int64 [n], position of the program's operator in `operators`.
        native_ns: float64 [n].
        generic_ns: float64 [n].
        estimates: float64 [n] by name, see `estimating.ProgramEstimates.of`.
        lanes: float64 [n, kinds], executed lanes by kind of operation.
        relation: float32 [n, F], the relation features whose columns tell programs apart.
        primitives: float32 [n, T, W], schedule primitives.
    """

    operators: tuple[str, ...]
    groups: I64
    native_ns: F64
    generic_ns: F64
    estimates: Mapping[str, F64]
    lanes: F64
    relation: F32
    primitives: F32

    def __len__(self) -> int:
        return len(self.groups)

    def of_network(self, name: str) -> dict[int, int]:
        """Returns how often a network executes each of its operators, by the operator's position.

        Operators of fewer than `FEWEST` programs are left out.
        """
        executions = {parse_operator(text).text: count for text, count in networks()[name].executions.items()}
        sizes = np.bincount(self.groups, minlength=len(self.operators))
        return {
            place: executions[text]
            for place, text in enumerate(self.operators)
            if text in executions and sizes[place] >= FEWEST
        }


@lru_cache(2)
def candidates(folder: Path, digest: str) -> Candidates:
    """Returns the candidates in a folder of `estimate-networks`.

    Args:
        folder: of the files.
        digest: of `programs.arrow`, so that a changed file is read again.

    Raises:
        DataError: if the file is damaged.
    """
    return _candidates(read_estimated(folder / PROGRAMS))


def _candidates(found: EstimatedPrograms) -> Candidates:
    columns = found.columns
    kept = columns["analysed"] & (columns["native_ns"] > 0) & (columns["generic_ns"] > 0)
    relation, primitives = [], []
    for place, operator in enumerate(found.operators):
        space = ScheduleSpace(operator)
        rows = space.rows(columns["number"][kept & (columns["operator"] == place)].tolist())
        if len(rows):
            relation.append(REPRESENTATIONS["relation"](space, rows))
            primitives.append(primitive_sequences(space, rows))
    order = np.argsort(columns["operator"][kept], kind="stable")
    places = np.flatnonzero(kept)[order]
    return Candidates(
        tuple(operator.text for operator in found.operators),
        columns["operator"][places].astype(np.int64),
        columns["native_ns"][places].astype(np.float64),
        columns["generic_ns"][places].astype(np.float64),
        {name: values[places] for name, values in found.estimates.items()},
        columns["lanes"][places].astype(np.float64),
        _distinct(np.concatenate(relation)),
        np.concatenate(primitives),
    )


def _distinct(rows: F32) -> F32:
    """Returns the columns that tell rows apart, the first of equal ones."""
    columns = np.ascontiguousarray(rows[:, np.ptp(rows, axis=0) > 0.0].T)
    first = {column.tobytes(): place for place, column in reversed(list(enumerate(columns)))}
    return np.ascontiguousarray(columns[sorted(first.values())].T)
