"""Reads what the stage `split` says of the data: leakage audit, counts of sets, card.

They are read strictly, since readers judge the results by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from costbench.arrays import F64
from costbench.artifacts import read_json
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


QUANTILES = ("min", "p10", "median", "p90", "max", "mean")


@dataclass(frozen=True)
class CardCounts:
    """Counts of one task's samples of one chip.

    `fast_kernels` are fusion kernels faster than 5 us, `tried_configs` the fusion configurations tried.
    """

    programs: int
    applications: int
    kernels: int
    unique_kernels: int
    configs: int
    failed: int
    fast_kernels: int
    tried_configs: int
    device_seconds: float


@dataclass(frozen=True)
class ApplicationCounts:
    """What of it one application has."""

    programs: int
    kernels: int
    configs: int


@dataclass(frozen=True)
class Distribution:
    """One quantity: quantiles, and counts in logarithmic bins (see `costbench.datasets.card`).

    Attributes:
        bins_per_decade: bins in a factor of ten.
        first: number of the first bin; bin i begins at 10^(i / bins_per_decade).
        counts: of that bin and those behind it; none without numbers.
        min: smallest number; like those that follow, None without numbers.
        p10: a tenth is not above it.
        median: half is not above it.
        p90: nine tenths are not above it.
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
        """Where bins begin and end, one more than there are bins."""
        places = np.arange(self.first, self.first + len(self.counts) + 1)
        return np.asarray(10.0 ** (places / self.bins_per_decade), dtype=np.float64)


@dataclass(frozen=True)
class Card:
    """The card of one task and chip."""

    task: str
    chip: str
    counts: CardCounts
    applications: Mapping[str, ApplicationCounts]
    distributions: Mapping[str, Distribution]


def read_cards(path: Path) -> tuple[Card, ...]:
    """The cards in `card.json`, by task and chip.

    Raises:
        DataError: if the file is missing or is something else.
    """
    cards = []
    content = mapping(read_json(path), path, "")
    for task in sorted(content, key=task_order):
        for chip, value in sorted(mapping(content[task], path, task).items()):
            field = f"{task}.{chip}"
            body = dict(mapping(value, path, field))
            families = mapping(body.pop("by_application", None), path, f"{field}.by_application")
            shapes = mapping(body.pop("distributions", None), path, f"{field}.distributions")
            cards.append(
                Card(
                    task,
                    chip,
                    parsed(CardCounts, body, path, field),
                    {n: parsed(ApplicationCounts, v, path, f"{field}.{n}") for n, v in families.items()},
                    {n: parsed(Distribution, v, path, f"{field}.{n}") for n, v in shapes.items()},
                )
            )
    return tuple(cards)


def flat_counts(cards: Iterable[Card]) -> dict[str, float]:
    """Counts for `summary.json`: `dataset/{task}/{chip}/kernels` and so on."""
    names = ("programs", "applications", "kernels", "unique_kernels", "configs", "failed")
    return {
        f"dataset/{card.task}/{card.chip}/{name}": float(getattr(card.counts, name))
        for card in cards
        for name in names
    }
