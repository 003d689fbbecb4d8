"""Stage `generate`: compile every program; measure tile sizes, fusions and layouts on every chip."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from costbench.artifacts import digest_files, write_json
from costbench.datasets.fusion_generation import FusionParams, FusionTask
from costbench.datasets.generation import ShardTask, generate
from costbench.datasets.layout_generation import LayoutParams, LayoutTask
from costbench.datasets.layout_shards import family_of
from costbench.datasets.recorded_generation import (
    RecordedTask,
    find_records,
    records_digest,
    records_of,
)
from costbench.datasets.tile_generation import TileParams, TileTask
from costbench.errors import ChoiceError, CostbenchError, DataError, TargetError, UnsupportedKernelError
from costbench.execution.workers import NO_FLAGS, BackendFlags
from costbench.experiments.identity import closure, identify, write_identity
from costbench.experiments.parameter_file import load_params
from costbench.experiments.progress import ShardProgress
from costbench.experiments.workspace import Workspace, load_workspace, only_writer
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import module_from_bytes
from costbench.params import later
from costbench.programs.manifest import ProgramEntry, all_programs, read_program_bytes, user_programs
from costbench.store import remove_outdated
from costbench.target import Target, check_chip_name, load_target
from costbench.tasks import TaskName

_log = logging.getLogger(__name__)
SUMMARY_FILE = "summary.json"


@dataclass(frozen=True)
class GenerateParams:
    """Section `generate`: what is compiled and measured.

    Attributes:
        tasks: decisions to measure.
        chips: names of chips, or YAML files.
        programs: names of programs of the corpus; all of them when empty. The user's own are always there.
        tile: numbers of tiles and kernels.
        fusion: number of fusion configs.
        layout: number of layout configs.
        layout_configs: runs of each search for layouts by program, in place of `layout.max_configs`, such as
            the thousands that TpuGraphs has; `layout.max_instructions` does not hold for these programs.
        recorded: real machines by the name that they have as chips, each with the folder of its records, from
            the repository's root; their fusion samples are what was recorded of the programs.
    """

    tasks: tuple[TaskName, ...]
    chips: tuple[str, ...]
    programs: tuple[str, ...]
    tile: TileParams
    fusion: FusionParams
    layout: LayoutParams
    layout_configs: Mapping[str, int] = field(default_factory=dict)
    recorded: Mapping[str, str] | None = later(None)

    def __post_init__(self) -> None:
        for program, limit in self.layout_configs.items():
            if limit < 2:
                raise ValueError(f"layout_configs.{program}: at least 2 are needed to compare")
        for name, values in (("tasks", self.tasks), ("chips", (*self.chips, *(self.recorded or ())))):
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be one or more different ones")
        for index, chip in enumerate(self.chips):
            try:
                check_chip_name(chip)
            except TargetError as error:
                raise error.recast(TargetError, field=f"chips[{index}]") from None


def run(params: Path, flags: BackendFlags = NO_FLAGS) -> None:
    """Makes the shards that are missing, and removes those that the parameters no longer ask for.

    Args:
        params: the parameter file.
        flags: choice of the backend on which the shards are made.

    Raises:
        CostbenchError: for parameters, programs or kernels that cannot be used, or while another run makes
            the shards.
    """
    profile = load_params(params)
    workspace = load_workspace(profile, flags)
    section = profile.section("generate", GenerateParams)
    folder = workspace.stage("generate")
    with only_writer(folder):
        _generate(section, workspace, folder)


def _generate(section: GenerateParams, workspace: Workspace, folder: Path) -> None:
    tasks = _tasks(section, workspace.programs, folder) + _recorded_tasks(section, workspace, folder)
    remove_outdated(folder, {path for task in tasks for entry in task.entries for path in entry.paths})

    def leave_out(task: ShardTask, reason: str) -> None:
        decision = task.paths[0].relative_to(folder).parts[0]
        _log.warning("%s: left out of the task %s: %s", task.name, decision, reason)

    # A program that the parameters name has to be usable, others of the user are left out if they are not.
    of_user = {entry.name for entry in user_programs(workspace.programs)}
    optional = of_user - {*section.programs}
    # A shard is of a task, program and chip; the folders of a task's paths name the chips that it is for.
    num_shards = sum(len({path.parent for path in task.paths}) for task in tasks)
    with ShardProgress(num_shards) as progress:
        summaries = generate(tasks, workspace.backend, progress.made, progress.kept, optional, leave_out)
    write_json(folder / SUMMARY_FILE, [asdict(summary) for summary in summaries])
    # What follows from the samples of the corpus stays as it is when a user adds programs.
    shards = [path for task in tasks if task.name not in of_user for path in task.paths]
    write_identity(folder, identify(__name__, section, digest_files(shards, folder)[:16]))


@dataclass(frozen=True)
class _Program:
    """A program to compile and measure: its bytes, the chips, and the folder of the results."""

    entry: ProgramEntry
    data: bytes
    targets: tuple[Target, ...]
    folder: Path


def _code(kind: type[ShardTask]) -> str:
    # Without the version of Python: shards do not depend on it, and machines share them as data.
    return closure(generate, kind).digest()


def _tile_tasks(p: _Program, section: GenerateParams) -> list[ShardTask]:
    entry, code = p.entry, _code(TileTask)
    return [TileTask(entry.name, entry.application, p.data, p.targets, section.tile, p.folder, code)]


def _fusion_tasks(p: _Program, section: GenerateParams) -> list[ShardTask]:
    entry, params = p.entry, section.fusion
    if 0 < params.max_instructions < entry.instructions:
        return []
    code = _code(FusionTask)
    return [FusionTask(entry.name, entry.application, p.data, p.targets, params, p.folder, code)]


def _layout_tasks(p: _Program, section: GenerateParams) -> list[ShardTask]:
    entry, params = p.entry, section.layout
    if entry.name in section.layout_configs:
        # A shard depends on the number of its own program alone.
        params = replace(params, max_configs=section.layout_configs[entry.name])
    elif 0 < params.max_instructions < entry.instructions:
        return []
    family, code = family_of(entry.builder), _code(LayoutTask)
    return [
        LayoutTask(entry.name, entry.application, p.data, p.targets, params, p.folder, code, family=family)
    ]


WORK_ITEMS: dict[str, Callable[[_Program, GenerateParams], list[ShardTask]]] = {
    "tile": _tile_tasks,
    "fusion": _fusion_tasks,
    "layout": _layout_tasks,
}


def _tasks(section: GenerateParams, programs: Path, folder: Path) -> list[ShardTask]:
    targets = tuple(load_target(chip) for chip in section.chips)
    if len({target.name for target in targets}) < len(targets):
        names = ", ".join(target.name for target in targets)
        raise TargetError(f"chips of the same name: {names}", expected="different names, which name folders")
    tasks: list[ShardTask] = []
    entries = all_programs(programs)
    # Unknown names are refused also where they only say how many configs a program has.
    _chosen(tuple(section.layout_configs), entries, programs)
    for entry in _chosen(section.programs, entries, programs):
        # All tasks of a program refer to the same bytes, so memory holds each program once.
        data = _data(programs, entry, named=entry.name in section.programs)
        if data is None:
            continue
        program = _Program(entry, data, targets, folder)
        for name in section.tasks if targets else ():
            tasks += WORK_ITEMS[name](program, section)
    return tasks


def _recorded_tasks(section: GenerateParams, workspace: Workspace, folder: Path) -> list[ShardTask]:
    """Returns a task for each program of a real machine's records."""
    tasks: list[ShardTask] = []
    for chip, name in (section.recorded or {}).items():
        records = find_records(workspace.root / name)
        digest, code, opened = records_digest(records), _code(RecordedTask), records_of(records)
        for entry in opened.entries.values():
            if not section.programs or entry.name in section.programs:
                program = read_program_bytes(opened.programs_folder, entry)
                tasks.append(RecordedTask(entry, program, chip, records, digest, folder, code))
    return tasks


