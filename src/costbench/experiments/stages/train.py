"""Stage `train`: trains the cost models of an experiment, one cell per split, chip, variant and seed.

An experiment with `baselines: true` has its baselines fitted here as well, once per split and chip.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from costbench import rng
from costbench.artifacts import digest_file, read_json, seal, write_json
from costbench.datasets.recorded_kernels import is_recorded
from costbench.datasets.splits import TrainingPrograms, read_training_programs
from costbench.execution.workers import NO_FLAGS, BackendFlags
from costbench.experiments.grid.baseline_fit import (
    BaselineTask,
    FittedBaselines,
    baselines_folder,
    fit_baselines,
    fit_item,
)
from costbench.experiments.grid.cells import Cell, selected
from costbench.experiments.grid.experiment import BudgetGrid, Experiment, load_experiment
from costbench.experiments.grid.kernel_training import KernelTraining
from costbench.experiments.grid.layout_training import LayoutTraining
from costbench.experiments.grid.parent_run import cell_tracking, nest_cells, tracked_grid
from costbench.experiments.grid.training_run import (
    DONE,
    HISTORY,
    CellResult,
    CellTask,
    Tracking,
    Training,
    train_cell,
    train_item,
)
from costbench.experiments.identity import (
    StageIdentity,
    code_digest,
    git_revision,
    identify,
    read_identity,
    with_sources,
    write_identity,
)
from costbench.experiments.parameter_file import load_params
from costbench.experiments.stages.entry import shared_database
from costbench.experiments.tpugraphs.samples import ImportedSamples, open_imported_samples
from costbench.experiments.tracking.runs import Provenance, tracking_uri
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.experiments.writer import machine
from costbench.features.feature_shards import sample_paths
from costbench.models.baselines.spec import BaselineParams
from costbench.params import digest
from costbench.store import Progress, WorkItem, compute, key_of, remove_outdated
from costbench.tasks import LEARNED
from costbench.training.spec import TrainParams

_log = logging.getLogger(__name__)
_EXPERIMENT = "costbench/train"
TRAININGS: Mapping[str, Training] = {"kernel": KernelTraining(), "program": LayoutTraining()}
"""How models are trained, by what a sample of their task is of.

