"""Shows how much of the test kernels is new in structure, and how models do on these kernels."""

from __future__ import annotations

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
