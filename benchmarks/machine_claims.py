"""Whether findings that need no training hold for every machine that agrees with the recorded runs.

A chip's file is one machine out of many that explain the recorded runs of seven kernels about as well. Every
machine of the ensembles of TPU v3 and v2 runs the same tiles and fusion configs of the same programs; what
the analytical model and a search without a model reach is computed on each. A finding that holds on some of
them only hangs on parameters that nobody measured. Findings about trained networks would need a data set and
a training per machine and are left out.

    python -m benchmarks.machine_claims
    python -m benchmarks.machine_claims --machines 8 --json claims.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from benchmarks.simulation_throughput import FOLDER
from costbench.artifacts import write_json
from costbench.autotuning.fusion import SharedCuts
from costbench.autotuning.kernel_costs import TiledKernels
from costbench.compiler.analytical.model import AnalyticalModel
from costbench.compiler.fusion.cuts import NO_KERNEL, CutConfig
from costbench.compiler.fusion.space import FusionSpace
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.program import PreparedProgram
from costbench.compiler.tiling.space import nest_tile_space
from costbench.hardware.ensemble import Spread, load_ensemble, spread
from costbench.hardware.simulator import simulate_nest
from costbench.hlo.reader import module_from_bytes
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.regression import mape
from costbench.metrics.selection import best_of_top_k, tile_size_ape
from costbench.rng import stream
from costbench.target import Target, Timing, load_target

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

TRAINING = (
    "alexnet_b128_train_f32",
    "dlrm_b2048_train_f32",
    "densenet201_b32_infer_bf16",
    "gpt2_small_b8_infer_bf16",
    "small_bert_L2_H128_b64_train_bf16",
    "mobilenet_b32_infer_f32",
    "rnn_ptb_lstm_b20_train_f32",
    "vgg19_b64_infer_f32",
)
"""Training programs of the random split, for the constants of fusion baselines."""
TEST = (
    "convdraw_b16_infer_f32",
    "nmt_b32_infer_f32",
    "resnet50_b64_infer_bf16",
    "rnn_large_lstm_b64_train_bf16",
    "ssd_512_b8_train_f32",
    "translate_1_b32_infer_bf16",
    "wavernn_2_b32_train_bf16",
)
"""Its test programs, all but the largest."""
KERNELS, TILES, CONFIGS, SEED = 24, 200, 40, 0
SHORT_NS = 5000.0
TOP = 10


@dataclass(frozen=True, eq=False)
class TiledKernel:
    """Tiles of a kernel that every machine runs, and what baselines predict for them.

    Attributes:
        nest: the kernel.
        extents: loop extents, [n, num_loops].
        executions: of the kernel in a run of its program.
        analytical: predicted nanoseconds, [n].
        iterations: of the loop nest, [n].
    """

    nest: LoopNest
    extents: IntArray
    executions: int
    analytical: FloatArray
    iterations: FloatArray


@dataclass(frozen=True, eq=False)
class FusedProgram:
    """A program under its default fusion config and others, its kernels at the compiler's tiles.

    Attributes:
        cuts: the default config first.
        nests: kernels of all configs, with the extents of their tiles, by number.
        analytical: predicted nanoseconds by number.
        default: numbers of the default's kernels.
    """

    cuts: tuple[CutConfig, ...]
    nests: dict[int, tuple[LoopNest, IntArray]]
    analytical: dict[int, float]
    default: IntArray


@dataclass(frozen=True, eq=False)
class Workload:
    """What the machines of one chip run: tiles of test programs, fusion configs of test and training ones."""

    tiles: dict[str, list[TiledKernel]]
    fusions: dict[str, FusedProgram]


@dataclass(frozen=True)
class Finding:
    """A figure on the chip as it ships and over its ensemble.

    Attributes:
        chip: name.
        name: what is measured.
        shipped: on the chip.
        over_machines: median and quantiles.
        holds: share of the machines on which the statement of the finding is true, None if it makes none.
        moved_by: timing parameter whose rank goes along with the figure's most, over the machines.
        moved_tau: that rank correlation.
    """

    chip: str
    name: str
    shipped: float
    over_machines: Spread
    holds: float | None
    moved_by: str
    moved_tau: float


STATEMENTS: dict[str, Callable[[dict[str, float]], bool] | None] = {
    "tiles: analytical model, Tile-Size APE, %": lambda f: (
        f["tiles: analytical model, Tile-Size APE, %"] < f["tiles: fewest iterations, Tile-Size APE, %"]
    ),
    "tiles: fewest iterations, Tile-Size APE, %": None,
    "tiles: best of the analytical model's ten, APE, %": lambda f: (
        f["tiles: best of the analytical model's ten, APE, %"]
        < 0.5 * f["tiles: analytical model, Tile-Size APE, %"]
    ),
    "tiles: analytical model, Kendall's tau": lambda f: (
        f["tiles: analytical model, Kendall's tau"] > f["tiles: fewest iterations, Kendall's tau"]
    ),
    "tiles: fewest iterations, Kendall's tau": None,
    "fusion: analytical model as it is, MAPE >= 5 us, %": None,
    "fusion: times one training constant, MAPE >= 5 us, %": lambda f: (
        f["fusion: times one training constant, MAPE >= 5 us, %"]
        < f["fusion: analytical model as it is, MAPE >= 5 us, %"]
    ),
    "fusion: launch + slope, MAPE >= 5 us, %": lambda f: (
        f["fusion: launch + slope, MAPE >= 5 us, %"]
        < f["fusion: times one training constant, MAPE >= 5 us, %"]
    ),
    "fusion: launch + slope, MAPE < 5 us, %": None,
    "fusion: analytical model, tau >= 5 us": None,
    "fusion: best of 40 other configs over the default, speed-up": lambda f: (
        f["fusion: best of 40 other configs over the default, speed-up"] > 1.01
    ),
}
"""The figures, each with the statement about it that the ensemble tests."""


def prepared(name: str) -> PreparedProgram:
    """Returns a program of the corpus."""
    data = (FOLDER / f"{name}.hlo.pb.zst").read_bytes()
    return PreparedProgram(module_from_bytes(data, where=name), name)


def tiled_kernels(program: PreparedProgram, target: Target) -> list[TiledKernel]:
    """Returns some kernels of a program with tiles drawn uniformly and the one that the model chooses."""
    model, generator = AnalyticalModel(target.architecture), stream(SEED, "machine claims", program.name)
    unique = program.unique_kernels
    chosen = np.sort(generator.permutation(len(unique))[:KERNELS])
    found = []
    for one in (unique[i] for i in chosen.tolist()):
        space = nest_tile_space(program.lowering.loop_nest(one.kernel), target.architecture)
        if space.size < 2 or not space.has_legal_tile:
            continue
        extents = np.unique(
            np.concatenate([space.extents(space.sample(generator, TILES)), model.choose(space)[None]]), axis=0
        )
        sizes = space.nest.tile_sizes(extents)
        iterations = space.nest.iterations(sizes).astype(np.float64)
        predicted = model.predict_nest(space.nest, sizes)
        found.append(TiledKernel(space.nest, extents, one.runs_per_program, predicted, iterations))
    return found


def fused_program(program: PreparedProgram, target: Target, num_configs: int) -> FusedProgram:
    """Returns a program under its default fusion config, random ones and neighbours of the default."""
    space, model = FusionSpace(program), AnalyticalModel(target.architecture)
    generator = stream(SEED, "machine claims", program.name, "fusion")
    cutter = SharedCuts(space)
    random, near = space.sample(generator, num_configs // 2), num_configs - num_configs // 2
    configs = [space.default, *random, *space.neighbours(space.default, generator, near)]
    cuts = tuple(cutter.cut(config) for config in configs)
    numbers = [n for n in range(len(cutter)) if n != NO_KERNEL]
    tiled = TiledKernels(program.lowering, target.architecture, model)
    nests, estimates = {}, {}
    for place, tiles, extents in tiled.tiled([cutter.take(number) for number in numbers]):
        nests[numbers[place]] = (tiles.nest, extents[None])
        estimates[numbers[place]] = float(
            model.predict_nest(tiles.nest, tiles.nest.tile_sizes(extents[None]))[0]
        )
    default = np.unique(np.concatenate(cuts[0].kernels))
    return FusedProgram(cuts, nests, estimates, default[default != NO_KERNEL])


def workload(programs: dict[str, PreparedProgram], target: Target) -> Workload:
    """Returns what all machines of a chip run."""
    return Workload(
        tiles={name: tiled_kernels(programs[name], target) for name in TEST},
        fusions={
            name: fused_program(program, target, CONFIGS if name in TEST else 0)
            for name, program in programs.items()
        },
    )


def figures(work: Workload, machine: Target) -> dict[str, float]:
    """Returns all figures on one machine."""
    return tile_figures(work, machine) | fusion_figures(work, machine)


def tile_figures(work: Workload, machine: Target) -> dict[str, float]:
    """Returns the figures of tile sizes: Tile-Size APE averaged over programs, tau over kernels."""
    errors: dict[str, list[float]] = {"analytical": [], "iterations": [], "ten": []}
    taus: dict[str, list[float]] = {"analytical": [], "iterations": []}
    for kernels in work.tiles.values():
        best, weights = [], [float(item.executions) for item in kernels]
        chosen: dict[str, list[float]] = {name: [] for name in errors}
        for item in kernels:
            runtime = simulate_nest(item.nest, item.extents, machine).runtime_ns
            best.append(float(runtime.min()))
            chosen["analytical"].append(float(runtime[item.analytical.argmin()]))
            chosen["iterations"].append(float(runtime[item.iterations.argmin()]))
            chosen["ten"].append(best_of_top_k(item.analytical, runtime, TOP))
            taus["analytical"].append(kendall_tau(item.analytical, runtime))
            taus["iterations"].append(kendall_tau(item.iterations, runtime))
        for name, runtimes in chosen.items():
            errors[name].append(tile_size_ape(runtimes, best, weights))
    return {
        "tiles: analytical model, Tile-Size APE, %": float(np.mean(errors["analytical"])),
        "tiles: fewest iterations, Tile-Size APE, %": float(np.mean(errors["iterations"])),
        "tiles: best of the analytical model's ten, APE, %": float(np.mean(errors["ten"])),
        "tiles: analytical model, Kendall's tau": float(np.nanmean(taus["analytical"])),
        "tiles: fewest iterations, Kendall's tau": float(np.nanmean(taus["iterations"])),
    }


def fusion_figures(work: Workload, machine: Target) -> dict[str, float]:
    """Returns the figures of fused kernels (means over test programs) and of a random search."""
    costs = {
        name: {
            number: float(simulate_nest(nest, extents, machine).runtime_ns[0])
            for number, (nest, extents) in program.nests.items()
        }
        for name, program in work.fusions.items()
    }
    pairs = {name: _pairs(program, costs[name]) for name, program in work.fusions.items()}
    predicted, measured = (np.concatenate([pairs[name][side] for name in TRAINING]) for side in (0, 1))
    is_long = measured >= SHORT_NS
    constant = float(np.exp(np.median(np.log(measured[is_long] / predicted[is_long]))))
    launch, slope = launch_and_slope(predicted, measured)
    long: dict[str, list[float]] = {"as it is": [], "constant": [], "launch": [], "tau": []}
    short, speed_ups = [], []
    for name in TEST:
        estimate, runtime = pairs[name]
        is_long = runtime >= SHORT_NS
        x, y = estimate[is_long], runtime[is_long]
        long["as it is"].append(mape(x, y))
        long["constant"].append(mape(constant * x, y))
        long["launch"].append(mape(launch + slope * x, y))
        long["tau"].append(kendall_tau(x, y))
        short.append(mape(launch + slope * estimate[~is_long], runtime[~is_long]))
        totals = [_total(cut, costs[name]) for cut in work.fusions[name].cuts]
        speed_ups.append(totals[0] / min(totals))
    return {
        "fusion: analytical model as it is, MAPE >= 5 us, %": float(np.mean(long["as it is"])),
        "fusion: times one training constant, MAPE >= 5 us, %": float(np.mean(long["constant"])),
        "fusion: launch + slope, MAPE >= 5 us, %": float(np.mean(long["launch"])),
        "fusion: launch + slope, MAPE < 5 us, %": float(np.mean(short)),
        "fusion: analytical model, tau >= 5 us": float(np.mean(long["tau"])),
        "fusion: best of 40 other configs over the default, speed-up": float(
            np.exp(np.mean(np.log(speed_ups)))
        ),
    }


def launch_and_slope(predicted: FloatArray, measured: FloatArray) -> tuple[float, float]:
    """Returns a and b of a + b predicted, by least squares on the logarithm with a robust loss (soft L1)."""

    def residuals(logs: FloatArray) -> FloatArray:
        launch, slope = np.exp(logs)
        errors: FloatArray = np.log((launch + slope * predicted) / measured)
        return errors

    launch, slope = np.exp(least_squares(residuals, np.log([1000.0, 1.0]), loss="soft_l1", f_scale=0.1).x)
    return float(launch), float(slope)


def _pairs(program: FusedProgram, costs: dict[int, float]) -> tuple[FloatArray, FloatArray]:
    known = [number for number in program.default.tolist() if number in costs]
    return np.array([program.analytical[n] for n in known]), np.array([costs[n] for n in known])


def _total(cut: CutConfig, costs: dict[int, float]) -> float:
    """Returns nanoseconds of a program; infinite where no tile of a kernel fits."""
    return sum(
        trips * sum(costs.get(number, np.inf) for number in numbers.tolist() if number != NO_KERNEL)
        for numbers, trips in zip(cut.kernels, cut.trip_counts, strict=True)
    )


def findings(programs: dict[str, PreparedProgram], chip: str, machines: int) -> list[Finding]:
    """Returns all findings on a chip and its ensemble."""
    target = load_target(chip)
    work = workload(programs, target)
    shipped = figures(work, target)
    ensemble = load_ensemble(target)[:machines]
    drawn = [figures(work, machine) for machine in ensemble]
    found = []
    for name, statement in STATEMENTS.items():
        over = spread([one[name] for one in drawn])
        assert over is not None
        holds = None if statement is None else float(np.mean([statement(one) for one in drawn]))
        moved = strongest_parameter(ensemble, [one[name] for one in drawn])
        found.append(Finding(chip, name, shipped[name], over, holds, *moved))
    return found


def strongest_parameter(machines: Sequence[Target], values: Sequence[float]) -> tuple[str, float]:
    """Returns the timing parameter with the largest rank correlation with a figure, and that correlation."""
    found = {
        field.name: kendall_tau([getattr(one.timing, field.name) for one in machines], values)
        for field in fields(Timing)
    }
    known = {name: tau for name, tau in found.items() if not np.isnan(tau)}
    name = max(known, key=lambda key: abs(known[key]), default="")
    return name, known.get(name, float("nan"))


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, runs all machines, prints a table in Markdown, writes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--machines", type=int, default=32, help="of each ensemble")
    parser.add_argument("--json", type=Path, help="where findings are written")
    options = parser.parse_args(arguments)
    programs = {name: prepared(name) for name in (*TRAINING, *TEST)}
    found = [one for chip in ("tpu_v3", "tpu_v2") for one in findings(programs, chip, options.machines)]
    print("| chip | figure | shipped | median | 5% | 95% | statement holds | moved most by (tau) |")
    print("|---|---|---|---|---|---|---|---|")
    for one in found:
        over = one.over_machines
        holds = "" if one.holds is None else f"{one.holds:.0%}"
        print(
            f"| {one.chip} | {one.name} | {one.shipped:.3g} | {over.median:.3g} | {over.low:.3g} "
            f"| {over.high:.3g} | {holds} | `{one.moved_by}` ({one.moved_tau:+.2f}) |"
        )
    if options.json is not None:
        write_json(options.json, [asdict(one) for one in found])


if __name__ == "__main__":
    main(sys.argv[1:])
