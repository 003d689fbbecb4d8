"""Where a profile works: the section `run` of its parameter file, as absolute folders.

Each stage has a section of its own, whose dataclass stands beside its code. Paths are relative to the
repository's root, which `run.root` finds from the file's own folder, so a stage works from any folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from costbench.execution.workers import Backend
from costbench.params import load_section


@dataclass(frozen=True)
class RunParams:
    """Section `run`: where a profile works. Nothing here changes a number.

    Attributes:
        name: of the profile, for people.
        root: the repository's root, relative to the parameter file.
        params: the parameter file, relative to the root; for DVC, which hands it to the stages.
        out: folder of intermediate results.
        reports: folder of tables, figures and the page.
        programs: folder of the corpus.
        jobs: processes that work side by side, of one thread each.
        backend: where `generate` works: `loky`, on processes of this machine, or `dask`, on a cluster's.
        scheduler: of Dask, tcp://host:port or its scheduler file; for the backend `dask`.
    """

    name: str
    root: str
    params: str
    out: str
    reports: str
    programs: str = "data/programs"
    jobs: int = 2
    backend: Literal["loky", "dask"] = "loky"
    scheduler: str = ""

    def __post_init__(self) -> None:
        Backend(self.backend, self.jobs, self.scheduler)


@dataclass(frozen=True)
class Workspace:
    """The folders of a profile, absolute.

    Attributes:
        name: of the profile.
        root: of the repository.
        params: the parameter file.
        out: intermediate results, one folder a stage.
        reports: rendered results.
        programs: the corpus.
        jobs: processes.
        backend: where `generate` works.
    """

    name: str
    root: Path
    params: Path
    out: Path
    reports: Path
    programs: Path
    jobs: int
    backend: Backend

    def stage(self, name: str) -> Path:
        """Output folder of a stage."""
        return self.out / name


def load_workspace(params: Path) -> Workspace:
    """The folders that a parameter file's section `run` names.

    Raises:
        ParamsError: if the section is missing or wrong.
    """
    run = load_section(params, "run", RunParams)
    root = (params.parent / run.root).resolve()
    return Workspace(
        name=run.name,
        root=root,
        params=params,
        out=root / run.out,
        reports=root / run.reports,
        programs=root / run.programs,
        jobs=run.jobs,
        backend=Backend(run.backend, run.jobs, run.scheduler),
    )
