"""Reads what the stage `split` says of the data: leakage audit, counts of sets, card.

They are read strictly, since readers judge the results by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pandas as pd

from costbench.arrays import F64
from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.params import parse
from costbench.reports.frame import flatten, select
from costbench.reports.results import split_order
from costbench.tasks import task_order

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_Plain = TypeVar("_Plain", bound="DataclassInstance")
SETS = ("train", "validation", "test", "dropped")
"""Sets of programs of a split, in the order in which tables show them."""
ALL_PROGRAMS = "all"
"""In place of a program: the whole test set."""


@dataclass(frozen=True)
class Leakage:
    """Test kernels that also occur in training (see `costbench.datasets.leakage`)."""

    kernels: int
    leaked_kernels: int
    runtime_ns: int
    leaked_runtime_ns: int
    share_of_kernels: float
    share_of_runtime: float


@dataclass(frozen=True)
class SetCounts:
    """Samples of a set of programs (see `costbench.datasets.card`)."""

    programs: int
    kernels: int
    samples: int


def read_leakage(path: Path | None) -> pd.DataFrame:
    """Returns the leakage audits in `leakage.json`, tile and random split first.

    Returns:
        one row a task, split, chip and test program, with the fields of `Leakage`; the last row of a split
        and chip is that of all programs. Without a file it has no rows.

    Raises:
        DataError: if the file is something else, or there is none.
    """

    def of_programs(body: Mapping[str, object], field: str) -> Mapping[str, object]:
        by_program = mapping(body.get("by_program"), path, f"{field}.by_program")
        return {**dict(sorted(by_program.items())), ALL_PROGRAMS: body.get("test")}

    return _read_nested(path, Leakage, "program", of_programs)


def read_set_counts(path: Path | None) -> pd.DataFrame:
    """Returns the counts of sets in `counts.json`, tile and random split first.

    Returns:
        one row a task, split, chip and set, with the fields of `SetCounts`; without a file it has no rows.

    Raises:
        DataError: if the file is something else, or there is none.
    """

    def of_sets(body: Mapping[str, object], field: str) -> Mapping[str, object]:
        if set(body) != set(SETS):
            raise DataError(f"{', '.join(body)}", where=path, field=field, expected=", ".join(SETS))
        return {name: body[name] for name in SETS}

    return _read_nested(path, SetCounts, "set", of_sets)


def _read_nested(
    path: Path | None,
    cls: type[DataclassInstance],
    key: str,
    values_of: Callable[[Mapping[str, object], str], Mapping[str, object]],
) -> pd.DataFrame:
    """Returns the values of each task, split and chip in a file nested like that: tile first, random first.

    Args:
        path: file; None for no rows.
        cls: type of a value, whose fields are columns.
        key: name of the column that values are called by.
        values_of: returns the values of a task, split and chip by name.
    """
    rows = []
    content = {} if path is None else mapping(read_json(path), path, "")
    for task in sorted(content, key=task_order):
        splits = mapping(content[task], path, task)
        for split in sorted(splits, key=lambda name: (split_order(name), name)):
            for chip, body in sorted(mapping(splits[split], path, f"{task}.{split}").items()):
                field = f"{task}.{split}.{chip}"
                for name, value in values_of(mapping(body, path, field), field).items():
                    parsed = parse_data(cls, value, path, f"{field}.{name}")
                    rows.append({"task": task, "split": split, "chip": chip, key: name, **asdict(parsed)})
    return pd.DataFrame(rows, columns=["task", "split", "chip", key, *(field.name for field in fields(cls))])


def flat_leakage(leakage: pd.DataFrame) -> dict[str, float]:
    """Returns shares for `summary.json`: `leakage/{task}/{split}/{chip}/share_of_kernels` and so on."""
    whole = select(leakage, program=ALL_PROGRAMS)
    return flatten(whole, "leakage/{task}/{split}/{chip}", ("share_of_kernels", "share_of_runtime"))


@dataclass(frozen=True)
class ApplicationCounts:
    """Programs and samples of one application."""

    programs: int
    kernels: int
    configs: int


@dataclass(frozen=True)
class Distribution:
    """One quantity: quantiles, and counts in logarithmic bins (see `costbench.datasets.card`).

    Attributes:
        bins_per_decade: bins in a factor of ten.
        first: number of the first bin; bin i begins at 10^(i / bins_per_decade).
        counts: counts of that bin and of those behind it; empty without numbers.
        min: smallest number; like those that follow, None without numbers.
        p10: number that a tenth is not above.
        median: number that half is not above.
        p90: number that nine tenths are not above.
        max: largest number.
        mean: arithmetic mean.
    """

    bins_per_decade: int
    first: int
    counts: tuple[int, ...]
    min: float | None = None
    p10: float | None = None
    median: float | None = None
    p90: float | None = None
    max: float | None = None
    mean: float | None = None

    def edges(self) -> F64:
        """Returns where bins begin and end, one more than there are bins."""
        indices = np.arange(self.first, self.first + len(self.counts) + 1)
        return np.asarray(10.0 ** (indices / self.bins_per_decade), dtype=np.float64)


@dataclass(frozen=True)
class Card:
    """Counts and distributions of the samples of one task and chip.

    Attributes:
        task: compiler's decision.
        chip: chip that was measured.
        programs: number of programs.
        applications: number of applications.
        kernels: number of kernels.
        unique_kernels: number of kernels that differ.
        configs: number of samples.
        failed: number of measurements that failed.
        fast_kernels: number of fusion kernels faster than 5 us.
        tried_configs: number of fusion configurations tried.
        device_seconds: time of the simulated machines.
        by_application: counts of each application.
        distributions: distribution of each quantity.
    """

    task: str
    chip: str
    programs: int
    applications: int
    kernels: int
    unique_kernels: int
    configs: int
    failed: int
    fast_kernels: int
    tried_configs: int
    device_seconds: float
    by_application: Mapping[str, ApplicationCounts]
    distributions: Mapping[str, Distribution]


def read_cards(path: Path | None) -> tuple[Card, ...]:
    """Returns the cards in `card.json`, by task and chip; none without a file.

    Raises:
        DataError: if the file is something else, or there is none.
    """
    content = {} if path is None else mapping(read_json(path), path, "")
    return tuple(
        parse_data(
            Card,
            {**mapping(body, path, f"{task}.{chip}"), "task": task, "chip": chip},
            path,
            f"{task}.{chip}",
        )
        for task in sorted(content, key=task_order)
        for chip, body in sorted(mapping(content[task], path, task).items())
    )


def flat_counts(cards: Iterable[Card]) -> dict[str, float]:
    """Returns counts for `summary.json`: `dataset/{task}/{chip}/kernels` and so on."""
    names = ("programs", "applications", "kernels", "unique_kernels", "configs", "failed")
    return flatten(pd.DataFrame(map(asdict, cards)), "dataset/{task}/{chip}", names)


def mapping(value: object, path: Path | None, field: str) -> Mapping[str, object]:
    """Returns the value, if it is a JSON object. Raises: DataError naming file and field, if not."""
    if not isinstance(value, Mapping):
        raise DataError(f"{type(value).__name__}", where=path, field=field, expected="an object")
    return value


def read_list(cls: type[_Plain], path: Path) -> tuple[_Plain, ...]:
    """Returns the entries of a JSON list. Raises: DataError naming the file, if it holds anything else."""
    content = read_json(path)
    if not isinstance(content, list):
        raise DataError("no list", where=path, expected="a list of objects")
    return tuple(parse_data(cls, entry, path, f"[{number}]") for number, entry in enumerate(content))


def parse_data(cls: type[_Plain], value: object, path: Path | None, field: str) -> _Plain:
    """Returns the value as `cls`, as strict as parameters. Raises: DataError naming file and field."""
    return parse(cls, value, where=path or "", field=field, error=DataError)
