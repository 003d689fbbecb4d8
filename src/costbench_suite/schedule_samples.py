"""Schedules of operators on processors as tables: choices, loops, and two measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from costbench.arrays import F64, I64
from costbench.installation import installed_files
from costbench_schedules.features.context import FEATURE_NAMES, context_features
from costbench_schedules.features.trees import LoopTrees, loop_trees
from costbench_schedules.records.second_measurements import TwiceMeasured, second_measurements
from costbench_schedules.records.table import SUFFIX, RecordedTable, read_table
from costbench_schedules.spaces.nest import nest_batch
from costbench_suite.kernel_samples import DECISIONS, list_column
from costbench_suite.samples import Samples, leave_one_out

OPERATORS, LOOPS = "operators", "loops"
LOOP_FEATURES = FEATURE_NAMES
"""Names of the features of a node of a loop tree, in order."""
_FOLDER = "data/schedules/"
_TARGETS = ("generic", "native")
_AXIS_TILE = "tile "


def schedule_samples() -> Samples:
    """Returns the samples of the recorded tables that come with costbench, named `WORKLOAD-TARGET`.

    Tables whose fastest schedule is slow when it is measured again are left out, as a choice from them cannot
    be scored. All tables of an operator are tested in one fold.

    Raises:
        DataError: for a damaged table.
    """
    tables: dict[str, tuple[RecordedTable, TwiceMeasured]] = {}
    files = installed_files()
    for target in _TARGETS:
        folder = f"{_FOLDER}{target}/"
        for path in (path for name, path in files.items() if name.startswith(folder)):
            if path.suffix == SUFFIX:
                table = read_table(path)
                twice = second_measurements(table) if table.complete else None
                if twice is not None and twice.confirmed:
                    tables[f"{table.workload}-{target}"] = table, twice
    tables = {name: tables[name] for name in sorted(tables)}
    applications = {name: table.workload for name, (table, _) in tables.items()}
    return Samples(applications, leave_one_out(applications), _tables(tables))


def _tables(
    tables: Mapping[str, tuple[RecordedTable, TwiceMeasured]],
) -> Iterator[Mapping[str, pa.Table]]:
    sizes = dict.fromkeys(size for table, _ in tables.values() for size in table.space.operator.parameters)
    choices = {name: _choices(table) for name, (table, _) in tables.items()}
    names = dict.fromkeys(column for columns in choices.values() for column in columns)
    for name, (table, twice) in tables.items():
        operator = table.space.operator
        of_operator = {
            "id": [name],
            "operator": [operator.name],
            **{f"size_{size}": [float(operator.parameters.get(size, np.nan))] for size in sizes},
            "flops": [operator.flops],
            "target": [table.target],
            "processor": [str(table.host["processor"])],
        }
        ids = [name] * len(table)
        absent = np.full(len(table), np.nan)
        decisions = {
            "id": ids,
            "decision": np.arange(len(table), dtype=np.int32),
            "scored": ~table.failed,
            **{column: choices[name].get(column, absent) for column in names},
            "runtime_ns": np.where(table.failed, np.nan, twice.first_ns),
            "again_ns": np.where(table.failed, np.nan, twice.second_ns),
            "measured_again": np.isin(np.arange(len(table)), table.later[:, 0]) & ~table.failed,
        }
        yield {
            OPERATORS: pa.table(of_operator),
            DECISIONS: pa.table(decisions),
            LOOPS: _loops(ids, loop_trees(context_features(nest_batch(table.space, _rows(table))))),
        }


def _rows(table: RecordedTable) -> I64:
    return table.space.rows(range(len(table)))


def _choices(table: RecordedTable) -> dict[str, F64]:
    """Returns the choice of each knob as numbers by column; of a tile a column for each level from 0.

    A choice among names counts as its position among those of the unrestricted space.
    """
    columns: dict[str, F64] = {}
    rows = _rows(table)
    for knob, ids, chosen in zip(table.space.knobs, table.space.chosen, rows.T, strict=True):
        values = knob.values
        if isinstance(values[0], tuple):
            factors = np.array(values, dtype=np.float64)[chosen]
            axis = knob.name.removeprefix(_AXIS_TILE)
            columns |= {f"tile_{axis}_{level}": factors[:, level] for level in range(factors.shape[1])}
        else:
            are_numbers = all(isinstance(value, int) for value in values)
            columns[knob.name] = np.array(values if are_numbers else ids, dtype=np.float64)[chosen]
    return columns


def _loops(ids: list[str], trees: LoopTrees) -> pa.Table:
    """Returns a row for each schedule with the nodes of its tree in the order of the program."""
    is_node = trees.depths > 0
    values = [tree[nodes].ravel() for tree, nodes in zip(trees.values, is_node, strict=True)]
    parents = [tree[nodes].astype(np.int16) for tree, nodes in zip(trees.parents, is_node, strict=True)]
    return pa.table(
        {
            "id": ids,
            "decision": np.arange(len(ids), dtype=np.int32),
            "parents": list_column(parents, pa.int16()),
            "loop_features": list_column(values, pa.float32()),
        }
    )
