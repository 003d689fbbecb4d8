"""Tasks as values: names, measures and labels that the rest of the project relies on."""

from __future__ import annotations

from typing import get_args

import pytest

from costbench.datasets.record_types import RECORD_TYPES
from costbench.tasks import LEARNED, TASKS, LearnedTask, Task, TaskName, labels_of, task_order


def test_names_that_parameter_files_may_give_are_those_of_the_tasks() -> None:
    assert tuple(TASKS) == get_args(TaskName)
    assert tuple(LEARNED) == get_args(LearnedTask)


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_every_task_has_a_record_type(task: Task) -> None:
    assert task.name in RECORD_TYPES


@pytest.mark.parametrize("task", LEARNED.values(), ids=lambda task: task.name)
def test_a_learned_task_has_an_error_a_correlation_and_labels(task: Task) -> None:
    error, tau = task.measures
    assert (error.better, tau.better) == ("lower", "higher")
    assert labels_of(task.name).short_error in error.title
    assert task.monitor
    assert len({measure.short for measure in task.known_measures}) == len(task.known_measures)


def test_unknown_tasks_are_sorted_last() -> None:
    assert sorted(["zebra", "layout", "apple", "fusion", "tile"], key=task_order) == [
        "tile", "fusion", "layout", "apple", "zebra",
    ]  # fmt: skip
