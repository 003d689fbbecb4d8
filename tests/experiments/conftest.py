"""One MLflow database for all tests: creating its tables takes seconds, copying the file does not."""

from __future__ import annotations

import fcntl
import shutil
import warnings
from pathlib import Path

import pytest

from costbench.experiments.tracking import prepare


@pytest.fixture(scope="session")
def tracking_template(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A database with tables and nothing else, shared by the worker processes of a test session."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    path = shared / "template.db"
    with (shared / "template.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with warnings.catch_warnings():
                # Of MLflow's own tables, said once by whoever comes first.
                warnings.filterwarnings("ignore", message="The ``noload``")
                prepare(f"sqlite:///{shared / 'making.db'}", "unused")
            (shared / "making.db").rename(path)
    return path


@pytest.fixture
def tracking_store(tracking_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Address of a store of the test's own; artifacts go below `tmp_path` as well."""
    shutil.copy(tracking_template, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path / 'mlflow.db'}"
