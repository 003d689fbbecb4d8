"""The three tables by which installed packages add to costbench, with a package made for the purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = '''
import typer

from costbench.extensions import CommandGroup, StageExtension
from costbench.reports.extension import RenderedPart, ReportExtension, ReportPart
from costbench.reports.page import Section


def greet(name: str) -> None:
    """Say hello."""
    typer.echo(f"hello {name}")


def measure() -> None:
    """Measure something."""


def render(findings, figures):
    return RenderedPart((Section("hello", "Hello", "Hello", ("Somebody was here.",)),), {"hello/number": 1.0})


COMMANDS = CommandGroup("Greetings", (greet,))
STAGE = StageExtension(measure, "greetings", lambda params: {"greeting": "hello"})
SECTION = ReportExtension(lambda workspace: ReportPart("Greetings", "From elsewhere.", render))
'''
ENTRY_POINTS = """
[costbench.commands]
greetings = greetings:COMMANDS
[costbench.stages]
measure = greetings:STAGE
[costbench.report_sections]
greetings = greetings:SECTION
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package `greetings`."""
    (tmp_path / "greetings.py").write_text(PACKAGE)
    facts = tmp_path / "greetings-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    return tmp_path


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False, cwd=site
    )


def test_a_command_of_another_package_is_listed_and_runs(site: Path) -> None:
    listed = run(site, "-m", "costbench", "--help")
    assert "Greetings" in listed.stdout
    assert "measure" in listed.stdout
    assert run(site, "-m", "costbench", "greet", "you").stdout == "hello you\n"


def test_its_stage_and_section_are_loaded_and_its_code_is_digested(site: Path) -> None:
    script = """
from pathlib import Path
from costbench.execution.workers import Backend
from costbench.experiments.identity import module_closure
from costbench.experiments.workspace import Workspace
from costbench.extensions import REPORT_SECTIONS, STAGES, StageExtension, load_extensions
from costbench.reports.extension import ReportExtension

stages = load_extensions(STAGES, StageExtension)
print(sorted(stages), dict(stages["measure"].parameters(Path("params.yaml"))))
closure = module_closure(stages["measure"].module)
print("greetings" in closure.modules, "costbench.reports.page" in closure.modules)
folders = [Path(name) for name in ("root", "params.yaml", "out", "reports", "programs")]
extension = load_extensions(REPORT_SECTIONS, ReportExtension)["greetings"]
part = extension.load(Workspace("t", *folders, Backend()))
print([section.title for section in part.render((), Path("figures")).sections])
"""
    done = run(site, "-c", script)
    assert done.stdout.splitlines() == [
        "['measure', 'schedules'] {'greeting': 'hello'}",
        "True True",
        "['Hello']",
    ], done.stderr


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("nowhere:COMMANDS", "cannot be loaded: No module named 'nowhere' (expected nowhere:COMMANDS)"),
        ("greetings:missing", "cannot be loaded"),
        ("greetings:greet", "is a function (expected a CommandGroup)"),
    ],
)
def test_an_entry_point_that_is_wrong_is_one_error(site: Path, value: str, said: str) -> None:
    (site / "greetings-1.0.dist-info" / "entry_points.txt").write_text(
        f"[costbench.commands]\nbad = {value}\n"
    )
    done = run(site, "-m", "costbench", "version")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "entry point bad of costbench.commands" in done.stderr
    assert said in done.stderr
