"""How fast fusion configs of a program are scored, and what pricing only the kernels that are new saves.

Simulated annealing walks from the default config. `candidates_per_s` are configs scored, after a warm-up, by
all processes side by side, each with a search of its own, and `candidates_per_s_each` by one of them;
`full_per_s` is the same for one process that prices every kernel of every config, and `speed_up` what one
process gains. `merging_percent` is the share of a search that goes into finding out which groups a config
gives, as a whole for each config. Seconds are of processor time, so that other work on the machine does not
count.

    python -m benchmarks.fusion_scoring --model out/laptop/train/main-fusion/fusion-random-tpu_v3-main-s0
    python -m benchmarks.fusion_scoring --program nmt_b32_infer_f32 --on device --processes 1 --json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from joblib import Parallel, delayed

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.fusion import (
    FusionModelEvaluator,
    ProgramPricer,
    default_number,
    fusion_problem,
)
from costbench.autotuning.kernel_costs import EstimatedKernels, KernelCosts, MeasuredKernels, TiledKernels
from costbench.autotuning.search import Plan, tune
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.fusion.space import FusionSpace
from costbench.compiler.program import PreparedProgram
from costbench.hardware.device import Device
from costbench.hlo.reader import read_module
from costbench.target import Target, load_target

_MERGED = 100
FOLDER = Path(__file__).resolve().parents[1] / "data" / "programs"


def kernel_costs(program: PreparedProgram, target: Target, on: str, model: Path | None) -> KernelCosts:
    """Who prices kernels: `model` (a checkpoint), `estimate` or `device`."""
    tiled = TiledKernels(program.lowering, target.architecture, AnalyticalModel(target.architecture))
    if on == "device":
        return MeasuredKernels(tiled, Device(target), program.fingerprints)
    if model is None or on == "estimate":
        return EstimatedKernels(tiled)
    from costbench.autotuning.learned_kernels import LearnedKernels
    from costbench.models.checkpoint import load_checkpoint

    return LearnedKernels(tiled, load_checkpoint(model))


@dataclass(frozen=True)
class Found:
    """One process' part; rates are per second of processor time.

    Attributes:
        edges: of the program.
        kernels: of its default config.
        configs_per_s: scored in the search.
        full_per_s: scored one by one, all kernels priced.
        merging_share: of the search.
        new_kernels: priced in the search, per config.
    """

    edges: int
    kernels: int
    configs_per_s: float
    full_per_s: float
    merging_share: float
    new_kernels: float


def search(options: argparse.Namespace, seed: int) -> Found:
    """Searches in this process."""
    path = FOLDER / f"{options.program}.hlo.pb.zst"
    program = PreparedProgram(read_module(path), options.program)
    space, target = FusionSpace(program), load_target(options.chip)
    costs = kernel_costs(program, target, options.on, options.model)
    problem = fusion_problem(space, target.name)
    pricer = ProgramPricer(space, costs)
    evaluator = FusionModelEvaluator(pricer, options.on)
    budget = MeasurementBudget(evaluations=options.warm_up)
    tune(problem, evaluator, Plan(options.strategy, budget, seed, (default_number(space),)))

    priced, begun = pricer.num_priced, time.process_time()
    budget = MeasurementBudget(evaluations=options.configs)
    plan = Plan(options.strategy, budget, seed + 1_000, (default_number(space),))
    trace = tune(problem, evaluator, plan)
    seconds = time.process_time() - begun

    configs = problem.space.rows(trace.decisions[-_MERGED:])
    begun = time.process_time()
    for config in configs:
        for part, fused in space.by_computation(config):
            part.cut(fused)
    merging_s = (time.process_time() - begun) / len(configs)
    configs = configs[-options.full :]
    begun = time.process_time()
    for config in configs:
        fresh = ProgramPricer(space, costs)
        fresh.total_ns(fresh.cut(config[None]))
    full_s = (time.process_time() - begun) / len(configs)
    return Found(
        edges=len(space.default),
        kernels=len(program.compiled.kernels),
        configs_per_s=len(trace) / seconds,
        full_per_s=1.0 / full_s,
        merging_share=merging_s * len(trace) / seconds,
        new_kernels=(pricer.num_priced - priced) / len(trace),
    )


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Returns everything, by name."""
    count = options.processes
    runs = Parallel(n_jobs=count)(delayed(search)(options, seed) for seed in range(count))
    rates = [run.configs_per_s for run in runs]
    return {
        "edges": runs[0].edges,
        "kernels": runs[0].kernels,
        "processes": count,
        "candidates_per_s": sum(rates),
        "candidates_per_s_each": sum(rates) / count,
        "full_per_s": runs[0].full_per_s,
        "speed_up": rates[0] / runs[0].full_per_s,
        "merging_percent": 100.0 * runs[0].merging_share,
        "new_kernels_per_config": runs[0].new_kernels,
    }


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    commands = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="fusion_scoring"
    )
    commands.add_argument("--program", default="resnet50_b64_train_f32", help="of the corpus, by name")
    commands.add_argument("--chip", default="tpu_v3", help="chip, by name or file (tpu_v3)")
    commands.add_argument("--on", default="model", choices=("model", "estimate", "device"), help="who prices")
    commands.add_argument("--model", type=Path, help="folder of a trained fusion model")
    commands.add_argument("--strategy", default="annealing", help="of the search (annealing)")
    commands.add_argument("--configs", type=int, default=2000, help="scored in the search (2000)")
    commands.add_argument("--warm-up", type=int, default=200, help="scored before (200)")
    commands.add_argument("--full", type=int, default=5, help="configs of which every kernel is priced (5)")
    commands.add_argument("--processes", type=int, default=2, help="of one thread each, side by side (2)")
    commands.add_argument("--json", action="store_true", help="print one flat JSON object")
    return commands


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, searches, times, prints."""
    options = parser().parse_args(arguments)
    figures = measure(options)
    if options.json:
        print(json.dumps(figures, indent=1, sort_keys=True))
        return
    for name, value in figures.items():
        print(f"{name:24}{value:>16,.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
