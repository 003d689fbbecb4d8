"""A project has the package's files; what the user edited stays, and what differs is told apart."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from costbench.errors import DataError, ParamsError
from costbench.experiments import project
from costbench.experiments.project import (
    STATE_FILE,
    compare_project,
    make_project,
    start_version_control,
    update_project,
    with_project_hint,
)

FIRST = {"params.yaml": "a: 1\n", "examples/model.py": "x = 1\n", "data/programs/manifest.json": "{}\n"}


def install(files: dict[str, str], folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `files` those of the installed package."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setattr(project, "installed_files", lambda: {name: folder / name for name in sorted(files)})
    monkeypatch.setattr(project, "version", lambda _: version)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that version 1 made."""
    install(FIRST, tmp_path / "package1", "1", monkeypatch)
    folder = tmp_path / "project"
    assert make_project(folder) == tuple(sorted(FIRST))
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in FIRST if (folder / name).exists()}


def test_a_project_has_the_files_of_the_package(made: Path) -> None:
    assert contents(made) == FIRST
    state = json.loads((made / STATE_FILE).read_text())
    assert (state["version"], {*state["files"]}) == ("1", {*FIRST})
    differences = compare_project(made)
    assert differences.is_current
    assert differences.edited == ()


def test_what_is_missing_is_added_and_nothing_overwritten(made: Path) -> None:
    (made / "params.yaml").write_text("a: 2\n")
    (made / "examples" / "model.py").unlink()
    assert compare_project(made).missing == ("examples/model.py",)
    assert make_project(made) == ("examples/model.py",)
    assert contents(made) == FIRST | {"params.yaml": "a: 2\n"}
    differences = compare_project(made)
    assert (differences.edited, differences.is_current) == (("params.yaml",), True)


def test_a_folder_with_other_files_is_refused_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FIRST, tmp_path / "package", "1", monkeypatch)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "params.yaml").write_text("mine: 1\n")
    with pytest.raises(DataError, match="is not empty"):
        make_project(folder)
    assert [path.name for path in folder.iterdir()] == ["params.yaml"]
    assert make_project(folder, add=True) == ("data/programs/manifest.json", "examples/model.py")
    assert (folder / "params.yaml").read_text() == "mine: 1\n"
    assert compare_project(folder).edited == ("params.yaml",)


def test_a_new_repository_counts_as_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(FIRST, tmp_path / "package", "1", monkeypatch)
    (tmp_path / "mine" / ".git").mkdir(parents=True)
    assert make_project(tmp_path / "mine") == tuple(sorted(FIRST))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is no folder"):
        make_project(tmp_path / "file")


def test_an_upgrade_replaces_what_was_not_edited(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = {"params.yaml": "a: 9\n", "examples/model.py": "x = 9\n", "dvc.yaml": "stages: {}\n"}
    (made / "params.yaml").write_text("a: 2\n")
    install(second, made.parent / "package2", "2", monkeypatch)
    differences = compare_project(made)
    assert (differences.made_by, differences.installed, differences.is_current) == ("1", "2", False)
    assert differences.missing == ("dvc.yaml",)
    assert differences.outdated == ("examples/model.py",)
    assert differences.conflicting == ("params.yaml",)
    assert differences.retired == ("data/programs/manifest.json",)

    assert update_project(made) == differences
    assert contents(made) == FIRST | {"params.yaml": "a: 2\n", "examples/model.py": "x = 9\n"}
    assert (made / "params.yaml.new").read_text() == "a: 9\n"
    after = compare_project(made)
    assert (after.made_by, after.is_current, after.edited) == ("2", True, ("params.yaml",))


def test_files_added_by_an_upgrade_leave_the_others_outdated(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = FIRST | {"params.yaml": "a: 9\n", "dvc.yaml": "stages: {}\n"}
    install(second, made.parent / "package2", "2", monkeypatch)
    assert make_project(made) == ("dvc.yaml",)
    differences = compare_project(made)
    assert (differences.made_by, differences.outdated) == ("1", ("params.yaml",))


@pytest.mark.parametrize("text", [None, "{}", '{"version": "1", "files": 3}', "no JSON"])
def test_a_folder_without_a_sound_note_is_no_project(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / STATE_FILE).write_text(text)
    with pytest.raises(DataError, match=STATE_FILE):
        compare_project(tmp_path)


def test_a_new_project_is_a_repository_of_git_and_dvc(made: Path) -> None:
    assert start_version_control(made) == ("git", "dvc")
    assert start_version_control(made) == ()
    assert "analytics = false" in (made / ".dvc" / "config").read_text()


def test_a_project_in_a_repository_gets_dvc_alone(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    folder = tmp_path / "study"
    folder.mkdir()
    assert start_version_control(folder) == ("dvc",)
    assert not (folder / ".git").exists()


def test_without_git_dvc_works_alone(tmp_path: Path) -> None:
    assert start_version_control(tmp_path, with_git=False) == ("dvc",)
    assert "no_scm = True" in (tmp_path / ".dvc" / "config").read_text()


def test_errors_about_a_projects_files_name_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for where in ("params.yaml", "profiles/smoke/params.yaml", "data/programs", "sqlite:///mlflow.db"):
        error = with_project_hint(ParamsError("no such file", where=where, expected="something else"))
        assert isinstance(error, ParamsError)
        assert "costbench init" in str(error.expected)
    elsewhere = ParamsError("no such file", where="step.hlo.pb", expected="something else")
    assert with_project_hint(elsewhere) is elsewhere
    (tmp_path / "params.yaml").write_text("")
    error = ParamsError("no such file", where="data/programs", expected="something else")
    assert with_project_hint(error) is error


def test_errors_about_other_files_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the user's below `data`, and a file of the package's name that is there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "programs").mkdir(parents=True)
    (tmp_path / "data" / "programs" / "manifest.json").write_text("no JSON")
    for where in ("data/step.hlo.pb", "data/programs/step.hlo.pb", "data/programs/manifest.json"):
        error = DataError("cannot be read", where=where, expected="something else")
        assert with_project_hint(error) is error


def test_a_file_where_a_folder_has_to_be_is_one_error_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FIRST, tmp_path / "package", "1", monkeypatch)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "examples").write_text("mine")
    with pytest.raises(DataError, match="is no folder") as error:
        make_project(folder, add=True)
    assert error.value.where == str(folder / "examples")
    assert [path.name for path in folder.iterdir()] == ["examples"]
