"""What stands beside the results: the leakage audit, the data set's card, the curves of training.

All are files that stages left behind, and are read strictly: they qualify the numbers beside them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from costbench.artifacts import read_bytes, read_json
from costbench.errors import DataError, ParamsError
from costbench.params import parse

Quantiles = Mapping[str, Mapping[str, int]]
"""Name of a quantity -> name of a quantile -> value."""


@dataclass(frozen=True)
class Leak:
    """Test kernels that also occur in training (see `costbench.datasets.validation`)."""

    kernels: int
    leaked_kernels: int
    runtime_ns: int
    leaked_runtime_ns: int
    share_of_kernels: float
    share_of_runtime: float


@dataclass(frozen=True)
class ChipCard:
    """Counts of one chip's samples."""

    programs: int
    applications: int
    kernels: int
    unique_kernels: int
    configs: int
    failed: int
    device_seconds: float


@dataclass(frozen=True)
class Audit:
    """The audit of one split on one chip: the whole test set, and each test program."""

    split: str
    chip: str
    test: Leak
    by_program: Mapping[str, Leak]


def read_audits(path: Path) -> tuple[Audit, ...]:
    """The leakage audits in `leakage.json`, random split first.

    Raises:
        DataError: if the file is missing or is something else.
    """
    content = _mapping(read_json(path), path, "")
    audits = []
    for split in sorted(content, key=lambda name: (name != "random", name)):
        for chip, report in sorted(_mapping(content[split], path, split).items()):
            field = f"{split}.{chip}"
            body = _mapping(report, path, field)
            by_program = _mapping(body.get("by_program"), path, f"{field}.by_program")
            leaks = {name: _leak(value, path, f"{field}.{name}") for name, value in by_program.items()}
            audits.append(Audit(split, chip, _leak(body.get("test"), path, f"{field}.test"), leaks))
    return tuple(audits)


def read_cards(path: Path) -> dict[str, tuple[ChipCard, Quantiles]]:
    """Chip -> counts and distributions, from `card.json`.

    Raises:
        DataError: if the file is missing or is something else.
    """
    cards: dict[str, tuple[ChipCard, Quantiles]] = {}
    for chip, value in sorted(_mapping(read_json(path), path, "").items()):
        body = dict(_mapping(value, path, chip))
        shapes = _mapping(body.pop("distributions", {}), path, f"{chip}.distributions")
        quantiles = {
            name: {key: int(str(number)) for key, number in _mapping(found, path, f"{chip}.{name}").items()}
            for name, found in shapes.items()
        }
        cards[chip] = (_parsed(ChipCard, body, path, chip), quantiles)
    return cards


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


def flat_numbers(
    audits: Sequence[Audit], cards: Mapping[str, tuple[ChipCard, Quantiles]]
) -> dict[str, float]:
    """The audit and the counts for `summary.json`: `leakage/tile/...` and `dataset/tile/...`."""
    flat: dict[str, float] = {}
    for audit in audits:
        for name in ("share_of_kernels", "share_of_runtime"):
            flat[f"leakage/tile/{audit.split}/{audit.chip}/{name}"] = float(getattr(audit.test, name))
    for chip, (card, _) in cards.items():
        for name in ("programs", "applications", "kernels", "unique_kernels", "configs", "failed"):
            flat[f"dataset/tile/{chip}/{name}"] = float(getattr(card, name))
    return flat


def _mapping(value: object, path: Path, field: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise DataError(f"{type(value).__name__}", where=path, field=field, expected="an object")
    return value


def _leak(value: object, path: Path, field: str) -> Leak:
    return _parsed(Leak, value, path, field)


_Plain = TypeVar("_Plain", Leak, ChipCard)


def _parsed(cls: type[_Plain], value: object, path: Path, field: str) -> _Plain:
    try:
        return parse(cls, value, where=path, field=field)
    except ParamsError as error:
        raise DataError(error.problem, where=path, field=error.field, expected=error.expected) from error
