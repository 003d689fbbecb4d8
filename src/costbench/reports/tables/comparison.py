"""Tabulates intervals of the difference between the learned model and each baseline over test programs."""

from __future__ import annotations

from costbench.metrics.intervals import paired_bootstrap
from costbench.metrics.measures import Measure
from costbench.reports.described_table import described_table
from costbench.reports.results import Cell, title_of
from costbench.reports.table import Table, Value
from costbench.rng import stream


def comparison_table(cell: Cell, seed: int) -> Table:
    """Paired bootstrap over test programs of learned - baseline, for tau and the error of the task.

    Args:
        cell: the results.
        seed: of the resampling; the same one gives the same table.
    """
    rows: list[tuple[Value, ...]] = []
    for baseline in cell.models:
        if baseline == "learned":
            continue
        for measure in reversed(cell.described.measures):
            row = _row(cell, baseline, measure, seed)
            if row is not None:
                rows.append(row)
    prefix = cell.labels.prefix
    where = f"{prefix}{cell.split} split, {cell.chip}"
    return described_table("comparison", rows, name=f"comparison_{cell.name}", where=where)


def _row(cell: Cell, baseline: str, measure: Measure, seed: int) -> tuple[Value, ...] | None:
    metric = measure.metric
    pairs = [
        (left, right)
        for _, program in cell.programs
        if (left := cell.score("learned", metric, program)) is not None
        and (right := cell.score(baseline, metric, program)) is not None
    ]
    if not pairs:
        return None
    learned, other = zip(*pairs, strict=True)
    interval = paired_bootstrap(learned, other, stream(seed, "comparison", cell.name, baseline, metric))
    lower = measure.better == "lower"
    better = interval.share_negative if lower else 1.0 - interval.share_negative
    name = measure.title.replace("(%)", "(points)")
    return (
        title_of(baseline),
        name,
        len(pairs),
        interval.difference,
        interval.low,
        interval.high,
        better,
    )
