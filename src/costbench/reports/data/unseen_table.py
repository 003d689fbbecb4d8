"""Shows the effect of leaked kernels: metrics with and without test kernels that occur in training."""

from __future__ import annotations

import numpy as np

from costbench.metrics.averages import APE_FLOOR_PERCENT, geometric_mean
from costbench.metrics.measures import APE, TAU
from costbench.reports.results import BEST, Cell
from costbench.reports.table import Column, Table, Value

_MODELS = ("learned", "hybrid", "analytical")
_METRICS = (("ape", APE, "Tile-Size APE (%)", 1), ("tau", TAU, "Kendall's τ", 2))


def unseen_table(cell: Cell, unseen: Cell) -> Table:
    """APE and tau per test program over all and over unseen kernels, with averages over the same programs.

    Args:
        cell: results over all kernels.
        unseen: the same over kernels that do not occur in training programs; programs that have none are not
            in the averages.
    """
    models = [model for model in _MODELS if model in cell.models]
    columns = [Column("application", "Application"), Column("program", "Program")]
    columns += [
        Column("kernels", "all", "Kernels", count=True),
        Column("unseen_kernels", "unseen", "Kernels", count=True),
    ]
    for short, _, name, decimals in _METRICS:
        for model in models:
            group = f"{name}, {model}"
            columns.append(Column(f"{short}_{model}", "all", group, decimals))
            columns.append(Column(f"unseen_{short}_{model}", "unseen", group, decimals))
    rows = [_row(cell, unseen, models, *program) for program in cell.programs]
    rows += [
        _averages(cell, unseen, models, kind) for kind in ("Median", "Geometric mean", "Arithmetic mean")
    ]
    notes = (
        "Unseen: without the kernels whose fingerprint also occurs in a training program. Averages are over "
        "the programs that have unseen kernels, in both columns; in the geometric mean an APE below "
        f"{APE_FLOOR_PERCENT}% counts as {APE_FLOOR_PERCENT}%.",
    )
    title = f"With and without kernels that training has seen, {cell.split} split, {cell.chip}"
    return Table(f"unseen_{cell.name}", title, tuple(columns), tuple(rows), 3, notes)


def unseen_sentence(cell: Cell, unseen: Cell | None) -> str:
    """What difference leaving out seen kernels makes, in words; empty where it cannot be said."""
    if unseen is None:
        return ""
    parts = []
    for model in _MODELS:
        before, after = (_pair(cell, unseen, model, metric) for metric in (APE, TAU))
        if before[0] and after[0]:
            ape = tuple(geometric_mean(values, APE_FLOOR_PERCENT) for values in before)
            tau = tuple(float(np.mean(values)) for values in after)
            parts.append(
                f"{model}: APE {ape[1]:.1f}% instead of {ape[0]:.1f}%, τ {tau[1]:.2f} instead of {tau[0]:.2f}"
            )
    return f"Without them, {'; '.join(parts)}." if parts else ""


def _pair(cell: Cell, unseen: Cell, model: str, metric: str) -> tuple[list[float], list[float]]:
    """Values over all and over unseen kernels, of the programs that have both."""
    both = [
        (all_of, rest)
        for _, program in cell.programs
        if (all_of := cell.score(model, metric, program)) is not None
        and (rest := unseen.score(model, metric, program)) is not None
    ]
    return [pair[0] for pair in both], [pair[1] for pair in both]


def _row(cell: Cell, unseen: Cell, models: list[str], application: str, program: str) -> tuple[Value, ...]:
    kernels = cell.score(BEST, "kernels", program)
    rest = unseen.score(BEST, "kernels", program)
    row: list[Value] = [application, program, kernels, 0.0 if rest is None else rest]
    for _, metric, *_ in _METRICS:
        for model in models:
            row += [cell.score(model, metric, program), unseen.score(model, metric, program)]
    return tuple(row)


def _averages(cell: Cell, unseen: Cell, models: list[str], kind: str) -> tuple[Value, ...]:
    row: list[Value] = [kind, "", None, None]
    for short, metric, *_ in _METRICS:
        floor = APE_FLOOR_PERCENT if short == "ape" else 0.0
        for model in models:
            row += [_average(kind, values, floor) for values in _pair(cell, unseen, model, metric)]
    return tuple(row)


def _average(kind: str, values: list[float], floor: float) -> float | None:
    if not values:
        return None
    if kind == "Geometric mean":
        mean = geometric_mean(values, floor)
        return None if np.isnan(mean) else mean
    return float(np.median(values) if kind == "Median" else np.mean(values))
