"""Tasks as values: the names that parameter files may give, and the order of reports."""

from __future__ import annotations

from typing import get_args

from costbench.tasks import LEARNED, TASKS, LearnedTask, TaskName, task_order


def test_names_that_parameter_files_may_give_are_those_of_the_tasks() -> None:
    assert tuple(TASKS) == get_args(TaskName)
    assert tuple(LEARNED) == get_args(LearnedTask)


def test_unknown_tasks_are_sorted_last() -> None:
    expected = ["tile", "fusion", "layout", "apple", "zebra"]
    assert sorted(["zebra", "layout", "apple", "fusion", "tile"], key=task_order) == expected
