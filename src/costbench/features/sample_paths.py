"""Finds the feature shards of a program: one a chip, or one for each collection that holds its samples."""

from __future__ import annotations

from pathlib import Path

from costbench.errors import DataError
from costbench.features.feature_shards import feature_path


def sample_paths(folder: Path, task: str, chip: str, program: str) -> tuple[Path, ...]:
    """Returns the feature shards of a program for a chip, sorted; empty where it has no samples of the task.

    Args:
        folder: of the stage `features`.
        task: by name.
        chip: by name.
        program: by name.
    """
    path = feature_path(folder, task, chip, program)
    collections = sorted(path.parent.glob(f"*/{path.name}"))
    return (path, *collections) if path.exists() else tuple(collections)


def paths_of_programs(folder: Path, task: str, chip: str, programs: tuple[str, ...]) -> list[Path]:
    """Returns the feature shards of several programs, in the order of the programs.

    Raises:
        DataError: naming the file, for a program without any.
    """
    found: list[Path] = []
    for program in programs:
        paths = sample_paths(folder, task, chip, program)
        if not paths:
            missing = feature_path(folder, task, chip, program)
            raise DataError("missing", where=missing, expected=f"{task} samples from the stage `features`")
        found.extend(paths)
    return found
