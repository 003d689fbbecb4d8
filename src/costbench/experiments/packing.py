"""Packs finished results of a profile into an archive (`costbench.experiments.archive`) and restores them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain, product
from pathlib import Path, PurePosixPath
from shutil import rmtree
from typing import Any

from costbench.artifacts import read_json, seal
from costbench.baselines import FITS_FILE
from costbench.datasets.layout_graphs import COLLECTIONS_FILE, read_collection_sizes
from costbench.datasets.tpugraphs.folder import COLLECTIONS
from costbench.errors import DataError
from costbench.experiments.archive import (
    CELLS_FILE,
    FILES,
    POINTS,
    ROWS,
    SCHEMAS,
    Part,
    PartEntry,
    Record,
    cells_of,
    part_of,
    read_archive,
    read_parts,
    read_profile_manifest,
    read_results,
    table_of,
    write_archive,
    write_results,
)
from costbench.experiments.grid.baseline_fit import DONE, baselines_folder
from costbench.experiments.grid.cells import experiment_names
from costbench.experiments.grid.experiment import BudgetGrid, Experiment
from costbench.experiments.identity import IDENTITY_FILE, read_identity
from costbench.experiments.parameter_file import Params
from costbench.experiments.workspace import Workspace, only_writer
from costbench.extensions import STAGES, StageExtension, load_extensions
from costbench.metrics.rows import PROGRAMS

_GROUP = SCHEMAS[ROWS].get_field_index("kernels")
_COMPACT_GROUPS = ("all", PROGRAMS, *(name.removeprefix("layout:") for name in COLLECTIONS))
"""Groups of rows that conclusions rest on; of layouts those of each of tpugraphs2023's collections."""
_SEED = re.compile(r"-s(?:eed)?(\d+)$")
_RESULTS: Mapping[str, tuple[str, ...]] = {
    "split": ("leakage.json", "counts.json", "card.json"),
    "features": (),
    "sweep": ("*.yaml", "*.csv", IDENTITY_FILE),
    "train": (
        "*-s[0-9]*/history.csv",
        "*-s[0-9]*/done.json",
        f"baselines-*/{FITS_FILE}",
        CELLS_FILE,
        IDENTITY_FILE,
    ),
    "evaluate": ("rows.jsonl", "scatter.json", IDENTITY_FILE),
    "autotune": ("rows.jsonl", "search.json", IDENTITY_FILE),
}
"""Files that the report reads, by stage; those of `train` and `evaluate` below the experiment's folder.

`split` and `features` are not finished without their shards, so their identities are not restored: training
says that the stage is missing rather than train on nothing. Identities come last: they say that a folder is
complete.
"""


@dataclass(frozen=True)
class Changes:
    """Names of the parts that were written, and of those that stayed as they were."""

    written: tuple[str, ...]
    kept: tuple[str, ...]


def pack(
    folder: Path, workspace: Workspace, *, compact: bool = False, experiments: Collection[str] | None = None
) -> Changes:
    """Adds the finished parts of a profile to an archive; parts of equal names are replaced, others stay.

    An experiment of which some seeds are finished does not replace one that has these and more. Where
    experiments are named, a stage that none of them follows from replaces none: the archive's may be newer.

    Args:
        folder: folder of the archive, which may not exist yet.
        workspace: workspace of the profile.
        compact: whether rows of groups of kernels and points of figures are left out, five of six bytes.
        experiments: names of those to pack, or of a stage that has to be finished; None for all.

    Raises:
        DataError: for a file in place of the folder, before any work, for an archive that is damaged or of
            another profile, for damaged results, if no part is finished, or one of the experiments that are
            named is not, or if the archive cannot be written.
    """
    if folder.is_file():
        raise DataError("is no folder", where=folder, expected="the folder of an archive, or a new one")
    names = [name for name in part_names(workspace.params) if _is_finished(workspace.out, name)]
    wanted = set(names)
    if experiments is not None:
        wanted = {name if name in _results() else part_of("evaluate", name) for name in experiments}
        if unfinished := sorted(wanted.difference(names)):
            raise DataError("is not finished", where=unfinished[0], expected=", ".join(names) or "results")
        names = [name for name in names if name in wanted or "/" not in name]
    if not names:
        raise DataError("no finished results", where=workspace.out, expected="evaluated experiments, stages")
    finished = {name: _read_part(workspace.out, name, compact=compact) for name in names}
    wanted |= _followed(workspace.params, wanted, finished)
    # Of two that read what is there and write it with a part of their own, one would lose its part.
    with only_writer(folder, wait=True):
        before = read_parts(folder, workspace.name)
        for name in [name for name in finished if name in before]:
            if name not in wanted or _has_fewer_seeds(finished[name], before[name]):
                del finished[name]
        if finished:
            write_archive(folder, workspace.name, before | finished)
    return Changes(tuple(finished), tuple(name for name in before if name not in finished))