Cells carry their entry and do not look it up, so that the code which trains the models of one kind is no part
of what those of the other follow from.
"""
_SLOW: Mapping[str, int] = {"transformer": 2, "lstm": 1}
"""Ranks of reductions by the cost of a training step; 0 for those not listed."""


CELLS_FILE = "cells.json"
"""What each cell and each set of baselines of an experiment follows from, code aside, by name."""


@dataclass(frozen=True)
class KnownCells:
    """Cells and sets of baselines of an experiment whose results are here without their weights.

    Attributes:
        names: their names.
        identity: what the experiment's folder follows from with them in it.
    """

    names: Collection[str]
    identity: StageIdentity


class KnownResults(Protocol):
    """Results of earlier runs. The stage is handed them, since code that trains may reach no result rows."""

    def restore(
        self,
        experiment: Experiment,
        identity: StageIdentity,
        cells: Mapping[str, str],
        missing: Collection[str],
    ) -> KnownCells:
        """Writes what reports read of missing cells and baselines, as far as it is known.

        Args:
            experiment: experiment that is trained.
            identity: what its folder follows from.
            cells: what all its cells and sets of baselines follow from, code aside, by name.
            missing: names of those without weights.

        Raises:
            DataError: for damaged results, or files that cannot be written.
        """
        ...


OpenResults = Callable[[Workspace], KnownResults | None]
"""Returns earlier results of a profile; None where all that is missing shall be computed."""


def run(
    params: Path,
    experiment: str | None = None,
    flags: BackendFlags = NO_FLAGS,
    open_results: OpenResults = lambda workspace: None,
    seeds: int | None = None,
) -> None:
    """Trains the cells that are missing, and removes those that the parameters no longer ask for.

    Args:
        params: the parameter file.
        experiment: entry of section `experiments`; None trains all of them, one after another.
        flags: choice of the backend on which the cells are trained.
        open_results: finds earlier results, whose cells are not missing.
        seeds: number of seeds of each experiment, the first ones; None for all.

    Raises:
        CostbenchError: for wrong parameters, stages that have not finished, damaged shards.
    """
    profile = load_params(params)
    workspace = load_workspace(profile, flags)
    section = profile.section("train", TrainParams)
    known = open_results(workspace)
    for name in selected(profile, experiment):
        # The settings that a sweep found are read once its stage is known to have finished.
        unswept = load_experiment(profile, name)
        imported = open_imported_samples(unswept, workspace)
        before = ["split", "features"] if imported is None else []
        before += [] if unswept.grid.follows == "features" else [unswept.grid.follows]
        identities = tuple(read_identity(workspace.stage(stage)) for stage in before)
        swept = load_experiment(profile, name, workspace.stage("sweep"))
        baselines = profile.section("baselines", BaselineParams) if unswept.fits_baselines else None
        samples = _Samples(workspace, imported)
        grid = _GridTask(swept, seeds, section.cache_mb, baselines, samples, identities)
        while sources := _train_experiment(grid, known):
            for source in sources:
                _log.info("%s: training starts from weights of %s, which is trained for them", name, source)
                run(params, source, flags)


@dataclass(frozen=True)
class _GridTask:
    """An experiment to train, with all or the first of its seeds, and what its folder follows from."""

    whole: Experiment
    seeds: int | None
    cache_mb: int
    baselines: BaselineParams | None
    samples: _Samples
    before: tuple[StageIdentity, ...]

    @property
    def experiment(self) -> Experiment:
        """Returns the experiment with the seeds that are trained now."""
        return self.whole.with_first_seeds(self.seeds)

    @property
    def data_digest(self) -> str:
        """Returns the digest of all samples, those for tests among them."""
        imported = self.samples.imported
        return self.before[0].data_digest if imported is None else imported.digest()

    @property
    def identity(self) -> StageIdentity:
        """Returns what the experiment's folder follows from."""
        experiment, baselines = self.experiment, self.baselines
        settings = experiment if baselines is None else _WithBaselines(experiment, baselines)
        return identify(__name__, settings, self.data_digest, *self.before)


def _train_experiment(grid_task: _GridTask, known: KnownResults | None) -> tuple[str, ...]:
    """Trains what is missing, unless other experiments have to be trained first.

    Returns:
        names of the experiments whose weights are missing; empty once all is done.
    """
    experiment, samples, identity = grid_task.experiment, grid_task.samples, grid_task.identity
    workspace = samples.workspace
    folder = workspace.stage("train") / experiment.name
    fits, of_all_seeds = (
        [] if grid_task.baselines is None else _fits(one, grid_task.baselines, samples)
        for one in (experiment, grid_task.whole)
    )
    folders = [item.task.folder for item in of_all_seeds]
    remove_outdated(folder, folders + [folder / cell.name for cell in grid_task.whole.cells])
    revision = git_revision(workspace.root)
    provenance = Provenance(identity.params_digest, identity.data_digest, revision)
    run_name = f"{workspace.name}/{experiment.name}"
    uri = shared_database(tracking_uri(), workspace.backend, "MLFLOW_TRACKING_URI")
    tracking = Tracking(uri, _EXPERIMENT, run_name, {"profile": workspace.name})
    in_order = longest_first(
        _cell_task(cell, experiment, grid_task.cache_mb, samples, provenance, tracking)
        for cell in experiment.cells
    )
    items = [WorkItem(task.cell.name, task, task.entry) for task in in_order]
    data, generated = identity.data_digest, workspace.stage("generate")
    cells = {item.name: _follows_from(item.task, experiment, data, generated) for item in items}
    cells |= {item.name: _fit_follows_from(item.task, data) for item in fits}
    missing = {item.name for item in fits if item.read(FittedBaselines) is None}
    missing |= {item.name for item in items if item.read(CellResult) is None}
    if known is not None:
        restored = known.restore(experiment, identity, cells, missing)
        identity = restored.identity
        fits = [item for item in fits if item.name not in restored.names]
        items = [item for item in items if item.name not in restored.names]
    sources = {
        task.pretrained.parent.name
        for task in (item.task for item in items if item.name in missing)
        if task.pretrained is not None
        and not all((task.pretrained / name).exists() for name in task.training.model_files)
    }
    if sources:
        return tuple(sorted(sources))
    compute(fit_item, FittedBaselines, fits, workspace.backend, "sets of baselines", _log_fit)

    # The run is created in this process: workers that create tables at the same time would collide.
    with tracked_grid(tracking, experiment, provenance) as (grid, below_grid):
        tasks = {
            item.name: replace(
                item.task, tracking=cell_tracking(below_grid, item.name, str(item.task.folder), machine())
            )
            for item in items
        }
        items = [WorkItem(item.name, tasks[item.name], item.entry) for item in items]
        results = compute(train_timed, CellResult, items, workspace.backend, "cells to train", _log_cell)
        if results:
            nest_cells(grid, tasks, results)
    timings = workspace.stage("machine") / "train" / experiment.name
    if timings.is_dir():
        seal(timings, f"`costbench train --experiment {experiment.name}`")
    write_json(folder / CELLS_FILE, cells)
    write_identity(folder, identity)
    return ()


