"""The best trial travels through its file into a training's parameters."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from costbench.errors import ParamsError
from costbench.experiments.sweeps.best import BestTrial, best_path, read_best, with_values, write_best
from costbench.models.spec import NetSpec
from costbench.params import merge, parse
from costbench.training.spec import TrainSpec

BEST = BestTrial(
    task="tile",
    study="toy",
    trial=3,
    monitor="tau",
    metric=0.8,
    values={"net.hidden": 96, "net.columns": ("mean", "sum"), "optimizer.gradient_clip_norm": None},
)


def test_values_arrive_and_the_budget_stays(tmp_path: Path) -> None:
    path = best_path(tmp_path, "tile")
    write_best(path, BEST)
    mine = TrainSpec(epochs=50, net=NetSpec(opcode_embedding=17))
    found = parse(TrainSpec, merge(asdict(mine), read_best(path)), where=path)
    assert found.net == NetSpec(opcode_embedding=17, hidden=96, columns=("mean", "sum"))
    assert found.optimizer == replace(mine.optimizer, gradient_clip_norm=None)
    assert found.epochs == 50


def test_equal_trials_leave_equal_bytes(tmp_path: Path) -> None:
    write_best(tmp_path / "a.yaml", BEST)
    write_best(tmp_path / "b.yaml", replace(BEST, values=dict(reversed(BEST.values.items()))))
    text = (tmp_path / "a.yaml").read_text()
    assert text == (tmp_path / "b.yaml").read_text()
    assert text == (
        "metric: 0.8\n"
        "model:\n"
        "  net:\n"
        "    columns:\n"
        "    - mean\n"
        "    - sum\n"
        "    hidden: 96\n"
        "  optimizer:\n"
        "    gradient_clip_norm: null\n"
        "monitor: tau\n"
        "study: toy\n"
        "task: tile\n"
        "trial: 3\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: tile\n", "model: missing (expected a result of the stage `sweep`)"),
        ("task: tile\nmodel: {net: {hiden: 8}}\n", "model.net.hiden: unknown key, did you mean 'hidden'?"),
        ("task: layout\nmodel: {net: {hidden: 0}}\n", "hidden is 0, must be at least 1"),
    ],
)
def test_files_that_are_no_best_trial(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "tile.yaml").write_text(text)
    with pytest.raises(ParamsError) as caught:
        read_best(tmp_path / "tile.yaml")
    assert f"{tmp_path / 'tile.yaml'}: {message}" in str(caught.value) or message in str(caught.value)


def test_a_missing_file_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"none\.yaml: no such file"):
        read_best(tmp_path / "none.yaml")


def test_a_value_that_does_not_fit_names_its_field() -> None:
    with pytest.raises(ParamsError, match=r"here: space\.net\.hidden"):
        with_values(TrainSpec(), {"net.hidden": "wide"}, where="here", field="space")
