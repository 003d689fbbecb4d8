"""The metrics of TpuGraphs, as its evaluation computes them: pooled OPA, top-K slowdown, Kendall's tau.

Labels are runtimes, for tiles divided by their normalizers in float64; scores order configurations, lower is
faster. What is not defined is NaN: without two different labels no pair is ordered, and a graph of a single
configuration ranks nothing. Source: tpugraphs2023, sections 4 and 5, and the data set's evaluation code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.arrays import F64, I64
from costbench.errors import DataError
from costbench.metrics.checks import aligned, positive, vector
from costbench.metrics.measures import mean_without_nan
from costbench.metrics.ranking import count_pairs

TILE_TOP_K = (1, 5, 10)
LAYOUT_TOP_K = (1, 10, 100)
COMPETITION_K = 5
"""Configurations of a tile kernel that the competition looks at."""


@dataclass(frozen=True)
class OrderedPairs:
    """How many ordered pairs of configurations a model orders rightly.

    Counts add up: TpuGraphs divides the sum over all graphs, so that a graph counts by its pairs.

    Attributes:
        correct: pairs (i, j) with label i above label j and score i above score j.
        total: pairs with label i above label j.
    """

    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        """Returns correct / total, NaN without pairs."""
        return self.correct / self.total if self.total else math.nan

    def __add__(self, other: OrderedPairs) -> OrderedPairs:
        return OrderedPairs(self.correct + other.correct, self.total + other.total)


def labels_of(runtime: npt.ArrayLike, normalizers: npt.ArrayLike | None = None) -> F64:
    """Returns what configurations are compared by: runtimes, divided by their normalizers in float64.

    Args:
        runtime: [c], in ns. Negative entries are labels that do not count, and stay negative.
        normalizers: [c], in ns, each above zero; none for layouts.

    Raises:
        DataError: if lengths differ, a value is not finite or a normalizer not above zero.
    """
    if normalizers is None:
        return vector(runtime, "runtime")
    labels, divisors = aligned(runtime=runtime, normalizers=normalizers)
    return labels / positive(divisors, "normalizers")


def ordered_pairs(
    runtime: npt.ArrayLike, scores: npt.ArrayLike, normalizers: npt.ArrayLike | None = None
) -> OrderedPairs:
    """Counts the ordered pairs of one graph in O(c log c).

    Args:
        runtime: [c], in ns; configurations with a negative one are left out.
        scores: [c], lower is faster. Equal scores of different labels are wrong.
        normalizers: [c], in ns, for tiles.

    Raises:
        DataError: as `labels_of`, also for `scores`.
    """
    labels, costs = _valid(runtime, scores, normalizers)
    pairs = count_pairs(costs, labels)
    return OrderedPairs(pairs.concordant, pairs.total - pairs.tied_measured)


def ordered_pair_accuracy(
    runtime: npt.ArrayLike, scores: npt.ArrayLike, normalizers: npt.ArrayLike | None = None
) -> float:
    """Returns the OPA of one graph: sum_ij 1[y_i > y_j] 1[s_i > s_j] / sum_ij 1[y_i > y_j], or NaN.

    Raises:
        DataError: as `ordered_pairs`.
    """
    return ordered_pairs(runtime, scores, normalizers).accuracy


def pooled_accuracy(graphs: Iterable[OrderedPairs]) -> float:
    """Returns the OPA over all pairs of all graphs (not the mean over graphs), or NaN."""
    return sum(graphs, OrderedPairs(0, 0)).accuracy


def top_k_slowdown(
    runtime: npt.ArrayLike, scores: npt.ArrayLike, k: int, normalizers: npt.ArrayLike | None = None
) -> float:
    """Returns (fastest of the k best-ranked / fastest of all) - 1, a fraction of 0 or more.

    The k configurations of the lowest scores are tried, all of them if there are fewer; of equal scores those
    that come first.

    Returns:
        NaN for fewer than two configurations, which rank nothing and are left out of means.

    Raises:
        DataError: as `labels_of`, also for `scores`; if a runtime is 0, or `k < 1`.
    """
    if k < 1:
        raise DataError(f"{k}", field="k", expected="at least 1")
    labels, costs = _valid(runtime, scores, normalizers)
    if len(labels) < 2:
        return math.nan
    positive(labels, "runtime")
    chosen = np.argsort(costs, kind="stable")[:k]
    return float(labels[chosen].min() / labels.min() - 1.0)


def kendall_tau_b(runtime: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Returns (C - D) / sqrt((P - T_x) (P - T_y)), rounded and cut to [-1, 1] as SciPy does.

    C and D are concordant and discordant pairs, P all pairs, T_x and T_y those tied in scores and labels.

    Returns:
        NaN for fewer than two configurations, or if labels or scores are constant.

    Raises:
        DataError: as `ordered_pairs`.
    """
    labels, costs = _valid(runtime, scores, None)
    pairs = count_pairs(costs, labels)
    left, right = pairs.total - pairs.tied_predicted, pairs.total - pairs.tied_measured
    if not left or not right:
        return math.nan
    tau = (pairs.concordant - pairs.discordant) / math.sqrt(left) / math.sqrt(right)
    return min(1.0, max(-1.0, tau))


