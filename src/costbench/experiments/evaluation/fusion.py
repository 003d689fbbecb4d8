"""Evaluates cost models on a program's fusion task: absolute runtimes of the kernels of its fusion configs.

The analytical model has no absolute scale, so its estimates are multiplied by one coefficient per kind of
kernel: the measured divided by the estimated runtime of that kind's kernels in a run of the program under the
default fusion config. Kernels without a choice of tile size are left out, since the analytical model was not
made for them, and so are kinds that do not occur under the default config (lpm2021, section 5.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from costbench.arrays import F64, I64, Bool
from costbench.datasets.measured_kernels import (
    CompiledPrograms,
    MeasuredKernels,
    fusion_parts,
    kernel_view,
)
from costbench.datasets.recorded_kernels import (
    NO_TILE,
    Measurements,
    WholeProgram,
    name_of_recorded,
    read_measurements,
)
from costbench.experiments.evaluation.program import (
    ALL_KERNELS,
    BEST,
    NEW_STRUCTURE,
    UNSEEN,
    ByModel,
    ModelKey,
    ProgramResult,
    ProgramTask,
    Scatter,
    kind_of,
)
from costbench.experiments.evaluation.shard_costs import fitted_costs, network_costs
from costbench.experiments.evaluation.unfitted import CEILINGS, load_user_models
from costbench.experiments.grid.cells import MAIN
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.features.roofline import read_roofline
from costbench.metrics.ranking import count_pairs, tau_of
from costbench.metrics.rows import PROGRAMS
from costbench.metrics.selection import mape
from costbench.models.baselines.fitting import classes_of
from costbench.target import load_target

SHORT_NS = 5_000.0
"""Shorter kernels have little weight in a program and are reported separately (lpm2021, section 5.2)."""
_MAX_POINTS = 300
SUM_OF_KERNELS = "sum_of_kernels"
"""Model of these rows whose prediction is the sum of the measured runtimes of the program's kernels."""
MEASURED_AGAIN = "measured_again"
_FIGURES_OF = "tpu_v3"


def evaluate_fusions(task: ProgramTask) -> ProgramResult:
    """Returns the metrics of all models on one program.

    Raises:
        DataError: for a damaged shard or checkpoint, or a model that returns costs that are not finite.
    """
    shard = FeatureShard(feature_path(task.features, "fusion", task.chip, task.program))
    if shard.is_recorded and task.fitted is not None:
        shard = shard.with_roofline(read_roofline(task.fitted))
    measured = measured_ns(shard)
    scaled = scaled_estimates(shard)
    comparable = comparable_kernels(shard, scaled)
    groups_of = [task.groups(fingerprint) for fingerprint in shard.fingerprints()]
    groups = {ALL_KERNELS: comparable}
    for group in (UNSEEN, NEW_STRUCTURE):
        groups[group] = comparable & np.array([group in known for known in groups_of], dtype=bool)
    predicted: dict[ModelKey, F64] = {}
    if "analytical" in task.models:
        predicted["analytical", MAIN, 0] = scaled
        for quality in task.fitted_to:
            predicted["analytical", quality, 0] = scaled_estimates(shard.with_estimate(quality))
    fitted = fitted_costs(task, "fusion", shard)
    # A kernel of a fusion config was measured with one tile size.
    predicted |= {key: np.array([float(cost[0]) for cost in costs]) for key, costs in fitted.items()}
    measurements = read_measurements(task.data, task.chip, task.program) if shard.is_recorded else None
    if measurements is None:
        predicted |= predict_from_kernels(task)
    else:
        predicted |= predict_recorded(task, measurements)
    computed_by: dict[ModelKey, str] = {}
    for checkpoint in task.checkpoints:
        predicted[checkpoint.key], computed_by[checkpoint.key] = network_costs(shard, checkpoint)
    metrics = {group: _by_model(predicted, measured, mask) for group, mask in groups.items() if mask.any()}
    if measurements is not None and measurements.programs:
        metrics[PROGRAMS] = compare_programs(measurements.programs, predicted, measured)
    # The estimate as it is says how much of runtimes it explains.
    left_out = {*CEILINGS, *classes_of("fusion")} - {"analytical_unscaled"}
    shown = {key: ns for key, ns in predicted.items() if key[0] not in left_out}
    return ProgramResult(shard.application, metrics, _scatter(shown, measured, comparable), computed_by)


