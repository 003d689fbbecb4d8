"""Reads the data of a task a program at a time: tables as pandas frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from costbench.artifacts import check_sealed, digest_bytes, read_json
from costbench.errors import DataError, choose
from costbench.params import parse
from costbench_suite.kernel_samples import SUMMARY_FEATURES
from costbench_suite.program_tables import open_table, read_program
from costbench_suite.tasks import TASKS, SuiteTask

PROGRAMS, SPLITS = "programs", "splits"
"""Files that the folder of every task has: all programs, and their sets in each fold."""


FACTS_FILE = "suite.json"


@dataclass(frozen=True)
class DataFacts:
    """What the data of a task is: the file `suite.json`.

    Attributes:
        version: version of the suite.
        task: name of the task.
        fresh: seed of a fresh test set; 0 for the suite's own data.
        digests: digest of the values of each table, by its name.
    """

    version: int
    task: str
    fresh: int
    digests: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Returns the digest of all tables, 64 hexadecimal digits."""
        return digest_bytes(
            "".join(f"{name} {self.digests[name]}\n" for name in sorted(self.digests)).encode()
        )


@dataclass(frozen=True)
class Fold:
    """The programs of a fold by set. A program is tested in one fold, by a model that never saw its runtimes.

    Attributes:
        number: number of the fold, from 1.
        train: programs that a model may be fitted to.
        validation: programs that choices may be made by.
        test: programs that the model predicts.
    """

    number: int
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]


class TaskData:
    """The data of one task.

    Args:
        folder: folder that `costbench suite data` wrote: that of the task, or the one it lies in.
        task: name of the task; left out, that of the folder.

    Raises:
        DataError: if files are missing or damaged.
    """

    def __init__(self, folder: str | Path, task: str = "") -> None:
        path = Path(folder)
        self.task: SuiteTask = choose(TASKS, task or path.name, "task of the suite")
        inner = path / self.task.folder
        self.folder = path if path.name == self.task.folder and not inner.is_dir() else inner
        self.facts = read_facts(self.folder)
        """Version, fresh seed and digests of the data."""
        self._files: dict[str, pq.ParquetFile] = {}
        self.programs: pd.DataFrame = self._file(PROGRAMS).read().to_pandas().set_index("program")
        """Application and fold of each program, in the order of all tables."""

    @cached_property
    def folds(self) -> tuple[Fold, ...]:
        """Returns the folds, in order."""
        rows = self._file(SPLITS).read().to_pandas()
        sets = rows.groupby(["fold", "set"])["program"].agg(lambda names: tuple(sorted(names)))
        return tuple(
            Fold(number, *(sets.get((number, part), ()) for part in ("train", "validation", "test")))
            for number in sorted(rows["fold"].unique().tolist())
        )

    def table(
        self, name: str, programs: str | Sequence[str], columns: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Returns the rows of some programs, in the order of the programs.

        Args:
            name: name of the table, such as `decisions`.
            programs: name of a program, or several.
            columns: columns to read; all for None.

        Raises:
            DataError: for an unknown table or program, or a damaged file.
        """
        choose(self.task.tables, name, "table")
        positions = {program: number for number, program in enumerate(self.programs.index)}
        file, path = self._file(name), self._path(name)
        parts = [
            read_program(file, choose(positions, program, "program"), path, columns).to_pandas()
            for program in ([programs] if isinstance(programs, str) else programs)
        ]
        rows: pd.DataFrame = pd.concat(parts, ignore_index=True)
        return rows

    def decisions(self, programs: str | Sequence[str]) -> pd.DataFrame:
        """Returns the measured decisions of some programs; see `table`."""
        return self.table("decisions", programs)

    def summaries(self, programs: str | Sequence[str]) -> pd.DataFrame:
        """Returns the kernels of some programs as a row of numbers each, by id.

        Raises:
            DataError: as `table`, and for a task without summaries.
        """
        rows = self.table("summaries", programs)
        values = np.stack(rows["features"].tolist())
        return pd.DataFrame(values, columns=list(SUMMARY_FEATURES), index=pd.Index(rows["id"], name="id"))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def _file(self, name: str) -> pq.ParquetFile:
        if name not in self._files:
            path = self._path(name)
            if not path.is_file():
                expected = "a folder that `costbench suite data` wrote"
                raise DataError("missing", where=path, expected=expected)
            check_sealed(path)
            self._files[name] = open_table(path)
        return self._files[name]


def read_facts(folder: Path) -> DataFacts:
    """Returns what the data of a task's folder is.

    Raises:
        DataError: if the file is missing, damaged, or says something else.
    """
    path = folder / FACTS_FILE
    if not path.is_file():
        raise DataError("no data of the suite", where=path, expected="a folder of `costbench suite data`")
    check_sealed(path)
    return parse(DataFacts, read_json(path), where=path, error=DataError)
