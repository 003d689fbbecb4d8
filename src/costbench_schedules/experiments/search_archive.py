"""Searches that took long, packed: when each search of a tuning table changed its choice, and to what.

That is all that scores and curves follow from. One Parquet file, a row per change:

    column      type     meaning
    kernel      string   kernel of the table
    device      string   device of the table
    strategy    string   name of the strategy
    repeat      int16    number of the repeat
    trial       int32    trial at which the choice changed, from 1
    number      int32    configuration that was chosen then

Its metadata hold the number of trials, the seed, the digest of each table and the number of repeats of each
strategy on it: a search that never had a choice has no row. What an archive has is not searched again,
whatever code searched (docs/decisions/0068).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from costbench.arrays import I64
from costbench.artifacts import atomic_path, read_bytes, seal
from costbench.datasets.parquet_files import read_parquet
from costbench.errors import DataError, one_line
from costbench_schedules.experiments.table_scores import TableSearches, choices
from costbench_schedules.records.tuning_table import TuningTable

ARCHIVE_FILE = "choices.parquet"
_log = logging.getLogger(__name__)
_KEY = b"costbench.searches"
_COLUMNS = ("kernel", "device", "strategy", "repeat", "trial", "number")


@dataclass(frozen=True)
class ArchiveFacts:
    """What the searches of an archive have in common.

    Attributes:
        trials: number of trials of each search.
        seed: seed of all searches.
        tables: digest of each table's file, by KERNEL-DEVICE.
        settings: digest of what else searches follow from; empty for nothing.
        repeats: number of repeats by table and strategy, as they are written.
    """

    trials: int
    seed: int
    tables: Mapping[str, str]
    settings: str = ""
    repeats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def write_archive(path: Path, searches: Iterable[TableSearches], facts: ArchiveFacts) -> None:
    """Writes searches, and seals their folder; equal ones give equal bytes.

    Raises:
        DataError: if the file cannot be written.
    """
    repeats: dict[str, dict[str, int]] = {}
    rows: list[tuple[str, str, str, int, int, int]] = []
    for search in sorted(searches, key=lambda search: (search.table.name, search.strategy)):
        repeats.setdefault(search.table.name, {})[search.strategy] = len(search.orders)
        for repeat, order in enumerate(search.orders):
            chosen = choices(search.table, order)
            changed = np.flatnonzero(np.diff(chosen, prepend=-1))
            names = (search.table.kernel, search.table.device, search.strategy, repeat)
            rows += [(*names, trial + 1, int(chosen[trial])) for trial in changed.tolist()]
    frame = pd.DataFrame(rows, columns=[*_COLUMNS])
    kinds = {"repeat": "int16", "trial": "int32", "number": "int32"}
    table = pa.Table.from_pandas(
        frame.astype({**dict.fromkeys(_COLUMNS, "str"), **kinds}), preserve_index=False
    )
    table = table.replace_schema_metadata(
        {_KEY: json.dumps(asdict(replace(facts, repeats=repeats)), sort_keys=True).encode()}
    )
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    seal(path.parent, "`git checkout`")


def read_facts(path: Path) -> ArchiveFacts:
    """Returns what the searches of an archive have in common.

    Raises:
        DataError: naming the file, if it is damaged or no archive.
    """
    data = read_bytes(path)
    try:
        metadata = pq.read_schema(pa.BufferReader(data)).metadata or {}
        return ArchiveFacts(**json.loads(metadata[_KEY]))
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        expected = "searches of tuning tables"
        raise DataError(f"cannot be read: {one_line(error)}", where=path, expected=expected) from error


def archived_searches(
    path: Path, tables: Mapping[str, TuningTable], trials: int, seed: int, settings: str = ""
) -> list[TableSearches]:
    """Returns the searches of an archive, all repeats, of tables that are the same; none without the file.

    Args:
        path: file of the archive.
        tables: tables by the digest of their file.
        trials: number of trials of a search; an archive of others is left out, and a line says so.
        seed: seed of the searches, likewise.
        settings: digest of what else they follow from, likewise.

    Raises:
        DataError: if the archive is damaged.
    """
    if not path.is_file():
        return []
    facts = read_facts(path)
    if (facts.trials, facts.seed, facts.settings) != (trials, seed, settings):
        _log.info("%s is left out: %d trials with seed %d, or other settings", path, facts.trials, facts.seed)
        return []
    same = [table for digest, table in tables.items() if facts.tables.get(table.name) == digest]
    searches = read_archive(path, same)
    _log.info(
        "%d searches of %d tables come from %s", sum(len(s.orders) for s in searches), len(same), path.parent
    )
    return searches


def read_archive(path: Path, tables: Iterable[TuningTable]) -> list[TableSearches]:
    """Returns the searches of some tables, all strategies and repeats of each.

    Orders hold the choice after each trial: their scores are those of the searches, but what was measured
    between two changes of a choice is not in them.

    Args:
        path: file of the archive.
        tables: tables whose searches are wanted; those without any are left out.

    Raises:
        DataError: naming the file, if it is damaged or a choice is none of the table's configurations.
    """
    facts = read_facts(path)
    try:
        frame = read_parquet(read_bytes(path)).to_pandas()
    except DataError as error:
        raise error.recast(DataError, where=path) from error
    if tuple(frame.columns) != _COLUMNS:
        raise DataError(f"has the columns {list(frame.columns)}", where=path, expected=str(list(_COLUMNS)))
    groups: dict[Any, pd.DataFrame] = dict(iter(frame.groupby(["kernel", "device", "strategy", "repeat"])))
    nothing = frame[:0]
    searches = []
    for table in tables:
        for strategy, repeats in facts.repeats.get(table.name, {}).items():
            keys = [(table.kernel, table.device, strategy, repeat) for repeat in range(repeats)]
            orders = [_order_of(table, groups.get(key, nothing), facts.trials, path) for key in keys]
            searches.append(TableSearches(table, strategy, facts.trials, orders))
    return searches


def _order_of(table: TuningTable, changes: pd.DataFrame, trials: int, path: Path) -> I64:
    """Returns the choice after each trial until the last change; before the first one, what failed [>= 1]."""
    trial, number = (changes[name].to_numpy(dtype=np.int64) for name in ("trial", "number"))
    inside = np.all((number >= 0) & (number < len(table))) and np.all((trial >= 1) & (trial <= trials))
    if not inside or np.any(np.diff(trial) <= 0):
        raise DataError(f"choices that {table.name} cannot have", where=path, field="number")
    failed = np.flatnonzero(table.failed)[:1]
    if (not len(trial) or trial[0] > 1) and not len(failed):
        raise DataError(
            f"{table.name}: no choice after trial 1, but nothing failed", where=path, field="trial"
        )
    if not len(trial):
        return failed
    before = np.repeat(failed, trial[0] - 1)
    lengths = np.append(np.diff(trial), 1)
    return np.concatenate([before, np.repeat(number, lengths)]).astype(np.int64)