def _data(programs: Path, entry: ProgramEntry, *, named: bool) -> bytes | None:
    """Returns the bytes of a program; None, after a warning, for a user's file that cannot be used."""
    try:
        data = read_program_bytes(programs, entry)
        return _inline_fusions(data, entry.name) if entry.is_user_program else data
    except CostbenchError as error:
        if named or not entry.is_user_program:
            raise
        _log.warning("%s: left out: %s", entry.name, error)
        return None


def _inline_fusions(data: bytes, name: str) -> bytes:
    """Returns a user's program without the fusions and asynchronous pairs of the compiler that dumped it.

    Raises:
        HloError: for bytes that are no program.
        UnsupportedKernelError: for an instruction whose result, used by others, holds no array.
    """
    module = inline_fusions(module_from_bytes(data, where=name))
    for computation in module.computations:
        used = {index for inst in computation.instructions for index in inst.operands} | {computation.root}
        for index in sorted(used):
            inst = computation.instructions[index]
            if inst.opcode is not Opcode.TUPLE and inst.shape.is_tuple and not any(inst.shape.leaves()):
                called = f" to '{inst.custom_call_target}'" if inst.custom_call_target else ""
                raise UnsupportedKernelError(
                    f"the machine has no routine for '{inst.opcode.xla_name}'{called} without a result",
                    field=f"instruction {inst.name}",
                )
    return module_to_bytes(module)


def _chosen(
    names: tuple[str, ...], entries: tuple[ProgramEntry, ...], programs: Path
) -> tuple[ProgramEntry, ...]:
    known = {entry.name: entry for entry in entries}
    if not known:
        raise DataError("no programs", where=programs, expected="programs made by `collect`, or your own")
    for name in names:
        if name not in known:
            raise ChoiceError(f"unknown program {name!r}", where=programs, expected=", ".join(sorted(known)))
    if not names:
        return entries
    users = {entry.name for entry in entries if entry.is_user_program}
    return tuple(known[name] for name in sorted({*names, *users}))
