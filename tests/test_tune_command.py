"""`costbench tune` as people meet it, on a program that is not in the corpus."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from costbench.cli import app
from costbench.errors import ChoiceError, DataError
from tests.experiments.small_programs import small_file

QUICK = ["--budget", "2", "--model-budget", "0.003", "--compile-s", "14.4"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dump that JAX writes; a small one of our own where JAX is not installed."""
    folder = tmp_path_factory.mktemp("programs")
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return small_file(folder)

    def step(x: object, w: object) -> object:
        h = jnp.tanh(x @ w)  # type: ignore[operator]
        return (h * h).sum(axis=0)

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((256, 512), (512, 1024))]
    path = folder / "step.hlo.pb"
    hlo = jax.jit(step).lower(*shapes).compiler_ir("hlo")
    path.write_bytes(hlo.as_serialized_hlo_module_proto())
    return path


@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_a_program_of_ones_own(program: Path, tmp_path: Path, task: str) -> None:
    arguments = ["tune", str(program), "--task", task, "--out", str(tmp_path / "out"), *QUICK]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "times as fast" in result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"decisions.json", "costs.csv", "search.svg", "search.png", "settings.json", "traces"}
    decisions = json.loads((tmp_path / "out" / "decisions.json").read_text())
    assert decisions["task"] == task
    assert decisions["speedup"] >= 1.0
    assert len((tmp_path / "out" / "costs.csv").read_text().splitlines()) == 1 + decisions["num_measured"]
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    again = CliRunner().invoke(app, [*arguments, "--resume"])
    assert again.exit_code == 0, again.output
    assert {path: path.read_bytes() for path in before} == before


def test_the_command_explains_itself() -> None:
    result = CliRunner().invoke(app, ["tune", "--help"])
    assert result.exit_code == 0
    assert all(word in result.output for word in ("--resume", "--budget", "--model", "Ctrl-C"))


def test_what_the_user_can_mend(program: Path, tmp_path: Path) -> None:
    def error(*arguments: str) -> Exception:
        found = CliRunner().invoke(app, ["tune", *arguments, "--out", str(tmp_path / "out")]).exception
        assert isinstance(found, Exception)
        return found

    assert isinstance(error(str(program), "--task", "layout"), ChoiceError)
    assert "nowhere.pb" in str(error(str(tmp_path / "nowhere.pb")))
    assert isinstance(error(str(program), "--budget", "0"), DataError)
    assert "settings.json" in str(error(str(program), "--resume"))


def test_ctrl_c_keeps_the_best(repository: Path, tmp_path: Path) -> None:
    file = repository / "data" / "programs" / "rnn_char_b64_infer_f32.hlo.pb.zst"
    arguments = [str(file), "--task", "fusion", "--model-budget", "600", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "costbench", "tune", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            deadline = time.monotonic() + 120
            # The folder of traces is made when the first search begins.
            while not (tmp_path / "out" / "traces").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(1)
            running.send_signal(signal.SIGINT)
            output, errors = running.communicate(timeout=120)
        finally:
            running.kill()
    assert running.returncode == 130, errors
    assert errors.splitlines()[-1] == "costbench: stopped; --resume goes on"
    assert "ms by default" in output
    assert json.loads((tmp_path / "out" / "decisions.json").read_text())["speedup"] >= 1.0
