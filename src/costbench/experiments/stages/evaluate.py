"""Stage `evaluate`: compares the cost models of an experiment on the test programs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Protocol

import numpy as np

from costbench.artifacts import check_sealed, digest_file, digest_files, seal, write_json
from costbench.datasets.leakage import common_fingerprints
from costbench.datasets.splits import read_split, reported_split
from costbench.errors import DataError, choose
from costbench.execution.workers import NO_FLAGS, BackendFlags, load
from costbench.experiments.evaluation.fusion import evaluate_fusions
from costbench.experiments.evaluation.layout import evaluate_layouts
from costbench.experiments.evaluation.program import (
    ALL_KERNELS,
    BEST,
    Checkpoint,
    EvaluateParams,
    ProgramResult,
    ProgramTask,
    Scatter,
)
from costbench.experiments.evaluation.tile import evaluate_imported_tiles, evaluate_tiles
from costbench.experiments.grid.baseline_fit import baselines_folder
from costbench.experiments.grid.cells import MAIN, Cell, listed_as, selected
from costbench.experiments.grid.experiment import BudgetGrid, Experiment, load_experiment
from costbench.experiments.grid.training_run import DONE
from costbench.experiments.identity import (
    StageIdentity,
    code_digest,
    git_revision,
    identify,
    read_identity,
    source_identities,
    write_identity,
)
from costbench.experiments.parameter_file import load_params
from costbench.experiments.tpugraphs.samples import ImportedSamples, open_imported_samples
from costbench.experiments.workspace import Workspace, chip_files, load_workspace
from costbench.features.feature_shards import feature_path, sample_paths
from costbench.features.structures import known_structures
from costbench.metrics.overhead import write_overheads
from costbench.metrics.rows import MetricRow, RowOrigin, write_rows
from costbench.programs.manifest import is_of_user, user_programs
from costbench.store import KeyedResult, Progress, WorkItem, compute, remove_outdated
from costbench.tasks import LEARNED

_log = logging.getLogger(__name__)
ROWS_FILE, SCATTER_FILE = "rows.jsonl", "scatter.json"
_WEIGHTS_FILE = "weights.pt"
_ITEMS = "programs"
_LOADED: Mapping[str, tuple[str, ...]] = {
    "kernel": ("costbench.models.checkpoint",),
    "program": ("costbench.models.checkpoint",),
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


class KnownEvaluations(Protocol):
    """Results of earlier runs, some of whose models have no weights here."""

    def restore_rows(self, experiment: Experiment) -> bool:
        """Writes all results of an experiment if they are known, and returns whether they are.

        Args:
            experiment: experiment that is evaluated.

        Raises:
            DataError: for damaged results, or files that cannot be written.
        """
        ...

    def known_rows(
        self, experiment: Experiment, programs: Mapping[str, ProgramTask]
    ) -> tuple[dict[str, ProgramTask], list[MetricRow]]:
        """Returns programs with the models that have weights, and rows of the others.

        Args:
            experiment: experiment that is evaluated.
            programs: all its programs with all their models, by name.

        Raises:
            DataError: for damaged results.
        """
        ...


OpenEvaluations = Callable[[Workspace], KnownEvaluations | None]
"""Returns earlier results of a profile; None where all that is missing shall be computed."""


def run(
    params: Path,
    experiment: str | None = None,
    flags: BackendFlags = NO_FLAGS,
    open_results: OpenEvaluations = lambda workspace: None,
    seeds: int | None = None,
) -> None:
    """Evaluates the programs that are missing; writes `rows.jsonl`, and points of figures in `scatter.json`.

    Wall times differ from run to run, and are written to the folder `machine`.

    Args:
        params: the parameter file.
        experiment: entry of section `experiments`; None evaluates all of them, one after another.
        flags: choice of the backend on which the models are evaluated.
        open_results: finds earlier results, which cells without weights have their rows from.
        seeds: number of seeds of each experiment, the first ones; None for all.

    Raises:
        CostbenchError: for wrong parameters, stages that have not finished, damaged shards or checkpoints.
    """
    profile = load_params(params)
    workspace = load_workspace(profile, flags)
    section = profile.section("evaluate", EvaluateParams)
    known = open_results(workspace)
    for name in selected(profile, experiment):
        trained = load_experiment(profile, name).with_first_seeds(seeds)
        _evaluate_experiment(trained, section, workspace, known)


@dataclass(frozen=True)
class EvaluationTask:
    """A program to evaluate.

    Attributes:
        cell: the compiler's decision, and the split and chip of the rows.
        program: the program with its models.
        revision: revision of the code, which result rows carry.
        timing: file for wall times of this machine, where evaluation measures any.
    """

    cell: Cell
    program: ProgramTask
    revision: str
    timing: Path


@dataclass(frozen=True)
class ModelMetrics:
    """Metrics of a model over a group of a program's kernels; names are those of `MetricRow`."""

    kernels: str
    model: str
    variant: str
    seed: int
    computed_by: str
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class EvaluatedProgram(KeyedResult):
    """The evaluation of a program, as the store keeps it.

    Attributes:
        application: application family of the program.
        git_revision: revision of the code that evaluated it.
        metrics: metrics of each model and group of kernels.
        scatter: points for a figure, where absolute runtimes are predicted.
    """

    application: str
    git_revision: str
    metrics: tuple[ModelMetrics, ...]
    scatter: tuple[Scatter, ...]


