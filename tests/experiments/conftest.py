"""One MLflow database for all tests: creating its tables takes seconds, copying the file does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from costbench.experiments.tracking import prepare


@pytest.fixture(scope="session")
def tracking_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with tables and nothing else."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    prepare(f"sqlite:///{path}", "unused")
    return path


@pytest.fixture
def tracking_store(tracking_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Address of a store of the test's own; artifacts go below `tmp_path` as well."""
    shutil.copy(tracking_template, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path / 'mlflow.db'}"
