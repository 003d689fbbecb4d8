"""How good estimates of each quality are, and what each rule is worth, on programs that few test sets hold.

Programs are training or validation programs of both splits, `random` and `manual`; every `--step`-th by name
is read, from `--first` on. A line is a setting of the analytical model: error of scaled estimates of fused
kernels from 5 us (geometric mean and median over programs, lpm2021, section 5.2) and their tau; R2 of log
runtime, by a power law and by a launch and a slope; of tile sizes tau and geometric mean of APE. With
`--rules` also the expert and the compiler with one rule changed at a time. Fused kernels run at the tile
sizes that the setting itself chooses, or with `--chooser` a quality.

    python -m benchmarks.estimate_quality --chooser compiler
    python -m benchmarks.estimate_quality --chip tpu_v2 --step 4 --rules
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np

from costbench.arrays import F64
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.estimate_quality import COMPILER, EXPERT, QUALITIES, Knowledge
from costbench.compiler.kernel_arrays import kernel_arrays
from costbench.compiler.lowering.loop_nest import LoweredKernels
from costbench.compiler.tile_space import KernelBatch
from costbench.datasets.measured_kernels import (
    CompiledPrograms,
    MeasuredKernel,
    MeasuredKernels,
    fusion_parts,
    shard_path,
)
from costbench.datasets.splits import read_training_programs
from costbench.datasets.storage import Shard
from costbench.experiments.evaluation.fusion import SHORT_NS, fusion_metrics, scale_estimates
from costbench.experiments.evaluation.program import kernel_kind
from costbench.hardware.device import Device, measure_batch
from costbench.metrics.measures import APE_FLOOR_PERCENT, geometric_mean, mean_without_nan
from costbench.metrics.ranking import kendall_tau
from costbench.rng import stream
from costbench.target import Target, load_target

_LAUNCHES_NS = (0.0, *np.geomspace(50.0, 20_000.0, 30).tolist())


@dataclass(frozen=True, eq=False)
class FusedKernels:
    """Fused kernels of one computation, all with a choice of tile sizes.

    Attributes:
        lowered: the kernels.
        fingerprints: fingerprint of each.
        runs: executions of each under the default fusion config.
        kinds: kind of each.
    """

    lowered: LoweredKernels
    fingerprints: tuple[str, ...]
    runs: tuple[int, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Samples:
    """Kernels of one program: fused ones by computation, and some with measured tile sizes."""

    fused: tuple[FusedKernels, ...]
    tiles: tuple[MeasuredKernel, ...]


def development_programs(folder: Path) -> list[str]:
    """Returns the programs that neither split tests, sorted."""
    splits = (read_training_programs(folder / f"{name}.json") for name in ("random", "manual"))
    first, second = ({*split.train, *split.validation} for split in splits)
    return sorted(first & second)


def read_samples(data: Path, name: str, target: Target, kernels: int, tiles: int) -> Samples:
    """Returns the default config's kernels with `kernels` others, and `tiles` kernels with tile sizes."""
    programs = CompiledPrograms(data, 1)
    lowering = programs.lowering(name)
    rng = stream(0, "estimate quality", name)
    by_computation: dict[int, list[MeasuredKernel]] = {}
    parts = fusion_parts(data, target.name, name)
    if parts:
        samples = MeasuredKernels(parts, programs, target.architecture)
        runs, sizes = (
            np.concatenate([np.asarray(part[key]) for part in parts])
            for key in ("kernel_default_runs", "kernel_space_size")
        )
        others = rng.permutation(np.flatnonzero((runs == 0) & (sizes > 1)))[:kernels]
        for index in np.union1d(np.flatnonzero((runs > 0) & (sizes > 1)), others).tolist():
            kernel = samples.kernel(index)
            by_computation.setdefault(kernel.kernel.computation, []).append(kernel)
    fused = []
    for computation, own in sorted(by_computation.items()):
        views = [kernel.kernel for kernel in own]
        arrays = kernel_arrays(views)
        fused.append(
            FusedKernels(
                lowering.lower(computation, arrays),
                tuple(kernel.fingerprint for kernel in own),
                tuple(kernel.runs for kernel in own),
                tuple(map(kernel_kind, views)),
            )
        )
    path = shard_path(data, target.name, name)
    measured = MeasuredKernels([Shard.open(path)], programs, target.architecture)
    chosen = rng.permutation(len(measured))[:tiles].tolist()
    return Samples(tuple(fused), tuple(measured.kernel(index) for index in chosen))


