"""A disk that is full while shards are written: one line, exit code 1, and the next run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from costbench.datasets.storage import Shard, list_shards
from costbench.experiments.stages import generate
from tests.deadline import HANGS_AFTER_S
from tests.pipelines.workplace import PROGRAMS, REPOSITORY, TINY, environment, write_profile

pytestmark = pytest.mark.pipeline
_TILE = {"max_tiles_per_kernel": 40, "max_kernels_per_program": 0, "seed": 0}
_GENERATE = {"tasks": ["tile"], "programs": list(PROGRAMS[2:4]), "tile": _TILE}
# The first shard has 1034 samples of 16 bytes.
_LARGEST_FILE = 12_000


def _profile(folder: Path, name: str, out: Path) -> Path:
    run = {"root": str(REPOSITORY), "out": str(out), "jobs": 1}
    return folder / write_profile(folder, name, {**TINY, "generate": _GENERATE, "run": run})


def _generate(params: Path, under: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The generator, started by the command `under`."""
    return subprocess.run(
        [*under, sys.executable, "pipelines/generate.py", "--params", str(params)],
        cwd=REPOSITORY,
        env=environment(REPOSITORY, PYTHONPATH=os.pathsep.join(path for path in sys.path if path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER_S,
    )


def _check_failed(done: subprocess.CompletedProcess[str], out: Path, reason: str) -> None:
    """One line that names the file; nothing half-written, neither as a shard nor as a temporary."""
    assert done.returncode == 1, done.stderr
    error = done.stderr.splitlines()[-1]
    assert error.startswith("generate: error: ")
    assert reason in error
    assert str(out) in error
    assert "Traceback" not in done.stderr
    assert [path for path in out.rglob("*") if path.name.startswith(".tmp-")] == []
    for path in list_shards(out) if out.is_dir() else ():
        Shard.open(path)


def _check_goes_on(params: Path, out: Path) -> None:
    generate.run(params)
    shards = list_shards(out)
    assert [path.stem for path in shards] == list(PROGRAMS[2:4])
    for path in shards:
        assert len(Shard.open(path)["config_tile"]) > 0


def test_a_file_that_must_not_grow(tmp_path: Path) -> None:
    """The limit on the size of files (EFBIG) stops the first write that is larger."""
    out = tmp_path / "out"
    params = _profile(tmp_path, "limited", out)

    # Not `preexec_fn`: it forks this process, and JAX, where another test has loaded it, forbids that.
    limits = f"({_LARGEST_FILE}, {_LARGEST_FILE})"
    code = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, {limits}); "
    under = (sys.executable, "-c", code + "os.execv(sys.argv[1], sys.argv[1:])")
    _check_failed(_generate(params, under), out, "File too large")
    _check_goes_on(params, out)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24k", "costbench", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_full(small_disk: Path, tmp_path: Path) -> None:
    out = small_disk / "out"
    params = _profile(tmp_path, "full", out)
    _check_failed(_generate(params), out, "No space left on device")
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    _check_goes_on(params, out)
