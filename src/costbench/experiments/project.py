"""Projects: folders with parameters, pipeline and programs, made from files that come with the package.

`.costbench.json` in a project says which version of costbench made its files, and their digests. So files
that the user edited can be told from those that another version of the package has, and only the latter are
replaced.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from costbench.artifacts import CHECKSUMS_FILE, digest_file, read_bytes, read_json, write_bytes, write_json
from costbench.errors import CostbenchError, DataError
from costbench.experiments.parameter_file import FILE
from costbench.installation import installed_files
from costbench.params import parse

STATE_FILE = ".costbench.json"
NEW_SUFFIX = ".new"
"""Suffix of the package's version of a file that was edited, beside it."""
_MADE = ("reports", "mlflow.db")
"""What stages make in the root of a project, and commands read."""
_SQLITE = "sqlite:///"
_DVC_SETTINGS = ("core.analytics", "core.check_update")


@dataclass(frozen=True)
class ProjectState:
    """What `.costbench.json` says.

    Attributes:
        version: version of costbench whose files the project has.
        files: SHA-256 of each file as the package had it, by path in the project.
    """

    version: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class ProjectDifferences:
    """How a project's files differ from those of the installed package, by path in the project.

    Attributes:
        made_by: version of costbench whose files the project has.
        installed: version that is installed.
        missing: files of the package that the project lacks.
        outdated: files as the older package had them, of which the installed one has another version.
        conflicting: files that were edited, of which the installed package has another version as well.
        edited: files that were edited, and are those of the installed package otherwise.
        retired: files that the installed package no longer has.
    """

    made_by: str
    installed: str
    missing: tuple[str, ...]
    outdated: tuple[str, ...]
    conflicting: tuple[str, ...]
    edited: tuple[str, ...]
    retired: tuple[str, ...]

    @property
    def is_current(self) -> bool:
        """Returns whether nothing differs but by the user's edits."""
        return not (self.missing or self.outdated or self.conflicting or self.retired)


