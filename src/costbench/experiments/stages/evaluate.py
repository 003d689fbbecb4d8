"""Stage `evaluate`: compares the cost models of an experiment on the test programs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from costbench.artifacts import write_json
from costbench.datasets.folds import listed_split
from costbench.datasets.splits import Split, read_split
from costbench.datasets.validation import common_fingerprints
from costbench.errors import DataError, choose
from costbench.execution.backend import NO_FLAGS, BackendFlags
from costbench.execution.process import load
from costbench.execution.workers import run_work_items
from costbench.experiments.chips import chip_files
from costbench.experiments.evaluation.fusion import evaluate_fusions
from costbench.experiments.evaluation.imported_tile import evaluate_imported_tiles
from costbench.experiments.evaluation.layout import evaluate_layouts
from costbench.experiments.evaluation.program import Checkpoint, EvaluateParams, ProgramResult, ProgramTask
from costbench.experiments.evaluation.scoring import ALL_KERNELS, BEST
from costbench.experiments.evaluation.tile import evaluate_tiles
from costbench.experiments.given_experiment import GivenSamples, given_samples
from costbench.experiments.grid.baseline_fit import baselines_folder
from costbench.experiments.grid.experiment import Experiment, load_experiment
from costbench.experiments.grid.spec import MAIN, Cell, listed_as, selected
from costbench.experiments.identity import (
    StageIdentity,
    git_revision,
    given_code,
    identify,
    read_identity,
    write_identity,
)
from costbench.experiments.parameter_file import load_params
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.features.feature_shards import feature_path, sample_paths
from costbench.features.structures import known_structures
from costbench.metrics.overhead import write_overheads
from costbench.metrics.rows import MetricRow, RowOrigin, write_rows
from costbench.tasks import LEARNED

_log = logging.getLogger(__name__)
ROWS_FILE, SCATTER_FILE = "rows.jsonl", "scatter.json"
_WEIGHTS_FILE = "weights.pt"
_LOADED: Mapping[str, tuple[str, ...]] = {
    "kernel": ("costbench.models.checkpoint",),
    "program": ("costbench.models.layout.checkpoint",),
}
"""Modules that processes with trained networks load first, by what a sample is of."""
EVALUATE: dict[str, Callable[[ProgramTask], ProgramResult]] = {
    "tile": evaluate_tiles,
    "fusion": evaluate_fusions,
    "layout": evaluate_layouts,
}
EVALUATE_IMPORTED: dict[str, Callable[[ProgramTask], ProgramResult]] = {
    "tile": evaluate_imported_tiles,
    "layout": evaluate_layouts,
}
"""For samples without compiled programs."""


def run(params: Path, experiment: str | None = None, flags: BackendFlags = NO_FLAGS) -> None:
    """Write `rows.jsonl`, points of `scatter.json` where absolute runtimes are predicted, and wall times.

    Args:
        params: the parameter file.
        experiment: entry of section `experiments`; None evaluates all of them, one after another.
        flags: where the models are evaluated.

    Raises:
        CostbenchError: for wrong parameters, stages that have not finished, damaged shards or checkpoints.
    """
    profile = load_params(params)
    workspace = load_workspace(profile, flags)
    section = profile.section("evaluate", EvaluateParams)
    for name in selected(profile, experiment):
        _evaluate_experiment(load_experiment(profile, name), section, workspace)


def evaluate_task(item: tuple[str, ProgramTask]) -> ProgramResult:
    """Evaluate all models on one program, a work item.

    Args:
        item: the compiler's decision, and the program with its models.

    Raises:
        DataError: for a damaged shard or checkpoint, or a model that returns costs that are not finite.
    """
    task, program = item
    if program.checkpoints:
        load(_LOADED[LEARNED[task].samples])
    return choose(EVALUATE_IMPORTED if program.imported else EVALUATE, task, "task")(program)


def _evaluate_experiment(experiment: Experiment, section: EvaluateParams, workspace: Workspace) -> None:
    trained = read_identity(workspace.stage("train") / experiment.name)
    identity = identify(__name__, section, trained.data_digest, trained, *given_code(section.models))
    folder = workspace.stage("evaluate") / experiment.name
    if _is_restored(folder, identity, experiment, workspace):
        _log.info("%s: restored results, which need no weights", experiment.name)
        return
    given = given_samples(experiment, workspace)
    if given is not None and given.digest() != trained.data_digest:
        raise DataError("differs from what was trained on", where=given.source.root, expected="train anew")
    tasks = _tasks(experiment, section, workspace, given)
    work_items = {name: (cell.task, task) for name, (cell, task) in tasks.items()}
    results = run_work_items(evaluate_task, work_items, workspace.backend, _log_result)
    revision = git_revision(workspace.root)
    rows = [
        row
        for name, (cell, task) in tasks.items()
        for row in _rows(cell, task.program, results[name], identity, revision)
    ]
    write_rows(folder / ROWS_FILE, rows)
    points = [
        {
            "task": cell.task, "split": listed_split(cell.split), "chip": cell.chip, "model": one.model,
            "predicted_ns": list(one.predicted_ns), "measured_ns": list(one.measured_ns),
        }
        for name, (cell, task) in tasks.items()
        for one in results[name].scatter
    ]  # fmt: skip
    write_json(folder / SCATTER_FILE, points)
    write_overheads(folder, [one for name in tasks for one in results[name].overheads])
    write_identity(folder, identity)


def _is_restored(folder: Path, identity: StageIdentity, experiment: Experiment, workspace: Workspace) -> bool:
    """Whether results of this identity are there without the weights that they follow from."""
    try:
        is_current = read_identity(folder) == identity
    except DataError:
        return False
    cells = workspace.stage("train") / experiment.name
    has_weights = all((cells / cell.name / _WEIGHTS_FILE).exists() for cell in experiment.cells)
    return is_current and not has_weights


def _log_result(name: str, result: ProgramResult) -> None:
    scores = (
        f"{'/'.join(map(str, key))} {metrics.get('mape', metrics.get('kendall_tau', np.nan)):.2f}"
        for key, metrics in result.metrics.get(ALL_KERNELS, {}).items()
        if key[2] == 0 and key[0] != BEST
    )
    _log.info("%s: %s", name, ", ".join(scores))


def _rows(
    cell: Cell, program: str, result: ProgramResult, identity: StageIdentity, revision: str
) -> Iterator[MetricRow]:
    origin = RowOrigin(
        task=cell.task,
        split=listed_split(cell.split),
        chip=cell.chip,
        application=result.application,
        program=program,
        params_digest=identity.params_digest,
        data_digest=identity.data_digest,
        git_revision=revision,
    )
    for group, by_model in result.metrics.items():
        yield from origin.rows(group, by_model, result.computed_by)


def _tasks(
    experiment: Experiment,
    section: EvaluateParams,
    workspace: Workspace,
    given: GivenSamples | None = None,
) -> dict[str, tuple[Cell, ProgramTask]]:
    """Return one task for each test program of each split and chip, by name, in order."""
    grid = experiment.grid
    models = tuple(name for name in section.models if grid.baselines and name != "learned")
    features = workspace.stage("features") if given is None else given.features
    own_chips = chip_files(workspace.params)
    tasks = {}
    for split_name in sorted(experiment.splits):
        if given is None:
            split = read_split(workspace.stage("split") / f"{split_name}.json")
        else:
            split = given.tested_programs()
        for chip in sorted(grid.chips):
            checkpoints = _checkpoints(experiment, split_name, chip, workspace.stage("train"))
            seen = _seen(split, features, grid.task, chip)
            known = _known_structures(split, features, grid.task, chip)
            folder = baselines_folder(workspace.stage("train") / experiment.name, split_name, chip)
            fitted = folder if grid.baselines else None
            cell = Cell(grid.task, split_name, chip, MAIN, 0)
            for program in split.test:
                if not sample_paths(features, grid.task, chip, program):
                    _log.info("%s, %s: no %s samples of %s", split_name, chip, grid.task, program)
                    continue
                name = f"{experiment.name}, {split_name} split, {chip}, {program}"
                tasks[name] = (
                    cell,
                    ProgramTask(
                        workspace.stage("generate"),
                        features,
                        chip,
                        program,
                        checkpoints,
                        models,
                        section,
                        seen,
                        known,
                        fitted,
                        listed_split(split_name),
                        given is not None,
                        own_chips.get(chip, ""),
                    ),
                )
    return tasks


def _checkpoints(experiment: Experiment, split: str, chip: str, train: Path) -> tuple[Checkpoint, ...]:
    """Return the cells of a split that are tested on a chip: those trained for it, with `transfer` all."""
    found = []
    for cell in experiment.cells:
        if cell.split == split and (cell.chip == chip or experiment.grid.transfer):
            model, variant = listed_as(cell, chip)
            accelerator = experiment.variants[cell.variant].spec.accelerator
            folder = train / experiment.name / cell.name
            found.append(Checkpoint(model, variant, cell.seed, folder, accelerator))
    return tuple(found)


def _known_structures(split: Split, features: Path, task: str, chip: str) -> frozenset[str]:
    """Return the fingerprints of test kernels whose structure occurs in training programs."""
    tested, trained = (
        [path for name in names if (path := feature_path(features, task, chip, name)).exists()]
        for names in (split.test, split.train)
    )
    return known_structures(tested, trained)


def _seen(split: Split, features: Path, task: str, chip: str) -> frozenset[str]:
    """Return the fingerprints of test kernels that also occur in training programs."""
    tested, trained = (
        [path for name in names if (path := feature_path(features, task, chip, name)).exists()]
        for names in (split.test, split.train)
    )
    common = common_fingerprints(tested, trained)
    # NumPy drops the trailing zeros of fixed-length byte strings when an element is read.
    return frozenset(bytes(one).ljust(16, b"\0").hex() for one in common)
