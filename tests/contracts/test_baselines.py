"""What every fitted baseline promises, over the table of all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.arrays import Bool
from costbench.baselines import BASELINES, Baseline
from costbench.errors import ChoiceError, DataError
from costbench.experiments.evaluation.unfitted import LAYOUT_ORDERS, TILE_MODELS
from costbench.experiments.identity import module_closure
from costbench.models.baselines.fitting import FittedBaseline, classes_of, load_baselines, save_baselines
from costbench.models.baselines.kernel_tables import KernelTable
from costbench.models.baselines.layouts import CONFIG_FEATURES
from costbench.tasks import LEARNED
from tests.models.baselines.tables import SPEC, made_up

KERNELS = tuple(made_up(seed) for seed in range(3))
LAYOUTS = tuple(replace(one, features=one.features[:, : len(CONFIG_FEATURES)]) for one in KERNELS)
TABLES = {"tile": KERNELS, "fusion": KERNELS, "layout": LAYOUTS}
"""Training, validation and test samples by task."""
ALL = [(task, name) for task in LEARNED for name in classes_of(task)]
every_baseline = pytest.mark.parametrize(("task", "name"), ALL)


def fitted(task: str, name: str) -> FittedBaseline:
    train, validation, _ = TABLES[task]
    return classes_of(task)[name].fit(train, validation, SPEC, 7)


def of_rows(table: KernelTable, kept: Bool) -> KernelTable:
    """The rows of a mask, bool [D]; kernels may be left without rows."""
    kernel = np.repeat(np.arange(len(table.counts)), table.counts)
    return KernelTable(
        table.features[kept],
        table.static[kept],
        table.analytical_ns[kept],
        table.runtime_ns[kept],
        np.bincount(kernel[kept], minlength=len(table.counts)),
        table.applications,
    )


def test_every_row_is_evaluated_and_every_model_has_a_row() -> None:
    fitted = {name for task in LEARNED for name in classes_of(task)}
    # The fusion task scales the analytical estimate itself.
    known = fitted | set(TILE_MODELS) | set(LAYOUT_ORDERS)
    rows = "src/costbench/baselines.py"
    assert not known - set(BASELINES), f"add a row to {rows} for each of these models"
    assert not set(BASELINES) - known, f"rows of {rows} without a class, or a function in evaluation/unfitted"
    assert {name for name, row in BASELINES.items() if row.fitted} == fitted


def test_every_learned_task_is_tested_here() -> None:
    assert set(TABLES) == set(LEARNED), "add samples of the task to TABLES above"


@pytest.mark.parametrize("row", [row for row in BASELINES.values() if row.fitted], ids=lambda row: row.name)
@pytest.mark.parametrize("stage", ["train", "evaluate"])
def test_results_follow_from_the_code_of_every_class(row: Baseline, stage: str) -> None:
    modules = module_closure(f"costbench.experiments.stages.{stage}").modules
    assert {module for module, _ in row.fitted.values()} <= set(modules)


@every_baseline
def test_costs_are_finite_and_do_not_depend_on_company(task: str, name: str) -> None:
    model, test = fitted(task, name), TABLES[task][2]
    costs = model.predict(test)
    assert costs.shape == (len(test),)
    assert costs.dtype == np.float64
    assert np.isfinite(costs).all()
    kept = np.arange(len(test)) % 5 == 3
    np.testing.assert_array_equal(model.predict(of_rows(test, kept)), costs[kept])


@every_baseline
def test_the_same_samples_give_the_same_bytes(task: str, name: str, tmp_path: Path) -> None:
    for folder in ("first", "second"):
        save_baselines(tmp_path / folder, task, {name: fitted(task, name)})
    first, second = ((tmp_path / folder / f"{name}.json").read_bytes() for folder in ("first", "second"))
    assert first == second


@every_baseline
def test_a_saved_baseline_comes_back(task: str, name: str, tmp_path: Path) -> None:
    model = fitted(task, name)
    save_baselines(tmp_path, task, {name: model})
    (loaded,) = load_baselines(tmp_path, task, [name]).values()
    assert loaded == model
    test = TABLES[task][2]
    np.testing.assert_array_equal(loaded.predict(test), model.predict(test))


@every_baseline
def test_damaged_files_are_refused_in_one_line(task: str, name: str, tmp_path: Path) -> None:
    save_baselines(tmp_path, task, {name: fitted(task, name)})
    path = tmp_path / f"{name}.json"
    content = json.loads(path.read_text())
    damaged = {
        "no such file": None,
        "malformed JSON": path.read_text()[:-9],
        "no baseline": "{}",
        "format": json.dumps(content | {"format": "another"}),
        "features": json.dumps(content | {"features": "0" * 16}),
        "task": json.dumps(content | {"task": "schedule"}),
        "model_sha256": json.dumps(content | {"model": {"factor": 2.0}}),
    }
    for problem, text in damaged.items():
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        with pytest.raises(DataError, match=problem) as found:
            load_baselines(tmp_path, task, [name])
        assert str(path) in str(found.value)
        assert "\n" not in str(found.value)


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ChoiceError, match="unknown baseline 'forest'"):
        load_baselines(tmp_path, "tile", ["forest"])
    with pytest.raises(ChoiceError, match="unknown task 'schedule'"):
        load_baselines(tmp_path, "schedule", ["trees"])