def _follows_from(task: CellTask, experiment: Experiment, data_digest: str, generated: Path) -> str:
    """Returns a digest of what the results of a cell follow from on training and test programs, but code.

    A user's own parts are no code of ours: their sources count.
    """
    start = ""
    if task.pretrained is not None:
        listed = task.pretrained.parent / CELLS_FILE
        cells: Any = read_json(listed) if listed.exists() else {}
        start = str(cells.get(task.pretrained.name) or digest_file(task.pretrained / DONE))
    tested_on = ",".join(experiment.grid.chips) if experiment.grid.transfer else task.cell.chip
    # A roofline that is fitted beside the cells says on which kernels of a real machine models are compared.
    has_roofline = experiment.grid.baselines and is_recorded(generated, task.cell.chip)
    samples = task.data_digest, data_digest, tested_on, str(has_roofline)
    return key_of(task.cell.task, digest(task.seeded), *samples, with_sources("", task.spec.parts), start)


def _fit_follows_from(task: BaselineTask, data_digest: str) -> str:
    """Returns the same for a set of baselines."""
    return key_of(replace(task, code="").key, data_digest)


def train_timed(item: WorkItem[CellTask]) -> CellResult:
    """Trains the cell of a work item, and notes its processor time beside the wall time of the training.

    That of a training that goes on is not known: what an earlier attempt took went with its process.
    """
    timing, start = item.task.timing, time.process_time()
    before, goes_on = _modified_ns(timing), (item.task.folder / HISTORY).exists()
    result = train_item(item)
    if timing is not None and _modified_ns(timing) != before and not goes_on:
        seconds = round(time.process_time() - start, 1)
        timed: Any = read_json(timing)
        write_json(timing, {**timed, "core_seconds": seconds})
    return result


def _modified_ns(path: Path | None) -> int:
    return path.stat().st_mtime_ns if path is not None and path.exists() else 0


@dataclass(frozen=True)
class _Samples:
    """The samples of an experiment: those of a workspace's stages, or imported ones if there are any."""

    workspace: Workspace
    imported: ImportedSamples | None

    @property
    def features(self) -> Path:
        """Returns the folder of the feature shards."""
        return self.workspace.stage("features") if self.imported is None else self.imported.features

    @cached_property
    def _imported_programs(self) -> TrainingPrograms | None:
        """The programs of imported samples, made ready to be read; None where there are none."""
        return None if self.imported is None else self.imported.training_programs()

    def programs(self, split: str, task: str, chip: str) -> TrainingPrograms:
        """Returns the programs of a split that have samples."""
        programs = self._imported_programs
        if programs is None:
            programs = read_training_programs(self.workspace.stage("split") / f"{split}.json")
        return with_samples(programs, self.features, task, chip)


@dataclass(frozen=True)
class _WithBaselines:
    """What the folder of an experiment with baselines depends on."""

    experiment: Experiment
    baselines: BaselineParams


