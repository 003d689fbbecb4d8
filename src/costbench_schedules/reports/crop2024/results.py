"""Reads what the stage `schedules` leaves behind about programs of networks.

Rows have the task `schedule`. In the split `networks` a program is a network, in `network-operators` one of
its operators, in `tiles` an operator whose tile sizes are compared; `variant` is the number of target records
that a learned model was fitted to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.metrics.rows import MAIN, MetricRow, read_rows
from costbench.reports.claims.claim import Side
from costbench.reports.frame import frame_of, means, number, select
from costbench_schedules.reports.autotvm2018.results import SCHEDULE
from costbench_schedules.reports.crop2024.guidance import GuidedSearches, load_guided

NETWORKS, SPLIT, OPERATORS, TILES, TARGET = "networks", "networks", "network-operators", "tiles", "native"
ROWS_FILE, CARD_FILE = "rows.jsonl", "card.json"


@dataclass(frozen=True, eq=False)
class NetworkResults:
    """All results on programs of networks; empty where none are recorded.

    Attributes:
        rows: result rows, see the module's description.
        card: card of the recording.
        guided: searches of recorded tables with the model's estimates.
    """

    rows: tuple[MetricRow, ...] = ()
    card: Mapping[str, Any] = field(default_factory=dict)
    guided: GuidedSearches = field(default_factory=GuidedSearches)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Returns the rows as a frame, see `frame_of`."""
        return frame_of(self.rows)

    @cached_property
    def by_network(self) -> pd.DataFrame:
        """Returns means over seeds: a row for each model, variant and metric, a column for each network."""
        rows = select(self.frame, split=SPLIT)
        return means(rows, ["model", "variant", "metric", "program"]).unstack("program")

    @property
    def seeds(self) -> int:
        """Returns how many seeds models were fitted with."""
        return len({row.seed for row in self.rows if row.split == SPLIT})

    @property
    def networks(self) -> tuple[str, ...]:
        """Returns the networks that were tested on, sorted."""
        return tuple(self.by_network.columns)

    @property
    def models(self) -> tuple[tuple[str, str], ...]:
        """Returns models with their variants, sorted."""
        return tuple(sorted({(model, variant) for model, variant, _ in self.by_network.index}))

    def of_operators(self, model: str, variant: str, metric: str) -> pd.Series[float]:
        """Returns the mean over seeds of a metric by operator, sorted."""
        rows = select(self.frame, split=OPERATORS, model=model, variant=variant, metric=metric)
        return means(rows, ["program"])

    def mean(self, model: str, variant: str, network: str, metric: str) -> float | None:
        """Returns the mean over seeds of a metric, or None."""
        key = (model, variant, metric)
        return number(self.by_network.at[key, network]) if key in self.by_network.index else None

    def over_networks(self, model: str, variant: str, metric: str) -> float | None:
        """Returns the mean over networks; None if one is missing."""
        key = (model, variant, metric)
        if key not in self.by_network.index:
            return None
        return number(np.mean(self.by_network.xs(key).to_numpy()))


def not_trained_enough(results: NetworkResults) -> dict[tuple[str, Side], str]:
    """Returns the networks that decide no claim, with what shows that they were not trained enough.

    A network that orders the very records it was fitted to (`fitted_tau`) no better than the analytical
    model, which was fitted to nothing, orders programs it has never seen, has not been trained enough; a
    model that so falls short is no reproduction of the paper's. Taus are means over networks.
    """
    reached = results.over_networks("crop", MAIN, "kendall_tau")
    untrained = {}
    for model, variant in results.models:
        fitted = results.over_networks(model, variant, "fitted_tau")
        if fitted is not None and reached is not None and fitted <= reached:
            side = Side(model, variant, OPERATORS, TARGET)
            untrained[SCHEDULE, side] = f"tau {fitted:.2f} on its own training records"
    return untrained


def load_networks(folder: Path, guided: Path | None = None) -> NetworkResults:
    """Returns the results in the folder `networks` of the stage `schedules`; empty ones without rows.

    Args:
        folder: folder `networks` of the stage.
        guided: folder `estimated` of the stage; None to leave those results out.

    Raises:
        DataError: naming the file, if one is missing or malformed.
    """
    if not (folder / ROWS_FILE).is_file():
        return NetworkResults()
    card = read_json(folder / CARD_FILE)
    if not isinstance(card, dict):
        raise DataError("no card", where=folder / CARD_FILE, expected="an object")
    searches = GuidedSearches() if guided is None else load_guided(guided)
    return NetworkResults(read_rows(folder / ROWS_FILE), card, searches)
