"""One flat object of headline numbers, for scripts: `{task}/{split}/{chip}/{model}/{metric}`.

Averages are over test programs, each counting once, after averaging over seeds:

- `ape_mean`: geometric mean, as in lpm2021's tables, values below 0.05% counting as 0.05%;
  `ape_arithmetic_mean` and `ape_median` of the plain values; `ape_floored`, how many were raised;
  `ape_std`, their standard deviation (n - 1 in it). In the same way `mape`, `mape_ge5us` and
  `mape_lt5us` of the fusion task: over all kernels, those of at least 5 us and those below.
- `tau_mean`: arithmetic mean (a correlation may be negative, and then has no geometric mean);
  `tau_geometric_mean`, as the paper prints it, where all are positive; `tau_median`; `tau_std`; in
  the same way `tau_ge5us` and `tau_lt5us`.
- `top1_above_1`, `_above_5`, `_above_10` of the layout task: percentage of programs that lose more than that;
- every other metric of the rows: `<metric>_mean` and `<metric>_median`;
- the same of variants, whose model is called `learned@<variant>`: `tile/random/tpu_v2/learned@mse/ape_mean`;
- `unseen_<name>`, for the means and medians of APE and tau: without kernels that training has seen;
- `fusion/{split}/{chip}/analytical/r2_ge5us` and `r2_lt5us`: share of the variance of log runtime that the
  analytical estimate explains with two constants, log runtime = a + b log estimate, over kernels;
- `headline/...`: the same averages of the packed results that the first page rests on, and what each of their
  models was `given`: `steps`, `kernels`, `trees`, `core_seconds`;
- `new_structure_<name>`, for the means of the main measures: over kernels whose operator graph, extents
  aside, training has not seen; `leakage/{task}/{split}/{chip}/share_of_structures`: share of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from costbench.metrics.measures import Measure
from costbench.metrics.rows import MAIN
from costbench.reports.baseline_comparison import strongest_baseline
from costbench.reports.claims.claim import Side
from costbench.reports.figures.programs import UNSCALED, read_scatter
from costbench.reports.inputs import Front
from costbench.reports.losses import SHARES_ABOVE, SKEWED, average
from costbench.reports.results import FOLDS, PRIMARY_CHIP, UNSEEN, Cell, Results, split_order
from costbench.reports.tables.programs import NEW_STRUCTURE, share_of_structures

_SHORT_NS = 5_000.0
_UNSEEN_METRICS = ("ape_mean", "ape_median", "tau_mean", "tau_median")
_ERROR_KINDS = {
    "mean": "geometric_mean",
    "arithmetic_mean": "mean",
    "median": "median",
    "std": "standard_deviation",
}
_TAU_KINDS = {
    "mean": "mean",
    "median": "median",
    "geometric_mean": "geometric_mean",
    "std": "standard_deviation",
}


def averages(cell: Cell, model: str) -> dict[str, float]:
    """Returns the headline numbers of one model in one cell, by name as in the module's description."""
    metrics = sorted({metric for name, metric, _ in cell.scores if name == model})
    values = {metric: cell.over_programs(model, metric) for metric in metrics}
    return average_values(values, cell.described.known_measures, skewed=cell.task in SKEWED)


def average_values(
    values: Mapping[str, Sequence[float]], measures: Sequence[Measure], *, skewed: bool
) -> dict[str, float]:
    """Returns averages over programs, by name as in the module's description.

    Args:
        values: metric -> value of each program, seeds averaged.
        measures: metrics that have a name of their own.
        skewed: whether the share of programs above a few values is told as well.
    """
    numbers: dict[str, float | None] = {}
    for measure in measures:
        of_programs = values.get(measure.metric, ())
        if not of_programs:
            continue
        is_error = measure.printed == "error"
        kinds = _ERROR_KINDS | {kind: kind for kind in SHARES_ABOVE if skewed} if is_error else _TAU_KINDS
        for suffix, kind in kinds.items():
            numbers[f"{measure.short}_{suffix}"] = average(measure, kind, of_programs)
        if is_error:
            numbers[f"{measure.short}_floored"] = float(sum(value < measure.floor for value in of_programs))
    for metric in sorted(set(values) - {measure.metric for measure in measures}):
        numbers[f"{metric}_mean"] = float(np.mean(values[metric]))
        numbers[f"{metric}_median"] = float(np.median(values[metric]))
    return {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}


