"""The wheel in an environment of its own, as somebody has it who has no checkout (`make test-wheel`).

Commands run in a folder outside of the repository, where nothing is installed but the wheel and JAX.
Without torch, which some Pythons have with gigabytes of CUDA only, what needs none is run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from functools import cache
from pathlib import Path

import pytest

from costbench.params import merge
from tests.deadline import HANGS_AFTER_S
from tests.pipelines.workplace import PROGRAMS, TINY, stages_run, write_profile

ENVIRONMENT = os.environ.get("COSTBENCH_WHEEL_ENVIRONMENT", "")
pytestmark = [
    pytest.mark.pipeline,
    pytest.mark.skipif(not ENVIRONMENT, reason="`make test-wheel` makes the environment"),
]
SMOKE = "profiles/smoke/params.yaml"
STARTS_WITHIN_S = 300
# One experiment a task: what stages do with others is tested where their processes start faster.
EXPERIMENTS = {"main-tile": (), "main-fusion": (), "tpugraphs-layout": ()}
SMALL = merge(TINY, {"autotune": {task: {"models": [f"main-{task}"]} for task in ("tile", "fusion")}})
JAX_FUNCTION = """
import jax.numpy as jnp


def step(x, w):
    return jnp.tanh(x @ w).sum()
"""


def environment(**more: str) -> dict[str, str]:
    """Variables of a shell in which the environment is active; nothing of the repository's."""
    others = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return others | {"PATH": f"{ENVIRONMENT}/bin{os.pathsep}{os.environ['PATH']}"} | more


def call(folder: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER_S,
    )


def passed(folder: Path, *command: str, **more: str) -> str:
    done = call(folder, *command, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def has_torch() -> bool:
    return call(Path("/"), "python", "-c", "import torch").returncode == 0


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that `costbench init` made, whose smoke profile is tiny."""
    folder = tmp_path_factory.mktemp("wheel") / "study"
    passed(folder.parent, "costbench", "init", str(folder))
    assert passed(folder, "costbench", "init", "--check").count("\n") == 1
    write_profile(folder, "smoke", SMALL, EXPERIMENTS)
    return folder


@pytest.fixture(scope="module")
def finished(project: Path) -> Path:
    """The project after its pipeline has run."""
    if not has_torch():
        pytest.skip("needs torch")
    output = passed(project, "bash", "tools/with_workers.sh", "1", "dvc", "repro", "profiles/smoke/dvc.yaml")
    assert {"inputs", "generate", "train@main-tile", "report"} <= {*stages_run(output)}
    return project


def test_the_package_is_that_of_the_environment(tmp_path: Path) -> None:
    file = passed(tmp_path, "python", "-c", "import costbench; print(costbench.__file__)")
    assert Path(file).is_relative_to(ENVIRONMENT)


@pytest.mark.parametrize("command", ["generate", "programs", "table", "profile", "schedules"])
def test_commands_without_a_project_name_init(command: str, tmp_path: Path) -> None:
    done = call(tmp_path, "costbench", command)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "costbench init" in done.stderr


def test_edits_of_the_user_stay(project: Path) -> None:
    checked = call(project, "costbench", "init", "--check")
    assert checked.returncode == 0
    assert checked.stdout.splitlines()[1:] == [f"edited here: {SMOKE}"]
    edited = (project / SMOKE).read_bytes()
    (project / "examples" / "my_cost_model.py").unlink()
    assert call(project, "costbench", "init", "--check").returncode == 1
    passed(project, "costbench", "init")
    assert (project / SMOKE).read_bytes() == edited
    assert (project / "examples" / "my_cost_model.py").is_file()


def test_the_corpus_is_there(project: Path) -> None:
    listed = json.loads(passed(project, "costbench", "programs", "--json"))
    assert {*PROGRAMS} < {program["name"] for program in listed}


def test_the_pipeline_leaves_a_report_and_has_nothing_more_to_do(finished: Path) -> None:
    reports = finished / "out" / "smoke" / "reports"
    assert (reports / "index.html").is_file()
    summary = json.loads((reports / "summary.json").read_text())
    assert summary["tile/random/tpu_v2/learned/ape_mean"] >= 0
    assert "evidence/index.html" not in (reports / "index.html").read_text()
    again = passed(finished, "dvc", "repro", "profiles/smoke/dvc.yaml")
    assert stages_run(again) == ["inputs"]


def test_tables_runs_and_sweeps(finished: Path) -> None:
    tables = passed(finished, "costbench", "table", "--folder", "out/smoke/reports")
    assert "tile_random_tpu_v2:" in tables
    best = json.loads(passed(finished, "costbench", "runs", "best", "--task", "tile", "--json"))
    assert best
    passed(
        finished, *["costbench", "sweep", "--task", "tile", "--trials", "3", "--jobs", "1", "--params"], SMOKE
    )
    rows = (finished / "out" / "smoke" / "sweep" / "tile.csv").read_text().splitlines()[1:]
    assert {row.partition(",")[0] for row in rows} == {"0", "1", "2"}


def test_mlflow_shows_the_runs(finished: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = f"mlflow ui --backend-store-uri sqlite:///mlflow.db --port {port} --workers 1".split()
    printed = finished.parent / "mlflow.log"
    with printed.open("w") as log:
        server = subprocess.Popen(
            command, cwd=finished, env=environment(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        assert answers(f"http://127.0.0.1:{port}/health", server), printed.read_text()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=STARTS_WITHIN_S)


def answers(address: str, server: subprocess.Popen[bytes]) -> bool:
    end = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=10) as response:
                return bool(response.status == 200)
        except OSError:
            time.sleep(0.5)
    return False


def test_a_function_in_jax_becomes_a_tuned_program(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(JAX_FUNCTION)
    passed(tmp_path, "costbench", "from-jax", "model:step", "f32[256,512]", "f32[512,1024]")
    passed(tmp_path, "costbench", "tune", "step.hlo.pb", "--out", "tuned")
    assert json.loads((tmp_path / "tuned" / "decisions.json").read_text())


def test_programs_are_compiled_and_measured_without_torch(project: Path) -> None:
    if has_torch():
        pytest.skip("the whole pipeline is run instead")
    tiles = {"generate": {**TINY["generate"], "tasks": ["tile"], "chips": ["tpu_v3"]}}
    params = write_profile(project, "tiles", {**SMALL, **tiles}, EXPERIMENTS)
    passed(project, "python", "pipelines/generate.py", "--params", str(params))
    shards = (project / "out" / "tiles" / "generate" / "tile" / "tpu_v3").glob("*.arrow")
    assert {path.stem for path in shards} == {*PROGRAMS}


def test_a_users_program_is_listed(project: Path, repository: Path) -> None:
    program = project / "data" / "programs" / "user" / "mixer.hlo.txt"
    shutil.copy(repository / "tests" / "experiments" / "mixer_step.hlo.txt", program)
    try:
        listed = json.loads(passed(project, "costbench", "programs", "--json"))
        assert "user:mixer" in {program["application"] for program in listed}
    finally:
        program.unlink()
