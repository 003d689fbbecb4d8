"""The data set's card as the stage `split` leaves it: counts and distributions of each task and chip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench.arrays import F64
from costbench.artifacts import read_json
from costbench.reports.data.evidence import mapping, parsed
from costbench.tasks import task_order

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
    """One quantity: quantiles, and counts in logarithmic bins (see `costbench.datasets.histograms`).

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
