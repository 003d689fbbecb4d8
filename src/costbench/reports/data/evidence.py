"""Reads the files that qualify the results: the leakage audit, counts of the splits, training curves.

Stages write these files; they are read strictly, since readers judge the results by them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from costbench.artifacts import read_bytes, read_json
from costbench.errors import DataError, ParamsError
from costbench.params import parse
from costbench.reports.results import split_order
from costbench.tasks import task_order

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Plain = TypeVar("_Plain", bound="DataclassInstance")
"""In the order in which tables show them."""
PARTS = ("train", "validation", "test", "dropped")


@dataclass(frozen=True)
class Leak:
    """Test kernels that also occur in training (see `costbench.datasets.leakage`)."""

    kernels: int
    leaked_kernels: int
    runtime_ns: int
    leaked_runtime_ns: int
    share_of_kernels: float
    share_of_runtime: float


@dataclass(frozen=True)
class Counts:
    """Samples of a set of programs (see `costbench.datasets.card`)."""

    programs: int
    kernels: int
    samples: int


@dataclass(frozen=True)
class SplitCounts:
    """Counts of one task, split and chip by set: train, validation, test, dropped."""

    task: str
    split: str
    chip: str
    sets: Mapping[str, Counts]


@dataclass(frozen=True)
class Audit:
    """The audit of one task, split and chip: the whole test set, and each test program."""

    task: str
    split: str
    chip: str
    test: Leak
    by_program: Mapping[str, Leak]


def read_audits(path: Path) -> tuple[Audit, ...]:
    """The leakage audits in `leakage.json`, random split first.

    Raises:
        DataError: if the file is missing or is something else.
    """
    audits = []
    for task, split, chip, report in _leaves(path):
        field = f"{task}.{split}.{chip}"
        body = mapping(report, path, field)
        by_program = mapping(body.get("by_program"), path, f"{field}.by_program")
        leaks = {name: parsed(Leak, value, path, f"{field}.{name}") for name, value in by_program.items()}
        audits.append(Audit(task, split, chip, parsed(Leak, body.get("test"), path, f"{field}.test"), leaks))
    return tuple(audits)


def read_counts(path: Path) -> tuple[SplitCounts, ...]:
    """The counts of sets in `counts.json`, random split first.

    Raises:
        DataError: if the file is missing or is something else.
    """
    found = []
    for task, split, chip, sets in _leaves(path):
        field = f"{task}.{split}.{chip}"
        body = mapping(sets, path, field)
        if set(body) != set(PARTS):
            raise DataError(f"{', '.join(body)}", where=path, field=field, expected=", ".join(PARTS))
        counts = {part: parsed(Counts, body[part], path, f"{field}.{part}") for part in PARTS}
        found.append(SplitCounts(task, split, chip, counts))
    return tuple(found)


def _leaves(path: Path) -> Iterator[tuple[str, str, str, object]]:
    """(task, split, chip, value) of a file nested like that: tile first, random first."""
    content = mapping(read_json(path), path, "")
    for task in sorted(content, key=task_order):
        splits = mapping(content[task], path, task)
        for split in sorted(splits, key=lambda name: (split_order(name), name)):
            for chip, value in sorted(mapping(splits[split], path, f"{task}.{split}").items()):
                yield task, split, chip, value


def read_history(path: Path, column: str) -> tuple[tuple[float, float], ...]:
    """(epoch, value) pairs of a column of a training curve, epochs without a value left out.

    Raises:
        DataError: if the file is missing, or has no such column or a value that is no number.
    """
    rows = list(csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8"))))
    try:
        return tuple((float(row["epoch"]), float(row[column])) for row in rows if row[column] != "")
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"no numbers in column {column!r}", where=path, expected="epoch and metrics"
        ) from error


def flat_leaks(audits: Sequence[Audit]) -> dict[str, float]:
    """Shares of the audits for `summary.json`: `leakage/{task}/{split}/{chip}/share_of_kernels` and so on."""
    return {
        f"leakage/{audit.task}/{audit.split}/{audit.chip}/{name}": float(getattr(audit.test, name))
        for audit in audits
        for name in ("share_of_kernels", "share_of_runtime")
    }


def mapping(value: object, path: Path, field: str) -> Mapping[str, object]:
    """The value, if it is a JSON object. Raises: DataError naming file and field, if not."""
    if not isinstance(value, Mapping):
        raise DataError(f"{type(value).__name__}", where=path, field=field, expected="an object")
    return value


def parsed(cls: type[_Plain], value: object, path: Path, field: str) -> _Plain:
    """The value as `cls`, as strictly as parameters. Raises: DataError naming file and field."""
    try:
        return parse(cls, value, where=path, field=field)
    except ParamsError as error:
        raise DataError(error.problem, where=path, field=error.field, expected=error.expected) from error
