"""A task is a value and its entries: which files they are in, and that no table lacks a task."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from costbench.datasets.card import QUANTITIES
from costbench.datasets.record_types import RECORD_TYPES
from costbench.experiments.autotuning.comparison import AUTOTUNE
from costbench.experiments.autotuning.program_tuning import TUNE
from costbench.experiments.stages.evaluate import EVALUATE
from costbench.experiments.stages.features import READERS
from costbench.experiments.stages.generate import WORK_ITEMS
from costbench.experiments.stages.train import TRAININGS
from costbench.models.baselines.fitting import classes_of
from costbench.models.baselines.spec import BaselineParams
from costbench.params import load_yaml
from costbench.serving.service import ANSWERS
from costbench.tasks import KERNEL_TASKS, LEARNED, SEARCHED, TASKS, Task, labels_of
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
ALL = {"records": RECORD_TYPES, "card": QUANTITIES, "generation": WORK_ITEMS, "features": READERS}


@pytest.mark.parametrize("table", ALL)
def test_every_task_is_generated_and_described(table: str) -> None:
    assert set(TASKS) <= set(ALL[table])


def test_learned_tasks_and_no_others_are_trained_on_and_evaluated() -> None:
    assert set(EVALUATE) == set(SPECS) == set(SweptModels.__annotations__) == set(LEARNED)
    assert {task.samples for task in LEARNED.values()} <= set(TRAININGS)
    assert {task.answers for task in KERNEL_TASKS.values()} <= set(ANSWERS)


def test_tasks_with_fitted_baselines_have_settings_for_them() -> None:
    assert {name for name in LEARNED if classes_of(name)} <= set(BaselineParams.__annotations__)


def test_tasks_that_are_searched_have_searches() -> None:
    assert set(AUTOTUNE) == set(TUNE) == set(SEARCHED)
    assert set(SEARCHED) <= set(KERNEL_TASKS)


def test_parameters_of_every_task() -> None:
    params = load_yaml(ROOT / "params.yaml")
    generate, train = (dict(params[name]) for name in ("generate", "train"))  # type: ignore[call-overload]
    assert set(TASKS) == set(generate["tasks"]) <= set(generate)
    assert set(LEARNED) <= set(train)


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
