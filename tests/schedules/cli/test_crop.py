"""Commands of the analytical model, on features of a kernel that was written by hand."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from costbench.cli.app import complete_app
from costbench.errors import CostbenchError
from costbench.installation import install_line
from costbench_schedules.cli.crop import largest_part
from costbench_schedules.devices.instrumented.description import as_mapping
from costbench_schedules.devices.processor import load_processor
from costbench_schedules.llvm.features import ProgramFeatures
from costbench_schedules.records.programs import read_programs
from tests.schedules.crop.machines import features
from tests.schedules.llvm import kernels

TABLES = Path(__file__).parents[3] / "data" / "schedules"
SCHEDULE = ["explain", "matmul:m=8,n=16,k=4", "0"]


def test_the_largest_part_is_what_to_change_first() -> None:
    parts = {"compute": 30.0, "L2": 60.0, "branches": 10.0}
    assert largest_part(parts) == ("L2", 2.5)
    assert largest_part({"compute": 3.0}) == ("compute", float("inf"))


def test_a_schedule_is_explained_and_drawn(tmp_path: Path) -> None:
    counts = {("entry", "loop"): 1, ("loop", "loop"): 99, ("loop", "done"): 1}
    features(kernels.vector_loop(8, 8), counts).save(tmp_path / "f.npz")
    options = ["--features", str(tmp_path / "f.npz"), "--plot", str(tmp_path / "figure")]
    result = CliRunner().invoke(complete_app(), [*SCHEDULE, *options, "--processor", "amd_epyc_7763"])
    assert result.exit_code == 0, result.output
    assert "AMD EPYC 7763, 1 threads" in result.output
    assert "kernel:loop" in result.output
    assert "compute" in result.output
    assert (tmp_path / "figure.svg").stat().st_size > 1000
    assert (tmp_path / "figure.png").exists()


def test_features_of_another_schedule_are_refused(tmp_path: Path) -> None:
    counts = {("entry", "loop"): 1, ("loop", "loop"): 99, ("loop", "done"): 1}
    of_schedule = replace(
        features(kernels.vector_loop(8, 8), counts), subject="schedule 0 of matmul:m=8,n=16,k=4"
    )
    of_schedule.save(tmp_path / "f.npz")
    options = ["--features", str(tmp_path / "f.npz")]
    assert CliRunner().invoke(complete_app(), [*SCHEDULE, *options]).exit_code == 0
    for other in (["explain", "C6", "0"], [*SCHEDULE[:2], "1"]):
        error = CliRunner().invoke(complete_app(), [*other, *options]).exception
        assert isinstance(error, CostbenchError)
        assert error.where == str(tmp_path / "f.npz")


def test_two_descriptions_of_one_name_both_show(tmp_path: Path) -> None:
    counts = {("entry", "loop"): 1, ("loop", "loop"): 99, ("loop", "done"): 1}
    features(kernels.vector_loop(8, 8), counts).save(tmp_path / "f.npz")
    other = tmp_path / "other.yaml"
    with other.open("w", encoding="utf-8") as file:
        YAML().dump(as_mapping(load_processor("amd_epyc_7763")), file)
    options = ["--features", str(tmp_path / "f.npz"), "--plot", str(tmp_path / "figure")]
    processors = ["--processor", "amd_epyc_7763", "--processor", str(other)]
    result = CliRunner().invoke(complete_app(), [*SCHEDULE, *options, *processors])
    assert result.exit_code == 0, result.output
    assert "AMD EPYC 7763, 1 threads" in result.output
    assert "AMD EPYC 7763 (2), 1 threads" in result.output
    assert "AMD EPYC 7763 (2)" in (tmp_path / "figure.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*SCHEDULE, "--processor", "z80"], "unknown processor"),
        ([*SCHEDULE, "--threads", "1000"], "1000 threads"),
        (["explain", "matmul:m=8,n=16,k=4", "99999"], "no configuration 99999"),
        (["explain", "C13", "0"], "unknown workload"),
    ],
)
def test_mistakes_are_one_error(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(complete_app(), arguments)
    assert isinstance(result.exception, CostbenchError)
    assert said in str(result.exception)


@pytest.mark.skipif(importlib.util.find_spec("tvm") is not None, reason="TVM is installed")
def test_without_the_compiler_the_extra_is_named() -> None:
    for arguments in (SCHEDULE, ["analyse-tables", "matmul-512", "--tables", str(TABLES), "--out", "none"]):
        result = CliRunner().invoke(complete_app(), arguments)
        assert isinstance(result.exception, CostbenchError)
        assert result.exception.expected == install_line("cpu")


@pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="needs the extra cpu (TVM)")
def test_programs_of_a_table_are_analysed(tmp_path: Path) -> None:
    arguments = ["matmul-512", "--tables", str(TABLES), "--out", str(tmp_path), "--most", "2"]
    result = CliRunner().invoke(complete_app(), ["analyse-tables", *arguments])
    assert result.exit_code == 0, result.output
    programs = read_programs(tmp_path / "matmul-512x512x512.arrow")
    contents = [ProgramFeatures.from_bytes(content, "a program") for content in programs.features]
    assert [content.names != () for content in contents] == [True, True]


@pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="needs the extra cpu (TVM)")
def test_a_schedule_is_built_and_explained(tmp_path: Path) -> None:
    result = CliRunner().invoke(complete_app(), [*SCHEDULE, "--features", str(tmp_path / "f.npz")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "f.npz").exists()
