"""Puts the files of a project (`costbench init`) into the wheel: those that the repository runs with."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProjectFiles(BuildHookInterface):
    """Adds `costbench.installation.project_files` to a wheel that is not editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the files. Called by hatchling before it builds a wheel."""
        if version == "editable":
            return
        module = runpy.run_path(str(Path(self.root) / "src/costbench/installation.py"))
        files: dict[str, Path] = module["project_files"](Path(self.root))
        build_data["force_include"] |= {
            str(path): f"{module['FOLDER']}/{name}" for name, path in files.items()
        }
