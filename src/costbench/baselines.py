"""The models that networks are compared with: one row for each says all that the platform knows about it.

A fitted baseline is a class with `fit` and `predict` (`costbench.models.baselines.fitting.FittedBaseline`),
which its row names by task; it is fitted by the stage `train` and asked by the stage `evaluate`. A baseline
without fitted classes is a function in `costbench.experiments.evaluation.unfitted`. Reports take names and
order from here. So a new baseline is a class or a function, and a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Whole names of modules, along which the digests of code follow (`execution.closure`).
_RUNTIMES = "costbench.models.baselines.runtimes"
_RANKER = "costbench.models.baselines.ranker"
_TREES = "costbench.models.baselines.trees"
_LAYOUTS = "costbench.models.baselines.layouts"
FITS_FILE = "fits.json"
"""File beside fitted trees: `kernels`, `samples`, `trees` and `validation` of each model, by its name."""
GROUP, WITHOUT_CEILINGS = "baselines", "baselines_without_ceilings"
"""Names in parameter files that stand for every row, and for those that are models."""


@dataclass(frozen=True)
class Baseline:
    """A model without a network, or a mark of what a model can reach.

    Attributes:
        name: name in result rows and parameter files.
        title: name in tables and figures; that in rows where it is empty.
        fitted: module and class of what is fitted, by task; empty for what is not fitted.
        is_ceiling: whether it knows the machine, and so is no model but a mark of what one can reach.
        reads_estimate: whether it is the analytical model, or reads its estimate.
        is_boosted: whether it is boosted trees, of which section `baselines` says how many and of how much.
    """

    name: str
    title: str = ""
    fitted: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    is_ceiling: bool = False
    reads_estimate: bool = False
    is_boosted: bool = False


_ROWS = (
    Baseline("analytical", reads_estimate=True),
    Baseline(
        "analytical_unscaled",
        "analytical, unscaled",
        {"fusion": (_RUNTIMES, "UnscaledEstimate")},
        reads_estimate=True,
    ),
    Baseline(
        "analytical_constant",
        "analytical x constant",
        {"fusion": (_RUNTIMES, "ScaledEstimate")},
        reads_estimate=True,
    ),
    Baseline(
        "analytical_launch",
        "launch + analytical",
        {"fusion": (_RUNTIMES, "LaunchAndEstimate")},
        reads_estimate=True,
    ),
    Baseline(
        "analytical_linear", "linear in costs", {"fusion": (_RUNTIMES, "LinearInWork")}, reads_estimate=True
    ),
    Baseline("linear", "linear ranker", {"tile": (_RANKER, "LinearRanker")}),
    Baseline(
        "trees",
        "boosted trees",
        {
            "tile": (_TREES, "RankingTrees"),
            "fusion": (_TREES, "RuntimeTrees"),
            "layout": (_LAYOUTS, "LayoutTrees"),
        },
        is_boosted=True,
    ),
    Baseline(
        "trees_analytical",
        "boosted trees, analytical",
        {"tile": (_TREES, "CorrectedRankingTrees"), "fusion": (_TREES, "CorrectedRuntimeTrees")},
        reads_estimate=True,
        is_boosted=True,
    ),
    Baseline("iterations"),
    Baseline("default_first", "default first"),
    Baseline("random"),
    Baseline("measured_again", "measured again", is_ceiling=True),
    Baseline("regular_machine", "machine without irregular code", is_ceiling=True),
)
BASELINES: Mapping[str, Baseline] = {row.name: row for row in _ROWS}
"""Every row by name, in the order in which reports show them."""


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Returns names of models with those of rows in place of the groups `baselines` and without ceilings."""
    models = tuple(row.name for row in _ROWS if not row.is_ceiling)
    groups: Mapping[str, Iterable[str]] = {GROUP: BASELINES, WITHOUT_CEILINGS: models}
    return tuple(model for name in names for model in groups.get(name, (name,)))
