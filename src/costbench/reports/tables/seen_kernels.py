"""Tables of what models do without test kernels that training has seen, by fingerprint or by structure."""

from __future__ import annotations

import numpy as np

from costbench.metrics.measures import APE, APE_FLOOR_PERCENT, TAU, geometric_mean
from costbench.reports.results import BEST, SPLIT_NAMES, TRAINED, Cell, title_of
from costbench.reports.table import Column, Table, Value

NEW_STRUCTURE = "new_structure"
"""Group of kernels whose operator graph, extents aside, occurs in no training program."""
_KERNELS = "kernels"


def structure_table(cell: Cell, new: Cell | None, strongest: str | None) -> Table:
    """Returns kernels of known structure and errors on all and on new structures, a row a program.

    The table is empty where nothing of a new structure was evaluated.

    Args:
        cell: results over all kernels.
        new: the same over kernels of new structure; None where there are none.
        strongest: the strongest baseline, shown beside networks.
    """
    measure = cell.described.measures[0]
    models = [model for model in cell.models if model in (*TRAINED, "analytical", strongest)]
    columns = [Column("application", "Application"), Column("program", "Program")]
    columns += [
        Column("kernels", "all", "Kernels", count=True),
        Column("known", "of a structure in training (%)", "Kernels", 1),
    ]
    for model in models:
        group = f"{measure.title}, {title_of(model)}"
        columns += [Column(f"{model}_all", "all", group, measure.decimals)]
        columns += [Column(f"{model}_new", "new structure", group, measure.decimals)]
    where = f"{SPLIT_NAMES.get(cell.split, cell.split)}, {cell.chip}"
    title = f"{cell.labels.heading}, kernels of a structure that training has not seen, {where}"
    name = f"structure_{cell.name}"
    if new is None:
        return Table(name, title, tuple(columns), ())
    rows: list[tuple[Value, ...]] = []
    for application, program in cell.programs:
        row: list[Value] = [application, program, *_shares(cell, new, [program])]
        for model in models:
            row += [part.score(model, measure.metric, program) for part in (cell, new)]
        rows.append(tuple(row))
    programs = [program for _, program in cell.programs]
    row = ["All, geometric mean", "", *_shares(cell, new, programs)]
    for model in models:
        both = [
            (own, rest)
            for program in programs
            if (own := cell.score(model, measure.metric, program)) is not None
            and (rest := new.score(model, measure.metric, program)) is not None
        ]
        row += [measure.mean([pair[end] for pair in both]) for end in (0, 1)]
    rows.append(tuple(row))
    notes = (
        "The structure of a kernel is its operator graph with opcodes, element types and ranks; extents, "
        "layouts and attributes do not count. Means are over the programs that have kernels of new "
        "structure, in both columns.",
    )
    return Table(name, title, tuple(columns), tuple(rows), 1, notes)


def structure_sentence(cell: Cell, new: Cell | None) -> str:
    """Returns how many of the test kernels have a structure that training has seen; empty if unknown."""
    share = share_of_structures(cell, new)
    if share is None:
        return ""
    return (
        f"Extents aside, the operator graphs of {100.0 * share:.1f}% of the test kernels occur in training "
        "programs."
    )


def share_of_structures(cell: Cell, new: Cell | None) -> float | None:
    """Returns the share of the test kernels whose structure occurs in training, 0 to 1; None if unknown."""
    if new is None:
        return None
    _, share = _shares(cell, new, [program for _, program in cell.programs])
    return None if share is None else share / 100.0


def _shares(cell: Cell, new: Cell, programs: list[str]) -> tuple[float | None, float | None]:
    """Returns how many kernels the programs have and the percentage whose structure training has seen."""
    counts = [cell.score(BEST, _KERNELS, program) for program in programs]
    kernels = sum(count for count in counts if count is not None)
    if not kernels:
        return None, None
    fresh = sum(new.score(BEST, _KERNELS, program) or 0.0 for program in programs)
    return kernels, 100.0 * (1.0 - fresh / kernels)


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
