"""One flat object of headline numbers, for scripts: `{task}/{split}/{chip}/{model}/{metric}`.

Averages are over test programs, each counting once, after averaging over seeds:

- `ape_mean`: geometric mean, as in lpm2021's tables, values below 0.05% counting as 0.05%;
  `ape_arithmetic_mean` and `ape_median` of the plain values; `ape_floored`, how many were raised.
- `tau_mean`: arithmetic mean (a correlation may be negative, and then has no geometric mean);
  `tau_geometric_mean`, as the paper prints it, where all are positive; `tau_median`.
- every other metric of the rows: `<metric>_mean` and `<metric>_median`;
- `unseen_<name>`, for the means and medians of APE and tau: without kernels that training has seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from costbench.metrics.averages import APE_FLOOR_PERCENT, geometric_mean
from costbench.reports.results import UNSEEN, Cell, Results

_UNSEEN_METRICS = ("ape_mean", "ape_median", "tau_mean", "tau_median")
APE = "tile_size_ape"
TAU = "kendall_tau"


def averages(cell: Cell, model: str) -> dict[str, float]:
    """Headline numbers of one model in one cell, by name as in the module's description."""
    found: dict[str, float] = {}
    ape, tau = cell.over_programs(model, APE), cell.over_programs(model, TAU)
    if ape:
        found["ape_mean"] = geometric_mean(ape, APE_FLOOR_PERCENT)
        found["ape_arithmetic_mean"] = float(np.mean(ape))
        found["ape_median"] = float(np.median(ape))
        found["ape_floored"] = float(sum(value < APE_FLOOR_PERCENT for value in ape))
    if tau:
        found["tau_mean"] = float(np.mean(tau))
        found["tau_median"] = float(np.median(tau))
        found["tau_geometric_mean"] = geometric_mean(tau)
    for metric in sorted({m for name, m, _ in cell.scores if name == model} - {APE, TAU}):
        values = cell.over_programs(model, metric)
        found[f"{metric}_mean"] = float(np.mean(values))
        found[f"{metric}_median"] = float(np.median(values))
    return {name: value for name, value in found.items() if math.isfinite(value)}


def summarise(results: Results, extra: Mapping[str, float]) -> dict[str, float]:
    """All headline numbers, and `extra` (leakage, data set) under the keys it has, sorted by key."""
    flat = dict(extra)
    for cell in results.cells:
        for model in cell.models:
            prefix = f"{cell.task}/{cell.split}/{cell.chip}/{model}"
            flat |= {f"{prefix}/{name}": value for name, value in averages(cell, model).items()}
            unseen = results.part(cell, UNSEEN)
            found = {} if unseen is None else averages(unseen, model)
            flat |= {f"{prefix}/unseen_{name}": found[name] for name in _UNSEEN_METRICS if name in found}
    return dict(sorted(flat.items()))


HEADLINE_MODELS = ("learned", "analytical")
HEADLINE_METRICS = ("ape_mean", "tau_mean")
Headlines = dict[str, dict[str, dict[str, dict[str, dict[str, float]]]]]


def headlines(results: Results) -> Headlines:
    """The few numbers that `dvc metrics` shows and compares: task -> split -> chip -> model -> metric."""
    tree: Headlines = {}
    for cell in results.cells:
        models = {
            model: {name: found[name] for name in HEADLINE_METRICS if name in found}
            for model in HEADLINE_MODELS
            if (found := averages(cell, model))
        }
        tree.setdefault(cell.task, {}).setdefault(cell.split, {})[cell.chip] = models
    return tree
