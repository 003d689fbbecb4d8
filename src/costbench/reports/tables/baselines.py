"""Tabulates every model of a cell, baselines and networks, against the strongest baseline."""

from __future__ import annotations

from costbench.reports.described_table import described_table
from costbench.reports.results import BASELINES, SPLIT_NAMES, Cell, is_given, title_of
from costbench.reports.standings import Estimate, Standings
from costbench.reports.table import Table, Value


def baselines_table(cell: Cell, found: Standings) -> Table:
    """Returns one row a model, the least error first, and below them one a ceiling.

    Args:
        cell: the results.
        found: how its models stand (see `costbench.reports.standings`).
    """
    error, tau = cell.described.measures
    rows: list[tuple[Value, ...]] = [
        (
            title_of(one.model),
            _kind(one.model, found.strongest),
            *_plain(one.error),
            cell.deviation(one.model, error),
            one.tau,
            None if one.won is None else 100.0 * one.won,
            *_plain(one.difference),
            one.programs,
            one.seeds,
        )
        for one in found.models
    ]
    ceilings = [_ceiling(cell, name, 13) for name in cell.ceilings]
    heading = cell.labels
    where = f"{SPLIT_NAMES.get(cell.split, cell.split)}, {cell.chip}{heading.kernels}"
    return described_table(
        "baselines",
        (*rows, *ceilings),
        name=f"baselines_{cell.name}",
        notes=_CEILINGS if ceilings else (),
        averages=len(ceilings),
        heading=heading.heading,
        where=where,
        error=error.title,
        tau=tau.title,
    )


_CEILINGS = (
    "Ceilings know the machine and are no models. Measured again: another measurement of the same tile "
    "sizes, the fastest of three runs as theirs is. Machine without irregular code: the simulated machine "
    "without noise and without the factor of each structure of inner loops, which looks random to whoever "
    "has no example of it.",
)


def _ceiling(cell: Cell, name: str, width: int) -> tuple[Value, ...]:
    """Returns the row of a ceiling, [width] values: mean error and tau, without comparison."""
    error, tau = (m.mean(cell.over_programs(name, m.metric)) for m in cell.described.measures)
    programs, seeds = len(cell.over_programs(name, cell.described.measures[0].metric)), len(cell.seeds[name])
    row: tuple[Value, ...] = (title_of(name), "ceiling", error, None, None, None, tau)
    return (*row, *[None] * (width - len(row) - 2), programs, seeds)


def _kind(model: str, strongest: str | None) -> str:
    if model == strongest:
        return "strongest baseline"
    if is_given(model):
        return "yours"
    return "baseline" if model in BASELINES else "network"


def _plain(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
