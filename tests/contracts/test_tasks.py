"""A task is a value and its entries: which files they are in, and that no table lacks a task."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from costbench.baselines import BASELINES
from costbench.datasets.card import QUANTITIES
from costbench.datasets.record_types import RECORD_TYPES
from costbench.experiments.autotuning.comparison import AUTOTUNE
from costbench.experiments.autotuning.program_tuning import TUNE
from costbench.experiments.autotuning.work_items import AutotuneParams
from costbench.experiments.stages.evaluate import EVALUATE
from costbench.experiments.stages.features import READERS
from costbench.experiments.stages.generate import WORK_ITEMS, GenerateParams
from costbench.experiments.stages.train import TRAININGS
from costbench.models.baselines.spec import BaselineParams
from costbench.params import load_yaml
from costbench.serving.service import ANSWERS
from costbench.tasks import (
    KERNEL_TASKS,
    LEARNED,
    SEARCHED,
    TASKS,
    TUNED,
    LearnedTask,
    Task,
    TaskName,
    labels_of,
)
from costbench.training.spec import SPECS, SweptModels

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "costbench"
NEEDED = {
    "src/costbench/tasks.py": "the value: measures, labels, kind of answer",
    "src/costbench/datasets/record_types.csv": "columns of its samples",
    "src/costbench/datasets/card.py": "quantities of the data set's card",
    "src/costbench/experiments/stages/generate.py": "its parameters, and work items that measure",
    "src/costbench/experiments/stages/features.py": "how samples become features",
    "src/costbench/experiments/stages/evaluate.py": "its evaluation",
    "src/costbench/training/spec.py": "settings of trainings and sweeps",
    "params.yaml": "values of its sections, and an experiment",
}
"""Files that a task has an entry in, beside one for its generation and one for its evaluation: ten in all."""
OPTIONAL = {
    "src/costbench/baselines.py": "baselines that are fitted for it",
    "src/costbench/models/baselines/spec.py": "settings of these",
    "src/costbench/experiments/autotuning/comparison.py": "autotuning of test programs",
    "src/costbench/experiments/autotuning/work_items.py": "its parameters",
    "src/costbench/experiments/autotuning/program_tuning.py": "tuning of one program",
}
"""Files that have an entry of a task only where it has baselines, or is searched for."""
PARAMS: Any = load_yaml(ROOT / "params.yaml")


@dataclass(frozen=True)
class Place:
    """A table or type that has to name tasks.

    Attributes:
        file: file that it is in.
        table: name of the table or type.
        entries: names of the tasks that are in it.
        needs: whether a task must be in it.
    """

    file: str
    table: str
    entries: Collection[object]
    needs: Callable[[Task], bool]


def is_any(task: Task) -> bool:
    return True


def is_learned(task: Task) -> bool:
    return task.learned


def is_searched(task: Task) -> bool:
    return task.is_searched


def is_tuned(task: Task) -> bool:
    return task.is_tuned


def has_fitted_baselines(task: Task) -> bool:
    return any(task.name in row.fitted for row in BASELINES.values())


_STAGES = "src/costbench/experiments/stages"
_AUTOTUNING = "src/costbench/experiments/autotuning"
PLACES = (
    Place("src/costbench/tasks.py", "TaskName", get_args(TaskName), is_any),
    Place("src/costbench/tasks.py", "LearnedTask", get_args(LearnedTask), is_learned),
    Place("src/costbench/datasets/record_types.csv", "RECORD_TYPES", RECORD_TYPES, is_any),
    Place("src/costbench/datasets/card.py", "QUANTITIES", QUANTITIES, is_any),
    Place(f"{_STAGES}/generate.py", "WORK_ITEMS", WORK_ITEMS, is_any),
    Place(f"{_STAGES}/generate.py", "GenerateParams", GenerateParams.__annotations__, is_any),
    Place(f"{_STAGES}/features.py", "READERS", READERS, is_any),
    Place(f"{_STAGES}/evaluate.py", "EVALUATE", EVALUATE, is_learned),
    Place("src/costbench/training/spec.py", "SPECS", SPECS, is_learned),
    Place("src/costbench/training/spec.py", "SweptModels", SweptModels.__annotations__, is_learned),
    Place("params.yaml", "generate.tasks", PARAMS["generate"]["tasks"], is_any),
    Place("params.yaml", "generate", PARAMS["generate"], is_any),
    Place("params.yaml", "train", PARAMS["train"], is_learned),
    Place(
        "params.yaml", "experiments", {entry["task"] for entry in PARAMS["experiments"].values()}, is_learned
    ),
    Place(
        "src/costbench/models/baselines/spec.py",
        "BaselineParams",
        BaselineParams.__annotations__,
        has_fitted_baselines,
    ),
    Place(f"{_AUTOTUNING}/comparison.py", "AUTOTUNE", AUTOTUNE, is_searched),
    Place(f"{_AUTOTUNING}/work_items.py", "AutotuneParams", AutotuneParams.__annotations__, is_searched),
    Place(f"{_AUTOTUNING}/program_tuning.py", "TUNE", TUNE, is_tuned),
)
"""All of them, also those that the code cannot do without although nothing would say so."""


def missing_entries(task: Task) -> list[str]:
    """Returns what a task lacks, as the next thing to do."""
    return [
        f"add {task.name!r} to {place.table} in {place.file}: {({**NEEDED, **OPTIONAL})[place.file]}"
        for place in PLACES
        if place.needs(task) and task.name not in place.entries
    ]


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_a_task_has_an_entry_everywhere(task: Task) -> None:
    assert missing_entries(task) == []


def test_a_new_task_is_told_every_file_that_it_needs() -> None:
    new = replace(TASKS["tile"], name=cast("TaskName", "new"))
    told = missing_entries(new)
    assert {path for path in {*NEEDED, *OPTIONAL} if any(f" in {path}: " in line for line in told)} == {
        *NEEDED,
        *OPTIONAL,
    } - {"src/costbench/baselines.py", "src/costbench/models/baselines/spec.py"}
    assert all("'new'" in line for line in told)


def test_no_entry_is_of_an_unknown_task() -> None:
    assert set(EVALUATE) == set(SPECS) == set(SweptModels.__annotations__) == set(LEARNED)
    assert set(AUTOTUNE) == set(SEARCHED) <= set(KERNEL_TASKS)
    assert set(TUNE) == set(TUNED)
    assert set(PARAMS["generate"]["tasks"]) == set(TASKS)


def test_kinds_of_samples_and_answers_are_known() -> None:
    assert {task.samples for task in LEARNED.values()} <= set(TRAININGS)
    assert {task.answers for task in KERNEL_TASKS.values()} <= set(ANSWERS)


@pytest.mark.parametrize("task", LEARNED.values(), ids=lambda task: task.name)
def test_measures_and_labels(task: Task) -> None:
    error, tau = task.measures
    assert (error.better, tau.better) == ("lower", "higher")
    assert labels_of(task.name).short_error in error.title
    assert task.monitor
    assert len({measure.short for measure in task.known_measures}) == len(task.known_measures)


def nodes(folder: Path) -> Iterator[tuple[str, ast.AST]]:
    """Yields the nodes of all modules, with the paths of their files."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            yield file.relative_to(ROOT).as_posix(), node


