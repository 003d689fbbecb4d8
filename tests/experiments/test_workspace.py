"""A profile's folders, found from its parameter file."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from costbench.artifacts import write_json
from costbench.errors import ParamsError
from costbench.experiments.parameter_file import load_params
from costbench.experiments.workspace import chip_files, load_workspace
from costbench.target import load_target


def _write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "params.yaml"
    path.write_text(f"run: {{{text}}}\n")
    return path


def test_paths_start_at_the_root(tmp_path: Path) -> None:
    text = (
        "name: smoke, root: ../.., params: profiles/smoke/params.yaml, out: out/smoke, reports: out/smoke/r"
    )
    workspace = load_workspace(load_params(_write(tmp_path / "profiles" / "smoke", text)))
    assert workspace.root == tmp_path
    assert workspace.stage("train") == tmp_path / "out" / "smoke" / "train"
    assert workspace.reports == tmp_path / "out" / "smoke" / "r"
    assert workspace.programs == tmp_path / "data" / "programs"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x, root: ., params: p, out: o", "reports"),
        ("name: x, root: ., params: p, out: o, reports: r, jobs: 0", "at least 1"),
        ("name: x, root: ., params: p, out: o, reports: r, job: 1", "did you mean 'jobs'"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        load_workspace(load_params(_write(tmp_path, text)))


def test_chips_of_the_users_own_by_the_name_in_their_file(tmp_path: Path) -> None:
    own = replace(load_target("tpu_v3"), name="mine")
    write_json(tmp_path / "chip.yaml", asdict(own))
    file = str(tmp_path / "chip.yaml")
    write_json(tmp_path / "params.yaml", {"generate": {"chips": ["tpu_v2", file]}})
    assert chip_files(load_params(tmp_path / "params.yaml")) == {"mine": file}


@pytest.mark.parametrize("content", [{}, {"generate": {}}, {"generate": {"chips": "tpu_v2"}}])
def test_without_chips_there_are_no_files(tmp_path: Path, content: dict[str, object]) -> None:
    write_json(tmp_path / "params.yaml", content)
    assert chip_files(load_params(tmp_path / "params.yaml")) == {}