def _followed(params: Params, names: Collection[str], finished: Mapping[str, Part]) -> set[str]:
    """Returns the stages that some of the finished experiments follow from, as far as samples tell."""
    entries: Any = params.sections["experiments"]
    return {
        stage
        for name in names
        if (experiment := name.partition("/")[2])
        for stage in ("split", "features", entries[experiment].get("follows", "features"))
        if stage in finished and finished[stage].entry.data_digest == finished[name].entry.data_digest
    }


def _has_fewer_seeds(part: Part, before: Part) -> bool:
    """Returns whether all of a part is in an earlier one, with fewer seeds."""
    ours, theirs = cells_of(part), cells_of(before)
    same = all(theirs.get(name) in ("", follows_from) for name, follows_from in ours.items())
    return bool(ours) and same and _seeds(ours) < _seeds(theirs)


def missing_cells(experiment: Experiment, part: Part) -> tuple[int, int]:
    """Returns how many cells and seeds of trees an archive lacks of an experiment, and of how many."""
    grid = experiment.grid
    names = {cell.name for cell in experiment.cells}
    if isinstance(grid, BudgetGrid):
        fits = product(experiment.splits, grid.chips, grid.budgets, grid.seeds)
        names |= {baselines_folder(Path(), *where, f"seed{seed}").name for *where, seed in fits}
    return len(names - cells_of(part).keys()), len(names)


def cells_with_seeds(part: Part) -> int:
    """Returns the number of cells and of boosted trees, each of a seed, that an archive has."""
    return sum(_SEED.search(name) is not None for name in cells_of(part))


def _seeds(cells: Iterable[str]) -> set[str]:
    """Returns the seeds of cells and of sets of baselines, by their names."""
    return {match[1] for match in map(_SEED.search, cells) if match is not None}


def unpack(folder: Path, workspace: Workspace) -> Changes:
    """Restores the parts of an archive that are not finished in the output folder of a profile.

    Finished results stay, and finished trainings, which have only to be evaluated. Unfinished ones of a part
    that the archive has are replaced, and what the archive does not have stays missing.

    Args:
        folder: folder of the archive.
        workspace: workspace of the profile.

    Raises:
        DataError: for an archive that is damaged or of another profile, or a file that cannot be written.
    """
    parts = read_archive(folder, read_profile_manifest(folder, workspace.name))
    missing = [name for name in parts if not _is_finished(workspace.out, name)]
    missing = [name for name in missing if not _is_trained(workspace.out, name)]
    for name in missing:
        # Weights of an unfinished training beside the results of a finished one would pass for its own.
        for unfinished in _folders(name)[:-1]:
            rmtree(workspace.out / unfinished, ignore_errors=True)
        write_results(workspace.out, parts[name].tables)
        for restored in (*_folders(name), *_machine_folders(name)):
            if (workspace.out / restored).is_dir():
                seal(workspace.out / restored, "`costbench results unpack` once the folder is gone")
    return Changes(tuple(missing), tuple(name for name in parts if name not in missing))


