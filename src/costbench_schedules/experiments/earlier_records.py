"""A model of records that exist already, for a search on another operator or another machine.

Records are recorded tables, files or folders of them, and logs of live searches. Their schedules are read as
relation features, which mean the same for every operator (autotvm2018, section 4); runtimes are compared
within a file only, for machines and operators differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench.arrays import F32, F64
from costbench.artifacts import digest_bytes, digest_file
from costbench.errors import DataError
from costbench.rng import stream
from costbench_schedules.features.vectors import REPRESENTATIONS, fill_columns
from costbench_schedules.models.learner import ScheduleModel, samples_of
from costbench_schedules.models.spec import ScheduleModelSpec, learner_of
from costbench_schedules.records.table import read_table, table_paths
from costbench_schedules.records.tune_log import read_log
from costbench_schedules.spaces.space import ScheduleSpace

LOG = ".jsonl"
SAMPLES = 4_000
"""Schedules that are drawn from all records, at most."""


@dataclass(frozen=True, eq=False)
class Records:
    """Measurements of schedules of one operator on one machine.

    Attributes:
        space: space that they are of.
        numbers: numbers of the schedules in the space.
        runtime_ns: their runtimes, infinite for failures, float64 [n].
    """

    space: ScheduleSpace
    numbers: Sequence[int]
    runtime_ns: F64


def read_records_of(path: Path) -> Iterator[tuple[Path, Records]]:
    """Yields the records in a file, or in the tables of a folder and its sub-folders, with their files.

    Raises:
        DataError: naming the file, if it is damaged or none of records, or the folder, if it has no table.
    """
    paths = table_paths(path) if path.is_dir() else [path]
    if not paths:
        raise DataError("no recorded tables", where=path, expected="a folder of `record-schedules`")
    for file in paths:
        if file.suffix == LOG:
            header, entries = read_log(file)
            ran = [np.inf if entry.runtime_ns is None else entry.runtime_ns for entry in entries]
            yield file, Records(header.space, [entry.number for entry in entries], np.array(ran, np.float64))
        else:
            table = read_table(file)
            measured = np.flatnonzero(table.columns["measured"])
            runtime_ns = np.where(table.failed, np.inf, table.columns["runtime_ns"].astype(np.float64))
            yield file, Records(table.space, measured.tolist(), runtime_ns[measured])


def model_of_records(
    paths: Sequence[Path], spec: ScheduleModelSpec, seed: int
) -> tuple[ScheduleModel[F32], str]:
    """Returns a model of at most `SAMPLES` schedules that are drawn from all records, and a digest of these.

    Args:
        paths: files and folders of records.
        spec: kind of the model, which reads rows.
        seed: seed of the draws and of the model.

    Raises:
        DataError: naming the file, as `read_records_of`, or if nothing ran.
    """
    sources = [source for path in paths for source in read_records_of(path)]
    sizes = [len(records.numbers) for _, records in sources]
    if not any(np.isfinite(records.runtime_ns).any() for _, records in sources):
        raise DataError("nothing ran", where=paths[0], expected="schedules with a runtime")
    groups = np.repeat(np.arange(len(sources)), sizes)
    indices = np.concatenate([np.arange(size) for size in sizes])
    sampled = np.sort(stream(seed, "records").permutation(len(groups))[:SAMPLES])
    features, runtimes = [], []
    for group, (_, records) in enumerate(sources):
        rows = indices[sampled[groups[sampled] == group]]
        numbers = [records.numbers[row] for row in rows.tolist()]
        features.append(REPRESENTATIONS[spec.representation](records.space, records.space.rows(numbers)))
        runtimes.append(records.runtime_ns[rows])
    width = max(part.shape[1] for part in features)
    joined = np.concatenate([fill_columns(part, width) for part in features])
    model = learner_of(spec).fit(joined, samples_of(np.concatenate(runtimes), groups[sampled]), seed)
    return model, digest_bytes("\0".join(digest_file(file) for file, _ in sources).encode())
