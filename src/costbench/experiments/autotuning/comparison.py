"""Autotunes one test program with trained models and returns the metrics that tables and claims read.

Results have the same keys as those of evaluation, so both become rows of one type: the `model` is the arm of
the experiment, the `variant` its budget, the `seed` the number of the repeat, or of the network that chooses
tile sizes.

| task | model | variant |
|---|---|---|
| tile | a model's name, `alternating`, `random` | `compiler`: first choice; `top10`: best of 10 measured |
| tile | `exhaustive`, `sample` | `all`: legal tile sizes, or candidates that models rank |
| fusion | `hardware`, `model and hardware` and so on | `default-1m`: start, and minutes of hardware |
| fusion | `best known` | `all`: the best of all searches and of one that is free of charge |
| both | `best` | `main`: facts of the program that depend on no arm |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from costbench.autotuning.kernel_costs import EstimatedKernels, KernelCosts, MeasuredKernels, TiledKernels
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.fusion.space import FusionSpace
from costbench.compiler.program import PreparedProgram
from costbench.errors import choose
from costbench.experiments.autotuning.fusion_comparison import (
    BEST_KNOWN,
    AutotuneFusionParams,
    FusionCurve,
    FusionTuner,
)
from costbench.experiments.autotuning.tile_comparison import (
    ALL,
    EXHAUSTIVE,
    AutotuneTileParams,
    ScoredKernel,
    score_kernel,
    tile_metrics,
)
from costbench.experiments.evaluation.program import BEST, ByModel
from costbench.experiments.grid.cells import LEARNED, MAIN
from costbench.hardware.device import Device
from costbench.hlo.reader import read_module
from costbench.models.cost_model import CostModel
from costbench.target import load_target

_LOWERED_KERNELS = 4096
"""Lowered kernels held in memory: the machine and the models price the same ones shortly after another."""
_P = TypeVar("_P", AutotuneTileParams, AutotuneFusionParams)
SearchParams = AutotuneTileParams | AutotuneFusionParams


@dataclass(frozen=True)
class AutotuneTask:
    """A program on a chip, and the models whose searches are compared.

    Attributes:
        decision: `tile` or `fusion`.
        file: file of the program.
        program: name of the program.
        chip: name of the chip.
        checkpoints: folders of the networks of each model trained for that decision, in order of their seeds,
            by the name under which it is listed.
        params: settings of the search for that decision.
        seed: seed of the machine's noise.
        chip_file: file that describes the chip; empty for one that ships with the package.
    """

    decision: str
    file: Path
    program: str
    chip: str
    checkpoints: Mapping[str, Sequence[Path]]
    params: SearchParams
    seed: int = 0
    chip_file: str = ""


@dataclass(frozen=True)
class TuningComparison:
    """Results of tuning a program.

    Attributes:
        metrics: by arm, variant and seed, then by name.
        curves: curves of the fusion searches.
    """

    metrics: ByModel
    curves: tuple[FusionCurve, ...] = ()


def autotune(task: AutotuneTask) -> TuningComparison:
    """Tunes a program with every arm of the experiment.

    Raises:
        ChoiceError: for an unknown decision.
        HloError: if the program cannot be read.
        DataError: if a model cannot be read, or is of the other decision.
        UnsupportedKernelError: for a kernel that cannot be lowered.
    """
    return choose(AUTOTUNE, task.decision, "decision")(task)


def _tune_tiles(task: AutotuneTask) -> TuningComparison:
    # torch takes a second to import.
    from costbench.models.checkpoint import load_checkpoint

    params = _of_kind(task.params, AutotuneTileParams)
    target = load_target(task.chip_file or task.chip)
    analytical = AnalyticalModel(target.architecture)
    models: dict[str, Sequence[CostModel]] = {
        name: [load_checkpoint(folder, analytical=analytical) for folder in folders]
        for name, folders in task.checkpoints.items()
    }
    models["analytical"] = [analytical]
    device = Device(target, task.seed)
    program = _program(task)
    kernels = [
        score_kernel(program, unique, device, analytical, models, params) for unique in program.unique_kernels
    ]
    metrics = tile_metrics(kernels, params)
    return TuningComparison(metrics | tile_facts(kernels, metrics[EXHAUSTIVE, ALL, 0]))


def _tune_fusions(task: AutotuneTask) -> TuningComparison:
    from costbench.autotuning.learned_kernels import LearnedKernels
    from costbench.models.checkpoint import load_checkpoint

    params = _of_kind(task.params, AutotuneFusionParams)
    target, program = load_target(task.chip_file or task.chip), _program(task)
    analytical = AnalyticalModel(target.architecture)
    tiled = TiledKernels(program.lowering, target.architecture, analytical, capacity=_LOWERED_KERNELS)
    space = FusionSpace(program)
    models: dict[str, Sequence[KernelCosts]] = {
        _ARMS.get(name, name): [
            LearnedKernels(tiled, load_checkpoint(folder, analytical=analytical)) for folder in folders
        ]
        for name, folders in task.checkpoints.items()
    }
    models["analytical"] = [EstimatedKernels(tiled)]
    machine = MeasuredKernels(tiled, Device(target, task.seed), program.fingerprints)
    result = FusionTuner(space, target, machine, models, params).search()
    facts = {"num_instructions": float(space.module.num_instructions), "num_edges": float(len(space.default))}
    facts["gain_best_known"] = result.metrics[BEST_KNOWN]["speedup"]
    return TuningComparison(result.metrics | {(BEST, MAIN, 0): facts}, result.curves)


_ARMS: Mapping[str, str] = {LEARNED: "model"}
"""Models whose arms have another name: `model and hardware`, as in lpm2021."""
AUTOTUNE: Mapping[str, Callable[[AutotuneTask], TuningComparison]] = {
    "fusion": _tune_fusions,
    "tile": _tune_tiles,
}


def _of_kind(params: SearchParams, kind: type[_P]) -> _P:
    if not isinstance(params, kind):
        raise TypeError(f"params are {type(params).__name__}, expected {kind.__name__}")
    return params


def _program(task: AutotuneTask) -> PreparedProgram:
    return PreparedProgram(read_module(task.file), task.program)


def tile_facts(kernels: Sequence[ScoredKernel], exhaustive: Mapping[str, float]) -> ByModel:
    """Returns facts of the program that depend on no arm.

    `num_kernels`; `num_kernels_with_choice`, those with more than one tile size; `num_kernels_sampled`, those
    whose space is too large for exhaustive search; `num_tiles` that exhaustive search considers;
    `num_candidates` of them that models rank; `gain_exhaustive`, the speed-up of exhaustive search.
    """
    sizes = [kernel.space.num_tiles for kernel in kernels]
    return {
        (BEST, MAIN, 0): {
            "num_kernels": float(len(sizes)),
            "num_kernels_with_choice": float(sum(size > 1 for size in sizes)),
            "num_kernels_sampled": float(sum(not kernel.space.complete for kernel in kernels)),
            "num_tiles": float(sum(sizes)),
            "num_candidates": float(sum(len(kernel.runtime_ns) for kernel in kernels)),
            "gain_exhaustive": exhaustive["speedup"],
        }
    }