def entries(node: ast.AST) -> set[object]:
    """Returns keys of a table, members of a choice or fields of a class."""
    match node:
        case ast.Dict(keys=keys):
            return {key.value for key in keys if isinstance(key, ast.Constant)}
        case ast.Tuple(elts=members) | ast.Set(elts=members) | ast.List(elts=members):
            return {member.value for member in members if isinstance(member, ast.Constant)}
        case ast.ClassDef(body=body):
            fields = [one.target for one in body if isinstance(one, ast.AnnAssign)]
            return {field.id for field in fields if isinstance(field, ast.Name)}
    return set()


def test_no_other_file_has_a_table_by_task() -> None:
    # Reports show what there is: their tables about tasks are of the papers that print them.
    tables = {
        path
        for path, node in nodes(PACKAGE)
        if len(entries(node) & set(TASKS)) > 1 and not path.startswith("src/costbench/reports/")
    }
    assert tables <= {*NEEDED, *OPTIONAL}
    assert len(NEEDED) + len(("generation", "evaluation")) <= 10
    assert all((ROOT / path).is_file() for path in (*NEEDED, *OPTIONAL))


def test_no_code_compares_names_of_tasks() -> None:
    comparing = [
        f"{path}:{node.lineno}"
        for path, node in nodes(PACKAGE)
        if isinstance(node, ast.Compare)
        and any(
            isinstance(side, ast.Constant) and side.value in TASKS for side in (node.left, *node.comparators)
        )
    ]
    assert comparing == []
