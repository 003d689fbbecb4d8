"""docs/your_machine.md from a user's position, on the backend that every JAX has: the processor."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import costbench
from tests.deadline import HANGS_AFTER_S
from tests.pipelines.workplace import REPOSITORY

PAGE = REPOSITORY / "docs" / "your_machine.md"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs the extra jax"),
]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def write_profile(folder: Path, lines: str) -> None:
    """In a process of its own, of which nothing else is profiled."""
    done = subprocess.run(
        [sys.executable, "-c", lines],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER_S,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr


def test_the_lines_of_the_page_profile_and_score_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, read = blocks("python")
    (command,) = [line.removeprefix("$ costbench ") for line in "".join(blocks("console")).splitlines()]
    write_profile(tmp_path, profile)
    done = costbench([*command.split(), "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    (program,) = printed["programs"]
    assert (program["name"], program["executions"], printed["chip"]) == ("jit_step", 10, "cpu")
    # What ran is in samples but for tuples and copies of arguments.
    assert printed["share"] > 0.95
    assert printed["num_damaged"] == 0
    (score,) = printed["scores"]
    assert (score["program"], score["model"]) == ("jit_step", "analytical")
    assert 2 <= score["kernels"] <= program["kernels"]
    assert 0.0 <= score["metrics"]["mape"] < 1000.0
    assert abs(score["metrics"]["kendall_tau"]) <= 1.0 + 1e-9
    # 302 million operations take no microsecond, whatever the machine.
    monkeypatch.chdir(tmp_path)
    exec(compile(read, "read", "exec"), {})
    lines = [line.rsplit(" ", 1) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == program["kernels"]
    times = {kernel: int(runtime.strip("[]")) for kernel, runtime in lines}
    # The kernel that has the product is called after its root, which XLA chooses.
    assert 100_000 < max(times.values()) <= program["run_ns"]