def evaluate_program(item: WorkItem[EvaluationTask]) -> EvaluatedProgram:
    """Evaluates all models on one program, a work item.

    Raises:
        DataError: for a damaged shard or checkpoint, or a model that returns costs that are not finite.
    """
    task, program = item.task.cell.task, item.task.program
    if program.checkpoints:
        load(_LOADED[LEARNED[task].samples])
    result = choose(EVALUATE_IMPORTED if program.imported else EVALUATE, task, "task")(program)
    if result.overheads:
        write_overheads(item.task.timing, result.overheads)
    return item.keep(evaluated(item.key, result, item.task.revision))


def evaluated(key: str, result: ProgramResult, revision: str) -> EvaluatedProgram:
    """Returns a result in the form that the store keeps."""
    metrics = tuple(
        ModelMetrics(kernels, *model, result.computed_by.get(model, ""), values)
        for kernels, by_model in result.metrics.items()
        for model, values in by_model.items()
    )
    return EvaluatedProgram(key, result.application, revision, metrics, result.scatter)


def _evaluate_experiment(
    experiment: Experiment,
    section: EvaluateParams,
    workspace: Workspace,
    known: KnownEvaluations | None,
) -> None:
    trained = read_identity(workspace.stage("train") / experiment.name)
    identity = identify(__name__, section, trained.data_digest, trained, *source_identities(section.models))
    folder = workspace.stage("evaluate") / experiment.name
    machine = workspace.stage("machine") / "evaluate" / experiment.name
    machine.mkdir(parents=True, exist_ok=True)  # an output, which most experiments leave empty
    if _is_restored(folder, identity, experiment, workspace):
        _log.info("%s: restored results, which need no weights", experiment.name)
        for program in user_programs(workspace.programs):
            _log.warning("%s is not among them: train first, without an archive", program.name)
        return
    if known is not None and known.restore_rows(experiment):
        return
    imported = open_imported_samples(experiment, workspace)
    if imported is not None and imported.digest() != trained.data_digest:
        raise DataError(
            "differs from what was trained on",
            where=imported.source.root,
            expected="the stage `train` to run again",
        )
    tasks = evaluation_tasks(experiment, section, workspace, imported)
    remove_outdated(machine, [task.timing for task in tasks.values()])
    known_rows: list[MetricRow] = []
    if known is not None:
        programs = {name: task.program for name, task in tasks.items()}
        programs, known_rows = known.known_rows(experiment, programs)
        tasks = {name: replace(tasks[name], program=program) for name, program in programs.items()}
    items = _work_items(tasks, identity, folder, workspace.programs)
    title = f"programs to evaluate of {experiment.name}"
    results = compute(
        evaluate_program, EvaluatedProgram, items, workspace.backend, title, _log_result, folder=folder
    )
    in_order = [(task, results[name]) for name, task in tasks.items()]
    rows = [row for task, result in in_order for row in _rows(task, result, identity)]
    write_rows(folder / ROWS_FILE, [*rows, *known_rows])
    scatter = [
        {
            "task": task.cell.task, "split": reported_split(task.cell.split), "chip": task.cell.chip,
            "model": points.model, "predicted_ns": list(points.predicted_ns),
            "measured_ns": list(points.measured_ns),
        }
        for task, result in in_order
        for points in result.scatter
        if not is_of_user(result.application)
    ]  # fmt: skip
    write_json(folder / SCATTER_FILE, scatter)
    seal(machine, f"`costbench evaluate --experiment {experiment.name}`")
    write_identity(folder, identity)


