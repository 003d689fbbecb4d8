"""Scores cost models against measured runtimes of one program's kernels.

Kernels are read and priced by every model one at a time. Of each, only a few numbers per model are kept, from
which the program's metrics are computed, so memory holds a single kernel with its tile sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError
from costbench.metrics.measures import mean_without_nan
from costbench.metrics.ranking import PairCounts, count_pairs, ordered_pair_accuracy_of, tau_of
from costbench.metrics.selection import tile_size_ape, top_k_score
from costbench.metrics.tpugraphs import TILE_TOP_K, OrderedPairs, mean_slowdown, pooled_accuracy

Predict = Callable[[LoopNest, TileSizes], F64]


ALL_KERNELS = "all"
BEST = "best"
"""Model name of the results that depend on no model."""


@dataclass(frozen=True, eq=False)
class EvaluatedKernel:
    """One kernel with its measured tile sizes.

    Attributes:
        nest: the kernel, lowered.
        tile_sizes: those that were measured.
        runtime_ns: their runtimes, int64 [n].
        runs: how often the kernel runs in the program.
        groups: groups of kernels that it belongs to, besides that of all kernels.
        costs: of the tile sizes, float64 [n], by model, for models that were asked for all kernels at once.
    """

    nest: LoopNest
    tile_sizes: TileSizes
    runtime_ns: I64
    runs: int
    groups: tuple[str, ...] = ()
    costs: Mapping[str, F64] = field(default_factory=dict)


@dataclass
class _Tally:
    """Collects one number per kernel of one model."""

    pairs: list[PairCounts] = field(default_factory=list)
    best_of_k: dict[int, list[float]] = field(default_factory=dict)


ByModel = dict[str, dict[str, float]]
"""Model -> metric -> value."""


def evaluate_program(
    kernels: Iterable[EvaluatedKernel], models: Mapping[str, Predict], top_k: Sequence[int], where: str
) -> dict[str, ByModel]:
    """Return the metrics of each model on one program, over all its kernels and over each group of them.

    - `tile_size_ape` (percent) of the tile predicted fastest, kernels weighted by executions;
    - `kendall_tau` and `ordered_pair_accuracy`, means over kernels that have different runtimes;
    - `slowdown_at_<k>`, mean over kernels of (best of the k predicted fastest / best of all - 1);
    - `kernel_top_<k>` for 1, 5 and 10, the same in percent over kernels with two or more tile sizes, and
      `opa`, the share of the pairs of all kernels with different runtimes that are in the right order, as
      tpugraphs2023 defines both (section 5.1);
    - `top_<k>_score`, best runtime of the program / its runtime with the best of the k predicted fastest;
    - under the model `best`: `kernels`, their number, and `runtime_ns`, the program's runtime with the best
      tile sizes, each kernel weighted by its executions.

    Args:
        kernels: of one program.
        models: name -> prediction, lower is faster; models whose costs the kernels hold are added to them.
        top_k: the values of k.
        where: names the program in errors.

    Returns:
        group of kernels (`all` and those that kernels name) -> model -> metric -> value; a metric that is not
        defined (no kernel ranks anything) is left out.

    Raises:
        DataError: if there are no kernels, a runtime is not positive, or a model returns another number of
            costs than decisions, or one that is NaN or infinite.
    """
    best: list[float] = []
    runs: list[float] = []
    members: dict[str, list[int]] = {ALL_KERNELS: []}
    tallies: dict[str, _Tally] = {}
    for index, item in enumerate(kernels):
        place = f"{where}, kernel {index}"
        runtime = _runtimes(item.runtime_ns, place)
        best.append(float(runtime.min()))
        runs.append(float(item.runs))
        for group in (ALL_KERNELS, *item.groups):
            members.setdefault(group, []).append(index)
        predicted = {name: predict(item.nest, item.tile_sizes) for name, predict in models.items()}
        for name, cost in (predicted | dict(item.costs)).items():
            tally = tallies.setdefault(name, _Tally(best_of_k={k: [] for k in {*TILE_TOP_K, *top_k}}))
            _add(tally, _costs(cost, len(runtime), f"{place}, model {name}"), runtime)
    if not best:
        raise DataError("no kernels to evaluate", where=where, expected="kernels with two or more tile sizes")
    return {
        group: _by_model(tallies, top_k, np.array(best), np.array(runs), np.array(indices))
        for group, indices in sorted(members.items())
    }


def _by_model(
    tallies: Mapping[str, _Tally],
    top_k: Sequence[int],
    best: F64,
    runs: F64,
    indices: I64,
) -> ByModel:
    best, runs = best[indices], runs[indices]
    found = {
        name: _without_nan(_metrics(tally, top_k, best, runs, indices) | _published(tally, best, indices))
        for name, tally in tallies.items()
    }
    return found | {BEST: {"kernels": float(len(indices)), "runtime_ns": float(best @ runs)}}


def _runtimes(runtime_ns: I64, where: str) -> F64:
    runtime = np.asarray(runtime_ns, dtype=np.float64)
    if not len(runtime) or not (runtime > 0).all() or not np.isfinite(runtime).all():
        raise DataError("a runtime is not a positive number", where=where, field="runtime_ns")
    return runtime


def _costs(cost: F64, count: int, where: str) -> F64:
    if cost.shape != (count,) or not np.isfinite(cost).all():
        raise DataError(f"costs of shape {cost.shape}", where=where, expected=f"{count} finite numbers")
    return cost


def _add(tally: _Tally, cost: F64, runtime: F64) -> None:
    tally.pairs.append(count_pairs(cost, runtime))
    order = np.argsort(cost, kind="stable")
    for k, found in tally.best_of_k.items():
        found.append(float(runtime[order[:k]].min()))


def _metrics(
    tally: _Tally,
    top_k: Sequence[int],
    best: F64,
    runs: F64,
    indices: I64,
) -> dict[str, float]:
    chosen = {k: np.array(tally.best_of_k[k])[indices] for k in {1, *top_k}}
    pairs = [tally.pairs[index] for index in indices]
    values = {
        "tile_size_ape": tile_size_ape(chosen[1], best, runs),
        "kendall_tau": mean_without_nan([tau_of(one) for one in pairs]),
        "ordered_pair_accuracy": mean_without_nan([ordered_pair_accuracy_of(one) for one in pairs]),
    }
    for k, found in chosen.items():
        values[f"slowdown_at_{k}"] = float(np.mean(found / best - 1.0))
        values[f"top_{k}_score"] = top_k_score(found, best, runs)
    return values


def _published(tally: _Tally, best: F64, indices: I64) -> dict[str, float]:
    """Returns the metrics as tpugraphs2023 defines them; NaN where no kernel has a choice."""
    pairs = [tally.pairs[index] for index in indices]
    ordered = (OrderedPairs(one.concordant, one.total - one.tied_measured) for one in pairs)
    values = {"opa": pooled_accuracy(ordered)}
    choice = np.array([one.total > 0 for one in pairs])
    for k in TILE_TOP_K:
        found = np.array(tally.best_of_k[k])[indices]
        slowdowns = np.where(choice, found / best - 1.0, math.nan)
        values[f"kernel_top_{k}"] = 100.0 * mean_slowdown(slowdowns.tolist())
    return values


def _without_nan(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in sorted(values.items()) if not math.isnan(value)}
