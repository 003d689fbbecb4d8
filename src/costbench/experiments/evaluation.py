"""Cost models against measured runtimes: a program's kernels go by one at a time, every model prices each.

Memory holds one kernel with its tiles. What is kept of it is a handful of numbers per model, from which
the program's metrics are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from costbench.compiler.kernel import Kernel
from costbench.compiler.tile_sizes import TileSizes
from costbench.errors import DataError
from costbench.metrics.averages import mean_without_nan
from costbench.metrics.ranking import count_pairs, ordered_pair_accuracy_of, tau_of
from costbench.metrics.selection import tile_size_ape, top_k_score

Predict = Callable[[Kernel, TileSizes], npt.NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class EvaluatedKernel:
    """What evaluation needs of a kernel: the view, its measured tile sizes, and how often it runs."""

    kernel: Kernel
    tile_sizes: TileSizes
    runtime_ns: npt.NDArray[np.int64]
    runs: int


@dataclass
class _Tally:
    """One number a kernel, of one model."""

    tau: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    best_of_k: dict[int, list[float]] = field(default_factory=dict)


def evaluate_program(
    kernels: Iterable[EvaluatedKernel], models: Mapping[str, Predict], top_k: Sequence[int], where: str
) -> dict[str, dict[str, float]]:
    """Metrics of each model on one program.

    - `tile_size_ape` (percent) of the tile predicted fastest, kernels weighted by executions;
    - `kendall_tau` and `ordered_pair_accuracy`, means over kernels that have different runtimes;
    - `slowdown_at_<k>`, mean over kernels of (best of the k predicted fastest / best of all - 1);
    - `top_<k>_score`, best runtime of the program / its runtime with the best of the k predicted fastest.

    Args:
        kernels: of one program.
        models: name -> prediction, lower is faster.
        top_k: the values of k.
        where: names the program in errors.

    Returns:
        model -> metric -> value; a metric that is not defined (no kernel ranks anything) is left out.

    Raises:
        DataError: if there are no kernels, a runtime is not positive, or a model returns another number of
            costs than decisions, or one that is NaN or infinite.
    """
    best: list[float] = []
    runs: list[float] = []
    tallies = {name: _Tally(best_of_k={k: [] for k in {1, *top_k}}) for name in models}
    for index, item in enumerate(kernels):
        place = f"{where}, kernel {index}"
        runtime = _runtimes(item.runtime_ns, place)
        best.append(float(runtime.min()))
        runs.append(float(item.runs))
        for name, predict in models.items():
            cost = _costs(predict(item.kernel, item.tile_sizes), len(runtime), f"{place}, model {name}")
            _add(tallies[name], cost, runtime)
    if not best:
        raise DataError("no kernels to evaluate", where=where, expected="kernels with two or more tile sizes")
    return {name: _metrics(tally, np.array(best), np.array(runs)) for name, tally in tallies.items()}


def _runtimes(runtime_ns: npt.NDArray[np.int64], where: str) -> npt.NDArray[np.float64]:
    runtime = np.asarray(runtime_ns, dtype=np.float64)
    if not len(runtime) or not (runtime > 0).all() or not np.isfinite(runtime).all():
        raise DataError("a runtime is not a positive number", where=where, field="runtime_ns")
    return runtime


def _costs(cost: npt.NDArray[np.float64], count: int, where: str) -> npt.NDArray[np.float64]:
    if cost.shape != (count,) or not np.isfinite(cost).all():
        raise DataError(f"costs of shape {cost.shape}", where=where, expected=f"{count} finite numbers")
    return cost


def _add(tally: _Tally, cost: npt.NDArray[np.float64], runtime: npt.NDArray[np.float64]) -> None:
    pairs = count_pairs(cost, runtime)
    tally.tau.append(tau_of(pairs))
    tally.accuracy.append(ordered_pair_accuracy_of(pairs))
    order = np.argsort(cost, kind="stable")
    for k, found in tally.best_of_k.items():
        found.append(float(runtime[order[:k]].min()))


def _metrics(tally: _Tally, best: npt.NDArray[np.float64], runs: npt.NDArray[np.float64]) -> dict[str, float]:
    values = {
        "tile_size_ape": tile_size_ape(tally.best_of_k[1], best, runs),
        "kendall_tau": mean_without_nan(tally.tau),
        "ordered_pair_accuracy": mean_without_nan(tally.accuracy),
    }
    for k, chosen in tally.best_of_k.items():
        values[f"slowdown_at_{k}"] = float(np.mean(np.array(chosen) / best - 1.0))
        values[f"top_{k}_score"] = top_k_score(chosen, best, runs)
    return {name: value for name, value in sorted(values.items()) if not math.isnan(value)}