def measured_ns(shard: FeatureShard) -> F64:
    """Returns the runtime of each kernel of a shard, float64 [k]; each was measured with one tile size."""
    return np.array([float(shard.runtime_ns(index)[0]) for index in range(len(shard))])


def scaled_estimates(shard: FeatureShard) -> F64:
    """Returns the estimates of the kernels of a shard, scaled by `scale_estimates`, float64 [k]."""
    estimated = np.array([float(shard.analytical_ns(index)[0]) for index in range(len(shard))])
    kinds = [kind_of(shard.instruction_opcodes(index).tolist()) for index in range(len(shard))]
    runs = shard.runs() * shard.comparable
    return scale_estimates(estimated, measured_ns(shard), runs, kinds)


def comparable_kernels(shard: FeatureShard, scaled: F64) -> Bool:
    """Returns which kernels of a shard metrics are over, given `scaled_estimates`: those that it prices."""
    comparable: Bool = shard.comparable & np.isfinite(scaled)
    return comparable


def predict_from_kernels(task: ProgramTask) -> dict[ModelKey, F64]:
    """Returns the costs of all kernels by what reads kernels, not features, in the order of the features.

    These are the user's own models, and the ceilings.

    Raises:
        DataError: for a damaged shard, or a model of the user's that cannot be loaded or asked.
    """
    target = load_target(task.chip_file or task.chip)
    user_models = load_user_models(task.models, "fusion", target.architecture)
    ceilings = {
        (name, MAIN, seed): predict
        for name in task.models
        if name in CEILINGS
        for seed, predict in CEILINGS[name](target, task.params.random_seeds).items()
    }
    if not user_models and not ceilings:
        return {}
    parts = fusion_parts(task.data, task.chip, task.program)
    kernels = MeasuredKernels(parts, CompiledPrograms(task.data, 1), target.architecture)
    keys: tuple[ModelKey, ...] = (*((name, MAIN, 0) for name in user_models), *ceilings)
    predicted = {key: np.empty(len(kernels)) for key in keys}
    for index in range(len(kernels)):
        measured = kernels.kernel(index)
        for name, model in user_models.items():
            predicted[name, MAIN, 0][index] = model.predict_ns(measured.kernel, measured.tile_sizes)
        for key, predict in ceilings.items():
            # A kernel of a fusion config was measured with one tile size.
            predicted[key][index] = predict(measured.space.nest, measured.tile_sizes)[0]
    return predicted


def predict_recorded(task: ProgramTask, measurements: Measurements) -> dict[ModelKey, F64]:
    """Returns the same of kernels that a real machine ran: a user's models, and the second measurement.

    A user's model is given kernels without tile sizes, and the figures of a chip that is simulated, as of a
    real machine there are none.

    Raises:
        DataError: for a damaged shard, or a model of the user's that cannot be loaded or asked.
    """
    predicted: dict[ModelKey, F64] = {}
    if MEASURED_AGAIN in task.models and measurements.again_ns is not None:
        predicted[MEASURED_AGAIN, MAIN, 0] = measurements.again_ns
    user_models = load_user_models(task.models, "fusion", load_target(_FIGURES_OF).architecture)
    if user_models:
        (shard,) = fusion_parts(task.data, task.chip, task.program)
        programs = CompiledPrograms(task.data, 1)
        module = programs.module(name_of_recorded(task.chip, task.program))
        kernels = [kernel_view(shard, index, module) for index in range(shard.num_kernels)]
        for name, model in user_models.items():
            predicted[name, MAIN, 0] = np.array([model.predict_ns(kernel, NO_TILE) for kernel in kernels])
    return predicted


