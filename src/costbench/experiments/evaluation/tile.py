"""Evaluates cost models on a program's tile-size task: every model ranks the tile sizes of each kernel.

Kernels are read and priced by every model one at a time. Of each, only a few numbers per model are kept, from
which the program's metrics are computed, so memory holds a single kernel with its tile sizes. Of imported
kernels there are features and no compiled programs, so only models that read features alone are evaluated:
trained networks, fitted baselines and random rankings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from costbench import rng
from costbench.arrays import F64, I64
from costbench.datasets.measured_kernels import CompiledPrograms, MeasuredKernels, shard_path
from costbench.datasets.storage import Shard
from costbench.errors import DataError
from costbench.experiments.evaluation.program import (
    ALL_KERNELS,
    BEST,
    ByModel,
    ModelKey,
    ProgramResult,
    ProgramTask,
    kernel_kind,
)
from costbench.experiments.evaluation.shard_costs import fitted_costs, network_costs
from costbench.experiments.evaluation.unfitted import TILE_MODELS, Predict, load_user_models
from costbench.experiments.grid.cells import MAIN
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.metrics.measures import mean_without_nan
from costbench.metrics.ranking import PairCounts, count_pairs, ordered_pair_accuracy_of, tau_of
from costbench.metrics.selection import tile_size_ape, top_k_score
from costbench.metrics.tpugraphs import (
    TILE_TOP_K,
    OrderedPairs,
    pooled_accuracy,
    top_k_slowdown,
)
from costbench.target import load_target

_TASK = "tile"
_RANDOM = "random"


def evaluate_tiles(task: ProgramTask) -> ProgramResult:
    """Returns the metrics of all models on one program.

    Raises:
        DataError: for a damaged shard or checkpoint, or a model that returns costs that are not finite.
    """
    target = load_target(task.chip_file or task.chip)
    path = shard_path(task.data, task.chip, task.program)
    shard = MeasuredKernels((Shard.open(path),), CompiledPrograms(task.data, 1), target.architecture)
    features = FeatureShard(feature_path(task.features, _TASK, task.chip, task.program))
    if features.fingerprints() != shard.fingerprints() or not np.array_equal(
        features.num_configs(), shard.num_configs()
    ):
        raise DataError("features of other kernels", where=features.path, expected=f"those of {path}")
    priced: dict[ModelKey, Predict] = {
        (name, MAIN, seed): predict
        for name in task.models
        if name in TILE_MODELS
        for seed, predict in TILE_MODELS[name](target, task.params.random_seeds).items()
    }
    user_models = load_user_models(task.models, _TASK, target.architecture)
    priced |= {(name, MAIN, 0): model.predict_nest for name, model in user_models.items()}
    costs, computed_by = _predict_costs(task, features)
    kernels = (
        EvaluatedKernel(
            runtime_ns=measured.runtime_ns,
            runs=measured.runs,
            costs={key: predict(measured.space.nest, measured.tile_sizes) for key, predict in priced.items()}
            | {key: of_kernels[index] for key, of_kernels in costs.items()},
            groups=(kernel_kind(measured.kernel), *task.groups(measured.fingerprint)),
        )
        for index, measured in enumerate(map(shard.kernel, range(len(shard))))
    )
    metrics = evaluate_program(kernels, task.params.top_k, f"{task.program} on {task.chip}")
    return ProgramResult(shard.application, metrics, computed_by=computed_by)


def _predict_costs(
    task: ProgramTask, shard: FeatureShard
) -> tuple[dict[ModelKey, Sequence[F64]], dict[ModelKey, str]]:
    """Returns the costs of each kernel's tile sizes by networks and fitted models, and what computed them."""
    ends = np.cumsum(shard.num_configs())[:-1]
    costs: dict[ModelKey, Sequence[F64]] = {}
    computed_by: dict[ModelKey, str] = {}
    for checkpoint in task.checkpoints:
        of_shard, computed_by[checkpoint.key] = network_costs(shard, checkpoint)
        costs[checkpoint.key] = np.split(of_shard, ends)
    costs |= fitted_costs(task, _TASK, shard)
    for quality in task.fitted_to if "analytical" in task.models else ():
        estimated = shard.with_estimate(quality)
        costs["analytical", quality, 0] = [estimated.analytical_ns(i) for i in range(len(shard))]
    return costs, computed_by


