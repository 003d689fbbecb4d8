"""Is the learned model better than each baseline, or were the test programs kind? A table of intervals."""

from __future__ import annotations

from costbench.metrics.intervals import paired_bootstrap
from costbench.reports.results import Cell
from costbench.reports.summary import APE, TAU
from costbench.reports.tables import Column, Table, Value
from costbench.rng import stream

_METRICS = ((TAU, "Kendall's τ", -1.0), (APE, "Tile-Size APE (points)", 1.0))
_COLUMNS = (
    Column("baseline", "learned minus"),
    Column("metric", "Metric"),
    Column("programs", "Programs", decimals=0),
    Column("difference", "Mean difference", decimals=3),
    Column("low", "low", "95% interval", 3),
    Column("high", "high", "95% interval", 3),
    Column("share_better", "Resamples in which learned is better", decimals=3),
)


def comparison_table(cell: Cell, seed: int) -> Table:
    """Paired bootstrap over test programs of learned - baseline, for tau and APE.

    Args:
        cell: the results.
        seed: of the resampling; the same one gives the same table.
    """
    rows: list[tuple[Value, ...]] = []
    for baseline in cell.models:
        if baseline == "learned":
            continue
        for metric, name, sign in _METRICS:
            row = _row(cell, baseline, metric, name, sign, seed)
            if row is not None:
                rows.append(row)
    notes = (
        "Programs are drawn with replacement 10,000 times, both models' values of a program together; the "
        "interval is that of percentiles. Good are positive differences of τ and negative ones of APE.",
    )
    title = f"Learned model against each baseline, {cell.split} split, {cell.chip}"
    return Table(f"comparison_{cell.name}", title, _COLUMNS, tuple(rows), 0, notes)


def _row(
    cell: Cell, baseline: str, metric: str, name: str, sign: float, seed: int
) -> tuple[Value, ...] | None:
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
    worse_below = interval.share_negative if sign > 0 else 1.0 - interval.share_negative
    return (baseline, name, len(pairs), interval.difference, interval.low, interval.high, worse_below)
