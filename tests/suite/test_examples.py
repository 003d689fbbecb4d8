"""The examples of the suite run as its page says: the notebook with its twenty lines, and the network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import lightgbm
import pandas as pd
import pytest

from costbench_suite.predictions import run_model
from costbench_suite.scoring import score
from costbench_suite.task_data import TaskData


@pytest.fixture
def project(repository: Path, simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples and the data."""
    shutil.copytree(repository / "examples", tmp_path / "examples")
    (tmp_path / "suite").symlink_to(simulated)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_notebook_puts_boosted_trees_into_the_table(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a tenth of its trees."""
    regressor = lightgbm.LGBMRegressor
    few = {"n_estimators": 30}
    monkeypatch.setattr(lightgbm, "LGBMRegressor", lambda **settings: regressor(**settings | few))
    notebook = json.loads((project / "examples" / "suite.ipynb").read_text("utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {}
    for number, cell in enumerate(code):
        exec(compile(cell, f"cell {number}", "exec"), names)
    standings = names["standings"]
    assert isinstance(standings, pd.DataFrame)
    assert standings["entry"].tolist() == ["my trees"]
    assert standings["tau_mean"].iloc[0] > 0.3
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")


def test_the_network_learns_to_rank(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "examples")
    data = TaskData(project / "suite", "tile")
    assert score(data, run_model("suite_network:Network", data)).numbers["tau_mean"] > 0.3
