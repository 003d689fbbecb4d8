"""One flat object of headline numbers, for scripts: `{task}/{split}/{chip}/{model}/{metric}`.

Averages are over test programs, each counting once, after averaging over seeds:

- `ape_mean`: geometric mean, as in lpm2021's tables, values below 0.05% counting as 0.05%;
  `ape_arithmetic_mean` and `ape_median` of the plain values; `ape_floored`, how many were raised;
  `ape_std`, their standard deviation (n - 1 in it). In the same way `mape`, `mape_ge5us` and
  `mape_lt5us` of the fusion task: over all kernels, those of at least 5 us and those below.
- `tau_mean`: arithmetic mean (a correlation may be negative, and then has no geometric mean);
  `tau_geometric_mean`, as the paper prints it, where all are positive; `tau_median`; `tau_std`; in
  the same way `tau_ge5us` and `tau_lt5us`.
- every other metric of the rows: `<metric>_mean` and `<metric>_median`;
- the same of variants, whose model is called `learned@<variant>`: `tile/random/tpu_v2/learned@mse/ape_mean`;
- `unseen_<name>`, for the means and medians of APE and tau: without kernels that training has seen;
- `new_structure_<name>`, for the means of the main measures: over kernels whose operator graph, extents
  aside, training has not seen; `leakage/{task}/{split}/{chip}/share_of_structures`: share of the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from costbench.reports.baseline_comparison import strongest_baseline
from costbench.reports.claims.claim import Side
from costbench.reports.results import FOLDS, PRIMARY_CHIP, UNSEEN, Cell, Results, split_order
from costbench.reports.tables.seen_kernels import NEW_STRUCTURE, share_of_structures

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
    """Headline numbers of one model in one cell, by name as in the module's description."""
    found: dict[str, float] = {}
    known = cell.described.known_measures
    for measure in known:
        values = cell.over_programs(model, measure.metric)
        if not values:
            continue
        kinds = _ERROR_KINDS if measure.printed == "error" else _TAU_KINDS
        for suffix, kind in kinds.items():
            average = measure.average(kind, values)
            if average is not None:
                found[f"{measure.short}_{suffix}"] = average
        if measure.printed == "error":
            found[f"{measure.short}_floored"] = float(sum(value < measure.floor for value in values))
    others = {metric for name, metric, _ in cell.scores if name == model} - {m.metric for m in known}
    for metric in sorted(others):
        values = cell.over_programs(model, metric)
        found[f"{metric}_mean"] = float(np.mean(values))
        found[f"{metric}_median"] = float(np.median(values))
    return {name: value for name, value in found.items() if math.isfinite(value)}


def summarise(results: Results, extra: Mapping[str, float]) -> dict[str, float]:
    """All headline numbers, and `extra` (leakage, data set, searches) under the keys it has, sorted."""
    flat = dict(extra)
    for cell in results.cells:
        for model in (*cell.models, *cell.ceilings):
            prefix = f"{cell.task}/{cell.split}/{cell.chip}/{model}"
            flat |= {f"{prefix}/{name}": value for name, value in averages(cell, model).items()}
            unseen = results.part(cell, UNSEEN)
            found = {} if unseen is None else averages(unseen, model)
            flat |= {f"{prefix}/unseen_{name}": found[name] for name in _UNSEEN_METRICS if name in found}
            new = results.part(cell, NEW_STRUCTURE)
            found = {} if new is None else averages(new, model)
            flat |= {
                f"{prefix}/{NEW_STRUCTURE}_{name}": found[name] for name in HEADLINE_METRICS if name in found
            }
        share = share_of_structures(cell, results.part(cell, NEW_STRUCTURE))
        if share is not None:
            flat[f"leakage/{cell.task}/{cell.split}/{cell.chip}/share_of_structures"] = share
    for cell in results.variants:
        for model in cell.models:
            prefix = f"{cell.task}/{cell.split}/{cell.chip}/{model}@{cell.variant}"
            flat |= {f"{prefix}/{name}": value for name, value in averages(cell, model).items()}
    return dict(sorted(flat.items()))


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
    best: dict[str, Cell] = {}
    for cell in results.cells:
        if cell.task not in best or _rank(cell) < _rank(best[cell.task]):
            best[cell.task] = cell
    found = {}
    for task, cell in best.items():
        measure = cell.described.measures[0]
        side = Side(split=cell.split, chip=cell.chip)
        strongest = strongest_baseline(results.scores, task, measure.metric, side)
        named = {model: model for model in HEADLINE_MODELS} | ({_BASELINE: strongest} if strongest else {})
        errors = {name: averages(cell, model) for name, model in named.items()}
        key = f"{measure.short}_mean"
        found[task] = {name: values[key] for name, values in errors.items() if key in values}
    return found


def _rank(cell: Cell) -> tuple[bool, int, bool]:
    return cell.split != FOLDS, split_order(cell.split), cell.chip != PRIMARY_CHIP
