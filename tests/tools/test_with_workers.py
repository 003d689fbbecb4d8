"""A command gets worker processes for as long as it runs, and what it says is what the script says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="needs the extra `scale`")
pytestmark = pytest.mark.slow
COUNT = """
import os, sys
from distributed import Client
with Client(scheduler_file=os.environ["COSTBENCH_SCHEDULER"], timeout=60) as client:
    client.wait_for_workers(2, timeout=60)
    print(sorted(info["nthreads"] for info in client.scheduler_info()["workers"].values()))
    print(" ".join(str(pid) for pid in client.run(os.getpid).values()))
sys.exit(7)
"""


def _called(repository: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COSTBENCH_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = str(repository / "tools" / "with_workers.sh")
    return subprocess.run(
        ["bash", script, "2", *command],
        env={**kept, "PATH": path, **more},
        capture_output=True,
        text=True,
        check=False,
    )


def test_workers_of_one_thread_live_as_long_as_the_command(repository: Path) -> None:
    done = _called(repository, sys.executable, "-c", COUNT)
    assert done.returncode == 7, done.stderr
    threads, pids = done.stdout.splitlines()
    assert threads == "[1, 1]"
    assert not [pid for pid in pids.split() if Path("/proc", pid).exists()]


def test_a_backend_that_was_chosen_stays(repository: Path) -> None:
    done = _called(repository, "bash", "-c", "echo ${COSTBENCH_SCHEDULER:-none}", COSTBENCH_JOBS="1")
    assert (done.returncode, done.stdout) == (0, "none\n")
