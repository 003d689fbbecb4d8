"""One smoke run for all tests of the pipeline, whichever worker process asks for it first."""

from __future__ import annotations

import fcntl
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.experiments.conftest import tracking_template
from tests.pipelines.workplace import REPOSITORY, call, make_workplace

__all__ = ["tracking_template"]


@pytest.fixture(scope="session")
def smoke(tracking_template: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A workplace in which `dvc repro` has run the tiny smoke profile. To be read, not changed."""
    base = tmp_path_factory.getbasetemp()
    # Workers of one test session have folders of their own below a common one.
    shared = base if worker_id == "master" else base.parent
    folder = shared / "smoke"
    with (shared / "smoke.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "smoke.done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            make_workplace(folder)
            shutil.copy(tracking_template, folder / "mlflow.db")
            # As `make demo` does, with one worker, which loads torch and MLflow once for all stages.
            command: list[str | Path] = [
                "bash",
                REPOSITORY / "tools" / "with_workers.sh",
                "1",
                "dvc",
                "repro",
            ]
            done = call(folder, [*command, "profiles/smoke/dvc.yaml"])
            assert done.returncode == 0, done.stdout + done.stderr
            (shared / "smoke.done").write_text(done.stdout)
    return folder


@pytest.fixture
def workplace(smoke: Path, tmp_path: Path) -> Iterator[Path]:
    """A workplace of the test's own, with everything that the smoke run left."""
    folder = tmp_path / "workplace"
    shutil.copytree(smoke, folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    before = set(sys.modules)
    yield folder
    # Stages that ran in this process have imported models from this folder, which is removed now.
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "examples":
            del sys.modules[name]
