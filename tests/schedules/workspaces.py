"""Folders of a profile below a temporary one."""

from __future__ import annotations

from pathlib import Path

from costbench.execution.workers import Backend
from costbench.experiments.parameter_file import Params
from costbench.experiments.workspace import Workspace


def workspace_in(root: Path) -> Workspace:
    """Returns a workspace whose folders all lie in `root`; work items run in this process."""
    return Workspace(
        name="test",
        root=root,
        params=Params(root / "params.yaml", {}),
        out=root / "out",
        reports=root / "reports",
        programs=root / "programs",
        backend=Backend(jobs=1),
    )