def part_names(params: Params) -> tuple[str, ...]:
    """Returns the names of the parts that a parameter file asks for: stages, then experiments in order."""
    stages = [name for name in _results() if part_of(name, "") == name]
    return (*stages, *(part_of("evaluate", name) for name in experiment_names(params)))


def _results() -> dict[str, tuple[str, ...]]:
    """Returns the files that the report reads by stage, with those of stages of other packages."""
    extensions = load_extensions(STAGES, StageExtension)
    others = {name: (*stage.results, IDENTITY_FILE) for name, stage in extensions.items() if stage.results}
    return {**_RESULTS, **others}


def _folders(part: str) -> tuple[PurePosixPath, ...]:
    """Returns the folders of a part below the output folder, in the order in which they are finished."""
    kind, _, experiment = part.partition("/")
    if not experiment:
        return (PurePosixPath(kind),)
    return PurePosixPath("train", experiment), PurePosixPath("evaluate", experiment)


def _machine_folders(part: str) -> tuple[PurePosixPath, ...]:
    """Returns the folders of what a part says about the machine that computed it."""
    return tuple(PurePosixPath("machine", folder) for folder in _folders(part))


def _is_finished(out: Path, part: str) -> bool:
    """Returns whether all folders of a part are complete, and of the same samples."""
    folders = [out / folder for folder in _folders(part)]
    complete = all((folder / IDENTITY_FILE).is_file() for folder in folders)
    return complete and len({read_identity(folder).data_digest for folder in folders}) == 1


def _is_trained(out: Path, part: str) -> bool:
    """Returns whether networks or trees of a finished training are there, which no archive has."""
    folder = out / _folders(part)[0]
    models = chain(folder.glob("*/weights.pt"), folder.glob(f"baselines-*/{DONE}"))
    return (folder / IDENTITY_FILE).is_file() and any(models)


def _read_part(out: Path, part: str, *, compact: bool = False) -> Part:
    patterns = {**_results(), "machine": ("*.json",)}
    facts = _machine_folders(part)
    unfinished = _unfinished_cells(out / _folders(part)[0])
    records: dict[str, list[Record]] = {file: [] for file in SCHEMAS}
    for folder in (*_folders(part), *facts):
        for pattern in patterns[folder.parts[0]]:
            for path in sorted((out / folder).glob(pattern)):
                relative = PurePosixPath(path.relative_to(out).as_posix())
                if unfinished & {path.parent.name, path.stem}:
                    continue
                file, contents = read_results(out, relative)
                if compact and file == ROWS:
                    contents = [record for record in contents if record[_GROUP] in _COMPACT_GROUPS]
                elif compact and file == POINTS:
                    file, contents = FILES, [(str(relative), "[]\n")]
                records[file] += contents
    if part == "features":
        records[FILES] += _collections(out)
    tables = {file: table_of(file, contents) for file, contents in records.items()}
    revisions = sorted(set(tables[ROWS]["git_revision"].to_pylist()))
    entry = PartEntry(
        **asdict(read_identity(out / _folders(part)[-1])),
        git_revision=", ".join(revisions),
        rows=len(tables[ROWS]),
        cells=sum(str(path).endswith("/done.json") for path, _ in records[FILES]),
    )
    return Part(entry, tables)


def _unfinished_cells(folder: Path) -> set[str]:
    """Returns the cells and baselines in the folder of a training that its results are not of.

    They have seeds whose turn comes later.
    """
    listed = folder / CELLS_FILE
    finished: Any = read_json(listed) if listed.is_file() else None
    if not isinstance(finished, dict):
        return set()
    return {path.name for path in folder.iterdir() if path.is_dir()} - set(finished)


def _collections(out: Path) -> list[Record]:
    """Returns the sizes of the collections of layout graphs, which stand for the graphs, by chip."""
    records: list[Record] = []
    for folder in sorted((out / "features" / "layout").glob("*")):
        path = PurePosixPath("features", "layout", folder.name, COLLECTIONS_FILE)
        sizes = [asdict(collection) for collection in read_collection_sizes(folder)]
        records += [(str(path), json.dumps(sizes, indent=1) + "\n")] if sizes else []
    return records
