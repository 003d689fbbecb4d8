"""One smoke run for all tests of the pipeline, whichever worker process asks for it first."""

from __future__ import annotations

import fcntl
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.experiments.conftest import tracking_template
from tests.pipelines.workplace import EXPERIMENTS, REPOSITORY, call, call_stages, make_workplace

__all__ = ["tracking_template"]
PIPELINE = "profiles/smoke/dvc.yaml"


@pytest.fixture(scope="session")
def smoke(tracking_template: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A workplace in which DVC has run the tiny smoke profile. To be read, not changed.

    The stages up to the first training run as in `make demo`. The others run in one process, since each
    process takes three seconds before it works, and `dvc commit` notes what they leave.
    """
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
            first, *others = EXPERIMENTS
            with_worker = ["bash", REPOSITORY / "tools" / "with_workers.sh", "1", "dvc", "repro"]
            remaining = [
                *(f"train:{name}" for name in others),
                *(f"evaluate:{name}" for name in EXPERIMENTS),
                *("autotune", "schedules", "register", "report"),
            ]
            for run in (
                lambda: call(folder, [*with_worker, f"{PIPELINE}:train@{first}"]),
                lambda: call_stages(folder, Path("profiles/smoke/params.yaml"), remaining),
                lambda: call(folder, ["dvc", "commit", "--force", PIPELINE]),
            ):
                done = run()
                assert done.returncode == 0, done.stdout + done.stderr
            (shared / "smoke.done").touch()
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
