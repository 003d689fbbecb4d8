"""docs/your_network.md from a user's position: its lines of parameters, and every command that it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from costbench.params import load_yaml, merge
from tests.pipelines.workplace import REPOSITORY, call

PAGE = REPOSITORY / "docs" / "your_network.md"
_DONE = "make demo"
"""What the smoke run stands for."""

pytestmark = pytest.mark.pipeline


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Returns the command lines of the page, without comments."""
    lines = [line for block in blocks("console") for line in block.replace("\\\n", " ").splitlines()]
    return [line.removeprefix("$ ").split("  #")[0].strip() for line in lines if line.startswith("$ ")]


def test_every_command_of_the_page_runs_and_leaves_what_it_says(workplace: Path, tmp_path: Path) -> None:
    (block,) = blocks("yaml")
    entry = tmp_path / "entry.yaml"
    entry.write_text(block)
    params = workplace / "profiles" / "smoke" / "params.yaml"
    sections: Any = json.loads(params.read_text())
    params.write_text(json.dumps(merge(sections, load_yaml(entry))))
    printed = {}
    for command in commands():
        if command != _DONE:
            done = call(workplace, ["bash", "-c", command])
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            printed[command] = done.stdout
    out = workplace / "out"
    scores = [text for command, text in printed.items() if "train_your_own_network" in command]
    assert len(scores) == 2
    assert all(re.fullmatch(r"Kendall's tau on \d+ validation kernels: -?\d\.\d+\n", text) for text in scores)
    assert (out / "tuned" / "decisions.json").is_file()
    summary = json.loads((out / "smoke" / "reports" / "summary.json").read_text())
    for variant in ("plain", "conv", "reduction", "loss", "features"):
        assert f"tile/random/tpu_v2/learned@{variant}/tau_mean" in summary, variant
    assert "tile/random/tpu_v2/examples.my_cost_model:LargestTile/tau_mean" in summary
    tables = [path.read_text() for path in (out / "smoke" / "reports" / "tables").glob("*.csv")]
    assert any("mine: conv" in table and "mine: features" in table for table in tables)
