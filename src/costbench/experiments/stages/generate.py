"""Stage `generate`: compile every program; measure tile sizes, fusions and layouts on every chip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from costbench.artifacts import digest_files, write_json
from costbench.datasets.fusion.generation import FusionParams, FusionTask
from costbench.datasets.generation import Task, generate
from costbench.datasets.layout.collections import family_of
from costbench.datasets.layout.generation import LayoutParams, LayoutTask
from costbench.datasets.tile.generation import TileParams, TileTask
from costbench.datasets.tile.kernels import compiled_program_path
from costbench.errors import ChoiceError, DataError, TargetError
from costbench.execution.backend import NO_FLAGS, BackendFlags
from costbench.experiments.identity import code_digest, identify, remove_outdated, write_identity
from costbench.experiments.progress import ShardProgress
from costbench.experiments.workspace import load_workspace
from costbench.params import load_section
from costbench.target import Target, load_target
from costbench.tasks import TaskName
from costbench.workloads.manifest import ProgramEntry, all_programs, read_program_bytes

SUMMARY_FILE = "summary.json"


@dataclass(frozen=True)
class GenerateParams:
    """Section `generate`: what is compiled and measured.

    Attributes:
        tasks: decisions to measure.
        chips: names of chips, or YAML files.
        programs: names of programs; all of the corpus and the user's own when empty.
        tile: how many tiles of how many kernels.
        fusion: how many fusion configs.
        layout: how many layout configs.
    """

    tasks: tuple[TaskName, ...]
    chips: tuple[str, ...]
    programs: tuple[str, ...]
    tile: TileParams
    fusion: FusionParams
    layout: LayoutParams

    def __post_init__(self) -> None:
        for name in ("tasks", "chips"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be one or more different ones")


def run(params: Path, flags: BackendFlags = NO_FLAGS) -> None:
    """Make the shards that are missing, and remove those that the parameters no longer ask for.

    Args:
        params: the parameter file.
        flags: where the shards are made.

    Raises:
        CostbenchError: for parameters, programs or kernels that cannot be used.
    """
    workspace = load_workspace(params, flags)
    section = load_section(params, "generate", GenerateParams)
    folder = workspace.stage("generate")
    tasks = _tasks(section, workspace.programs, folder)
    _remove_outdated(folder, tasks)
    with ShardProgress(_num_wanted(tasks)) as progress:
        summaries = generate(tasks, workspace.backend, progress.made, progress.kept)
    write_json(folder / SUMMARY_FILE, [asdict(summary) for summary in summaries])
    shards = [path for task in tasks for path in task.paths]
    write_identity(folder, identify(__name__, section, digest_files(shards, folder)[:16]))


def _num_wanted(tasks: Sequence[Task]) -> int:
    """Return the number of (task, program, chip); a task's first paths name the chips that it is for."""
    return sum(len({path.parent for path in task.paths}) for task in tasks)


@dataclass(frozen=True)
class _Program:
    """Builds the tasks of a program from its bytes, the chips, and the folder of the results."""

    entry: ProgramEntry
    data: bytes
    targets: tuple[Target, ...]
    folder: Path


def _tile_tasks(p: _Program, section: GenerateParams) -> list[Task]:
    entry = p.entry
    return [TileTask(entry.name, entry.application, p.data, p.targets, section.tile, p.folder)]


def _fusion_tasks(p: _Program, section: GenerateParams) -> list[Task]:
    entry = p.entry
    params = section.fusion
    if 0 < params.max_instructions < entry.instructions:
        return []
    return [FusionTask(entry.name, entry.application, p.data, p.targets, params, p.folder)]


def _layout_tasks(p: _Program, section: GenerateParams) -> list[Task]:
    entry = p.entry
    if 0 < section.layout.max_instructions < entry.instructions:
        return []
    family = family_of(entry.builder)
    return [LayoutTask(entry.name, entry.application, family, p.data, p.targets, section.layout, p.folder)]


WORK_ITEMS: dict[str, Callable[[_Program, GenerateParams], list[Task]]] = {
    "tile": _tile_tasks,
    "fusion": _fusion_tasks,
    "layout": _layout_tasks,
}


def _tasks(section: GenerateParams, programs: Path, folder: Path) -> list[Task]:
    targets = tuple(load_target(chip) for chip in section.chips)
    if len({target.name for target in targets}) < len(targets):
        names = ", ".join(target.name for target in targets)
        raise TargetError(f"chips of the same name: {names}", expected="different names, which name folders")
    tasks: list[Task] = []
    for entry in _chosen(section.programs, all_programs(programs), programs):
        # All tasks of a program refer to the same bytes, so memory holds each program once.
        program = _Program(entry, read_program_bytes(programs, entry), targets, folder)
        for name in section.tasks:
            tasks += WORK_ITEMS[name](program, section)
    return tasks


def _chosen(
    names: tuple[str, ...], entries: tuple[ProgramEntry, ...], programs: Path
) -> tuple[ProgramEntry, ...]:
    known = {entry.name: entry for entry in entries}
    if not known:
        raise DataError("no programs", where=programs, expected="programs made by `collect`, or your own")
    for name in names:
        if name not in known:
            raise ChoiceError(f"unknown program {name!r}", where=programs, expected=", ".join(sorted(known)))
    return tuple(known[name] for name in sorted(set(names))) if names else entries


def _remove_outdated(folder: Path, tasks: Sequence[Task]) -> None:
    """Remove shards that this run would not make: of other programs, chips or decisions, or by older code."""
    wanted = {path for task in tasks for path in task.paths}
    wanted |= {compiled_program_path(folder, task.name) for task in tasks}
    remove_outdated(folder, wanted, code_digest(generate, *{type(task) for task in tasks}))
