"""The paper's main table, tile half: per test program, our models beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from costbench.metrics.averages import APE_FLOOR_PERCENT, geometric_mean
from costbench.reports.papers import PaperTable
from costbench.reports.results import Cell
from costbench.reports.summary import APE, TAU
from costbench.reports.tables import Column, Table, Value

PAPER_MODELS = ("learned", "analytical")
SPLIT_NAMES = {"random": "random split", "manual": "manual split"}

_Better = Literal["lower", "higher"]
_METRICS: tuple[tuple[str, str, str, int, _Better], ...] = (
    ("ape", APE, "Tile-Size APE (%)", 1, "lower"),
    ("tau", TAU, "Kendall's τ", 2, "higher"),
)


def tile_table(cell: Cell, paper: PaperTable | None) -> Table:
    """Tile-Size APE and tau per test program with median and means, ours and the paper's.

    Args:
        cell: the results.
        paper: the paper's table of the same split; its numbers are shown only where its chip is the
            cell's, since times of another chip are no comparison.
    """
    shown = paper if paper is not None and paper.chip == cell.chip else None
    models = cell.models
    columns = [Column("application", "Application"), Column("program", "Program")]
    for short, _, name, decimals, better in _METRICS:
        for model in models:
            columns.append(Column(f"{short}_{model}", model, f"{name}, ours", decimals, better, short))
        if shown is not None:
            for model in PAPER_MODELS:
                key, group = f"paper_{short}_{model}", f"{name}, {shown.paper}"
                columns.append(Column(key, model, group, decimals, better, f"paper_{short}"))
    rows = [_program_row(cell, models, shown, *program) for program in cell.programs]
    rows += _average_rows(cell, models, shown)
    title = f"Tile-size task, {SPLIT_NAMES.get(cell.split, cell.split)}, {cell.chip}"
    if shown is not None:
        title += f", beside {shown.table} of {shown.paper}"
    return Table(cell.name, title, tuple(columns), tuple(rows), 3, _notes(cell, shown))


def _program_row(
    cell: Cell, models: tuple[str, ...], paper: PaperTable | None, application: str, program: str
) -> tuple[Value, ...]:
    row: list[Value] = [application, program]
    theirs = None if paper is None else paper.row_for(application, program)
    for short, metric, *_ in _METRICS:
        row += [cell.score(model, metric, program) for model in models]
        if paper is not None:
            row += [None if theirs is None else theirs.score(short, model) for model in PAPER_MODELS]
    return tuple(row)


def _average_rows(cell: Cell, models: tuple[str, ...], paper: PaperTable | None) -> list[tuple[Value, ...]]:
    kinds: tuple[tuple[str, str], ...] = (
        ("Median", "median"),
        ("Geometric mean", "geometric_mean"),
        ("Arithmetic mean", ""),
    )
    rows = []
    for label, attribute in kinds:
        row: list[Value] = [label, ""]
        theirs = getattr(paper, attribute) if paper is not None and attribute else None
        for short, metric, *_ in _METRICS:
            floor = APE_FLOOR_PERCENT if short == "ape" else 0.0
            row += [_average(attribute, cell.over_programs(model, metric), floor) for model in models]
            if paper is not None:
                row += [None if theirs is None else theirs.score(short, model) for model in PAPER_MODELS]
        rows.append(tuple(row))
    return rows


def _average(kind: str, values: list[float], floor: float) -> float | None:
    if not values:
        return None
    if kind == "geometric_mean":
        mean = geometric_mean(values, floor)
        return None if np.isnan(mean) else mean
    average: Callable[[list[float]], np.floating] = np.median if kind == "median" else np.mean
    return float(average(values))


def _notes(cell: Cell, paper: PaperTable | None) -> tuple[str, ...]:
    notes = [
        "Tile-Size APE: how much slower the program is with the tile sizes a model picks than with the best "
        "ones (lpm2021, equation 2; kernels weighted by how often they run). Kendall's τ: tau-b between "
        "predicted and measured runtimes of a kernel's tile sizes, mean over kernels.",
        f"In the geometric mean an APE below {APE_FLOOR_PERCENT}% counts as {APE_FLOOR_PERCENT}%, so that a "
        "program without error does not hide the others; – where a correlation is not positive.",
    ]
    seeds = cell.seeds.get("learned", ())
    if seeds:
        notes.append(f"learned: mean over {len(seeds)} training run(s), seeds {', '.join(map(str, seeds))}.")
    if paper is not None:
        notes.append(
            f"{paper.paper}: as printed in its {paper.table}, measured on real hardware, with other programs "
            "of the same applications; to be read as a scale, not as a target."
        )
    return tuple(notes)
