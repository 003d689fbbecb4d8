"""What comes with the package: all that the pipeline reads, and lines that install what extras need."""

from __future__ import annotations

import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from costbench.installation import install_line, installed_files, project_files
from costbench.params import load_yaml


@pytest.fixture(scope="module")
def files(repository: Path) -> dict[str, Path]:
    return project_files(repository)


def test_a_checkout_has_the_files_of_a_project(repository: Path, files: dict[str, Path]) -> None:
    assert installed_files() == files
    assert all(path.is_file() for path in files.values())


def test_a_project_has_all_that_stages_read_and_run(repository: Path, files: dict[str, Path]) -> None:
    stages: Any = load_yaml(repository / "dvc.yaml")["stages"]
    for stage in stages.values():
        stage = stage.get("do", stage)
        assert stage["cmd"].split()[1] in files
        data = {dep for dep in stage.get("deps", ()) if not dep.startswith(("${run.out}", "${run.reports}"))}
        assert all(any(name.startswith(f"{folder}/") for name in files) for folder in data)
        for folder in data:
            tracked = subprocess.run(
                ["git", "ls-files", folder], cwd=repository, capture_output=True, text=True, check=True
            )
            assert {*tracked.stdout.split()} <= {*files}


def test_profiles_are_whole(repository: Path, files: dict[str, Path]) -> None:
    profiles = {path.parent.name for path in repository.glob("profiles/*/params.yaml")}
    assert {f"profiles/{name}/params.yaml" for name in profiles} <= {*files}
    assert {"profiles/smoke/dvc.yaml", "params.yaml", "schedules.yaml", ".dvcignore", ".gitignore"} <= {
        *files
    }


def test_nothing_of_the_users_is_packed(repository: Path, files: dict[str, Path]) -> None:
    assert [name for name in files if name.startswith("data/programs/user/")] == [
        "data/programs/user/README.md"
    ]
    assert not [name for name in files if name.endswith("dvc.lock")]


@pytest.mark.parametrize("extra", metadata.metadata("costbench").get_all("Provides-Extra", []))
def test_extras_are_installed_by_the_names_of_their_libraries(extra: str) -> None:
    words = install_line(extra).split()
    assert words[:2] == ["pip", "install"]
    assert len(words) > 2
    assert not any("costbench" in word for word in words)


def test_an_unknown_extra_is_named() -> None:
    assert "nonsense" in install_line("nonsense")


def test_the_extra_jax_is_part_of_corpus(repository: Path) -> None:
    extras = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    assert {*extras["optional-dependencies"]["jax"]} < {*extras["optional-dependencies"]["corpus"]}
