"""Stage `sweep`: searches hyper-parameters of the learned cost model, with one Optuna study per task."""

from __future__ import annotations

import hashlib
import json
import logging
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from costbench.artifacts import check_sealed, unseal
from costbench.datasets.splits import check_split, read_training_programs
from costbench.errors import DataError, ParamsError, nearest
from costbench.execution.workers import NO_FLAGS, BackendFlags
from costbench.experiments.grid.cells import Cell
from costbench.experiments.grid.training_run import CellTask, Tracking
from costbench.experiments.identity import (
    StageIdentity,
    code_digest,
    git_revision,
    identify,
    read_identity,
    with_sources,
    write_identity,
)
from costbench.experiments.parameter_file import Params, load_params
from costbench.experiments.stages.entry import shared_database
from costbench.experiments.stages.train import training_of, with_samples
from costbench.experiments.sweeps.best import best_path
from costbench.experiments.sweeps.space import Range, Space, resolve
from costbench.experiments.sweeps.study import (
    ENVIRONMENT,
    PrunerSpec,
    StorageSpec,
    StudySpec,
    open_storage,
    storage_url,
)
from costbench.experiments.sweeps.sweep import SweepTask, sweep, trials_path
from costbench.experiments.tracking.runs import Provenance, prepare, tracking_uri
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.params import merge, parse, plain_values
from costbench.tasks import LEARNED, LearnedTask
from costbench.training.spec import SweptModels, monitored_metric

_log = logging.getLogger(__name__)
_EXPERIMENT = "costbench/sweep"


