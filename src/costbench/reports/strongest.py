"""Finds the strongest baseline: of the models without a network, the one that is best on the test programs.

It is chosen on the very programs that the comparison is made on, which favours the baseline: of several that
are equally good, the luckiest is taken. A lead over it is therefore no smaller than it seems. The choice is
made once, on all programs, and not again in each resample.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from costbench.metrics.measures import Measure
from costbench.reports.claims.claim import Side
from costbench.reports.described import described
from costbench.reports.results import BASELINES
from costbench.reports.scores import STATISTICS, ScoreIndex, scores_of

STRONGEST = "strongest"
"""In place of a model: the strongest baseline."""


def strongest_baseline(index: ScoreIndex, task: str, metric: str, side: Side) -> str | None:
    """Returns the baseline of a split and chip with the best mean, or None where no baseline was evaluated.

    Means are over the test programs that all baselines have values for (seeds averaged): geometric for an
    error, of which the least is best, and arithmetic for a correlation, of which the greatest is. Of equals
    the first of `BASELINES` is taken.

    Args:
        index: the results.
        task: the compiler's decision.
        metric: of the comparison.
        side: where; its model and variant do not matter.
    """
    found = {
        model: scores
        for model in BASELINES
        if (scores := scores_of(index, task, metric, Side(model, split=side.split, chip=side.chip))).programs
    }
    if not found:
        return None
    shared = reduce(set.intersection, (set(scores.programs) for scores in found.values()))
    if not shared:
        return None
    programs = tuple(sorted(shared))
    rises = measure_of(task, metric, side.split).better == "higher"
    statistic = STATISTICS["mean" if rises else "geometric_mean"]
    means = {model: float(statistic(scores.over(programs).means)[0]) for model, scores in found.items()}
    best = np.argmax(list(means.values())) if rises else np.argmin(list(means.values()))
    return list(means)[int(best)]


def measure_of(task: str, metric: str, split: str = "") -> Measure:
    """Returns the description of a metric of a learned task, on a split."""
    return next(measure for measure in described(task, split).known_measures if measure.metric == metric)