def graph_metrics(
    runtime: npt.ArrayLike,
    scores: npt.ArrayLike,
    top_k: Sequence[int],
    normalizers: npt.ArrayLike | None = None,
) -> dict[str, float | None]:
    """Returns the metrics of one graph: `opa`, `kendall_tau` and `top_<k>`; None where not defined.

    `kendall_tau` is tau-b, which a constant score leaves undefined, as in SciPy.

    Args:
        runtime: [c], in ns.
        scores: [c], lower is faster.
        top_k: `TILE_TOP_K` or `LAYOUT_TOP_K`.
        normalizers: [c], in ns, for tiles.

    Raises:
        DataError: as `top_k_slowdown`.
    """
    labels, costs = _valid(runtime, scores, normalizers)
    metrics = {"opa": ordered_pair_accuracy(labels, costs), "kendall_tau": kendall_tau_b(labels, costs)}
    metrics |= {f"top_{k}": top_k_slowdown(labels, costs, k) for k in top_k}
    return {name: None if math.isnan(value) else value for name, value in metrics.items()}


def competition_tile_score(
    runtime: npt.ArrayLike, chosen: Sequence[int], normalizers: npt.ArrayLike
) -> float:
    """Returns what a kernel gives in the competition: 2 - fastest of the first five / fastest of all.

    Args:
        runtime: [c], in ns.
        chosen: indices of configurations, best first; what follows the fifth does not count.
        normalizers: [c], in ns.

    Raises:
        DataError: as `labels_of`; if nothing is chosen, or an index does not exist.
    """
    labels = positive(labels_of(runtime, normalizers), "runtime")
    indices = _indices(chosen[:COMPETITION_K], len(labels))
    if not len(indices):
        raise DataError("no configurations", field="TopConfigs", expected="one to five")
    return float(2.0 - labels[indices].min() / labels.min())


def competition_layout_score(runtime: npt.ArrayLike, ranking: Sequence[int]) -> float:
    """Returns Kendall's tau-b between runtimes and ranks in a ranking of all configurations, or NaN.

    Args:
        runtime: [c], in ns.
        ranking: every index of a configuration once, fastest first.

    Raises:
        DataError: if it does not name each configuration once.
    """
    labels = labels_of(runtime)
    indices = _indices(ranking, len(labels))
    if len(indices) != len(labels) or len(np.unique(indices)) != len(labels):
        raise DataError(f"{len(indices)} entries", field="TopConfigs", expected=f"each of {len(labels)} once")
    rank = np.empty(len(labels))
    rank[indices] = np.arange(len(labels))
    return kendall_tau_b(labels, rank)


def competition_score(collections: Mapping[str, Sequence[float]]) -> float:
    """Returns the mean over collections of the mean over their graphs; undefined graphs are left out."""
    return mean_without_nan([mean_without_nan(scores) for scores in collections.values()])


def _valid(
    runtime: npt.ArrayLike, scores: npt.ArrayLike, normalizers: npt.ArrayLike | None
) -> tuple[F64, F64]:
    labels = labels_of(runtime, normalizers)
    labels, costs = aligned(runtime=labels, scores=scores)
    is_valid = labels >= 0.0
    return labels[is_valid], costs[is_valid]


def _indices(configurations: Sequence[int], count: int) -> I64:
    indices = np.array(configurations, np.int64)
    outside = indices[(indices < 0) | (indices >= count)]
    if len(outside):
        raise DataError(f"configuration {outside[0]}", field="TopConfigs", expected=f"0 to {count - 1}")
    return indices
