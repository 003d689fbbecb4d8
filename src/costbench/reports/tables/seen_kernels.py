"""Tables of what models do without test kernels that training has seen, by fingerprint or by structure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costbench.metrics.measures import APE, APE_FLOOR_PERCENT, TAU, geometric_mean
from costbench.reports.page import paragraphs
from costbench.reports.results import BEST, SPLIT_NAMES, TRAINED, Cell, title_of
from costbench.reports.table import Column, Table

NEW_STRUCTURE = "new_structure"
"""Group of kernels whose operator graph, extents aside, occurs in no training program."""
_KERNELS = "kernels"
_MODELS = ("learned", "hybrid", "analytical")
_METRICS = (("ape", APE, "Tile-Size APE (%)", 1), ("tau", TAU, "Kendall's τ", 2))


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
    models = [model for model in _MODELS if model in cell.models]
    columns = [
        Column("application", "Application"),
        Column("program", "Program"),
        Column("kernels", "all", "Kernels", count=True),
        Column("unseen_kernels", "unseen", "Kernels", count=True),
    ]
    for short, _, name, decimals in _METRICS:
        for model in models:
            group = f"{name}, {model}"
            columns.append(Column(f"{short}_{model}", "all", group, decimals))
            columns.append(Column(f"unseen_{short}_{model}", "unseen", group, decimals))
    scores = [(metric, model) for _, metric, *_ in _METRICS for model in models]
    rows = [
        (
            *(application, program, cell.score(BEST, _KERNELS, program)),
            unseen.score(BEST, _KERNELS, program) or 0.0,
            *(part.score(model, metric, program) for metric, model in scores for part in (cell, unseen)),
        )
        for application, program in cell.programs
    ]
    for kind in ("Median", "Geometric mean", "Arithmetic mean"):
        averages = (
            _average(kind, metric, values)
            for metric, model in scores
            for values in _common_scores(cell, unseen, model, metric)
        )
        rows.append((kind, "", None, None, *averages))
    title = f"With and without kernels that training has seen, {cell.split} split, {cell.chip}"
    notes = paragraphs("results", "unseen_note", floor=APE_FLOOR_PERCENT)
    return Table(f"unseen_{cell.name}", title, tuple(columns), tuple(rows), 3, notes)


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


def _average(kind: str, metric: str, values: list[float]) -> float | None:
    if not values:
        return None
    if kind == "Geometric mean":
        mean = geometric_mean(values, APE_FLOOR_PERCENT if metric == APE else 0.0)
        return None if np.isnan(mean) else mean
    return float(np.median(values) if kind == "Median" else np.mean(values))