@dataclass(frozen=True)
class SweepParams:
    """Section `sweep`: the search for hyper-parameters, one study for each task.

    Attributes:
        tasks: decisions to learn about, one study each.
        split: split of the stage `split`, `fold1` and so on for a fold; trials are compared on its validation
            set and never read its test set.
        chip: chip of the stage `features`, by name.
        seed: seed of all trials: their values, weights and batches.
        trials: number of trials to finish in a study.
        startup_trials: number of a study's trials that are drawn at random.
        workers: workers on a study, each a work item. With 1 worker the result is reproducible; without a
            cluster at least as many local processes are used.
        heartbeat_s: seconds between a trial's heartbeats; after three missed ones the trial counts as lost.
        max_retries: number of times that a lost trial is started again.
        cache_mb: memory of a process for kernels, which are read repeatedly, in MB.
        pruner: rule by which trials are stopped early.
        model: by task, the settings that trials change: those of section `train` merged with the ones given
            here, such as a smaller budget. The first trial is this model unchanged, so the best trial is
            never worse than it.
        space: by task and dotted name of the hyper-parameter: the values that trials choose from.
    """

    tasks: tuple[LearnedTask, ...]
    split: str
    chip: str
    seed: int
    trials: int
    startup_trials: int
    workers: int
    heartbeat_s: int
    max_retries: int
    cache_mb: int
    pruner: PrunerSpec
    model: SweptModels
    space: Mapping[str, Mapping[str, Range]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"tasks are {list(self.tasks)}, must be one or more different ones")
        check_split(self.split, "split")
        for name in ("trials", "startup_trials", "workers", "heartbeat_s", "cache_mb"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
        if self.max_retries < 0:
            raise ValueError(f"max_retries is {self.max_retries}, must not be negative")
        for task in self.space:
            if task not in LEARNED:
                raise ValueError(f"space is of the task {task!r}, must be of {' or '.join(LEARNED)}")
        for task, model in self.model.by_task.items():
            if model.seed != 0:
                raise ValueError(f"model.{task}.seed follows from seed, and must be left out")


def load_sweep(params: Params) -> SweepParams:
    """Reads section `sweep`, merging its models into those of section `train`.

    Raises:
        ParamsError: for a section that is missing or wrong.
    """
    sections = params.sections
    section, train = (sections.get(name) for name in ("sweep", "train"))
    if not isinstance(section, Mapping) or not isinstance(train, Mapping):
        raise ParamsError("missing section", where=params.path, expected="the sections sweep and train")
    models = section.get("model")
    if isinstance(models, Mapping):
        whole = {
            task: merge(train[task], changes)
            if isinstance(changes, Mapping) and isinstance(train.get(task), Mapping)
            else changes
            for task, changes in models.items()
        }
        section = {**section, "model": whole}
    return parse(SweepParams, section, where=params.path, field="sweep")


@dataclass(frozen=True)
class SweepFlags:
    """Flags of the command line, which override the section `sweep`; None for a flag that is left out.

    Attributes:
        task: the only task to sweep.
        trials: number of trials to finish.
        workers: number of workers of a study.
        storage: URL of the database; by default `OPTUNA_STORAGE`, or a file in the profile's output folder.
        study: name of the study; the default name contains a digest of everything that its trials depend on.
    """

    task: str | None = None
    trials: int | None = None
    workers: int | None = None
    storage: str | None = None
    study: str | None = None

    def over(self, section: SweepParams) -> SweepParams:
        """Returns `section` with these flags in place of its values.

        Raises:
            ParamsError: for an unknown task, or fewer than one trial or worker.
        """
        if self.task is not None and self.task not in LEARNED:
            raise ParamsError(
                f"unknown task {self.task!r}{nearest(self.task, LEARNED)}",
                where="command line",
                expected=f"one of {', '.join(LEARNED)}",
            )
        changes: dict[str, typing.Any] = {"trials": self.trials, "workers": self.workers}
        changes["tasks"] = None if self.task is None else (self.task,)
        try:
            return replace(section, **{name: value for name, value in changes.items() if value is not None})
        except ValueError as error:
            raise ParamsError(str(error), where="command line") from error


def run(params: Path, flags: SweepFlags = SweepFlags(), backend_flags: BackendFlags = NO_FLAGS) -> None:
    """Finishes the studies, and writes the best trial and all trials of each task.

    Args:
        params: the parameter file.
        flags: flags of the command line.
        backend_flags: where their trials are trained.

    Raises:
        CostbenchError: for wrong parameters, a space that does not fit the model, a database that cannot be
            used, an existing study with another space, stages that have not finished, damaged shards.
    """
    profile = load_params(params)
    workspace = load_workspace(profile, backend_flags)
    section = flags.over(load_sweep(profile))
    if flags.study is not None and len(section.tasks) > 1:
        raise ParamsError("names one study", where="command line", field="--study", expected="--task as well")
    spaces = {task: _space(task, section, params) for task in section.tasks}
    split, features = (read_identity(workspace.stage(name)) for name in ("split", "features"))
    folder = workspace.stage("sweep")
    _remove_damaged(folder)
    tasks_of_results, identity = results_after(section, load_sweep(profile).tasks, folder, split, features)
    url = shared_database(storage_url(flags.storage, workspace.out), workspace.backend, ENVIRONMENT)
    storage = StorageSpec(url, section.heartbeat_s, section.max_retries)
    # The tables are created here, in one process: workers that do so at the same time would collide.
    open_storage(storage)
    tracking = shared_database(tracking_uri(), workspace.backend, "MLFLOW_TRACKING_URI")
    prepare(tracking, _EXPERIMENT)
    inputs = _StudyInputs(workspace, identity, storage, tracking, flags.study)
    tasks = [_sweep_task(task, space, section, inputs) for task, space in spaces.items()]
    unseal(folder)
    # Workers of a study wait for each other, so each has a process.
    backend = replace(workspace.backend, jobs=max(section.workers, workspace.backend.jobs))
    sweep(tasks, section.workers, backend, folder)
    for task in set(LEARNED) - set(tasks_of_results):
        best_path(folder, task).unlink(missing_ok=True)
        trials_path(folder, task).unlink(missing_ok=True)
    write_identity(folder, identity)


def results_after(
    section: SweepParams, tasks: Iterable[str], folder: Path, split: StageIdentity, features: StageIdentity
) -> tuple[tuple[str, ...], StageIdentity]:
    """Returns the tasks whose results a sweep leaves in a folder, and what the folder then follows from.

    Those of tasks that are not swept now stay while they follow from the same parameters, samples and code.

    Args:
        section: parameters of the sweep.
        tasks: tasks of the profile.
        folder: folder of the stage.
        split: identity of the stage `split`.
        features: identity of the stage `features`.
    """

    def identity_of(some: tuple[str, ...]) -> StageIdentity:
        of_some: typing.Any = some  # names of learned tasks
        return identify(__name__, replace(section, tasks=of_some), split.data_digest, split, features)

    in_order = dict.fromkeys((*tasks, *section.tasks))
    others = tuple(
        task for task in in_order if task not in section.tasks and best_path(folder, task).exists()
    )
    both = tuple(task for task in in_order if task in (*section.tasks, *others))
    with suppress(DataError):
        if others and read_identity(folder) in (identity_of(both), identity_of(others)):
            return both, identity_of(both)
    if others:
        _log.warning(
            "%s: of other parameters or code, or not finished: removed from %s", ", ".join(others), folder
        )
    return section.tasks, identity_of(section.tasks)


def _remove_damaged(folder: Path) -> None:
    """Removes tables whose bytes have changed, which follow from the databases alone."""
    for path in (make(folder, task) for task in LEARNED for make in (best_path, trials_path)):
        try:
            check_sealed(path)
        except DataError:
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _StudyInputs:
    """What the studies of all tasks follow from, and where they are kept and tracked."""

    workspace: Workspace
    identity: StageIdentity
    storage: StorageSpec
    tracking: str
    study: str | None


def _space(task: str, section: SweepParams, params: Path) -> Space:
    models = section.model.by_task
    for name, of_tasks in (("model", models), ("space", section.space)):
        if task not in of_tasks:
            raise ParamsError(
                "missing", where=params, field=f"sweep.{name}.{task}", expected="those of the task"
            )
    return resolve(section.space[task], models[task], params, f"sweep.space.{task}")


def _sweep_task(name: str, space: Space, section: SweepParams, inputs: _StudyInputs) -> SweepTask:
    workspace = inputs.workspace
    revision = git_revision(workspace.root)
    split = read_training_programs(workspace.stage("split") / f"{section.split}.json")
    cell = CellTask(
        cell=Cell(name, section.split, section.chip, "sweep", section.seed),
        training=training_of(name),
        features=workspace.stage("features"),
        split=with_samples(split, workspace.stage("features"), name, section.chip),
        spec=space.base,
        folder=workspace.out,
        code=with_sources(code_digest(sweep, type(training_of(name))), space.parts),
        cache_mb=section.cache_mb,
        provenance=Provenance(inputs.identity.params_digest, inputs.identity.data_digest, revision),
        tracking=Tracking(
            inputs.tracking, _EXPERIMENT, "", {"profile": workspace.name, "experiment": "sweep"}
        ),
    )
    metric, larger_is_better = monitored_metric(space.base.monitor)
    follows_from = _follows_from(space, section, cell)
    study = StudySpec(
        name=inputs.study or f"{workspace.name}-{name}-{_digest(follows_from)}",
        storage=inputs.storage,
        larger_is_better=larger_is_better,
        identity=follows_from,
        trials=section.trials,
        seed=section.seed,
        startup_trials=section.startup_trials,
        pruner=section.pruner,
        first=space.of_the_model(),
    )
    if not study.first:
        _log.warning("%s: the model itself is not in the space, and no trial", study.name)
    cell = replace(cell, folder=workspace.out / "trials" / study.name)
    return SweepTask(study, space, cell, metric)


def _follows_from(space: Space, section: SweepParams, cell: CellTask) -> dict[str, str]:
    """Returns the digests of what the trials of a study depend on, by the name that errors use."""
    parts: dict[str, object] = {
        "space": {name: asdict(values_of) for name, values_of in space.ranges.items()},
        "model": plain_values(space.base),
        "sampler": {"seed": section.seed, "startup_trials": section.startup_trials},
        "pruner": asdict(section.pruner),
        "data": [cell.cell.task, cell.cell.split, cell.cell.chip, cell.data_digest],
        "code": cell.code,
    }
    return {name: _digest(part) for name, part in parts.items()}


def _digest(part: object) -> str:
    text = json.dumps(part, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
