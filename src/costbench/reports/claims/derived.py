"""Rows that claims need and evaluation does not write: shares of what it counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from costbench.metrics.rows import MetricRow
from costbench.reports.results import BEST

SHORT_SHARE = "short_share"
"""Share of a program's kernels that run less than 5 us."""
_COUNTS = ("kernels_lt5us", "kernels")


def derived_rows(rows: Iterable[MetricRow]) -> Iterator[MetricRow]:
    """Yields `short_share` of each program whose fusion kernels were counted by evaluation.

    Args:
        rows: of evaluation; `kernels` and `kernels_lt5us` of the model `best` count.
    """
    counted: dict[MetricRow, dict[str, float]] = {}
    for row in rows:
        if row.model == BEST and row.metric in _COUNTS:
            counted.setdefault(replace(row, metric=SHORT_SHARE, value=0.0), {})[row.metric] = row.value
    short, all_of_them = _COUNTS
    for place, counts in counted.items():
        if counts.get(all_of_them) and short in counts:
            yield replace(place, value=counts[short] / counts[all_of_them])
