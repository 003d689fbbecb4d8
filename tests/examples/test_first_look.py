"""The notebook runs from its first cell to its last, in the root of the repository."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from costbench import workbench


@pytest.mark.slow
def test_the_page_runs(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository)
    page = (repository / "docs" / "python.md").read_text("utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(compile(block, "docs/python.md", "exec"), {})
    assert capsys.readouterr().out.startswith("TileSizes(1, the first: output [")
    listed = re.findall(r"^\| `(\w+)\(", page, re.MULTILINE)
    assert sorted(listed) == sorted(workbench.__all__)


@pytest.mark.slow
def test_the_notebook_runs(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    notebook = json.loads((repository / "examples" / "first_look.ipynb").read_text("utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {}
    for number, cell in enumerate(code):
        exec(compile(cell, f"cell {number}", "exec"), names)
    found = names["tau"]
    assert isinstance(found, dict)
    assert found["analytical"] > 0.0
    assert -1.0 <= found["mine"] <= 1.0
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")
