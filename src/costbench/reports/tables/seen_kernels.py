"""Tables of what models do without test kernels that training has seen, by fingerprint or by structure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from costbench.metrics.measures import APE, APE_FLOOR_PERCENT, TAU, geometric_mean
from costbench.reports.declarations import declaration_of
from costbench.reports.declared_tables import make_table
from costbench.reports.page import paragraphs
from costbench.reports.results import BEST, TRAINED, Cell, ChipSplit, common_scores, title_of
from costbench.reports.table import Table, Value

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
    models = [model for model in cell.models if model in (*TRAINED, "analytical", strongest)]
    declared = replace(
        declaration_of("structure", f"structure_{cell.name}", paragraphs("results", "structure_note")),
        values={"model": {model: title_of(model) for model in models}},
    )
    every = ("geometric_mean",)
    groups = {pair: [pair[1]] for pair in cell.programs} | {every: [program for _, program in cell.programs]}
    shares = {} if new is None else {row: _kernels_and_share(cell, new, groups[row]) for row in groups}
    table = make_table(
        declared,
        cell.frame if new is None else pd.concat([cell.frame, new.frame]),
        words={
            "task": cell.task,
            "split": cell.split,
            "heading": cell.labels.heading,
            "where": ChipSplit(cell.split, cell.chip).title,
        },
        rows=cell.programs,
        numbers={
            "kernels": {row: kernels for row, (kernels, _) in shares.items()},
            "known": {row: share for row, (_, share) in shares.items()},
        },
    )
    return replace(table, rows=()) if new is None else table


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
    kernels: dict[tuple[str, ...], Value] = {
        pair: unseen.score(BEST, _KERNELS, pair[1]) or 0.0 for pair in cell.programs
    }
    notes = paragraphs("results", "unseen_note", floor=APE_FLOOR_PERCENT)
    return make_table(
        declaration_of("unseen", f"unseen_{cell.name}", notes),
        pd.concat([cell.frame, unseen.frame]),
        words={"task": cell.task, "split": cell.split, "chip": cell.chip},
        rows=cell.programs,
        numbers={"unseen_kernels": kernels},
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
        errors, taus = (common_scores(cell, model, unseen, model, metric) for metric in (APE, TAU))
        if errors[0] and taus[0]:
            ape = tuple(geometric_mean(values, APE_FLOOR_PERCENT) for values in errors)
            means.append((model, ape, tuple(float(np.mean(values)) for values in taus)))
    return means
