"""Tables of what models do without test kernels that training has seen, by fingerprint or by structure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from costbench.metrics.measures import APE, APE_FLOOR_PERCENT, TAU, geometric_mean
from costbench.reports.declarations import declaration_of, make_table
from costbench.reports.page import paragraphs
from costbench.reports.results import BEST, SPLIT_NAMES, TRAINED, Cell, title_of
from costbench.reports.table import Column, Table

NEW_STRUCTURE = "new_structure"
"""Group of kernels whose operator graph, extents aside, occurs in no training program."""
_KERNELS = "kernels"
_MODELS = ("learned", "hybrid", "analytical")


def structure_table(cell: Cell, new: Cell | None, strongest: str | None) -> Table:
    """Returns kernels of known structure and errors on all and on new structures, a row a program.

    The table is empty where nothing of a new structure was evaluated.

    Args:
        cell: results over all kernels.
        new: results over kernels of new structure; None where there are none.
        strongest: strongest baseline, shown beside networks.
    """
    error = cell.described.measures[0]
    models = [model for model in cell.models if model in (*TRAINED, "analytical", strongest)]
    columns = [
        Column("application", "Application"),
        Column("program", "Program"),
        Column("kernels", "all", "Kernels", count=True),
        Column("known", "of a structure in training (%)", "Kernels", 1),
    ]
    for model in models:
        group = f"{error.title}, {title_of(model)}"
        columns.append(Column(f"{model}_all", "all", group, error.decimals))
        columns.append(Column(f"{model}_new", "new structure", group, error.decimals))
    where = f"{SPLIT_NAMES.get(cell.split, cell.split)}, {cell.chip}"
    title = f"{cell.labels.heading}, kernels of a structure that training has not seen, {where}"
    table = Table(f"structure_{cell.name}", title, tuple(columns), ())
    if new is None:
        return table
    rows = [
        (
            *(application, program),
            *_kernels_and_share(cell, new, [program]),
            *(part.score(model, error.metric, program) for model in models for part in (cell, new)),
        )
        for application, program in cell.programs
    ]
    counts = _kernels_and_share(cell, new, [program for _, program in cell.programs])
    means = (
        error.mean(values) for model in models for values in _common_scores(cell, new, model, error.metric)
    )
    rows.append(("All, geometric mean", "", *counts, *means))
    return replace(table, rows=tuple(rows), summary_rows=1, notes=paragraphs("results", "structure_note"))


def share_of_structures(cell: Cell, new: Cell | None) -> float | None:
    """Returns the share of the test kernels whose structure occurs in training, 0 to 1; None if unknown."""
    if new is None:
        return None
    _, percent = _kernels_and_share(cell, new, [program for _, program in cell.programs])
    return None if percent is None else percent / 100.0


def _kernels_and_share(cell: Cell, new: Cell, programs: list[str]) -> tuple[float | None, float | None]:
    """Returns how many kernels the programs have and the percentage whose structure training has seen."""
    kernels = sum(cell.score(BEST, _KERNELS, program) or 0.0 for program in programs)
    if not kernels:
        return None, None
    fresh = sum(new.score(BEST, _KERNELS, program) or 0.0 for program in programs)
    return kernels, 100.0 * (1.0 - fresh / kernels)


def unseen_table(cell: Cell, unseen: Cell) -> Table:
    """Returns APE and tau per test program over all and over unseen kernels, and their averages.

    Args:
        cell: results over all kernels.
        unseen: results over kernels that do not occur in training programs; programs that have none are not
            in the averages.
    """
    kernels: dict[tuple[str, ...], float | None] = {
        pair: unseen.score(BEST, _KERNELS, pair[1]) or 0.0 for pair in cell.programs
    }
    notes = paragraphs("results", "unseen_note", floor=APE_FLOOR_PERCENT)
    return make_table(
        declaration_of("unseen", f"unseen_{cell.name}", notes),
        pd.concat([cell.frame, unseen.frame]),
        words={"task": cell.task, "split": cell.split, "chip": cell.chip},
        rows=cell.programs,
        given={"unseen_kernels": kernels},
    )


def unseen_means(cell: Cell, unseen: Cell | None) -> list[tuple[str, tuple[float, ...], tuple[float, ...]]]:
    """Returns each model with its mean APE and its mean tau, over all kernels and without those seen.

    Args:
        cell: results over all kernels.
        unseen: results over kernels that do not occur in training programs; None where there are none.
    """
    means: list[tuple[str, tuple[float, ...], tuple[float, ...]]] = []
    if unseen is None:
        return means
    for model in _MODELS:
        errors, taus = (_common_scores(cell, unseen, model, metric) for metric in (APE, TAU))
        if errors[0] and taus[0]:
            ape = tuple(geometric_mean(values, APE_FLOOR_PERCENT) for values in errors)
            means.append((model, ape, tuple(float(np.mean(values)) for values in taus)))
    return means


def _common_scores(cell: Cell, part: Cell, model: str, metric: str) -> tuple[list[float], list[float]]:
    """Returns values over all kernels and over those of a part, of the programs that have both."""
    pairs = [
        (whole, rest)
        for _, program in cell.programs
        if (whole := cell.score(model, metric, program)) is not None
        and (rest := part.score(model, metric, program)) is not None
    ]
    return [whole for whole, _ in pairs], [rest for _, rest in pairs]
