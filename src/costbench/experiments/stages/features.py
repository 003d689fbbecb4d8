"""Stage `features`: computes the model inputs of all measured kernels once, for all training runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from costbench.artifacts import digest_files
from costbench.compiler.analytical.model import AnalyticalModel
from costbench.datasets.feature_columns import FEATURES_VERSION
from costbench.datasets.fusion.kernels import FusionKernels, fusion_parts
from costbench.datasets.shard_summary import ShardSummary
from costbench.datasets.storage import Shard
from costbench.datasets.tile.kernels import (
    CompiledPrograms,
    MeasuredKernel,
    TileShard,
    compiled_program_path,
    shard_path,
)
from costbench.errors import DataError, choose
from costbench.execution.backend import NO_FLAGS, BackendFlags
from costbench.execution.workers import run_work_items
from costbench.experiments.identity import closure, identify, read_identity, remove_outdated, write_identity
from costbench.experiments.progress import ShardProgress
from costbench.experiments.workspace import load_workspace
from costbench.features.feature_shards import feature_path, write_features
from costbench.features.graph_tensors import ProgramFeatures, program_features
from costbench.params import load_section
from costbench.target import Architecture, load_target
from costbench.tasks import LearnedTask


@dataclass(frozen=True)
class FeaturesParams:
    """Section `features`: the tasks and chips whose samples are prepared for training.

    Attributes:
        tasks: decisions to learn about, among those of the stage `generate`.
        chips: names of chips, or YAML files, among those of the stage `generate`.
    """

    tasks: tuple[LearnedTask, ...]
    chips: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("tasks", "chips"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be one or more different ones")


@dataclass(frozen=True)
class Wanted:
    """One feature shard to make.

    Attributes:
        task: the compiler's decision.
        architecture: of the chip.
        sources: shards that it is made from.
        path: of the feature shard.
    """

    task: LearnedTask
    architecture: Architecture
    sources: tuple[Path, ...]
    path: Path


@dataclass(frozen=True)
class ProgramItem:
    """Work item: all feature shards of one program, so that the program is parsed once.

    Attributes:
        data: folder of the data set.
        program: by name.
        wanted: shards to make.
    """

    data: Path
    program: str
    wanted: tuple[Wanted, ...]

    def key(self, wanted: Wanted) -> str:
        """Return the digest of the data that a shard is made from, with the version of its features."""
        files = digest_files([*wanted.sources, compiled_program_path(self.data, self.program)], self.data)
        return f"{files[:32]}/{FEATURES_VERSION}"


def run(params: Path, flags: BackendFlags = NO_FLAGS) -> None:
    """Make the feature shards that are missing, and remove those that the parameters no longer ask for.

    Args:
        params: the parameter file.
        flags: where the shards are made.

    Raises:
        CostbenchError: for wrong parameters, a stage `generate` that has not finished, damaged shards.
    """
    workspace = load_workspace(params, flags)
    section = load_section(params, "features", FeaturesParams)
    data, folder = workspace.stage("generate"), workspace.stage("features")
    before = read_identity(data)
    work_items = _work_items(section, data, folder)
    paths = [wanted.path for item in work_items.values() for wanted in item.wanted]
    # Without the version of Python: shards do not depend on it, and machines share them as data.
    remove_outdated(folder, frozenset(paths), closure(make_features).digest())
    with ShardProgress(len(paths), label="features") as progress:

        def made(_name: str, summaries: tuple[ShardSummary, ...]) -> None:
            for summary in summaries:
                progress.made(summary)

        run_work_items(make_features, work_items, workspace.backend, made)
    write_identity(folder, identify(__name__, section, digest_files(paths, folder)[:16], before))


def make_features(item: ProgramItem) -> tuple[ShardSummary, ...]:
    """Make the shards of a program that do not exist yet for the same inputs; return summaries of all.

    Raises:
        DataError: for a damaged shard or a program that does not fit it.
    """
    modules = CompiledPrograms(item.data, 1)
    program: ProgramFeatures | None = None
    summaries = []
    for wanted in item.wanted:
        key = item.key(wanted)
        if not _is_made(wanted.path, key):
            if program is None:
                program = program_features(modules.module(item.program))
            kernels, application = choose(READERS, wanted.task, "task").kernels(wanted, modules)
            chip = wanted.path.parent.name
            metadata: dict[str, object] = {
                "task": wanted.task, "program": item.program, "application": application, "chip": chip,
                "key": key,
            }  # fmt: skip
            analytical = AnalyticalModel(wanted.architecture)
            write_features(wanted.path, kernels, program, analytical, metadata)
        summaries.append(_summary(wanted))
    return tuple(summaries)


def _is_made(path: Path, key: str) -> bool:
    try:
        return bool(Shard.open(path).metadata.get("key") == key)
    except DataError:
        return False


def _summary(wanted: Wanted) -> ShardSummary:
    shard = Shard.open(wanted.path)
    name, chip = str(shard.metadata["program"]), str(shard.metadata["chip"])
    return ShardSummary(wanted.task, name, chip, shard.num_kernels, shard.num_configs, 0, 0.0)


def _tile_kernels(wanted: Wanted, modules: CompiledPrograms) -> tuple[list[MeasuredKernel], str]:
    shard = TileShard(wanted.sources[0], modules, wanted.architecture)
    return [shard.kernel(index) for index in range(len(shard))], shard.application


def _fusion_kernels(wanted: Wanted, modules: CompiledPrograms) -> tuple[list[MeasuredKernel], str]:
    parts = tuple(Shard.open(path) for path in wanted.sources)
    found = FusionKernels(parts, modules, wanted.architecture)
    return [found.kernel(index) for index in range(len(found))], found.application


@dataclass(frozen=True)
class _Reader:
    """How the samples of a task are read.

    Attributes:
        paths: returns the shards of a program, from folder, chip and name of the program.
        kernels: returns the measured kernels in these shards, and the program's application.
    """

    paths: Callable[[Path, str, str], tuple[Path, ...]]
    kernels: Callable[[Wanted, CompiledPrograms], tuple[list[MeasuredKernel], str]]


def _fusion_paths(data: Path, chip: str, name: str) -> tuple[Path, ...]:
    return tuple(part.path for part in fusion_parts(data, chip, name))


READERS: Mapping[str, _Reader] = {
    "tile": _Reader(lambda data, chip, name: (shard_path(data, chip, name),), _tile_kernels),
    "fusion": _Reader(_fusion_paths, _fusion_kernels),
}


def _sources(data: Path, task: str, chip: str) -> dict[str, tuple[Path, ...]]:
    """Return the shards of a task on a chip by program.

    Raises:
        DataError: if there are none.
    """
    folder = data / task / chip
    names = sorted({path.name.split(".")[0] for path in folder.glob("*.arrow") if path.name[0] != "."})
    if not names:
        raise DataError("no shards", where=folder, expected=f"{task} samples made by the stage `generate`")
    return {name: READERS[task].paths(data, chip, name) for name in names}


def _work_items(section: FeaturesParams, data: Path, folder: Path) -> dict[str, ProgramItem]:
    """Return the work items by program, those with the largest compiled program first."""
    by_program: dict[str, list[Wanted]] = {}
    for task in section.tasks:
        for chip in section.chips:
            target = load_target(chip)
            for name, sources in _sources(data, task, target.name).items():
                path = feature_path(folder, task, target.name, name)
                by_program.setdefault(name, []).append(Wanted(task, target.architecture, sources, path))
    sizes = {name: compiled_program_path(data, name).stat().st_size for name in by_program}
    ordered = sorted(by_program, key=lambda name: (-sizes[name], name))
    return {name: ProgramItem(data, name, tuple(by_program[name])) for name in ordered}