def price_fused(
    samples: Samples, target: Target, model: AnalyticalModel, chooser: AnalyticalModel
) -> tuple[F64, F64, F64]:
    """Returns estimates, scaled estimates and measured runtimes of a program's fused kernels, in ns."""
    estimated, measured, runs, kinds = [], [], [], []
    device = Device(target)
    for fused in samples.fused:
        lowered, batch = fused.lowered, KernelBatch(fused.lowered)
        fitting = np.flatnonzero(batch.smallest_fits(target.architecture.scratchpad_bytes))
        if not len(fitting):
            continue
        extents = chooser.choose_each(batch, fitting)
        names = [fused.fingerprints[kernel] for kernel in fitting]
        times = measure_batch(device, lowered, fitting, extents, names).runtime_ns
        for kernel, tile, runtime in zip(fitting.tolist(), extents, times.tolist(), strict=True):
            if runtime:
                nest = lowered.nest(kernel)
                sizes = nest.tile_sizes(tile[None, : len(nest.units)])
                estimated.append(float(model.predict_nest(nest, sizes)[0]))
                measured.append(float(runtime))
                runs.append(fused.runs[kernel])
                kinds.append(fused.kinds[kernel])
    estimates, runtimes = np.array(estimated), np.array(measured)
    return estimates, scale_estimates(estimates, runtimes, np.array(runs, np.int64), kinds), runtimes


def explained(estimates: F64, runtimes: F64) -> tuple[float, float]:
    """Returns R2 of log runtime by a e^b, and by the best of some launches and a slope."""
    target, logarithm = np.log(runtimes), np.log(estimates)
    total = float(((target - target.mean()) ** 2).sum())
    slope, level = np.polyfit(logarithm, target, 1)
    power = 1.0 - float(((target - slope * logarithm - level) ** 2).sum()) / total
    ratios = (target - np.log(launch + estimates) for launch in _LAUNCHES_NS)
    return power, 1.0 - min(float(((ratio - ratio.mean()) ** 2).sum()) for ratio in ratios) / total


def score(
    programs: Sequence[Samples], target: Target, knowledge: Knowledge, chooser: Knowledge | None
) -> dict[str, float]:
    """Returns the numbers of a line by name."""
    model = AnalyticalModel(target.architecture, knowledge)
    choosing = AnalyticalModel(target.architecture, chooser or knowledge)
    errors, fusion_taus, tile_taus, apes = [], [], [], []
    estimates, runtimes = [], []
    for samples in programs:
        if samples.fused:
            estimated, scaled, measured = price_fused(samples, target, model, choosing)
            known, long = np.isfinite(scaled), measured >= SHORT_NS
            metrics = fusion_metrics(scaled[known], measured[known])
            errors += [metrics[key] for key in ("mape_ge5us",) if key in metrics]
            fusion_taus += [metrics[key] for key in ("kendall_tau_ge5us",) if key in metrics]
            estimates.append(estimated[long])
            runtimes.append(measured[long])
        taus, best, lost = [], 0.0, 0.0
        for kernel in samples.tiles:
            costs = model.predict_nest(kernel.space.nest, kernel.tile_sizes)
            times = kernel.runtime_ns.astype(np.float64)
            taus.append(kendall_tau(costs, times))
            best += float(times.min())
            lost += float(times[np.argmin(costs)] - times.min())
        if best:
            tile_taus.append(mean_without_nan(taus))
            apes.append(100.0 * lost / best)
    power, launch = explained(np.concatenate(estimates), np.concatenate(runtimes))
    return {
        "mape": geometric_mean(errors, APE_FLOOR_PERCENT),
        "median": float(np.median(errors)),
        "tau": float(np.mean(fusion_taus)),
        "r2_power": power,
        "r2_launch": launch,
        "tile_tau": mean_without_nan(tile_taus),
        "tile_ape": geometric_mean(apes, APE_FLOOR_PERCENT),
    }


def settings(rules: bool) -> Iterator[tuple[str, Knowledge]]:
    """Yields the qualities, and those of expert and compiler with one rule changed, by name."""
    yield from QUALITIES.items()
    hints, expert = get_type_hints(Knowledge), QUALITIES[EXPERT]
    for quality in (EXPERT, COMPILER) if rules else ():
        base = QUALITIES[quality]
        for rule in (field.name for field in fields(Knowledge)):
            values = get_args(hints[rule]) or (False, True)
            if quality == COMPILER and getattr(base, rule) == getattr(expert, rule):
                continue
            for value in values:
                if value != getattr(base, rule) and (quality == EXPERT or value == getattr(expert, rule)):
                    yield f"{quality}, {rule}: {value}", replace(base, **{rule: value})


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/laptop"), help="folder of a profile's stages")
    parser.add_argument("--chip", default="tpu_v3")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--step", type=int, default=2)
    parser.add_argument("--kernels", type=int, default=60, help="fused kernels beside the default config's")
    parser.add_argument("--tiles", type=int, default=10, help="kernels with tile sizes, of each program")
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--chooser", choices=tuple(QUALITIES))
    options = parser.parse_args(arguments)
    target = load_target(options.chip)
    names = development_programs(options.out / "split")[options.first :: options.step]
    programs = [
        read_samples(options.out / "generate", name, target, options.kernels, options.tiles) for name in names
    ]
    chooser = QUALITIES[options.chooser] if options.chooser else None
    for name, knowledge in settings(options.rules):
        values = score(programs, target, knowledge, chooser)
        numbers = " ".join(f"{key} {value:.3f}" for key, value in values.items())
        sys.stdout.write(f"{name:40} {numbers}\n")


if __name__ == "__main__":
    main()
