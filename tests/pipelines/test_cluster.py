"""The same bytes from one process, two processes and a Dask cluster of which a worker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from costbench.artifacts import digest_files
from costbench.datasets.generation import Backend, ShardSummary, Task, generate
from costbench.datasets.storage import verify_shard
from costbench.datasets.tile.generation import TileParams, TileTask
from costbench.errors import DataError
from costbench.execution.workers import run_work_items
from costbench.target import load_target
from tests.deadline import HANGS_AFTER_S
from tests.pipelines.workplace import PROGRAMS, environment

pytest.importorskip("distributed", reason="needs the extra `scale`")
pytestmark = pytest.mark.pipeline
TILES = 30


def _tasks(repository: Path, folder: Path) -> list[Task]:
    targets = (load_target("tpu_v3"),)
    tasks: list[Task] = []
    for name in PROGRAMS:
        program = (repository / "data" / "programs" / f"{name}.hlo.pb.zst").read_bytes()
        tasks.append(TileTask(name, "Any", program, targets, TileParams(TILES), folder))
    return tasks


def _digest(folder: Path) -> str:
    return digest_files([path for path in folder.rglob("*") if path.is_file()], folder)


@pytest.fixture(scope="module")
def serial(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set that one process makes."""
    folder = tmp_path_factory.mktemp("serial")
    generate(_tasks(repository, folder), Backend())
    return folder


class Cluster:
    """A scheduler and two workers of one thread, each a process on the loopback interface."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self.scheduler = folder / "scheduler.json"
        # The scheduler gives a work item up with its first worker, so that it is costbench that tries again.
        self._environment = environment(
            repository,
            PYTHONPATH=os.pathsep.join(p for p in sys.path if p),
            DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0",
        )
        self._log = (folder / "log").open("w")
        worker = ("worker", "--nthreads", "1", "--no-nanny", "--local-directory", str(folder))
        self.processes = [
            self._start("scheduler", "--host", "127.0.0.1", "--port", "0"),
            self._start(*worker),
            self._start(*worker),
        ]

    def _start(self, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{role}", *arguments]
        command += ["--no-dashboard", "--scheduler-file", str(self.scheduler)]
        return subprocess.Popen(command, env=self._environment, stdout=self._log, stderr=self._log)

    def kill_a_worker(self) -> None:
        """As a machine that is switched off."""
        self.processes[-1].send_signal(signal.SIGKILL)

    def stop(self) -> None:
        """End what is left of it."""
        for process in self.processes:
            process.kill()
            process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), repository)
    limit = time.monotonic() + HANGS_AFTER_S
    while not cluster.scheduler.exists() or not cluster.scheduler.read_text().endswith("}"):
        assert time.monotonic() < limit
        time.sleep(0.05)
    yield cluster
    cluster.stop()


def test_two_processes_leave_the_same_bytes(serial: Path, repository: Path, tmp_path: Path) -> None:
    generate(_tasks(repository, tmp_path), Backend(jobs=2))
    assert _digest(tmp_path) == _digest(serial)


def _fail(place: str) -> None:
    raise DataError("broken", where=place)


def test_errors_of_a_cluster_keep_type_and_place(cluster: Cluster) -> None:
    backend = Backend("dask", scheduler=str(cluster.scheduler))
    with pytest.raises(DataError, match="here: broken"):
        run_work_items(_fail, {"a": "here"}, backend, lambda name, result: None)


def test_a_cluster_that_loses_a_worker_leaves_the_same_bytes(
    serial: Path, repository: Path, tmp_path: Path, cluster: Cluster
) -> None:
    done: list[ShardSummary] = []

    def kill_after_the_first(summary: ShardSummary) -> None:
        done.append(summary)
        if len(done) == 1:
            cluster.kill_a_worker()

    tasks = _tasks(repository, tmp_path)
    found = generate(tasks, Backend("dask", scheduler=str(cluster.scheduler)), kill_after_the_first)
    assert cluster.processes[-1].wait(10) == -signal.SIGKILL
    assert sorted(summary.name for summary in done) == sorted(PROGRAMS)
    assert [summary.name for summary in found] == list(PROGRAMS)
    for task in tasks:
        assert len(verify_shard(task.paths[0])["config_tile"]) > 0
    assert _digest(tmp_path) == _digest(serial)
