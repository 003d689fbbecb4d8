"""The command line as people meet it: its output, its exit codes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from costbench.cli.app import complete_app
from costbench.cli.stages import EpochLines
from costbench.errors import DataError
from costbench.experiments.grid.cells import Cell
from tests.command_line import Done, click_command, costbench, costbench_process, one_error
from tests.experiments.conftest import tracking_store, tracking_template
from tests.experiments.finished_cells import track_cell

__all__ = ["tracking_store", "tracking_template"]

PIPELINE = (
    "collect", "generate", "split", "features", "sweep", "train", "evaluate", "autotune", "register", "report"
)  # fmt: skip
TPUGRAPHS = ("import-tpugraphs", "export-tpugraphs", "featurize", "score", "submission")
SCHEDULES = (
    "schedules",
    "tune-schedule",
    "record-schedules",
    "schedule-card",
    "schedule-noise",
    "show-schedule",
)
COMMANDS = [
    "version",
    "params",
    "profile",
    "programs",
    "table",
    "runs",
    "fidelity",
    "import-profile",
    *SCHEDULES,
    *TPUGRAPHS,
    *PIPELINE,
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(complete_app(), [command, "--help"])
    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 5


def test_help_lists_every_command_and_the_order_of_the_pipeline() -> None:
    output = CliRunner().invoke(complete_app(), ["--help"]).output
    assert [command for command in COMMANDS if command not in output] == []
    assert " → ".join(PIPELINE) in " ".join(output.split())


def test_the_page_about_commands_names_every_command(repository: Path) -> None:
    page = (repository / "docs" / "cli.md").read_text("utf-8")
    commands = click_command().commands
    assert [name for name in commands if not re.search(rf"(costbench |`){name}\b", page)] == []


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from costbench.cli.app import app; from costbench.experiments.stages import entry; "
        "heavy = {'torch', 'mlflow', 'pandas', 'matplotlib', 'jax', 'scipy', 'numpy', 'dvc', 'joblib'}; "
        "heavy |= {'optuna', 'sqlalchemy'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_programs_lists_the_corpus(repository: Path) -> None:
    folder = str(repository / "data" / "programs")
    listed = CliRunner().invoke(complete_app(), ["programs", "--folder", folder, "--json"])
    manifest = json.loads((repository / "data" / "programs" / "manifest.json").read_text())
    names = {row["name"] for row in manifest["programs"]}
    assert names <= {entry["name"] for entry in json.loads(listed.output)}
    table = CliRunner().invoke(complete_app(), ["programs", "--folder", folder]).output
    assert all(name in table for name in names)


def test_fidelity_of_the_calibration_kernels(shared_data: Path) -> None:
    file = str(shared_data / "real_tpu" / "tile_calibration.pb")
    report = json.loads(
        CliRunner().invoke(complete_app(), ["fidelity", file, "--chip", "tpu_v3", "--json"]).output
    )
    assert report["chip"] == "tpu_v3"
    assert report["overall"]["kendall_tau"] >= 0.80
    assert report["overall"]["mape"] <= 30.0
    assert set(report["kernels"][0]) >= {
        "kendall_tau",
        "top1_slowdown",
        "mape",
        "tau_fastest_quartile",
        "num_runs",
    }
    table = CliRunner().invoke(complete_app(), ["fidelity", file]).output
    assert "overall" in table


@pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning")  # MLflow's own use of SQLAlchemy
def test_runs_are_listed_best_first(
    tracking_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_store)
    for variant, tau in (("worse", 0.25), ("better", 0.75)):
        cell = Cell("tile", "random", "tpu_v2", variant, 0)
        track_cell(tracking_store, cell, tmp_path / variant, "key", tau)
    listed = CliRunner().invoke(complete_app(), ["runs", "best", "--task", "tile", "--json"])
    assert [run["variant"] for run in json.loads(listed.output)] == ["better", "worse"]
    table = CliRunner().invoke(complete_app(), ["runs", "best", "--task", "tile", "--limit", "1"]).output
    assert "p/main/tile-random-tpu_v2-better" in table
    assert "0.7500" in table
    assert "longer there" in table
    assert "worse" not in table
    none = CliRunner().invoke(complete_app(), ["runs", "best", "--task", "tile", "--chip", "tpu_v9"])
    assert isinstance(none.exception, DataError)


def test_an_unknown_command_is_a_usage_error(tmp_path: Path) -> None:
    assert costbench(["genrate"], tmp_path).returncode == 2


@pytest.mark.parametrize("run", [costbench, costbench_process])
def test_a_missing_programs_folder_is_one_error(run: Callable[..., Done], tmp_path: Path) -> None:
    """In a process, too: nothing that it imports says anything."""
    assert "no such programs folder" in one_error(run(["programs", "--folder", "none"], tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"this is no protocol buffer", "broken.pb"),
        (b"", "broken.pb"),
    ],
)
def test_files_that_are_no_recorded_runs_are_one_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "broken.pb").write_bytes(content)
    assert message in one_error(costbench(["fidelity", "broken.pb"], tmp_path))


def test_an_unknown_chip_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "x.pb").write_bytes(b"")
    line = one_error(costbench(["fidelity", "x.pb", "--chip", "tpu_v9"], tmp_path))
    assert "unknown chip 'tpu_v9'" in line
    assert "tpu_v3" in line


def test_an_unknown_program_of_the_corpus_is_one_error(repository: Path, tmp_path: Path) -> None:
    command = ["collect", "--folder", tmp_path, "resnet"]
    assert "unknown program 'resnet'" in one_error(costbench(command, repository))


def test_the_corpus_is_made_in_a_checkout_alone(tmp_path: Path) -> None:
    assert "no makers of the corpus (expected a checkout" in one_error(costbench(["collect"], tmp_path))


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_an_unknown_experiment_is_one_error(command: str, repository: Path, tmp_path: Path) -> None:
    params = repository / "profiles" / "smoke" / "params.yaml"
    line = one_error(costbench([command, "--params", params, "--experiment", "none-such"], tmp_path))
    assert "no experiment 'none-such'" in line
    assert "main-tile, main-fusion" in line


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["train", "--settings", "sage.yaml"], "--settings"),
        (["evaluate", "--json"], "--json"),
        (["train", "--data", "net.npz", "--params", "params.yaml"], "--params"),
        (["evaluate", "--data", "net.npz", "--experiment", "main-tile"], "--experiment"),
        (["measure", "programs", "--record", "records", "--json"], "--json"),
        (["measure", "step.hlo.pb", "--rounds", "3"], "--rounds"),
        (["tune", "step.hlo.pb", "--task", "fusion", "--top-k", "3"], "--top-k"),
        (["tune", "step.hlo.pb", "--task", "layout", "--top-k", "3"], "--top-k"),
        (["tune", "step.hlo.pb", "--compile-s", "3"], "--compile-s"),
        (["tune", "step.hlo.pb", "--task", "tile", "--model-budget", "3"], "--model-budget"),
        (["collect", "alexnet_b128_train_f32", "--processor"], "NAMES"),
        (["params", "train.tile", "--comment"], "KEY"),
        (["params", "train.tile", "--renew"], "KEY"),
        (["export-tpugraphs", "data", "--no-npz", "--no-raw"], "--no-npz --no-raw"),
    ],
    ids=str,
)
def test_options_without_effect_are_refused(arguments: list[str], option: str) -> None:
    """`train --settings` alone would train all experiments with other settings."""
    error = CliRunner().invoke(complete_app(), arguments).exception
    assert isinstance(error, DataError)
    assert error.field == option


def test_a_profile_is_set_and_taken_back(repository: Path, tmp_path: Path) -> None:
    folders = ("", *(f"profiles/{name}/" for name in ("smoke", "evidence", "paper")))
    for name in (f"{folder}params.yaml" for folder in folders):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repository / name, tmp_path / name)
    listed = costbench(["profile"], tmp_path)
    assert [line.split()[1] for line in listed.stdout.splitlines()[3:-1]] == [
        "laptop",
        "evidence",
        "paper",
        "smoke",
    ]
    done = costbench(["profile", "paper"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "32 to 1,024" in done.stdout
    assert "3,000,000" in done.stdout
    assert done.stdout.endswith("Back: costbench profile laptop\n")
    assert one_error(costbench(["profile", "papier"], tmp_path)).endswith(
        "(expected evidence, laptop, paper, smoke)"
    )
    assert costbench(["profile", "laptop"], tmp_path).returncode == 0
    assert (tmp_path / "params.yaml").read_bytes() == (repository / "params.yaml").read_bytes()


def test_metrics_of_epochs_are_printed_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 4.0, 5.0])
    lines = EpochLines(lambda: next(times))
    for step, loss in ((10, 0.5), (20, 0.4), (30, 0.25)):
        lines.log_metrics({"loss": loss, "opa": 0.75}, step)
    printed = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1:] for line in printed] == [
        ["step 10", "loss 0.5000, opa 0.7500"],
        ["step 30", "loss 0.2500, opa 0.7500"],
    ]