def evaluate_imported_tiles(task: ProgramTask) -> ProgramResult:
    """Returns how well the models order the tile sizes of a program's kernels, over those with runtimes.

    Metrics are `kendall_tau`, a mean over kernels that have different runtimes, `opa` and `kernel_top_1`, 5
    and 10 (percent), as in `evaluate_program`; those that weigh kernels by executions are not defined, since
    the data set does not tell them. Groups are all kernels and those that training has not seen.

    Raises:
        DataError: for a damaged shard or checkpoint, a program without runtimes, costs that are not finite.
    """
    path = feature_path(task.features, _TASK, task.chip, task.program)
    shard = FeatureShard(path)
    labelled = Shard.open(path).metadata["labelled"]
    kernels = [index for index in range(len(shard)) if labelled[index]]
    if not kernels:
        raise DataError("no kernel has runtimes", where=path)
    costs, computed_by = _predict_costs(task, shard)
    for seed in task.params.random_seeds if _RANDOM in task.models else ():
        costs[_RANDOM, MAIN, seed] = [
            rng.stream(seed, "random imported tiles", shard.fingerprint(index)).random(int(count))
            for index, count in enumerate(shard.num_configs())
        ]
    members = {ALL_KERNELS: kernels}
    for index in kernels:
        for group in task.groups(shard.fingerprint(index)):
            members.setdefault(group, []).append(index)
    runtimes = {index: shard.runtime_ns(index).astype(np.float64) for index in kernels}
    metrics: dict[str, ByModel] = {}
    for group, indices in sorted(members.items()):
        measured = [runtimes[index] for index in indices]
        metrics[group] = {
            key: ranking_metrics(measured, [of_kernels[index] for index in indices])
            for key, of_kernels in costs.items()
        }
        metrics[group][BEST, MAIN, 0] = {"kernels": float(len(indices))}
    return ProgramResult(shard.application, metrics, computed_by=computed_by)


def ranking_metrics(runtimes: Sequence[F64], costs: Sequence[F64]) -> dict[str, float]:
    """Returns the metrics of a model over some kernels; one that is not defined is left out.

    Args:
        runtimes: runtimes of the tile sizes of each kernel, float64 [n], on a scale of the kernel's own.
        costs: predicted costs of the same, float64 [n] each, lower is faster.

    Raises:
        DataError: if costs are of another number than runtimes, or not finite.
    """
    for true, cost in zip(runtimes, costs, strict=True):
        if cost.shape != true.shape or not np.isfinite(cost).all():
            expected = f"{len(true)} finite numbers"
            raise DataError(f"costs of shape {list(cost.shape)}", where="tile kernel", expected=expected)
    pairs = [count_pairs(cost, true) for true, cost in zip(runtimes, costs, strict=True)]
    values = {
        "kendall_tau": mean_without_nan([tau_of(counts) for counts in pairs]),
        "opa": pooled_accuracy(map(_ordered, pairs)),
    }
    for k in TILE_TOP_K:
        slowdowns = [top_k_slowdown(true, cost, k) for true, cost in zip(runtimes, costs, strict=True)]
        values[f"kernel_top_{k}"] = 100.0 * mean_without_nan(slowdowns)
    return {name: value for name, value in values.items() if not np.isnan(value)}


def _ordered(pairs: PairCounts) -> OrderedPairs:
    return OrderedPairs(pairs.concordant, pairs.total - pairs.tied_measured)


@dataclass(frozen=True, eq=False)
class EvaluatedKernel:
    """One kernel with the measured runtimes of its tile sizes, and what models predict.

    Attributes:
        runtime_ns: runtimes of the tile sizes, int64 [n].
        runs: executions of the kernel in a run of the program.
        costs: costs of the tile sizes by model, float64 [n], lower is faster; the same models for each kernel
            of a program.
        groups: groups of kernels that it belongs to, besides that of all kernels.
    """

    runtime_ns: I64
    runs: int
    costs: Mapping[ModelKey, F64]
    groups: tuple[str, ...] = ()


