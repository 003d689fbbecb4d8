"""Stage `generate`: compile every program, measure tile sizes of its kernels on every chip."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from costbench.artifacts import digest_files, read_json, remove_stale_temporaries, write_json
from costbench.compiler.kernel import Kernel
from costbench.compiler.tile_sizes import TileSizes
from costbench.datasets.generation import (
    FloatArray,
    Price,
    ShardSummary,
    ShardTask,
    TileParams,
    generate_tiles,
)
from costbench.errors import ChoiceError, CostbenchError, DataError
from costbench.experiments.identity import code_digest, identify, write_identity
from costbench.experiments.workspace import load_workspace
from costbench.models.analytical import AnalyticalModel
from costbench.params import load_section
from costbench.target import Architecture, load_target
from costbench.workloads.manifest import ProgramEntry, all_programs, read_program_bytes

_log = logging.getLogger(__name__)
_CODE = (
    "hlo",
    "compiler",
    "hardware",
    "datasets/generation",
    "datasets/records",
    "datasets/storage",
    "models/analytical",
    "chips",
    "target",
    "rng",
)
_CODE_FILE = "code.json"
SUMMARY_FILE = "summary.json"


@dataclass(frozen=True)
class GenerateParams:
    """Section `generate`: what is compiled and measured.

    Attributes:
        tasks: decisions to measure.
        chips: names of chips, or YAML files.
        programs: names of programs; all of the corpus and the user's own when empty.
        tile: how many tiles of how many kernels.
    """

    tasks: tuple[Literal["tile"], ...]
    chips: tuple[str, ...]
    programs: tuple[str, ...]
    tile: TileParams

    def __post_init__(self) -> None:
        for name in ("tasks", "chips"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be one or more different ones")


def run(params: Path) -> None:
    """Make the shards that are missing, and remove those that are not asked for.

    Raises:
        CostbenchError: for parameters, programs or kernels that cannot be used.
    """
    workspace = load_workspace(params)
    section = load_section(params, "generate", GenerateParams)
    folder = workspace.stage("generate")
    tasks = _tasks(section, workspace.programs, folder)
    _clear(folder, tasks)
    done = 0

    def progress(summary: ShardSummary) -> None:
        nonlocal done
        done += 1
        _log.info(
            "[%d/%d] %s on %s: %d kernels, %d tile sizes",
            done, len(tasks), summary.name, summary.chip, summary.num_kernels, summary.num_samples,
        )  # fmt: skip

    summaries = generate_tiles(tasks, analytical_price, jobs=workspace.jobs, on_done=progress)
    write_json(folder / SUMMARY_FILE, [asdict(summary) for summary in summaries])
    write_identity(folder, identify(section, digest_files([task.path for task in tasks], folder)[:16]))


class _AnalyticalPrice:
    """Travels to worker processes, which a closure would not."""

    def __init__(self, architecture: Architecture) -> None:
        self._model = AnalyticalModel(architecture)

    def __call__(self, kernel: Kernel, tile_sizes: TileSizes) -> FloatArray:
        return self._model.predict(kernel, tile_sizes)


def analytical_price(architecture: Architecture) -> Price:
    """The tile model of the compiler for a chip: it chooses the default tile."""
    return _AnalyticalPrice(architecture)


def _tasks(section: GenerateParams, programs: Path, folder: Path) -> list[ShardTask]:
    targets = [load_target(chip) for chip in section.chips]
    tasks = []
    for entry in _chosen(section.programs, all_programs(programs), programs):
        # Both chips share the bytes, so memory holds each program once.
        data = read_program_bytes(programs, entry)
        tasks += [
            ShardTask(entry.name, entry.application, data, target, section.tile, folder) for target in targets
        ]
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


def _clear(folder: Path, tasks: list[ShardTask]) -> None:
    """Remove what this run would not make: other programs, other chips, what older code made."""
    digest = {"code": code_digest(_CODE)}
    try:
        made_by = read_json(folder / _CODE_FILE)
    except CostbenchError:
        made_by = None
    wanted = {task.path for task in tasks} | {task.compiled_path for task in tasks}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file() and (made_by != digest or path not in wanted):
            path.unlink()
    for place in {task.path.parent for task in tasks} | {folder / "programs"}:
        remove_stale_temporaries(place)
    write_json(folder / _CODE_FILE, digest)