def _is_restored(folder: Path, identity: StageIdentity, experiment: Experiment, workspace: Workspace) -> bool:
    """Returns whether results of this identity are there without the weights that they follow from."""
    try:
        is_current = read_identity(folder) == identity
    except DataError:
        return False
    cells = workspace.stage("train") / experiment.name
    has_weights = all((cells / cell.name / _WEIGHTS_FILE).exists() for cell in experiment.cells)
    if not experiment.cells:
        has_weights = any(cells.glob(f"*/{DONE}"))
    return is_current and not has_weights


def _work_items(
    tasks: Mapping[str, EvaluationTask], identity: StageIdentity, folder: Path, programs: Path
) -> list[WorkItem[EvaluationTask]]:
    """Returns a work item for each program, those with the most samples first.

    A result follows from what the whole stage follows from, and from the trained models as they are. Samples
    of a user's own programs are in no digest of a stage, so theirs count program by program.
    """
    items = []
    of_user = {entry.name for entry in user_programs(programs)}
    for name, task in tasks.items():
        program, kind = task.program, task.cell.task
        trained = [checkpoint.folder for checkpoint in program.checkpoints]
        trained += [] if program.fitted is None else [program.fitted]
        trained += [*program.fitted_to.values(), *program.fitted_with.values()]
        for trained_folder in trained:
            check_sealed(trained_folder / DONE)
        evaluate = (EVALUATE_IMPORTED if program.imported else EVALUATE)[kind]
        parts = [name, identity.params_digest, identity.data_digest, identity.code_digest]
        parts += [code_digest(evaluate), *(digest_file(folder / DONE) for folder in trained)]
        if program.program in of_user:
            samples = sample_paths(program.features, kind, program.chip, program.program)
            parts.append(digest_files(samples, program.features))
        items.append(WorkItem.of(name, task, folder / _ITEMS, parts))

    def size(item: WorkItem[EvaluationTask]) -> int:
        program = item.task.program
        paths = sample_paths(program.features, item.task.cell.task, program.chip, program.program)
        return sum(path.stat().st_size for path in paths)

    return sorted(items, key=lambda item: (-size(item), item.name))


def _log_result(progress: Progress[EvaluatedProgram]) -> None:
    scores = (
        f"{scored.model}/{scored.variant} "
        f"{scored.metrics.get('mape', scored.metrics.get('kendall_tau', np.nan)):.2f}"
        for scored in progress.result.metrics
        if (scored.kernels, scored.seed) == (ALL_KERNELS, 0) and scored.model != BEST
    )
    _log.info("[%d/%d] %s: %s", progress.done, progress.total, progress.name, ", ".join(scores))


def _rows(task: EvaluationTask, result: EvaluatedProgram, identity: StageIdentity) -> Iterator[MetricRow]:
    origin = RowOrigin(
        task=task.cell.task,
        split=reported_split(task.cell.split),
        chip=task.cell.chip,
        application=result.application,
        program=task.program.program,
        params_digest=identity.params_digest,
        data_digest=identity.data_digest,
        git_revision=result.git_revision,
    )
    for metrics in result.metrics:
        model = metrics.model, metrics.variant, metrics.seed
        yield from origin.rows(metrics.kernels, {model: metrics.metrics}, {model: metrics.computed_by})


