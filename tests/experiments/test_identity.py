"""Revisions and digests of code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from costbench.experiments.identity import UNKNOWN_REVISION, git_revision


def _git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def test_revision_says_whether_code_differs(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("1")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "one")
    clean = git_revision(tmp_path)
    assert len(clean) == 40
    (tmp_path / "notes.md").write_text("notes are not code")
    assert git_revision(tmp_path) == clean
    (tmp_path / "src" / "a.py").write_text("2")
    assert git_revision(tmp_path) == f"{clean}+changes"


def test_outside_of_a_repository_there_is_no_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_revision(tmp_path) == UNKNOWN_REVISION
    monkeypatch.setenv("PATH", "")
    assert git_revision(tmp_path) == UNKNOWN_REVISION
