"""Which findings about estimates hold on machines of other formulas and other numbers.

A chip's file is one machine out of many that explain the recorded runs about as well. The machines of its
ensemble run the same tiles of the same kernels, and how good estimates of several qualities are is computed
on each: ranking and choice of tile sizes, error of fused kernels at the compiler's tiles, and how much of the
runtime an estimate explains. An order of estimates that holds on some machines only hangs on what nobody
measured. Estimates know the public architecture, so they are the same on all machines; besides them, the chip
as it ships is taken for a model of each machine. Nothing is trained.

    python -m benchmarks.machine_findings tile_calibration.pb --write src/costbench/chips/tpu_v3.machines.csv
    python -m benchmarks.machine_findings --chip tpu_v2 --write src/costbench/chips/tpu_v2.machines.csv
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.estimate_quality import explained
from benchmarks.simulation_throughput import FOLDER
from costbench.arrays import F64, I64
from costbench.artifacts import write_text
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.estimate_quality import COMPILER, EXPERT, QUALITIES
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.program import PreparedProgram
from costbench.compiler.tile_space import nest_tile_space
from costbench.experiments.evaluation.fusion import SHORT_NS, fusion_metrics, scale_estimates
from costbench.experiments.evaluation.program import kernel_kind
from costbench.experiments.evaluation.recorded_runs import recorded_kernels
from costbench.hardware.calibration import load_ensemble, machines_by_rule, without_codegen
from costbench.hardware.fidelity import RecordedKernel, evaluate_fidelity
from costbench.hardware.simulator import simulate_nest
from costbench.hlo.reader import module_from_bytes
from costbench.metrics.measures import APE_FLOOR_PERCENT, geometric_mean, mean_without_nan
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.selection import best_of_top_k, tile_size_ape
from costbench.reports.tables.machines import ALL, COLUMNS, ORDERS, SHIPPED
from costbench.rng import stream
from costbench.target import Target, load_target

PROGRAMS = (
    "alexnet_b128_train_f32",
    "convdraw_b16_infer_f32",
    "densenet201_b32_infer_bf16",
    "dlrm_b2048_train_f32",
    "gpt2_small_b8_infer_bf16",
    "mobilenet_b32_infer_f32",
    "nmt_b32_infer_f32",
    "resnet50_b64_infer_bf16",
    "rnn_large_lstm_b64_train_bf16",
    "rnn_ptb_lstm_b20_train_f32",
    "small_bert_L2_H128_b64_train_bf16",
    "translate_1_b32_infer_bf16",
    "unet2d_b8_train_f32",
    "vgg19_b64_infer_f32",
    "wavernn_2_b32_train_bf16",
)
"""Programs of applications that differ, all but the largest."""
TILED_KERNELS, TILES, TOP = 16, 150, 10
ITERATIONS = "iterations"
SEED = 0


@dataclass(frozen=True, eq=False)
class EstimatedKernel:
    """A kernel under the default fusion config, with tiles that all machines run.

    Attributes:
        nest: the kernel.
        kind: its kind.
        runs: executions in a run of its program.
        extents: loop extents of tiles drawn uniformly, then of the compiler's choice, [n, num_loops].
        estimates: estimate -> predicted cost of each, [n].
    """

    nest: LoopNest
    kind: str
    runs: int
    extents: I64
    estimates: dict[str, F64]


def estimate_kernels(name: str, target: Target) -> list[EstimatedKernel]:
    """Returns the kernels of a program; tiles are drawn for some of them, the compiler's is with all."""
    data = (FOLDER / f"{name}.hlo.pb.zst").read_bytes()
    program = PreparedProgram(module_from_bytes(data, where=name), name)
    chip = target.architecture
    models = {quality: AnalyticalModel(chip, QUALITIES[quality]) for quality in (COMPILER, EXPERT)}
    rng = stream(SEED, "machine findings", name)
    unique = program.unique_kernels
    tiled = set(rng.permutation(len(unique))[:TILED_KERNELS].tolist())
    kernels = []
    for index, item in enumerate(unique):
        space = nest_tile_space(program.lowering.loop_nest(item.kernel), chip)
        if space.size < 2 or not space.has_legal_tile:
            continue
        chosen = models[chip.estimate].choose(space)[None]
        extents = chosen
        if index in tiled:
            extents = np.concatenate([space.extents(space.sample(rng, TILES)), chosen])
        sizes = space.nest.tile_sizes(extents)
        estimates = {quality: model.predict_nest(space.nest, sizes) for quality, model in models.items()}
        estimates[ITERATIONS] = space.nest.iterations(sizes).astype(np.float64)
        kernels.append(
            EstimatedKernel(space.nest, kernel_kind(item.kernel), item.runs_per_program, extents, estimates)
        )
    return kernels