def _fits(
    experiment: Experiment, baselines: BaselineParams, samples: _Samples
) -> list[WorkItem[BaselineTask]]:
    """Returns the fits of an experiment's baselines."""
    fits: list[BaselineTask] = []
    workspace, grid = samples.workspace, experiment.grid
    folder, machine_folder = (workspace.stage(name) for name in ("train", "machine"))
    spec = baselines.of_task(grid.task)
    budgets = grid.budgets if isinstance(grid, BudgetGrid) else {}
    for split, chip in product(sorted(experiment.splits), sorted(grid.chips)):
        task = BaselineTask(
            task=grid.task,
            chip=chip,
            features=samples.features,
            split=samples.programs(split, grid.task, chip),
            spec=spec,
            seed=baselines.seed,
            folder=baselines_folder(folder / experiment.name, split, chip),
            code=code_digest(fit_baselines),
        )
        fits += [task] if grid.baselines else []
        for quality in grid.estimates:
            beside = baselines_folder(folder / experiment.name, split, chip, quality)
            fits.append(replace(task, folder=beside, estimate=quality))
        for (name, budget), seed in product(budgets.items(), grid.seeds):
            beside = baselines_folder(folder / experiment.name, split, chip, name, f"seed{seed}")
            fits.append(replace(task, folder=beside, budget=name, spec=budget.spec(spec), seed=seed))
    timings = machine_folder / "train" / experiment.name
    timed = [replace(task, timing=timings / f"{task.folder.name}.json") for task in fits]
    return [WorkItem(task.folder.name, task, task.entry) for task in timed]


def _log_fit(progress: Progress[FittedBaselines]) -> None:
    _log.info("%s: %s", progress.name, ", ".join(progress.result.models))


def _log_cell(progress: Progress[CellResult]) -> None:
    result = progress.result
    _log.info(
        "[%d/%d] %s: best %.4f after epoch %d",
        progress.done, progress.total, progress.name, result.best_metric, result.best_epoch + 1,
    )  # fmt: skip


def _cell_task(
    cell: Cell,
    experiment: Experiment,
    cache_mb: int,
    samples: _Samples,
    provenance: Provenance,
    tracking: Tracking,
) -> CellTask:
    """Returns the training task of one cell; the other arguments are those of all cells of an experiment."""
    workspace = samples.workspace
    variant = experiment.variants[cell.variant]
    split = samples.programs(cell.split, cell.task, cell.chip)
    folder = workspace.stage("train") / experiment.name / cell.name
    return CellTask(
        cell=cell,
        training=training_of(cell.task),
        features=samples.features,
        split=replace(split, train=share_of(split, variant.share, cell.seed)),
        spec=variant.spec,
        folder=folder,
        code=with_sources(code_digest(train_cell, type(training_of(cell.task))), variant.spec.parts),
        cache_mb=cache_mb,
        provenance=provenance,
        tracking=tracking,
        progress=workspace.backend.in_this_process and sys.stderr.isatty(),
        cells=workspace.stage("train"),
        timing=workspace.stage("machine") / "train" / experiment.name / f"{cell.name}.json",
    )


def training_of(task: str) -> Training:
    """Returns how the models of a task are trained."""
    return TRAININGS[LEARNED[task].samples]


def longest_first(tasks: Iterable[CellTask]) -> list[CellTask]:
    """Sorts cells by samples, reduction and name, longest first, so that processes end close together."""

    def sort_key(task: CellTask) -> tuple[int, int, str]:
        spec = task.spec
        samples = spec.epochs * spec.steps_per_epoch * math.prod(spec.per_step)
        return -samples, -_SLOW.get(spec.net.tags["reduction"], 0), task.cell.name

    return sorted(tasks, key=sort_key)


def with_samples(split: TrainingPrograms, features: Path, task: str, chip: str) -> TrainingPrograms:
    """Returns the programs that have samples; some are above a task's size limit, for example."""

    def measured(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if sample_paths(features, task, chip, name))

    return TrainingPrograms(measured(split.train), measured(split.validation))


def share_of(split: TrainingPrograms, share: float, seed: int) -> tuple[str, ...]:
    """Returns a share of the training programs, rounded up; smaller shares are subsets for the same seed."""
    names = sorted(split.train)
    order = rng.stream(seed, "share of training programs").permutation(len(names))
    return tuple(sorted(names[index] for index in order[: math.ceil(share * len(names))]))
