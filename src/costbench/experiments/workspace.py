"""Resolves the section `run` of a parameter file to the absolute folders that a profile works in.

Every stage has a section of its own, whose dataclass is defined next to the stage's code. Paths are relative
to the repository's root, and `run.root` is relative to the parameter file, so a stage can be started in any
folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from costbench.errors import DataError
from costbench.execution.dotted import set_project
from costbench.execution.workers import NO_FLAGS, Backend, BackendFlags
from costbench.experiments.parameter_file import Params
from costbench.target import available_targets, load_target


@dataclass(frozen=True)
class RunParams:
    """Section `run`: the folders of a profile. No field changes a result.

    Attributes:
        name: name of the profile, for people.
        root: the repository's root, relative to the parameter file.
        params: the parameter file, relative to the root; DVC passes it to the stages.
        out: folder of intermediate results.
        reports: folder of tables, figures and the page.
        programs: folder of the corpus.
        jobs: number of local processes that compute work items in parallel, with one thread each.
    """

    name: str
    root: str
    params: str
    out: str
    reports: str
    programs: str = "data/programs"
    jobs: int = 2

    def __post_init__(self) -> None:
        Backend(jobs=self.jobs)


@dataclass(frozen=True)
class Workspace:
    """The folders of a profile, absolute.

    Attributes:
        name: name of the profile.
        root: root of the repository.
        params: the parameters of the profile.
        out: intermediate results, one folder a stage.
        reports: rendered results.
        programs: the corpus.
        backend: backend on which the stages compute their work items.
    """

    name: str
    root: Path
    params: Params
    out: Path
    reports: Path
    programs: Path
    backend: Backend

    def stage(self, name: str) -> Path:
        """Returns the output folder of a stage."""
        return self.out / name


def load_workspace(params: Params, flags: BackendFlags = NO_FLAGS) -> Workspace:
    """Returns the folders that section `run` names, whose root is where dotted paths look for modules first.

    Args:
        params: the parameters of a profile.
        flags: choose the backend and take precedence over the environment and `run.jobs`.

    Raises:
        ParamsError: if the section is missing or wrong, or flags and environment name no usable backend.
    """
    run = params.section("run", RunParams)
    root = (params.path.parent / run.root).resolve()
    set_project(root)
    return Workspace(
        name=run.name,
        root=root,
        params=params,
        out=root / run.out,
        reports=root / run.reports,
        programs=root / run.programs,
        backend=flags.resolve(run.jobs, root / run.out),
    )


@contextmanager
def only_writer(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Keeps other processes that ask for it out of a stage's folder, which is created if need be.

    The lock ends with the process, however that ends. Where the file system has no locks, it is as if there
    were none.

    Args:
        folder: folder.
        wait: whether to wait until another process has left it.

    Raises:
        DataError: if another process has the folder and is not waited for, or it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write: {error.strerror}", where=folder) from error
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:
                expected = "one run at a time: wait until it has ended"
                raise DataError("another run is writing here", where=folder, expected=expected) from error
        yield
    finally:
        os.close(descriptor)


def chip_files(params: Params) -> dict[str, str]:
    """Returns the YAML file of each chip of section `generate` that has one of the user's own, by its name.

    Raises:
        TargetError: for a file that describes no chip.
    """
    section = params.sections.get("generate")
    chips = section.get("chips") if isinstance(section, dict) else None
    if not isinstance(chips, Sequence) or isinstance(chips, str):
        return {}
    files = [str(chip) for chip in chips if str(chip) not in available_targets()]
    return {load_target(file).name: file for file in files}
