"""Databases of tests, in memory where that is possible: a disk makes them wait at every transaction.

One database of MLflow and one of Optuna for all tests: creating their tables takes up to seconds, copying a
file does not.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from costbench.experiments.sweeps.study import StorageSpec, open_storage
from costbench.experiments.tracking.runs import prepare
from tests.workers import common_folder, first_to_make

_MEMORY = Path("/dev/shm")


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder for small files, in memory if the machine has such a place."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="costbench-", dir=place) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def study_template(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A database of Optuna with tables and no study, shared by the worker processes of a test session."""
    shared = common_folder(tmp_path_factory, worker_id)
    path = shared / "studies.db"
    with first_to_make("studies", shared) as is_first:
        if is_first:
            with quick_folder() as folder:
                open_storage(StorageSpec(f"sqlite:///{folder / 'making.db'}"))
                shutil.copy(folder / "making.db", path)
    return path


@pytest.fixture
def url(study_template: Path) -> Iterator[str]:
    """Of a database for studies, without one."""
    with quick_folder() as folder:
        shutil.copy(study_template, folder / "optuna.db")
        yield f"sqlite:///{folder / 'optuna.db'}"


@pytest.fixture(scope="session")
def tracking_template(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A database with tables and nothing else, shared by the worker processes of a test session."""
    shared = common_folder(tmp_path_factory, worker_id)
    path = shared / "template.db"
    with first_to_make("template", shared) as is_first:
        if is_first:
            with warnings.catch_warnings(), quick_folder() as folder:
                # Of MLflow's own tables, said once by whoever comes first.
                warnings.filterwarnings("ignore", message="The ``noload``")
                prepare(f"sqlite:///{folder / 'making.db'}", "unused")
                shutil.copy(folder / "making.db", path)
    return path


@pytest.fixture
def tracking_store(tracking_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a store of the test's own; artifacts go below `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    with quick_folder() as folder:
        shutil.copy(tracking_template, folder / "mlflow.db")
        yield f"sqlite:///{folder / 'mlflow.db'}"
