"""The same bytes from one process, from two, and from a run whose processes and workers are killed."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.artifacts import digest_files
from costbench.datasets.generation import Backend, ShardTask, generate
from costbench.datasets.tile_generation import TileParams, TileTask
from costbench.errors import DataError
from costbench.execution.workers import run_work_items
from costbench.experiments.archive import part_of, read_parts, write_archive
from costbench.experiments.identity import IDENTITY_FILE
from costbench.experiments.packing import pack
from costbench.experiments.parameter_file import load_params
from costbench.experiments.stages.train import train_timed
from costbench.experiments.workspace import load_workspace
from costbench.target import load_target
from tests.deadline import HANGS_AFTER_S
from tests.pipelines.workplace import (
    EXPERIMENTS,
    PROGRAMS,
    TINY,
    call_stages,
    digest_folder,
    environment,
    write_profile,
)

pytest.importorskip("distributed", reason="needs the extra `scale`")
pytestmark = pytest.mark.pipeline
TILES = 30
VICTIM = "victim"
PACKED = "ablations-tile"
"""Experiment whose results the run on the cluster has from an archive."""
HASH_SEED = "7"
"""Of all processes of the run that is killed; those of the other one take any."""


def _tasks(repository: Path, folder: Path) -> list[ShardTask]:
    targets = (load_target("tpu_v3"),)
    tasks: list[ShardTask] = []
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
            # As in `with_workers.sh`: what nobody reads takes seconds while the processes wait.
            DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED="False",
            DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL="500ms",
            PYTHONHASHSEED=HASH_SEED,
        )
        self._log = (folder / "log").open("w")
        worker = ("worker", "--nthreads", "1", "--no-nanny", "--local-directory", str(folder))
        self.processes = [
            self._start("scheduler", "--host", "127.0.0.1", "--port", "0"),
            self._start(*worker),
            self._start(*worker, "--name", VICTIM),
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


def _wait_until_it_trains(cluster: Cluster, pipeline: Future[subprocess.CompletedProcess[str]]) -> None:
    """Until the worker that is to be killed has a training cell in work."""
    distributed = importlib.import_module("distributed")
    limit = time.monotonic() + HANGS_AFTER_S
    with distributed.Client(scheduler_file=str(cluster.scheduler), set_as_default=False) as client:
        client.wait_for_workers(2, timeout=HANGS_AFTER_S)
        workers = client.scheduler_info()["workers"]
        (victim,) = (address for address, worker in workers.items() if worker["name"] == VICTIM)
        while not any(str(key).startswith(train_timed.__name__) for key in client.processing()[victim]):
            assert not pipeline.done(), pipeline.result().stderr
            assert time.monotonic() < limit
            time.sleep(0.02)
        # Work items pass through the scheduler unread: it has not imported what they compute with.
        assert not client.run_on_scheduler(lambda: "torch" in sys.modules)


def _kill_when(condition: Path, folder: Path, params: Path) -> bool:
    """Start `generate`, kill all its processes once a file is there; whether it was still running."""
    process = subprocess.Popen(
        [sys.executable, "pipelines/generate.py", "--params", str(params)],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None and not condition.exists():
        time.sleep(0.005)
    running = process.poll() is None
    if running:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return running


def _pack(workplace: Path, params: Path, out: Path) -> Path:
    """Packs that experiment of another run for a profile; the archive."""
    archive = workplace / "archive"
    workspace = replace(load_workspace(load_params(workplace / params)), out=out)
    pack(archive, workspace)
    name = part_of("train", PACKED)
    write_archive(archive, workspace.name, {name: read_parts(archive, workspace.name)[name]})
    return archive


def test_a_run_that_loses_its_processes_and_a_worker_leaves_the_same_bytes(
    workplace: Path, cluster: Cluster
) -> None:
    """A run in another folder, beside the one that nothing disturbed; sets in another order, tracking off.

    All its processes, two of which compile programs, are killed in `generate`. It goes on with all that
    computes on a cluster of two workers, one of which is killed while it trains. They are not given what an
    archive has.
    """
    params = write_profile(workplace, "again", {**TINY, "run": {"jobs": 2}})
    undisturbed, killed = (workplace / "out" / name for name in ("smoke", "again"))
    shards = killed / "generate" / "tile" / "tpu_v2"
    assert _kill_when(shards / f"{PROGRAMS[0]}.arrow", workplace, params)
    assert len(list(shards.glob("*.arrow"))) < len(PROGRAMS)
    write_profile(workplace, "again", TINY)
    chosen = {"COSTBENCH_SCHEDULER": str(cluster.scheduler), "PYTHONHASHSEED": HASH_SEED}
    chosen["COSTBENCH_TRACKING"] = "off"
    chosen["COSTBENCH_ARCHIVE"] = str(_pack(workplace, params, undisturbed))
    with ThreadPoolExecutor(1) as thread:
        pipeline = thread.submit(call_stages, workplace, params, **chosen)
        _wait_until_it_trains(cluster, pipeline)
        cluster.kill_a_worker()
        done = pipeline.result()
    assert done.returncode == 0, done.stderr
    assert cluster.processes[-1].wait(10) == -signal.SIGKILL
    trained = {path.parts[-3] for path in (killed / "train").glob("*/*/weights.pt")}
    assert trained == set(EXPERIMENTS) - {PACKED}
    for name in ("rows.jsonl", "scatter.json", IDENTITY_FILE):
        restored = Path("evaluate", PACKED, name)
        assert (undisturbed / restored).read_bytes() == (killed / restored).read_bytes(), name
    computed = [f"{stage}/{one}" for stage in ("train", "evaluate") for one in EXPERIMENTS if one != PACKED]
    for name in ("generate", "split", *computed, "autotune"):
        assert digest_folder(undisturbed / name) == digest_folder(killed / name), name
    # Studies, which `sweep/*.yaml` names, are called after their profile.
    for name in ("sweep/tile.csv", "sweep/fusion.csv"):
        assert (undisturbed / name).read_bytes() == (killed / name).read_bytes(), name
    assert not list(killed.glob(".cluster-*"))
