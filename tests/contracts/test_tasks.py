"""Every task has an entry in every table that stages look tasks up in, and nobody compares task names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from costbench.datasets.card import QUANTITIES
from costbench.datasets.leakage import UNTUNED
from costbench.datasets.record_types import RECORD_TYPES
from costbench.experiments.autotuning.programs import AUTOTUNE
from costbench.experiments.grid.trainings.by_task import TRAININGS
from costbench.experiments.stages.evaluate import EVALUATE
from costbench.experiments.stages.features import READERS
from costbench.experiments.stages.generate import WORK_ITEMS
from costbench.experiments.tuning.model import TUNE
from costbench.models.baselines.fitting import BASELINES
from costbench.serving.service import ANSWERS
from costbench.tasks import AUDITED, KERNEL_TASKS, LEARNED, TASKS, Task, labels_of
from costbench.training.spec import SPECS

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "costbench"
OF_ALL = {
    "records": RECORD_TYPES,
    "quantities of the card": QUANTITIES,
    "generation": WORK_ITEMS,
    "feature readers": READERS,
}
OF_LEARNED = {
    "evaluation": EVALUATE,
    "fitted baselines": BASELINES,
    "trainings": TRAININGS,
    "settings of trainings": SPECS,
}
OF_KERNELS = {
    "autotuning": AUTOTUNE,
    "tuning": TUNE,
    "answers of the service": ANSWERS,
}


@pytest.mark.parametrize("table", OF_ALL)
def test_every_task_is_generated_and_described(table: str) -> None:
    assert set(TASKS) <= set(OF_ALL[table])


@pytest.mark.parametrize("table", OF_LEARNED)
def test_learned_tasks_and_no_others_are_trained_on_and_evaluated(table: str) -> None:
    assert set(OF_LEARNED[table]) == set(LEARNED)


@pytest.mark.parametrize("table", OF_KERNELS)
def test_tasks_whose_models_price_kernels_and_no_others_are_searched_and_served(table: str) -> None:
    assert set(OF_KERNELS[table]) == set(KERNEL_TASKS)


def test_tasks_whose_samples_are_kernels_are_audited_for_leaks() -> None:
    assert set(UNTUNED) == set(AUDITED)


@pytest.mark.parametrize("task", LEARNED.values(), ids=lambda task: task.name)
def test_measures_and_labels(task: Task) -> None:
    error, tau = task.measures
    assert (error.better, tau.better) == ("lower", "higher")
    assert labels_of(task.name).short_error in error.title
    assert task.monitor
    assert len({measure.short for measure in task.known_measures}) == len(task.known_measures)


def test_no_code_compares_names_of_tasks() -> None:
    comparing = [
        f"{file.relative_to(PACKAGE)}:{node.lineno}"
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Compare)
        and any(
            isinstance(one, ast.Constant) and one.value in TASKS for one in (node.left, *node.comparators)
        )
    ]
    assert comparing == []