def figures(
    programs: Sequence[Sequence[EstimatedKernel]], machine: Target, shipped: Target
) -> dict[str, float]:
    """Returns the figures of one machine, by column; `shipped`, with regular code, is one of its models."""
    taus: dict[str, list[float]] = {name: [] for name in (ITERATIONS, COMPILER, EXPERT, SHIPPED)}
    apes: dict[str, list[float]] = {name: [] for name in taus}
    errors: dict[str, list[float]] = {name: [] for name in (COMPILER, EXPERT)}
    fused: dict[str, list[float]] = {name: [] for name in (COMPILER, EXPERT)}
    runtimes: list[float] = []
    of_ten: list[float] = []
    model = without_codegen(shipped)
    for kernels in programs:
        measured = [simulate_nest(item.nest, item.extents, machine).runtime_ns for item in kernels]
        tiled = [(item, times) for item, times in zip(kernels, measured, strict=True) if len(times) > 1]
        best = [float(times.min()) for _, times in tiled]
        weights = [float(item.runs) for item, _ in tiled]
        ten = [best_of_top_k(item.estimates[COMPILER], times, TOP) for item, times in tiled]
        of_ten.append(tile_size_ape(ten, best, weights))
        for name in taus:
            costs = [
                simulate_nest(item.nest, item.extents, model).runtime_ns
                if name == SHIPPED
                else item.estimates[name]
                for item, _ in tiled
            ]
            times = [runtime for _, runtime in tiled]
            taus[name].append(mean_without_nan(list(map(kendall_tau, costs, times))))
            apes[name].append(
                tile_size_ape(
                    [float(runtime[cost.argmin()]) for cost, runtime in zip(costs, times, strict=True)],
                    best,
                    weights,
                )
            )
        default = np.array([times[-1] for times in measured])
        runs, kinds = np.array([item.runs for item in kernels]), [item.kind for item in kernels]
        runtimes += default[default >= SHORT_NS].tolist()
        for name in errors:
            estimates = np.array([item.estimates[name][-1] for item in kernels])
            metrics = fusion_metrics(scale_estimates(estimates, default, runs, kinds), default)
            if "mape_ge5us" in metrics:
                errors[name].append(metrics["mape_ge5us"])
            fused[name] += estimates[default >= SHORT_NS].tolist()
    return (
        {f"tau_{name}": float(np.mean(values)) for name, values in taus.items()}
        | {f"ape_{name}": geometric_mean(values, APE_FLOOR_PERCENT) for name, values in apes.items()}
        | {"ape_ten": geometric_mean(of_ten, APE_FLOOR_PERCENT)}
        | {f"error_{name}": geometric_mean(values, APE_FLOOR_PERCENT) for name, values in errors.items()}
        | {
            f"explained_{name}": explained(np.array(values), np.array(runtimes))[1]
            for name, values in fused.items()
        }
    )


def order_of(values: pd.Series, columns: Sequence[str]) -> tuple[str, ...]:
    """Returns some figures of a machine, smallest first."""
    return tuple(values[list(columns)].astype(float).sort_values(kind="stable").index)


def summarise(by_machine: pd.DataFrame, groups: Sequence[tuple[str, str, Sequence[int]]]) -> pd.DataFrame:
    """Returns a row for each group of machines: medians, and the share on which orders are those of row 0.

    Args:
        by_machine: a row for each machine, the chip as it ships first.
        groups: rule, choice, and rows of the machines.
    """
    shipped = by_machine.iloc[0]
    rows = []
    for rule, choice, numbers in groups:
        machines = by_machine.iloc[list(numbers)]
        same = {
            column: 100.0
            * float(
                np.mean(
                    [order_of(machine, of) == order_of(shipped, of) for _, machine in machines.iterrows()]
                )
            )
            for column, of in ORDERS.items()
        }
        medians = machines.median().to_dict()
        rows.append({"rule": rule, "choice": choice, "machines": len(machines)} | medians | same)
    return pd.DataFrame(rows)[list(COLUMNS)]


def findings(recorded: Sequence[RecordedKernel], target: Target, programs: Sequence[str]) -> pd.DataFrame:
    """Returns the rows of a chip and its ensemble; without recorded runs how well they fit is not known."""
    kernels = [estimate_kernels(name, target) for name in programs]
    ensemble = load_ensemble(target)
    rows = []
    for machine in (target, *ensemble):
        report = evaluate_fidelity(recorded, machine) if recorded else None
        fit = {
            "recorded_error": None if report is None else report.mape,
            "recorded_tau": None if report is None else report.kendall_tau,
        }
        rows.append({**fit, **figures(kernels, machine, target)})
    groups: list[tuple[str, str, Sequence[int]]] = [
        (SHIPPED, "", [0]),
        (ALL, "", range(1, len(ensemble) + 1)),
    ]
    groups += [
        (rule, choice, [number + 1 for number in numbers])
        for rule, choice, numbers in machines_by_rule(ensemble)
    ]
    return summarise(pd.DataFrame(rows, dtype=float), groups)


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, runs all machines, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", help="raw TpuGraphs tile-tuning file (.pb) of the chip")
    parser.add_argument("--chip", default="tpu_v3", help="chip by name")
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), help="of the corpus")
    parser.add_argument("--write", type=Path, help="where the rows are written")
    options = parser.parse_args(arguments)
    recorded = recorded_kernels(options.file) if options.file else ()
    table = findings(recorded, load_target(options.chip), options.programs)
    text = table.to_csv(index=False, float_format="%.4g", lineterminator="\n")
    print(text, end="")
    if options.write is not None:
        write_text(options.write, text)


if __name__ == "__main__":
    main(sys.argv[1:])
