"""What `generate` keeps and what it clears away before it makes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.datasets.fusion.generation import FusionParams
from costbench.datasets.layout.generation import LayoutParams
from costbench.datasets.tile.generation import TileParams, TileTask
from costbench.datasets.tile.kernels import compiled_program_path
from costbench.errors import ChoiceError, DataError
from costbench.experiments.stages.generate import (
    GenerateParams,
    _chosen,
    _remove_outdated,
)
from costbench.target import load_target
from costbench.workloads.manifest import load_manifest


def _task(folder: Path, name: str) -> TileTask:
    return TileTask(name, "Own", b"", (load_target("tpu_v2"),), TileParams(), folder)


def _compiled(task: TileTask) -> Path:
    return compiled_program_path(task.folder, task.name)


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")


def test_what_is_not_asked_for_is_removed(tmp_path: Path) -> None:
    kept, dropped = _task(tmp_path, "kept"), _task(tmp_path, "dropped")
    _remove_outdated(tmp_path, [kept])
    for task in (kept, dropped):
        _touch(task.paths[0])
        _touch(_compiled(task))
    other_chip = kept.paths[0].parent.parent / "tpu_v3" / kept.paths[0].name
    _touch(other_chip)
    _remove_outdated(tmp_path, [kept])
    assert kept.paths[0].exists()
    assert _compiled(kept).exists()
    assert not any(path.exists() for path in (dropped.paths[0], _compiled(dropped), other_chip))


def test_what_other_code_made_is_removed(tmp_path: Path) -> None:
    task = _task(tmp_path, "kept")
    _remove_outdated(tmp_path, [task])
    _touch(task.paths[0])
    (tmp_path / "code.json").write_text('{"code": "an older one"}')
    _remove_outdated(tmp_path, [task])
    assert not task.paths[0].exists()


def test_programs_are_chosen_by_name(repository: Path) -> None:
    folder = repository / "data" / "programs"
    entries = load_manifest(folder)
    assert _chosen((), entries, folder) == entries
    name = entries[3].name
    assert [entry.name for entry in _chosen((name, name), entries, folder)] == [name]
    with pytest.raises(ChoiceError, match="unknown program 'mlp'"):
        _chosen(("mlp",), entries, folder)
    with pytest.raises(DataError, match="no programs"):
        _chosen((), (), folder)


def test_chips_are_different_ones() -> None:
    with pytest.raises(ValueError, match="chips"):
        GenerateParams(("tile",), ("tpu_v2", "tpu_v2"), (), TileParams(), FusionParams(), LayoutParams())
