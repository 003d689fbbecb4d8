"""Stage `autotune`: measures the speed-ups of programs by cost models in the compiler and autotuners."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from costbench.artifacts import check_sealed, digest_file, unseal, write_json
from costbench.errors import UnsupportedKernelError
from costbench.execution.workers import NO_FLAGS, BackendFlags
from costbench.experiments.autotuning.comparison import autotune
from costbench.experiments.autotuning.fusion_comparison import FusionCurve
from costbench.experiments.autotuning.work_items import (
    AutotuneParams,
    TuningItem,
    TuningItems,
    tuned_experiment,
)
from costbench.experiments.evaluation.program import ALL_KERNELS, BEST
from costbench.experiments.identity import (
    StageIdentity,
    code_digest,
    git_revision,
    identify,
    read_identity,
    write_identity,
)
from costbench.experiments.parameter_file import load_params
from costbench.experiments.tracking.runs import KIND, Provenance, prepare, tracked_run, tracking_uri
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.metrics.rows import MetricRow, RowOrigin, write_rows
from costbench.params import digest
from costbench.programs.manifest import is_of_user
from costbench.store import KeyedResult, Progress, WorkItem, compute
from costbench.target import load_target
from costbench.tasks import TASKS

_log = logging.getLogger(__name__)
ROWS_FILE, SEARCH_FILE = "rows.jsonl", "search.json"
_ITEMS = "work_items"
_EXPERIMENT = "costbench/autotune"


@dataclass(frozen=True)
class Entry:
    """Metrics of one arm, variant and seed in the file of a work item."""

    model: str
    variant: str
    seed: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class ItemFile(KeyedResult):
    """The result of a work item as stored in its file.

    Attributes:
        git_revision: revision of the code that computed it.
        entries: metrics.
        curves: curves of fusion searches.
        problem: why there are none of them; empty where there are.
    """

    git_revision: str
    entries: tuple[Entry, ...]
    curves: tuple[FusionCurve, ...]
    problem: str = ""


def run(params: Path, flags: BackendFlags = NO_FLAGS) -> None:
    """Computes the results that are missing, then writes `rows.jsonl` and `search.json`.

    Args:
        params: the parameter file.
        flags: choice of the backend on which the programs are tuned.

    Raises:
        CostbenchError: for wrong parameters, stages that have not finished, damaged files.
    """
    profile = load_params(params)
    workspace = load_workspace(profile, flags)
    section = profile.section("autotune", AutotuneParams)
    folder = workspace.stage("autotune")
    features, split = (read_identity(workspace.stage(name)) for name in ("features", "split"))
    experiments = sorted(set(map(tuned_experiment, (*section.tile.models, *section.fusion.models))))
    trained = [read_identity(workspace.stage("train") / name) for name in experiments]
    identity = identify(__name__, section, features.data_digest, features, split, *trained)
    revision = git_revision(workspace.root)
    # Before hours of searches, not after them: a store that cannot be used.
    tracking = tracking_uri()
    prepare(tracking, _EXPERIMENT)
    unseal(folder)
    items = _work_items(section, workspace, revision)
    notes, title = folder / _ITEMS, "programs to tune"
    results = compute(tune_program, ItemFile, items, workspace.backend, title, _log_speedups, folder=notes)
    rows = [row for item in items for row in _rows(item.task[0], results[item.name], identity)]
    write_rows(folder / ROWS_FILE, rows)
    curves = [curve for item in items for curve in _curves(item.task[0], results[item.name])]
    write_json(folder / SEARCH_FILE, curves)
    write_identity(folder, identity)
    provenance = Provenance(identity.params_digest, identity.data_digest, revision)
    tags = {"profile": workspace.name, KIND: "autotune"}
    with tracked_run(tracking, _EXPERIMENT, workspace.name, provenance, tags) as tracked:
        tracked.log_metrics(_headline(rows))
        tracked.log_files([folder / ROWS_FILE, folder / SEARCH_FILE], "autotune")


def tune_program(item: WorkItem[tuple[TuningItem, str]]) -> ItemFile:
    """Tunes one program with a revision of the code, and keeps its result.

    A program that does not run on the chip, such as one with a kernel of which no tile fits, has none.

    Raises:
        CostbenchError: for a program or model that cannot be used, or a file that cannot be written.
    """
    tuning, revision = item.task
    try:
        tuned = autotune(tuning.task)
    except UnsupportedKernelError as error:
        return item.keep(ItemFile(item.key, revision, (), (), f"left out: {error}"))
    entries = tuple(Entry(*names, metrics) for names, metrics in tuned.metrics.items())
    return item.keep(ItemFile(item.key, revision, entries, tuned.curves))


def _log_speedups(progress: Progress[ItemFile]) -> None:
    """Logs the median speed-up of each arm with 10 tile sizes measured, or the largest budget."""
    speedups: dict[str, dict[str, list[float]]] = {}
    for entry in progress.result.entries:
        if "speedup" in entry.metrics:
            by_variant = speedups.setdefault(entry.model, {})
            by_variant.setdefault(entry.variant, []).append(entry.metrics["speedup"])
    medians = []
    for model, by_variant in speedups.items():
        variant = "top10" if "top10" in by_variant else list(by_variant)[-1]
        medians.append(f"{model} {variant} {np.median(by_variant[variant]):.3f}")
    told = progress.result.problem or ", ".join(medians)
    _log.info("[%d/%d] %s: %s", progress.done, progress.total, progress.name, told)


def _work_items(
    section: AutotuneParams, workspace: Workspace, revision: str
) -> list[WorkItem[tuple[TuningItem, str]]]:
    """Returns all work items, the longest first."""
    source = TuningItems(workspace, section.seed)
    items = [*source.of("fusion", section.fusion), *source.of("tile", section.tile)]
    items.sort(key=lambda item: (-_effort(item), item.name))
    code = code_digest(autotune)
    files = {path for item in items for path in _inputs(item)}
    for path in files:
        check_sealed(path)
    digests = {path: digest_file(path) for path in sorted(files)}
    folder = workspace.stage("autotune") / _ITEMS
    work_items = []
    for item in items:
        task = item.task
        parts = [code, digest(task.params), str(task.seed), item.name]
        parts += [
            f"{model} {folder.name}" for model, folders in task.checkpoints.items() for folder in folders
        ]
        parts += [
            digest(load_target(task.chip_file or task.chip)),
            *(digests[path] for path in _inputs(item)),
        ]
        work_items.append(WorkItem.of(item.name, (item, revision), folder, parts))
    return work_items


def _inputs(item: TuningItem) -> list[Path]:
    """Returns the files that a work item reads."""
    folders = chain.from_iterable(item.task.checkpoints.values())
    return [item.task.file, *(folder / name for folder in folders for name in ("model.json", "weights.pt"))]


def _effort(item: TuningItem) -> float:
    """Estimates the relative duration: fusion searches are many, tile tuning grows with the kernels."""
    return (1e6 if TASKS[item.task.decision].measures_programs else 0.0) + item.instructions


def _rows(item: TuningItem, result: ItemFile, identity: StageIdentity) -> Iterator[MetricRow]:
    task = item.task
    origin = RowOrigin(
        task=task.decision,
        split=item.split,
        chip=task.chip,
        application=item.application,
        program=task.program,
        params_digest=identity.params_digest,
        data_digest=identity.data_digest,
        git_revision=result.git_revision,
    )
    metrics = {(entry.model, entry.variant, entry.seed): entry.metrics for entry in result.entries}
    return origin.rows(ALL_KERNELS, metrics)


def _curves(item: TuningItem, result: ItemFile) -> Iterator[dict[str, object]]:
    task = item.task
    keys = {"task": task.decision, "split": item.split, "chip": task.chip, "program": task.program}
    for curve in result.curves:
        columns = asdict(curve)
        yield {**keys, "model": columns.pop("arm"), **columns}


def _headline(rows: Iterable[MetricRow]) -> dict[str, float]:
    """Returns the median speed-up of each arm and variant over programs of the corpus and repeats."""
    speedups: dict[str, list[float]] = {}
    for row in rows:
        if row.metric == "speedup" and row.model != BEST and not is_of_user(row.application):
            name = f"{row.task}/{row.split}/{row.chip}/{row.model}/{row.variant}/speedup"
            speedups.setdefault(name, []).append(row.value)
    return {name: float(np.median(values)) for name, values in sorted(speedups.items())}
