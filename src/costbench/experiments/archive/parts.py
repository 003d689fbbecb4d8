"""Adds the finished parts of a profile to an archive of results, and restores those that it lacks.

What the report reads is small; what it follows from is not: trained networks and shards are left out. A part
is an experiment, trained and evaluated, or one of the other stages. Parts that are finished on different days
accumulate in one archive.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from shutil import rmtree

from costbench.datasets.layout_graphs import COLLECTIONS_FILE, read_collection_sizes
from costbench.errors import DataError
from costbench.experiments.archive.results import read_results, write_results
from costbench.experiments.archive.storage import (
    FILES,
    MANIFEST_FILE,
    ROWS,
    SCHEMAS,
    Manifest,
    Part,
    PartEntry,
    Record,
    part_of,
    read_archive,
    read_manifest,
    table_of,
    write_archive,
)
from costbench.experiments.grid.cells import experiment_names
from costbench.experiments.identity import IDENTITY_FILE, read_identity
from costbench.experiments.parameter_file import Params
from costbench.experiments.workspace import Workspace
from costbench.extensions import STAGES, StageExtension, load_extensions

_RESULTS: Mapping[str, tuple[str, ...]] = {
    "split": ("leakage.json", "counts.json", "card.json"),
    "features": (),
    "sweep": ("*.yaml", "*.csv", IDENTITY_FILE),
    "train": (
        *("*-s[0-9]*/history.csv", "*-s[0-9]*/done.json"),
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


def pack(folder: Path, workspace: Workspace) -> Changes:
    """Add the finished parts of a profile to an archive; parts of equal names are replaced, others stay.

    Args:
        folder: of the archive, which may not exist yet.
        workspace: of the profile.

    Raises:
        DataError: for an archive that is damaged or of another profile, for damaged results, if no part is
            finished, or if the archive cannot be written.
    """
    before = _read_parts(folder, workspace.name) if _exists(folder) else {}
    names = [name for name in part_names(workspace.params) if _is_finished(workspace.out, name)]
    if not names:
        raise DataError("no finished results", where=workspace.out, expected="evaluated experiments, stages")
    finished = {name: _read_part(workspace.out, name) for name in names}
    write_archive(folder, workspace.name, before | finished)
    return Changes(tuple(finished), tuple(name for name in before if name not in finished))


def unpack(folder: Path, workspace: Workspace) -> Changes:
    """Restore the parts of an archive that are not finished in the output folder of a profile.

    Finished results stay, unfinished ones of a part that the archive has are replaced, and what the archive
    does not have stays missing.

    Args:
        folder: of the archive.
        workspace: of the profile.

    Raises:
        DataError: for an archive that is damaged or of another profile, or a file that cannot be written.
    """
    parts = _read_parts(folder, workspace.name)
    missing = [name for name in parts if not _is_finished(workspace.out, name)]
    for name in missing:
        # Weights of an unfinished training beside the results of a finished one would pass for its own.
        for unfinished in _folders(name)[:-1]:
            rmtree(workspace.out / unfinished, ignore_errors=True)
        write_results(workspace.out, parts[name].tables)
    return Changes(tuple(missing), tuple(name for name in parts if name not in missing))


def read_profile_manifest(folder: Path, profile: str) -> Manifest:
    """Read the manifest of an archive. Raises: DataError, if it is damaged or of another profile."""
    manifest = read_manifest(folder)
    if manifest.profile != profile:
        found = f"results of the profile {manifest.profile!r}"
        raise DataError(found, where=folder / MANIFEST_FILE, field="profile", expected=profile)
    return manifest


def part_names(params: Params) -> tuple[str, ...]:
    """Return the names of the parts that a parameter file asks for: stages, then experiments in its order."""
    stages = [name for name in _results() if part_of(name, "") == name]
    return (*stages, *(part_of("evaluate", name) for name in experiment_names(params)))


def _results() -> dict[str, tuple[str, ...]]:
    """Return the files that the report reads by stage, with those of stages of other packages."""
    extensions = load_extensions(STAGES, StageExtension)
    others = {name: (*own.results, IDENTITY_FILE) for name, own in extensions.items() if own.results}
    return {**_RESULTS, **others}


def _exists(folder: Path) -> bool:
    """Whether there is an archive. Raises: DataError, if there are files of one without its manifest."""
    if (folder / MANIFEST_FILE).exists():
        return True
    if any((folder / name).exists() for name in SCHEMAS):
        raise DataError("not there", where=folder / MANIFEST_FILE, expected="that of the files beside it")
    return False


def _read_parts(folder: Path, profile: str) -> dict[str, Part]:
    manifest = read_profile_manifest(folder, profile)
    return read_archive(folder, manifest)


def _folders(part: str) -> tuple[PurePosixPath, ...]:
    """Return the folders of a part below the output folder, in the order in which they are finished."""
    kind, _, experiment = part.partition("/")
    if not experiment:
        return (PurePosixPath(kind),)
    return PurePosixPath("train", experiment), PurePosixPath("evaluate", experiment)


def _is_finished(out: Path, part: str) -> bool:
    return all((out / folder / IDENTITY_FILE).is_file() for folder in _folders(part))


def _read_part(out: Path, part: str) -> Part:
    patterns = {**_results(), "machine": ("*.json",)}
    facts = [PurePosixPath("machine", folder) for folder in _folders(part)]
    records: dict[str, list[Record]] = {file: [] for file in SCHEMAS}
    for folder in (*_folders(part), *facts):
        for pattern in patterns[folder.parts[0]]:
            for path in sorted((out / folder).glob(pattern)):
                file, contents = read_results(out, PurePosixPath(path.relative_to(out).as_posix()))
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


def _collections(out: Path) -> list[Record]:
    """Return the sizes of the collections of layout graphs, which stand for the graphs, by chip."""
    records: list[Record] = []
    for folder in sorted((out / "features" / "layout").glob("*")):
        path = PurePosixPath("features", "layout", folder.name, COLLECTIONS_FILE)
        sizes = [asdict(one) for one in read_collection_sizes(folder)]
        records += [(str(path), json.dumps(sizes, indent=1) + "\n")] if sizes else []
    return records
