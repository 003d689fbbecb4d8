"""Where the work items of a stage are computed: by processes of this machine, or on a Dask cluster.

The choice is a fact of the machine, not of the experiment, so it stands in no parameter file: a stage whose
results exist is not stale because it would now run elsewhere. Flags of the command line win over the
environment variables `COSTBENCH_BACKEND`, `COSTBENCH_SCHEDULER` and `COSTBENCH_JOBS`, which `dvc repro` hands
to every stage; without either, `run.jobs` processes of this machine work.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from costbench.errors import ParamsError

BACKEND, SCHEDULER, JOBS = "COSTBENCH_BACKEND", "COSTBENCH_SCHEDULER", "COSTBENCH_JOBS"


@dataclass(frozen=True)
class Backend:
    """Where work items are computed.

    Attributes:
        kind: `loky`, processes of this machine, or `dask`, the workers of a Dask scheduler.
        jobs: processes of this machine, of one thread each; with 1 the work is done in this process.
        scheduler: address of the Dask scheduler (tcp://host:8786) or its scheduler file (.json).
        folder: results and inputs of the work items lie below it, so every worker has to see it under this
            path; None where nothing is written.
    """

    kind: Literal["loky", "dask"] = "loky"
    jobs: int = 1
    scheduler: str = ""
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("loky", "dask"):
            raise ValueError(f"backend is {self.kind!r}, must be loky or dask")
        if self.jobs < 1:
            raise ValueError(f"jobs is {self.jobs}, must be at least 1")
        if self.kind == "dask" and not self.scheduler:
            raise ValueError("scheduler is empty, must be the address of a Dask scheduler for backend dask")

    @property
    def in_this_process(self) -> bool:
        """Whether no other process takes part."""
        return self.kind == "loky" and self.jobs == 1


@dataclass(frozen=True)
class BackendFlags:
    """What the command line says about the backend; None for a flag that was not given.

    Attributes:
        backend: `loky` or `dask`; a scheduler alone means `dask`.
        scheduler: of Dask.
        jobs: processes of this machine.
    """

    backend: str | None = None
    scheduler: str | None = None
    jobs: int | None = None

    def resolve(self, jobs: int, folder: Path) -> Backend:
        """The backend that these flags, the environment and `jobs` choose, in this order of precedence.

        Args:
            jobs: processes of this machine where neither a flag nor the environment says how many.
            folder: becomes `Backend.folder`.

        Raises:
            ParamsError: for an unknown backend, jobs below 1, or Dask without a scheduler.
        """
        given = BackendFlags(os.environ.get(BACKEND) or None, os.environ.get(SCHEDULER) or None, _jobs())
        kind = self._kind() or given._kind() or "loky"
        chosen = next((one for one in (self.jobs, given.jobs) if one is not None), jobs)
        scheduler = self.scheduler or given.scheduler or ""
        try:
            return Backend(kind, chosen, scheduler if kind == "dask" else "", folder)  # type: ignore[arg-type]
        except ValueError as error:
            where = f"--backend, --scheduler, --jobs or {BACKEND}, {SCHEDULER}, {JOBS}"
            raise ParamsError(str(error), where=where) from error

    def _kind(self) -> str | None:
        return self.backend or ("dask" if self.scheduler else None)


NO_FLAGS = BackendFlags()
"""The environment and the parameter file choose the backend."""


def _jobs() -> int | None:
    text = os.environ.get(JOBS, "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise ParamsError(f"is {text!r}", where=JOBS, expected="a number of processes") from error
