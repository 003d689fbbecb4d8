"""The guide for contributors names files, targets and tables that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

GUIDE = "CONTRIBUTING.md"


def named(text: str) -> list[str]:
    """What stands in backticks and has a slash or the ending of a file, arguments and commands apart."""
    spans = re.findall(r"`([^`\s]+)`", text)
    return [span for span in spans if "/" in span or span.endswith((".yaml", ".toml", ".lock", ".md"))]


def test_paths_exist(repository: Path) -> None:
    paths = named((repository / GUIDE).read_text("utf-8"))
    assert len(paths) > 25
    assert [path for path in paths if not (repository / path).exists()] == []


def test_make_targets_exist(repository: Path) -> None:
    targets = re.findall(r"`make ([a-z-]+)`", (repository / GUIDE).read_text("utf-8"))
    makefile = (repository / "Makefile").read_text("utf-8")
    assert len(targets) > 5
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize(
    ("table", "file"),
    [
        ("ENCODERS", "models/networks/encoders.py"),
        ("REDUCTIONS", "models/networks/reductions.py"),
        ("STRATEGIES", "search/strategies.py"),
    ],
)
def test_tables_are_where_the_guide_says(repository: Path, table: str, file: str) -> None:
    assert f"`{table}` in `src/costbench/{file}`" in (repository / GUIDE).read_text("utf-8")
    assert re.search(
        rf"^{table}\b", (repository / "src" / "costbench" / file).read_text("utf-8"), re.MULTILINE
    )


def test_the_workflow_runs_the_commands_of_the_repository(repository: Path) -> None:
    workflow = yaml.safe_load((repository / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    commands = {step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step}
    assert commands == {".ci/run", "make test-lowest", "make coverage"}
    oldest = re.search(r'requires-python = ">=([\d.]+)"', (repository / "pyproject.toml").read_text("utf-8"))
    assert oldest is not None
    assert workflow["jobs"]["locked"]["strategy"]["matrix"]["python"][0] == oldest[1]


@pytest.mark.parametrize(
    ("text", "fast"),
    [
        ("from costbench.metrics import ranking\n", True),
        ("import torch\n", True),
        ("import numba\n", False),
        ("def f():\n    from torch_geometric.nn import (\n        GCNConv,\n    )\n", False),
        ("from costbench.execution.compiled import compiled\n", False),
        ("from costbench.execution import (\n    compiled,\n)\n", False),
        ("from costbench_suite.data import make_data\n", False),
        # It imports compiled kernels, which import numba.
        ("from costbench.models.learned import LearnedCostNet\n", False),
    ],
)
def test_fast_tests_are_found_along_their_imports(tmp_path: Path, text: str, fast: bool) -> None:
    from tests.fast import is_fast

    (tmp_path / "test_one.py").write_text(text)
    assert is_fast(tmp_path / "test_one.py") is fast
