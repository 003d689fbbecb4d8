"""The recorded tables of a folder, features of their schedules, and models of several tables together.

Tables and features are computed once in each process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from costbench.arrays import F32, F64, I64
from costbench.artifacts import digest_file
from costbench.errors import DataError
from costbench_schedules.features.trees import stack_trees
from costbench_schedules.features.vectors import fill_columns, precompute
from costbench_schedules.models.learner import ScheduleModel, samples_of
from costbench_schedules.models.spec import READS_TREES, ScheduleModelSpec, learner_of
from costbench_schedules.records.card import CARD, check_card
from costbench_schedules.records.second_measurements import TwiceMeasured, second_measurements
from costbench_schedules.records.table import RecordedTable, read_table, table_paths

_log = logging.getLogger(__name__)
_CACHED_TABLES, _CACHED_FEATURES = 64, 64


@dataclass(frozen=True, order=True)
class TableFile:
    """A recorded table on disk.

    Attributes:
        target: target that code was built for; after the name of the processor and a hyphen where the table
            is in a folder of another processor.
        workload: name of the workload.
        operator: kind of operator.
        path: path of the file.
        digest: digest of the file.
    """

    target: str
    workload: str
    operator: str
    path: Path
    digest: str


Tables = Mapping[tuple[str, str], TableFile]
"""Tables by target and workload."""


def complete_tables(folder: Path) -> Tables:
    """Returns the complete tables in a folder and its sub-folders; others are logged.

    Tables of another processor are in `PROCESSOR/TARGET`, and have the target `PROCESSOR-TARGET`. The files
    are compared with the digests of the card where there is one.

    Raises:
        DataError: naming the file, if one is damaged or differs from the card, or two are of the same
            workload and target.
    """
    if not folder.is_dir():
        return {}
    if (folder / CARD).is_file():
        check_card(folder)
    tables: dict[tuple[str, str], TableFile] = {}
    for path in table_paths(folder):
        table = read_table(path)
        if not table.complete:
            _log.info("%s is left out: %d of %d measured", path, table.num_measured, len(table))
            continue
        target = "-".join([*path.relative_to(folder).parts[:-2], table.target])
        key = (target, table.workload)
        if key in tables:
            raise DataError(
                f"{table.workload} for {target} again", where=path, expected=f"only {tables[key].path}"
            )
        tables[key] = TableFile(*key, table.space.operator.name, path, digest_file(path))
    return tables


@lru_cache(_CACHED_TABLES)
def table_of(file: TableFile) -> RecordedTable:
    """Returns the table in a file.

    Raises:
        DataError: if it is damaged.
    """
    return read_table(file.path)


@lru_cache(_CACHED_TABLES)
def measured_twice(file: TableFile) -> TwiceMeasured | None:
    """Returns first and second measurements of a table; None where nothing was measured again."""
    return second_measurements(table_of(file))


def runtimes(file: TableFile) -> F64:
    """Returns the runtime of every configuration in ns, infinite for failures, float64 [n]."""
    table = table_of(file)
    return np.where(table.failed, np.inf, table.columns["runtime_ns"].astype(np.float64))


@lru_cache(_CACHED_FEATURES)
def features_of(file: TableFile, representation: str) -> object:
    """Returns the features of all configurations, in the order of their numbers."""
    return precompute(table_of(file).space, representation).features


def distinct_columns(rows: F32) -> I64:
    """Returns the indices of the columns that tell rows apart, the first of equal ones, int64 [k], ascending.

    Boosted trees split at the same places with and without the others, and grow faster without.
    """
    first = np.sort(np.unique(rows, axis=1, return_index=True)[1])
    varied = first[np.ptp(rows[:, first], axis=0) > 0.0]
    return np.asarray(varied if len(varied) else first[:1], dtype=np.int64)


def joint_features(files: Sequence[TableFile], model: ScheduleModelSpec) -> list[Any]:
    """Returns the features of all configurations of each table, as one model can read them.

    Rows are filled up to the width of the widest table and lose the columns that tell no schedules apart.
    """
    parts: list[Any] = [features_of(file, model.representation) for file in files]
    if model.model in READS_TREES:
        return parts
    width = max(rows.shape[1] for rows in parts)
    parts = [fill_columns(rows, width) for rows in parts]
    columns = distinct_columns(np.concatenate(parts))
    return [np.ascontiguousarray(rows[:, columns]) for rows in parts]


def fit_jointly(
    sources: Sequence[TableFile],
    features: Sequence[Any],
    model: ScheduleModelSpec,
    samples: int,
    draws: np.random.Generator,
    seed: int,
) -> ScheduleModel[Any]:
    """Returns a model of random schedules of several tables.

    Args:
        sources: tables that it is fitted to.
        features: features of all configurations of each.
        model: kind of the model.
        samples: number of schedules that are drawn from all tables together.
        draws: random numbers that draw them.
        seed: seed of the model.
    """
    runtime_ns = np.concatenate([runtimes(file) for file in sources])
    groups = np.repeat(np.arange(len(sources)), [len(part) for part in features])
    chosen = draws.permutation(len(runtime_ns))[:samples]
    together = stack_trees(features) if model.model in READS_TREES else np.concatenate(features)
    return learner_of(model).fit(together[chosen], samples_of(runtime_ns[chosen], groups[chosen]), seed)
