"""Autotuning one test program with one trained model, as numbers that tables and claims read.

Results are keyed as those of evaluation, so rows of both are of one kind: the `model` is the arm of the
experiment, the `variant` says how much it was given, and the `seed` is the repeat.

| task | model | variant |
|---|---|---|
| tile | a model's name, `hybrid`, `random` | `compiler`: its choice as it is; `top10`: of 10 measured |
| tile | `exhaustive` | `all` |
| fusion | `hardware`, `model and hardware`, `best known` | `default-1m`: start, and minutes of hardware |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from costbench.autotuning.kernel_costs import MeasuredKernels, TiledKernels
from costbench.compiler.fusion_space import FusionSpace
from costbench.compiler.program import PreparedProgram
from costbench.errors import choose
from costbench.experiments.autotune_fusion import AutotuneFusionParams, FusionBar, FusionTuner
from costbench.experiments.autotune_tile import AutotuneTileParams, TilePoint, tile_points, tried_kernels
from costbench.hardware.device import Device
from costbench.hlo.reader import read_module
from costbench.models.analytical import AnalyticalModel
from costbench.models.cost_model import CostModel
from costbench.target import load_target

ModelKey = tuple[str, str, int]
Metrics = dict[ModelKey, dict[str, float]]
COMPILER, ALL = "compiler", "all"


@dataclass(frozen=True)
class AutotuneParams:
    """What is tuned, and how.

    Attributes:
        tile: the tile autotuner.
        fusion: the fusion autotuner.
        seed: of the machine's noise.
    """

    tile: AutotuneTileParams
    fusion: AutotuneFusionParams
    seed: int = 0


@dataclass(frozen=True)
class AutotuneTask:
    """A program on a chip, and the model that helps.

    Attributes:
        decision: `tile` or `fusion`.
        file: of the program.
        program: by name.
        chip: by name or file.
        checkpoint: folder of the trained model of that decision.
        params: how to tune.
    """

    decision: str
    file: Path
    program: str
    chip: str
    checkpoint: Path
    params: AutotuneParams


def autotune(task: AutotuneTask) -> Metrics:
    """Tunes a program in all ways.

    Raises:
        ChoiceError: for an unknown decision.
        HloError: if the program cannot be read.
        DataError: if the model cannot be read, or is of the other decision.
        UnsupportedKernelError: for a kernel that cannot be lowered.
    """
    return choose(_AUTOTUNE, task.decision, "decision")(task)


def _tiles(task: AutotuneTask) -> Metrics:
    # torch takes a second to import.
    from costbench.models.checkpoint import load_checkpoint

    target = load_target(task.chip)
    analytical = AnalyticalModel(target.architecture)
    models: dict[str, CostModel] = {
        "learned": load_checkpoint(task.checkpoint, analytical=analytical),
        "analytical": analytical,
    }
    device = Device(target, task.params.seed)
    kernels = tried_kernels(_program(task), device, analytical, models, task.params.tile)
    return tile_metrics(tile_points(list(kernels), task.params.tile))


def _fusions(task: AutotuneTask) -> Metrics:
    from costbench.autotuning.learned_kernels import LearnedKernels
    from costbench.models.checkpoint import load_checkpoint

    target, program = load_target(task.chip), _program(task)
    analytical = AnalyticalModel(target.architecture)
    tiled = TiledKernels(program.lowering, target.architecture, analytical)
    tuner = FusionTuner(
        space=FusionSpace(program),
        target=target,
        machine=MeasuredKernels(tiled, Device(target, task.params.seed), program.fingerprints),
        model=LearnedKernels(tiled, load_checkpoint(task.checkpoint, analytical=analytical)),
        model_name="learned",
        params=task.params.fusion,
    )
    return fusion_metrics(tuner.bars())


_AUTOTUNE: Mapping[str, Callable[[AutotuneTask], Metrics]] = {"fusion": _fusions, "tile": _tiles}


def _program(task: AutotuneTask) -> PreparedProgram:
    return PreparedProgram(read_module(task.file), task.program)


def tile_metrics(points: list[TilePoint]) -> Metrics:
    """`speedup` over the default, `slowdown` over exhaustive, `num_measured`, `hardware_seconds`."""
    found: Metrics = {}
    for point in points:
        budget = f"top{point.top_k}" if point.top_k else ALL
        found[point.arm, budget if point.measured else COMPILER, 0] = {
            "speedup": point.speedup,
            "slowdown": point.slowdown,
            "num_measured": point.num_measured,
            "hardware_seconds": point.hardware_seconds,
        }
    return found


def fusion_metrics(bars: list[FusionBar]) -> Metrics:
    """`speedup` over the default, `num_measured`, `hardware_seconds`, `num_predicted`, of each repeat."""
    return {
        (bar.arm, f"{bar.start}-{bar.hardware_minutes:g}m", seed): {
            "speedup": speedup,
            "num_measured": float(bar.num_measured[seed]),
            "hardware_seconds": bar.hardware_seconds[seed],
            "num_predicted": float(bar.num_predicted[seed]),
        }
        for bar in bars
        for seed, speedup in enumerate(bar.speedups)
    }
