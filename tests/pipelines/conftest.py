"""One smoke run for all tests of the pipeline, whichever worker process asks for it first."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.experiments.conftest import tracking_template
from tests.pipelines.workplace import EXPERIMENTS, call, call_stages, make_workplace
from tests.workers import common_folder, first_to_make

__all__ = ["tracking_template"]
PIPELINE = "profiles/smoke/dvc.yaml"


@pytest.fixture(scope="session")
def smoke(tracking_template: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A workplace in which the tiny smoke profile has run. To be read, not changed.

    DVC runs the stages up to the first that imports torch. The others run in one process, since each process
    takes seconds of processor time before it works, and `dvc commit` notes what they leave.
    """
    shared = common_folder(tmp_path_factory, worker_id)
    folder = shared / "smoke"
    with first_to_make("smoke", shared) as is_first:
        if is_first:
            shutil.rmtree(folder, ignore_errors=True)
            make_workplace(folder)
            shutil.copy(tracking_template, folder / "mlflow.db")
            remaining = [
                *("features", "sweep"),
                *(f"train:{name}" for name in EXPERIMENTS),
                *(f"evaluate:{name}" for name in EXPERIMENTS),
                *("autotune", "schedules", "register", "report"),
            ]
            for run in (
                lambda: call(folder, ["dvc", "repro", f"{PIPELINE}:split"]),
                lambda: call_stages(folder, Path("profiles/smoke/params.yaml"), remaining),
                lambda: call(folder, ["dvc", "commit", "--force", PIPELINE]),
            ):
                done = run()
                assert done.returncode == 0, done.stdout + done.stderr
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
