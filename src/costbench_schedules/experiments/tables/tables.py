"""The recorded tables of a folder, and features of their schedules, computed once in each process."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from costbench.arrays import F64
from costbench.artifacts import digest_file
from costbench.errors import DataError
from costbench_schedules.features.vectors import precompute
from costbench_schedules.records.card import CARD, check_card
from costbench_schedules.records.table import RecordedTable, read_table, table_paths

_log = logging.getLogger(__name__)
_TABLES, _FEATURES = 64, 64


@dataclass(frozen=True, order=True)
class TableFile:
    """A recorded table on disk.

    Attributes:
        target: that was built for.
        workload: by name.
        operator: kind of operator.
        path: of the file.
        digest: of the file.
    """

    target: str
    workload: str
    operator: str
    path: Path
    digest: str


Tables = Mapping[tuple[str, str], TableFile]
"""By target and workload."""


def complete_tables(folder: Path) -> Tables:
    """Returns the complete tables in a folder and its sub-folders; others are logged.

    The files are compared with the digests of the card where there is one.

    Raises:
        DataError: naming the file, if one is damaged or differs from the card, or two are of the same
            workload and target.
    """
    if not folder.is_dir():
        return {}
    if (folder / CARD).is_file():
        check_card(folder)
    found: dict[tuple[str, str], TableFile] = {}
    for path in table_paths(folder):
        digest = digest_file(path)
        table = table_of(TableFile("", "", "", path, digest))
        if not table.complete:
            _log.info("%s is left out: %d of %d measured", path, table.num_measured, len(table))
            continue
        key = (table.target, table.workload)
        if key in found:
            raise DataError(
                f"{table.workload} for {table.target} again", where=path, expected=f"only {found[key].path}"
            )
        found[key] = TableFile(*key, table.space.operator.name, path, digest)
    return found


def table_of(file: TableFile) -> RecordedTable:
    """Returns the table in a file.

    Raises:
        DataError: if it is damaged.
    """
    return _read(file.path, file.digest)


@lru_cache(_TABLES)
def _read(path: Path, digest: str) -> RecordedTable:
    return read_table(path)


def runtimes(file: TableFile) -> F64:
    """Returns the runtime of every configuration in ns, infinite for failures, float64 [n]."""
    table = table_of(file)
    return np.where(table.failed, np.inf, table.columns["runtime_ns"].astype(np.float64))


def features_of(file: TableFile, representation: str) -> object:
    """Returns the features of all configurations, in the order of their numbers."""
    return _features(file.path, file.digest, representation)


@lru_cache(_FEATURES)
def _features(path: Path, digest: str, representation: str) -> object:
    return precompute(_read(path, digest).space, representation).features