def compare_programs(
    programs: Sequence[WholeProgram], predicted: Mapping[ModelKey, F64], measured_ns: F64
) -> ByModel:
    """Returns how well sums over kernels predict runs of the whole program under its fusion configs.

    Kernels were measured inside the program under other configs, so their sum is a prediction too: that of
    `sum_of_kernels`. It is held against the second run of the program, the models against the first.

    Args:
        programs: runs of the program, one of each config.
        predicted: predictions for all kernels of the program by model, float64 [k].
        measured_ns: measured runtimes of these kernels, float64 [k].

    Returns:
        `mape` in percent, `kendall_tau` over the configs; of `sum_of_kernels` also `sum_to_measured`, the
        geometric mean of the sum over the runtime; of `best`, the number of `configs`.
    """
    first, second = (
        np.array([getattr(program, name) for program in programs], np.float64)
        for name in ("first_ns", "second_ns")
    )
    rows = {
        key: _metrics_of_programs(_sums(programs, kernel_ns), first)
        for key, kernel_ns in predicted.items()
        if key[0] != MEASURED_AGAIN and np.isfinite(kernel_ns).all()
    }
    rows[BEST, MAIN, 0] = {"configs": float(len(programs))}
    # Of a program measured once, the first run is all there is.
    is_repeated = bool((second > 0.0).all())
    runs, sums = second if is_repeated else first, _sums(programs, measured_ns)
    ratio = float(np.exp(np.log(sums / runs).mean()))
    rows[SUM_OF_KERNELS, MAIN, 0] = _metrics_of_programs(sums, runs) | {"sum_to_measured": ratio}
    if is_repeated:
        rows[MEASURED_AGAIN, MAIN, 0] = _metrics_of_programs(second, first)
    return rows


def _sums(programs: Sequence[WholeProgram], kernel_ns: F64) -> F64:
    return np.array([program.add_up(kernel_ns) for program in programs])


def _metrics_of_programs(predicted_ns: F64, measured_ns: F64) -> dict[str, float]:
    tau = tau_of(count_pairs(predicted_ns, measured_ns))
    values = {"mape": mape(predicted_ns, measured_ns)}
    return values | ({"kendall_tau": tau} if np.isfinite(tau) else {})


def scale_estimates(estimated_ns: F64, measured_ns: F64, runs: I64, kinds: Sequence[str]) -> F64:
    """Returns estimates x (sum of runs x measured) / (sum of runs x estimated), summed by kind of kernel.

    Args:
        estimated_ns: estimates in an arbitrary scale, float64 [k].
        measured_ns: measured runtimes, float64 [k].
        runs: executions under the default fusion config, int64 [k].
        kinds: kind of each kernel.

    Returns:
        float64 [k]; NaN for kinds that never run under the default config.
    """
    scaled = np.full(len(estimated_ns), np.nan)
    names = np.array(kinds, dtype=object)
    for kind in sorted(set(kinds)):
        rows = names == kind
        # Exact sums: the last bit of a BLAS product differs between processors and would decide ties.
        total = math.fsum(runs[rows] * estimated_ns[rows])
        if total > 0.0:
            scaled[rows] = estimated_ns[rows] * (math.fsum(runs[rows] * measured_ns[rows]) / total)
    return scaled


def fusion_metrics(predicted_ns: F64, measured_ns: F64) -> dict[str, float]:
    """Returns `mape` (percent) and `kendall_tau` of a program.

    They are over all kernels, over those of at least 5 us (`_ge5us`) and over shorter ones (`_lt5us`). Arrays
    are float64 [k]; undefined metrics are left out.
    """
    parts = {"": np.ones(len(measured_ns), dtype=bool)}
    parts |= {"_ge5us": measured_ns >= SHORT_NS, "_lt5us": measured_ns < SHORT_NS}
    values: dict[str, float] = {}
    for suffix, mask in parts.items():
        if mask.any():
            values[f"mape{suffix}"] = mape(predicted_ns[mask], measured_ns[mask])
            tau = tau_of(count_pairs(predicted_ns[mask], measured_ns[mask]))
            if np.isfinite(tau):
                values[f"kendall_tau{suffix}"] = tau
    return values


def _by_model(predicted: dict[ModelKey, F64], measured: F64, mask: Bool) -> ByModel:
    metrics = {key: fusion_metrics(values[mask], measured[mask]) for key, values in predicted.items()}
    short = int((measured[mask] < SHORT_NS).sum())
    counts = {"kernels": int(mask.sum()), "kernels_lt5us": short, "kernels_ge5us": int(mask.sum()) - short}
    return metrics | {(BEST, MAIN, 0): {name: float(count) for name, count in counts.items()}}


def _scatter(predicted: dict[ModelKey, F64], measured: F64, mask: Bool) -> tuple[Scatter, ...]:
    """Returns points of the main models for a figure: kernels evenly spaced in the order of the shard."""
    indices = np.flatnonzero(mask)
    indices = indices[:: max(1, -(-len(indices) // _MAX_POINTS))]
    return tuple(
        Scatter(model, tuple(values[indices].tolist()), tuple(measured[indices].tolist()))
        for (model, variant, seed), values in predicted.items()
        if variant == MAIN and seed == 0
    )
