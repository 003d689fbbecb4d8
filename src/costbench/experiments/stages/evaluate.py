"""Stage `evaluate`: every cost model ranks the tile sizes of the test programs; result rows come out."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from costbench.datasets.splits import Split, read_split
from costbench.datasets.tile_kernels import CompiledPrograms, TileShard, shard_path
from costbench.datasets.validation import common_fingerprints
from costbench.errors import choose
from costbench.experiments.cost_models import COST_MODELS, ModelSources
from costbench.experiments.evaluation import ALL_KERNELS, BEST, EvaluatedKernel, Predict, evaluate_program
from costbench.experiments.identity import git_revision, identify, read_identity, write_identity
from costbench.experiments.kernel_kinds import kind_of
from costbench.experiments.spec import Cell, cell_from_name
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.metrics.rows import MAIN, MetricRow, write_rows
from costbench.params import load_section
from costbench.target import Architecture, load_target
from costbench.workers import Backend, run_each

_log = logging.getLogger(__name__)
ROWS_FILE = "rows.jsonl"
UNSEEN = "unseen"
"""The group of kernels that do not occur in training programs."""
ModelName = Literal["learned", "analytical", "iterations", "random"]


@dataclass(frozen=True)
class EvaluateParams:
    """Section `evaluate`.

    Attributes:
        models: cost models to compare; `learned` is every trained cell.
        top_k: values of k for slowdown@k and the top-k score.
        random_seeds: random rankings to average over.
    """

    models: tuple[ModelName, ...]
    top_k: tuple[int, ...]
    random_seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("models", "top_k", "random_seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be one or more different ones")
        if min(self.top_k) < 1:
            raise ValueError(f"top_k are {list(self.top_k)}, must be at least 1")


@dataclass(frozen=True)
class ProgramTask:
    """One test program on one chip, and the models to ask.

    Attributes:
        data: folder of the data set.
        chip: by name.
        program: by name.
        checkpoints: of the trained cells, by seed.
        params: of the stage.
        seen: fingerprints of test kernels that also occur in training programs.
    """

    data: Path
    chip: str
    program: str
    checkpoints: tuple[tuple[int, Path], ...]
    params: EvaluateParams
    seen: frozenset[str]


@dataclass(frozen=True)
class ProgramResult:
    """Group of kernels -> (model, seed) -> metric -> value, and what the program is an instance of."""

    application: str
    metrics: dict[str, dict[tuple[str, int], dict[str, float]]]


def run(params: Path) -> None:
    """Write `rows.jsonl`.

    Raises:
        CostbenchError: for wrong parameters, stages that have not finished, damaged shards or checkpoints.
    """
    workspace = load_workspace(params)
    section = load_section(params, "evaluate", EvaluateParams)
    trained = read_identity(workspace.stage("train"))
    identity = identify(section, trained.data_digest, trained)
    tasks = _tasks(workspace, section)

    def progress(name: str, result: ProgramResult) -> None:
        taus = (
            f"{model} {metrics.get('kendall_tau', np.nan):.2f}"
            for (model, seed), metrics in result.metrics[ALL_KERNELS].items()
            if seed == 0 and model != BEST
        )
        _log.info("%s: tau %s", name, ", ".join(taus))

    pieces = {name: task for name, (_, task) in tasks.items()}
    results = run_each(evaluate_task, pieces, Backend(jobs=workspace.jobs), progress)
    revision = git_revision(workspace.root)
    rows = [
        MetricRow(
            task=cell.task,
            split=cell.split,
            chip=cell.chip,
            model=model,
            variant=MAIN,
            seed=seed,
            application=results[name].application,
            program=task.program,
            kernels=group,
            metric=metric,
            value=value,
            params_digest=identity.params_digest,
            data_digest=identity.data_digest,
            git_revision=revision,
        )
        for name, (cell, task) in tasks.items()
        for group, by_model in results[name].metrics.items()
        for (model, seed), metrics in by_model.items()
        for metric, value in metrics.items()
    ]
    folder = workspace.stage("evaluate")
    write_rows(folder / ROWS_FILE, rows)
    write_identity(folder, identity)


def evaluate_task(task: ProgramTask) -> ProgramResult:
    """All models on one program, its kernels read one at a time.

    Raises:
        DataError: for a damaged shard or checkpoint, or a model that returns nonsense.
    """
    target = load_target(task.chip)
    shard = TileShard(
        shard_path(task.data, task.chip, task.program), CompiledPrograms(task.data, 1), target.architecture
    )
    models = _models(task, target.architecture)
    kernels = (_evaluated(shard, index, task.seen) for index in range(len(shard)))
    named = {f"{model}/{seed}": predict for (model, seed), predict in models.items()}
    found = evaluate_program(kernels, named, task.params.top_k, f"{task.program} on {task.chip}")
    keys = {f"{model}/{seed}": (model, seed) for model, seed in models} | {BEST: (BEST, 0)}
    return ProgramResult(
        shard.application,
        {group: {keys[name]: value for name, value in by.items()} for group, by in found.items()},
    )


def _evaluated(shard: TileShard, index: int, seen: frozenset[str]) -> EvaluatedKernel:
    measured = shard.kernel(index)
    groups = (kind_of(measured.kernel), *([UNSEEN] if measured.fingerprint not in seen else []))
    return EvaluatedKernel(measured.kernel, measured.tile_sizes, measured.runtime_ns, measured.runs, groups)


def _models(task: ProgramTask, architecture: Architecture) -> dict[tuple[str, int], Predict]:
    sources = ModelSources(architecture, dict(task.checkpoints), task.params.random_seeds)
    return {
        (name, seed): predict
        for name in task.params.models
        for seed, predict in choose(COST_MODELS, name, "cost model")(sources).items()
    }


def _tasks(workspace: Workspace, section: EvaluateParams) -> dict[str, tuple[Cell, ProgramTask]]:
    """By name, in order: one for each test program of each trained (task, split, chip)."""
    train, data = workspace.stage("train"), workspace.stage("generate")
    cells = [cell_from_name(path.name) for path in sorted(train.iterdir()) if path.is_dir()]
    tasks = {}
    for cell in sorted({Cell(c.task, c.split, c.chip, 0) for c in cells}):
        split = read_split(workspace.stage("split") / f"{cell.split}.json")
        seeds = sorted(c.seed for c in cells if Cell(c.task, c.split, c.chip, 0) == cell)
        checkpoints = tuple((seed, train / replace(cell, seed=seed).name) for seed in seeds)
        seen = _seen(split, data, cell.chip)
        for program in split.test:
            name = f"{cell.task}, {cell.split} split, {cell.chip}, {program}"
            tasks[name] = (cell, ProgramTask(data, cell.chip, program, checkpoints, section, seen))
    return tasks


def _seen(split: Split, data: Path, chip: str) -> frozenset[str]:
    """Fingerprints of test kernels that also occur in training programs."""
    tested, trained = (
        [shard_path(data, chip, program) for program in names] for names in (split.test, split.train)
    )
    common = common_fingerprints(tested, trained)
    # Byte strings of fixed length lose trailing zeros when they are taken out of an array.
    return frozenset(bytes(one).ljust(16, b"\0").hex() for one in common)