def evaluation_tasks(
    experiment: Experiment,
    section: EvaluateParams,
    workspace: Workspace,
    imported: ImportedSamples | None = None,
) -> dict[str, EvaluationTask]:
    """Returns one task for each test program of each split and chip, by name.

    Args:
        experiment: experiment that is evaluated.
        section: models of the comparison.
        workspace: folders of the profile.
        imported: samples of an imported data set, where the experiment is of one.

    Raises:
        DataError: for splits or shards that are missing or damaged.
    """
    grid = experiment.grid
    models = section.untrained if grid.baselines else ()
    features = workspace.stage("features") if imported is None else imported.features
    files_of_chips = chip_files(workspace.params)
    machine = workspace.stage("machine") / "evaluate" / experiment.name
    revision = git_revision(workspace.root)
    tasks = {}
    for split_name in sorted(experiment.splits):
        if imported is None:
            split = read_split(workspace.stage("split") / f"{split_name}.json")
        else:
            split = imported.tested_programs()
        for chip in sorted(grid.chips):
            checkpoints = _checkpoints(experiment, split_name, chip, workspace.stage("train"))
            tested, trained = (
                [path for name in names if (path := feature_path(features, grid.task, chip, name)).exists()]
                for names in (split.test, split.train)
            )
            seen = _seen(tested, trained)
            structures = known_structures(tested, trained)
            folder = workspace.stage("train") / experiment.name
            fitted = baselines_folder(folder, split_name, chip)
            fitted_to = {
                quality: baselines_folder(folder, split_name, chip, quality) for quality in grid.estimates
            }
            budgets = product(grid.budgets if isinstance(grid, BudgetGrid) else (), grid.seeds)
            fitted_with = {
                (budget, seed): baselines_folder(folder, split_name, chip, budget, f"seed{seed}")
                for budget, seed in budgets
            }
            cell = Cell(grid.task, split_name, chip, MAIN, 0)
            for program in split.test:
                if not sample_paths(features, grid.task, chip, program):
                    _log.info("%s, %s: no %s samples of %s", split_name, chip, grid.task, program)
                    continue
                name = f"{split_name}-{chip}-{program}"
                program_task = ProgramTask(
                    data=workspace.stage("generate"),
                    features=features,
                    chip=chip,
                    program=program,
                    checkpoints=checkpoints,
                    models=models,
                    params=section,
                    seen=seen,
                    known_structures=structures,
                    fitted=fitted if grid.baselines else None,
                    split=reported_split(split_name),
                    imported=imported is not None,
                    chip_file=files_of_chips.get(chip, ""),
                    fitted_to=fitted_to,
                    fitted_with=fitted_with,
                )
                tasks[name] = EvaluationTask(cell, program_task, revision, machine / f"{name}.json")
    return tasks


def _seen(tested: Sequence[Path], trained: Sequence[Path]) -> frozenset[str]:
    """Returns the fingerprints of kernels in shards of test programs that training programs have as well."""
    # NumPy drops the trailing zeros of fixed-length byte strings when an element is read.
    common = common_fingerprints(tested, trained)
    return frozenset(bytes(fingerprint).ljust(16, b"\0").hex() for fingerprint in common)


def _checkpoints(experiment: Experiment, split: str, chip: str, train: Path) -> tuple[Checkpoint, ...]:
    """Returns the cells of a split that are tested on a chip: those trained for it, with `transfer` all."""
    checkpoints = []
    for cell in experiment.cells:
        if cell.split == split and (cell.chip == chip or experiment.grid.transfer):
            model, variant = listed_as(cell, chip)
            accelerator = experiment.variants[cell.variant].spec.accelerator
            folder = train / experiment.name / cell.name
            checkpoints.append(Checkpoint(model, variant, cell.seed, folder, accelerator))
    return tuple(checkpoints)