@dataclass
class _Tally:
    """Collects one number per kernel of one model."""

    pairs: list[PairCounts] = field(default_factory=list)
    best_of_k: dict[int, list[float]] = field(default_factory=dict)


def evaluate_program(
    kernels: Iterable[EvaluatedKernel], top_k: Sequence[int], where: str
) -> dict[str, ByModel]:
    """Returns the metrics of each model on one program, over all its kernels and over each group of them.

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
        kernels: kernels of one program.
        top_k: values of k.
        where: name of the program in errors.

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
    tallies: dict[ModelKey, _Tally] = {}
    for index, item in enumerate(kernels):
        location = f"{where}, kernel {index}"
        runtime = np.asarray(item.runtime_ns, dtype=np.float64)
        if not len(runtime) or not (runtime > 0).all() or not np.isfinite(runtime).all():
            raise DataError("a runtime is not a positive number", where=location, field="runtime_ns")
        best.append(float(runtime.min()))
        runs.append(float(item.runs))
        for group in (ALL_KERNELS, *item.groups):
            members.setdefault(group, []).append(index)
        for key, cost in item.costs.items():
            if cost.shape != (len(runtime),) or not np.isfinite(cost).all():
                problem, expected = f"costs of shape {cost.shape}", f"{len(runtime)} finite numbers"
                model = "/".join(map(str, key))
                raise DataError(problem, where=f"{location}, model {model}", expected=expected)
            tally = tallies.setdefault(key, _Tally(best_of_k={k: [] for k in {*TILE_TOP_K, *top_k}}))
            tally.pairs.append(count_pairs(cost, runtime))
            order = np.argsort(cost, kind="stable")
            for k, best_of_k in tally.best_of_k.items():
                best_of_k.append(float(runtime[order[:k]].min()))
    if not best:
        raise DataError("no kernels to evaluate", where=where, expected="kernels with two or more tile sizes")
    metrics: dict[str, ByModel] = {}
    for group, indices in sorted(members.items()):
        best_ns, num_runs = np.array(best)[indices], np.array(runs)[indices]
        by_model = metrics.setdefault(group, {})
        for key, tally in tallies.items():
            values = _metrics(tally, top_k, best_ns, num_runs, np.array(indices))
            by_model[key] = {name: value for name, value in sorted(values.items()) if not math.isnan(value)}
        by_model[BEST, MAIN, 0] = {"kernels": float(len(indices)), "runtime_ns": float(best_ns @ num_runs)}
    return metrics


def _metrics(tally: _Tally, top_k: Sequence[int], best_ns: F64, runs: F64, indices: I64) -> dict[str, float]:
    """Returns the metrics of a model over some kernels; NaN for those that are not defined.

    Args:
        tally: numbers of the model for all kernels.
        top_k: values of k.
        best_ns: lowest runtime of each of the kernels, float64 [n].
        runs: their executions in a run of the program, float64 [n].
        indices: their indices among all kernels, int64 [n].
    """
    fastest = {k: np.array(values)[indices] for k, values in tally.best_of_k.items()}
    pairs = [tally.pairs[index] for index in indices]
    values = {
        "tile_size_ape": tile_size_ape(fastest[1], best_ns, runs),
        "kendall_tau": mean_without_nan([tau_of(counts) for counts in pairs]),
        "ordered_pair_accuracy": mean_without_nan([ordered_pair_accuracy_of(counts) for counts in pairs]),
        "opa": pooled_accuracy(map(_ordered, pairs)),
    }
    for k in {1, *top_k}:
        values[f"slowdown_at_{k}"] = float(np.mean(fastest[k] / best_ns - 1.0))
        values[f"top_{k}_score"] = top_k_score(fastest[k], best_ns, runs)
    has_choice = np.array([counts.total > 0 for counts in pairs])
    for k in TILE_TOP_K:
        slowdowns = np.where(has_choice, fastest[k] / best_ns - 1.0, math.nan)
        values[f"kernel_top_{k}"] = 100.0 * mean_without_nan(slowdowns.tolist())
    return values
