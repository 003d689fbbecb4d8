"""Commands for schedules that need no compiler, and what the others say without one."""

from __future__ import annotations

import importlib.util
import json
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from costbench.cli.app import complete_app
from costbench.errors import ChoiceError, CostbenchError
from costbench.installation import install_line
from costbench_schedules.devices import device as device_module
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records import recording
from costbench_schedules.records.table import read_table
from costbench_schedules.spaces.sub_spaces import recorded_space
from tests.schedules.devices.fake import fake


def test_a_schedule_is_shown_as_loops() -> None:
    result = CliRunner().invoke(complete_app(), ["show-schedule", "matmul:m=8,n=16,k=4", "0"])
    assert result.exit_code == 0
    assert "# order: S0 S1 S2 R0 R1 S3" in result.output
    assert "sums += left * right" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show-schedule", "matmul-256", "4000"], "no configuration 4000"),
        (["show-schedule", "C13", "0"], "unknown workload"),
        (["record-schedules", "C13", "--out", "nowhere"], "unknown workload"),
        (["record-schedules", "C6", "matmul:m=4,n=4", "--out", "nowhere"], "missing"),
        (["schedule-card", "nowhere"], "no tables"),
        (["schedule-card", "nowhere", "--check", "--remarks", "quiet"], "--remarks"),
    ],
)
def test_mistakes_are_one_error(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(complete_app(), arguments)
    assert isinstance(result.exception, CostbenchError)
    assert said in str(result.exception)


def test_noise_is_of_different_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "Limits", lambda: fake("ran", "ran", "ran", "ran"))
    workload = "matmul:m=2,n=2,k=2"
    arguments = ["schedule-noise", workload, "--schedules", "1000", "--rounds", "2", "--json"]
    result = CliRunner().invoke(complete_app(), arguments)
    assert json.loads(result.output)["schedules"] == recorded_space(parse_operator(workload)).size
    result = CliRunner().invoke(complete_app(), [*arguments, "--target", "z80"])
    assert isinstance(result.exception, ChoiceError)


def test_a_table_of_failures_alone_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        recording,
        "RecordingSpec",
        partial(recording.RecordingSpec, limits=fake("build", "build", "build", "build")),
    )
    arguments = ["record-schedules", "matmul:m=2,n=2,k=2", "--out", str(tmp_path)]
    result = CliRunner().invoke(complete_app(), arguments)
    assert result.exit_code == 0, result.exception
    [path] = (tmp_path / "native").iterdir()
    table = read_table(path)
    assert (table.complete, table.failed.all()) == (True, True)


@pytest.mark.skipif(importlib.util.find_spec("tvm") is not None, reason="TVM is installed")
@pytest.mark.parametrize(
    "arguments",
    [
        ["show-schedule", "matmul-256", "0", "--as", "code"],
        ["schedule-noise", "matmul-256"],
        ["record-schedules", "matmul-256", "--out", "out"],
    ],
)
def test_without_the_compiler_the_extra_is_named(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(complete_app(), arguments)
    assert isinstance(result.exception, CostbenchError)
    assert result.exception.expected == install_line("cpu")
    assert not list(tmp_path.iterdir())
