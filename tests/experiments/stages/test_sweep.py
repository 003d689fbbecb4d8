"""What the stage refuses before it reads any data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costbench.artifacts import write_text
from costbench.errors import CostbenchError, ParamsError
from costbench.experiments.identity import StageIdentity, write_identity
from costbench.experiments.parameter_file import load_params, load_sections
from costbench.experiments.stages.sweep import SweepFlags, load_sweep, results_after, run
from costbench.experiments.sweeps.best import best_path

NONE = SweepFlags()


def _profile(repository: Path, folder: Path, **changes: Any) -> Path:
    sections: Any = load_sections(repository / "profiles" / "smoke" / "params.yaml")
    sections["run"] |= {"root": str(folder), "out": "out"}
    for name, value in changes.items():
        if isinstance(value, dict):
            sections["sweep"][name] |= value
        else:
            sections["sweep"][name] = value
    path = folder / "params.yaml"
    path.write_text(json.dumps(sections))
    return path


@pytest.mark.parametrize(
    ("changes", "flags", "message"),
    [
        ({"trials": 0}, NONE, "sweep: trials is 0, must be at least 1"),
        ({"max_retries": -1}, NONE, "max_retries is -1"),
        ({"tasks": []}, NONE, "tasks are []"),
        ({"tasks": ["schedule"]}, NONE, "sweep.tasks[0]: 'schedule' (str) is not accepted"),
        ({"model": {"tile": {"seed": 3}}}, NONE, "model.tile.seed follows from seed"),
        ({"pruner": {"keep_percent": 0.0}}, NONE, "sweep.pruner: keep_percent is 0.0"),
        ({"space": {"tiles": {}}}, NONE, "space is of the task 'tiles', must be of tile or fusion"),
        ({"space": {"tile": {}}}, NONE, "sweep.space.tile: empty"),
        (
            {"space": {"tile": {"net.hiden": {"choices": [8]}}}},
            NONE,
            "sweep.space.tile.net.hiden: no hyper-parameter, did you mean 'net.hidden'?",
        ),
        (
            {"space": {"tile": {"net.hidden": {"low": 9, "high": 8}}}},
            NONE,
            "sweep.space.tile.net.hidden: low is 9, must be at most high, 8",
        ),
        (
            {},
            SweepFlags(task="schedule"),
            "command line: unknown task 'schedule' (expected one of tile, fusion, layout)",
        ),
        ({}, SweepFlags(trials=0), "command line: trials is 0"),
        ({}, SweepFlags(workers=0), "command line: workers is 0"),
        ({}, NONE, "expected the finished stage 'split'"),
    ],
)
def test_one_error(
    repository: Path, tmp_path: Path, changes: dict[str, Any], flags: SweepFlags, message: str
) -> None:
    with pytest.raises(CostbenchError) as caught:
        run(_profile(repository, tmp_path, **changes), flags)
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_task_without_a_model_is_one_error(repository: Path, tmp_path: Path) -> None:
    path = _profile(repository, tmp_path, tasks=["fusion"])
    sections: Any = load_sections(path)
    del sections["sweep"]["model"]["fusion"]
    path.write_text(json.dumps(sections))
    with pytest.raises(ParamsError, match=r"sweep.model.fusion: missing"):
        run(path)


def test_the_model_is_that_of_train_with_changes(repository: Path, tmp_path: Path) -> None:
    path = _profile(repository, tmp_path, model={"tile": {"epochs": 1, "net": {"hidden": 16}}})
    sections: Any = load_sections(path)
    sections["train"]["tile"]["net"]["encoder_layers"] = 2
    path.write_text(json.dumps(sections))
    model = load_sweep(load_params(path)).model.by_task["tile"]
    assert (model.epochs, model.net.hidden, model.net.encoder_layers) == (1, 16, 2)


def test_one_study_name_is_for_one_task(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="--study: names one study"):
        run(_profile(repository, tmp_path, tasks=["tile", "fusion"]), SweepFlags(study="mine"))


def test_flags_win_over_the_section(repository: Path) -> None:
    section = load_sweep(load_params(repository / "params.yaml"))
    assert SweepFlags().over(section) == section
    given = SweepFlags(task="tile", trials=3, workers=2).over(section)
    assert (given.tasks, given.trials, given.workers) == (("tile",), 3, 2)


def test_results_of_another_task_stay_while_they_follow_from_the_same(
    repository: Path, tmp_path: Path
) -> None:
    whole = load_sweep(load_params(_profile(repository, tmp_path, tasks=["tile", "fusion"])))
    folder, before = tmp_path / "sweep", StageIdentity("params", "data", "code")
    tile, fusion = (SweepFlags(task=task).over(whole) for task in whole.tasks)
    assert results_after(tile, whole.tasks, folder, before, before)[0] == ("tile",)
    both, identity = results_after(whole, whole.tasks, folder, before, before)
    assert both == ("tile", "fusion")
    # One task after the other leaves what a run of both does.
    write_text(best_path(folder, "tile"), "study: tile")
    write_identity(folder, results_after(tile, whole.tasks, folder, before, before)[1])
    assert results_after(fusion, whole.tasks, folder, before, before) == (both, identity)
    write_text(best_path(folder, "fusion"), "study: fusion")
    write_identity(folder, identity)
    assert results_after(tile, whole.tasks, folder, before, before) == (both, identity)
    # With other parameters or code, that of the other task is an older one.
    more = SweepFlags(task="tile", trials=whole.trials + 1).over(whole)
    changed = StageIdentity("params", "data", "other code")
    for section, features in ((more, before), (tile, changed)):
        tasks, alone = results_after(section, whole.tasks, folder, before, features)
        assert tasks == ("tile",)
        assert alone != identity
