"""docs/your_network.md from a user's position: its lines of parameters, and every command that it shows."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest

from costbench.experiments.stages import evaluate, features, inputs, train
from costbench.params import load_yaml, merge
from costbench.reports import stage as report
from tests.command_line import costbench
from tests.pipelines.workplace import REPOSITORY, call, stages_run

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


def test_every_command_of_the_page_runs_and_leaves_what_it_says(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks("yaml")
    entry = tmp_path / "entry.yaml"
    entry.write_text(block)
    params = workplace / "profiles" / "smoke" / "params.yaml"
    sections: Any = merge(json.loads(params.read_text()), load_yaml(entry))
    sections["experiments"]["mine"]["splits"] = ["random"]
    params.write_text(json.dumps(sections))
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")
    for run in (inputs.run, features.run):
        run(params)
    for run_experiment in (train.run, evaluate.run):
        run_experiment(params, "mine")
    report.run(params)
    # Of the commands of DVC it is seen which stages they would run: in this process they have just run.
    with_dvc = [command for command in commands() if command.startswith("dvc repro ")]
    for command in with_dvc:
        done = call(workplace, ["bash", "-c", f"{command} --dry"])
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert {"features", "train@mine", "evaluate@mine"} <= set(stages_run(done.stdout))
    assert "report" in stages_run(done.stdout)
    capsys.readouterr()
    scores = []
    for command in (command for command in commands() if command != _DONE and command not in with_dvc):
        first, *words = shlex.split(command)
        if first == "costbench":
            tuned = costbench(words, workplace)
            assert tuned.returncode == 0, f"{command}\n{tuned.stdout}\n{tuned.stderr}"
        else:
            assert (first, words[0]) == ("python", "examples/train_your_own_network.py")
            monkeypatch.setattr("sys.argv", [*words, "--epochs", "1"])  # the last `--epochs` counts
            runpy.run_path(words[0], run_name="__main__")
            scores.append(capsys.readouterr().out)
    out = workplace / "out"
    assert len(scores) == 2
    assert all(re.fullmatch(r"Kendall's tau on \d+ validation kernels: -?\d\.\d+\n", text) for text in scores)
    assert (out / "tuned" / "decisions.json").is_file()
    summary = json.loads((out / "smoke" / "reports" / "summary.json").read_text())
    for variant in ("plain", "conv", "reduction", "loss", "features"):
        assert f"tile/random/tpu_v2/learned@{variant}/tau_mean" in summary, variant
    assert "tile/random/tpu_v2/examples.my_cost_model:LargestTile/tau_mean" in summary
    tables = [path.read_text() for path in (out / "smoke" / "reports" / "tables").glob("*.csv")]
    assert any("mine: conv" in table and "mine: features" in table for table in tables)