def make_project(folder: Path, add: bool = False) -> tuple[str, ...]:
    """Writes the files of a project that are not there, and overwrites none.

    Args:
        folder: folder of the project; created if needed.
        add: whether a folder that has files and is no project may become one.

    Returns:
        the files that were written.

    Raises:
        DataError: for a folder that has files and is no project, or what cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError("is no folder", where=folder, expected="a new folder, or an empty one")
    is_project = (folder / STATE_FILE).exists()
    others = [path for path in folder.iterdir() if path.name != ".git"] if folder.is_dir() else []
    if others and not (is_project or add):
        expected = "a new folder, an empty one, a project, or --add to add to what is there"
        raise DataError("is not empty", where=folder, expected=expected)
    package = installed_files()
    missing = [name for name in package if not (folder / name).exists()]
    _copy_all(package, missing, folder)
    # Of files that were there the older version stays noted, so that they count as edited or outdated.
    state = _read_state(folder) if is_project else ProjectState(version("costbench"), {})
    digests = {name: digest_file(package[name]) for name in package if name in missing or not is_project}
    _write_state(folder, replace(state, files={**state.files, **digests}))
    return tuple(missing)


def compare_project(folder: Path) -> ProjectDifferences:
    """Returns how a project's files differ from those of the installed package.

    Raises:
        DataError: if the folder is no project that `costbench init` made.
    """
    state, package = _read_state(folder), installed_files()
    names: dict[str, list[str]] = {"missing": [], "outdated": [], "conflicting": [], "edited": []}
    for name, source in package.items():
        path, there = folder / name, digest_file(source)
        here = digest_file(path) if path.is_file() else None
        before = state.files.get(name)
        if here is None:
            names["missing"].append(name)
        elif here == there:
            continue
        elif here == before:
            names["outdated"].append(name)
        else:
            names["edited" if before == there else "conflicting"].append(name)
    return ProjectDifferences(
        made_by=state.version,
        installed=version("costbench"),
        **{kind: tuple(listed) for kind, listed in names.items()},
        retired=tuple(name for name in sorted(state.files) if name not in package),
    )


def update_project(folder: Path) -> ProjectDifferences:
    """Brings a project to the installed package: writes what is missing and replaces what is outdated.

    The package's version of a file that was edited is written beside it, with the suffix `.new`. Files that
    the package no longer has stay.

    Returns:
        the differences that there were.

    Raises:
        DataError: if the folder is no project that `costbench init` made, or for what cannot be written.
    """
    differences, package = compare_project(folder), installed_files()
    _copy_all(package, (*differences.missing, *differences.outdated), folder)
    for name in differences.conflicting:
        _copy(package[name], folder / f"{name}{NEW_SUFFIX}")
    digests = {name: digest_file(path) for name, path in package.items()}
    _write_state(folder, ProjectState(differences.installed, digests))
    return differences


def start_version_control(folder: Path, with_git: bool = True) -> tuple[str, ...]:
    """Makes a project a repository of git, unless it lies in one, and of DVC, unless it is one.

    Args:
        folder: folder of the project.
        with_git: whether git is used; without it DVC runs the pipeline all the same.

    Returns:
        the programs that were started to do so: `git`, `dvc`.

    Raises:
        DataError: with the last line that a program printed, if it fails.
    """
    started = []
    root = _git_root(folder) if with_git else None
    if with_git and root is None and shutil.which("git"):
        _run(["git", "init", "--quiet"], folder)
        root = _git_root(folder)
        started.append("git")
    if not (folder / ".dvc").is_dir():
        if root is None:
            options = ["--no-scm"]
        else:
            options = [] if root == folder.resolve() else ["--subdir"]
        dvc = [sys.executable, "-m", "dvc"]
        _run([*dvc, "init", "--quiet", *options], folder)
        for setting in _DVC_SETTINGS:
            _run([*dvc, "config", "--quiet", setting, "false"], folder)
        started.append("dvc")
    return tuple(started)


def with_project_hint(error: CostbenchError) -> CostbenchError:
    """Returns an error about a project's file that is missing where no project is, with how one is made.

    Args:
        error: any error; one about something else is returned as it is.
    """
    where = Path((error.where or "").removeprefix(_SQLITE))
    if Path(FILE).exists() or where.is_absolute() or not where.parts:
        return error
    names = {path for name in installed_files() for path in (Path(name), *Path(name).parents)}
    if not (where in names or where.parts[0] in _MADE) or where.exists():
        return error
    expected = f"a project in {Path.cwd()}; `costbench init FOLDER` makes one"
    return type(error)(error.problem, where=error.where, field=error.field, expected=expected)


def _read_state(folder: Path) -> ProjectState:
    path = folder / STATE_FILE
    if not path.is_file():
        raise DataError("no such file", where=path, expected="a project that `costbench init FOLDER` made")
    return parse(ProjectState, read_json(path), where=path, error=DataError)


def _write_state(folder: Path, state: ProjectState) -> None:
    write_json(folder / STATE_FILE, asdict(state))


def _copy_all(package: Mapping[str, Path], names: Collection[str], folder: Path) -> None:
    """Copies files of the package, and then the checksums of folders whose seals that broke.

    Raises:
        DataError: before anything is copied, if a file is where a folder is needed; if one cannot be written.
    """
    for parent in sorted({folder / parent for name in names for parent in Path(name).parents}):
        if parent.exists() and not parent.is_dir():
            raise DataError("is no folder", where=parent, expected="a folder, or nothing yet")
    for name in names:
        _copy(package[name], folder / name)
    for name in package:
        if Path(name).name == CHECKSUMS_FILE and not (folder / name).exists():
            _copy(package[name], folder / name)


def _copy(source: Path, destination: Path) -> None:
    write_bytes(destination, read_bytes(source))


def _git_root(folder: Path) -> Path | None:
    if not shutil.which("git"):
        return None
    command = ["git", "rev-parse", "--show-toplevel"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return Path(done.stdout.strip()).resolve() if done.returncode == 0 else None


def _run(command: Sequence[str], folder: Path) -> None:
    environment = os.environ | {"DVC_NO_ANALYTICS": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise DataError(f"{Path(command[0]).name} failed: {lines[-1]}", where=folder)