def summarise(results: Results, extra: Mapping[str, float]) -> dict[str, float]:
    """Returns all headline numbers, sorted by key.

    Args:
        results: results of evaluation.
        extra: further numbers (leakage, data set, searches) by key.
    """
    flat = dict(extra)
    for cell in results.cells:
        unseen, new = results.part(cell, UNSEEN), results.part(cell, NEW_STRUCTURE)
        for model in (*cell.models, *cell.ceilings):
            numbers = averages(cell, model)
            numbers |= _averages_of_part("unseen", unseen, model, _UNSEEN_METRICS)
            numbers |= _averages_of_part(NEW_STRUCTURE, new, model, HEADLINE_METRICS)
            flat |= _keyed(cell, model, numbers)
        share = share_of_structures(cell, new)
        if share is not None:
            flat[f"leakage/{cell.task}/{cell.split}/{cell.chip}/share_of_structures"] = share
    for cell in results.variants:
        for model in cell.models:
            flat |= _keyed(cell, f"{model}@{cell.variant}", averages(cell, model))
    return dict(sorted(flat.items()))


def _keyed(cell: Cell, model: str, numbers: Mapping[str, float]) -> dict[str, float]:
    prefix = f"{cell.task}/{cell.split}/{cell.chip}/{model}"
    return {f"{prefix}/{name}": value for name, value in numbers.items()}


def _averages_of_part(prefix: str, part: Cell | None, model: str, metrics: Sequence[str]) -> dict[str, float]:
    """Returns some headline numbers over a group of kernels; none where nothing of it was evaluated."""
    numbers = {} if part is None else averages(part, model)
    return {f"{prefix}_{name}": numbers[name] for name in metrics if name in numbers}


def flat_fits(files: Iterable[Path]) -> dict[str, float]:
    """Returns how much of the variance of log runtime the estimate explains, by key of the summary.

    Args:
        files: predicted and measured times, `scatter.json` of each experiment; those of
            `analytical_unscaled`, the estimate as it is, count.

    Raises:
        DataError: for a file that is something else.
    """
    numbers = {}
    for scatter in (scatter for path in files for scatter in read_scatter(path)):
        if (scatter.task, scatter.model) != ("fusion", UNSCALED):
            continue
        split, chip = scatter.split, scatter.chip
        estimated, measured = np.log(scatter.predicted_ns), np.log(scatter.measured_ns)
        is_short = scatter.measured_ns < _SHORT_NS
        for name, mask in (("r2_ge5us", ~is_short), ("r2_lt5us", is_short)):
            if mask.sum() > 2:
                correlation = np.corrcoef(estimated[mask], measured[mask])[0, 1]
                numbers[f"fusion/{split}/{chip}/analytical/{name}"] = float(correlation**2)
    return {key: value for key, value in numbers.items() if math.isfinite(value)}


def flat_headline(front: Front) -> dict[str, float]:
    """Returns the averages of packed results, and what their models were given, by key of the summary."""
    numbers: dict[str, float] = {}
    for cell in front.cells:
        for model in (*cell.models, *cell.ceilings):
            numbers |= _keyed(cell, model, averages(cell, model))
            given = front.guard.budget_of(cell.task, Side(model, MAIN, cell.split, cell.chip))
            amounts = {} if given is None else {name: value for name, value in asdict(given).items() if value}
            numbers |= _keyed(cell, model, {f"given/{name}": float(value) for name, value in amounts.items()})
    return {f"headline/{key}": value for key, value in numbers.items()}


HEADLINE_METRICS = ("ape_mean", "tau_mean", "mape_ge5us_mean", "tau_ge5us_mean")
HEADLINE_MODELS = ("learned", "hybrid")
_BASELINE = "baseline"


def headlines(results: Results) -> dict[str, dict[str, float]]:
    """Returns the few numbers that `dvc metrics` shows and compares, which fit on a line of a terminal.

    Returns:
        task -> `learned`, `hybrid` and `baseline` (the strongest one) -> mean error over test programs,
        on the folds if there are any, otherwise on the first split, and of their chips on the one that was
        calibrated if it is there.
    """
    by_task: dict[str, list[Cell]] = {}
    for cell in results.cells:
        by_task.setdefault(cell.task, []).append(cell)
    errors: dict[str, dict[str, float]] = {}
    for task, cells in by_task.items():
        cell = min(cells, key=lambda c: (c.split != FOLDS, split_order(c.split), c.chip != PRIMARY_CHIP))
        measure = cell.described.measures[0]
        side = Side(split=cell.split, chip=cell.chip)
        strongest = strongest_baseline(results.scores, task, measure.metric, side)
        models = {model: model for model in HEADLINE_MODELS} | ({_BASELINE: strongest} if strongest else {})
        means = {name: averages(cell, model).get(f"{measure.short}_mean") for name, model in models.items()}
        errors[task] = {name: mean for name, mean in means.items() if mean is not None}
    return errors
