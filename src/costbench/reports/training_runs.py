"""Training runs as their folders tell of them: budgets, training curves, best values on validation programs.

Models are comparable where their budgets are equal, so the report shows whether they are. Wall times differ
from machine to machine and have a file of their own.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import pandas as pd

from costbench.artifacts import read_bytes, read_json, write_json
from costbench.errors import DataError
from costbench.experiments.grid.cells import cell_from_name
from costbench.reports.dataset_files import mapping, parse_data
from costbench.reports.declared_tables import fill_table
from costbench.reports.page import sentence
from costbench.reports.table import Table
from costbench.tasks import LEARNED, labels_of

_NUMBERS = ("steps", "kernels", "configs", "validations")


@dataclass(frozen=True)
class Budget:
    """Budget of one training run.

    Attributes:
        experiment: entry of section `experiments`.
        task: compiler's decision.
        split: split that held out the test programs.
        chip: chip that was measured.
        variant: variant of the experiment.
        seed: seed of the run.
        steps: number of training steps done.
        kernels: number of kernels in a step.
        configs: number of decisions of a kernel in a step, at most.
        validations: number of times the validation programs were scored.
    """

    experiment: str
    task: str
    split: str
    chip: str
    variant: str
    seed: int
    steps: int
    kernels: int
    configs: int
    validations: int

    @property
    def samples(self) -> int:
        """Upper bound of the decisions seen; kernels with few decisions contribute fewer."""
        return self.steps * self.kernels * self.configs


def read_budgets(cells: Iterable[Path]) -> tuple[Budget, ...]:
    """Returns the budgets of the trained cells in these folders, each below that of its experiment.

    A variant that an earlier experiment trains for the same task, split and chip is called
    `EXPERIMENT.VARIANT`, as in results.

    Raises:
        DataError: for a folder that is called after no cell, or holds no finished one.
    """
    first: dict[tuple[str, ...], str] = {}
    budgets = []
    for budget in map(_read_budget, cells):
        key = budget.task, budget.split, budget.chip, budget.variant
        if first.setdefault(key, budget.experiment) != budget.experiment:
            budget = replace(budget, variant=f"{budget.experiment}.{budget.variant}")
        budgets.append(budget)
    return tuple(budgets)


def _read_budget(folder: Path) -> Budget:
    try:
        named = asdict(cell_from_name(folder.name)) | {"experiment": folder.parent.name}
    except DataError as error:
        raise error.recast(DataError, where=folder) from error
    done = folder / "done.json"
    content = mapping(read_json(done), done, "")
    return parse_data(Budget, named | {name: content.get(name) for name in _NUMBERS}, done, "")


def budget_table(budgets: Sequence[Budget]) -> Table:
    """Returns a table with one row for runs of a variant of an experiment that had equal budgets."""
    runs = pd.DataFrame([asdict(budget) | {"samples": budget.samples} for budget in budgets])
    amounts = ["steps", "kernels", "configs", "samples", "validations"]
    cells = runs.groupby(["experiment", "variant", *amounts], sort=False).size().rename("cells")
    return fill_table("budgets", cells.reset_index())


def budget_note(budgets: Sequence[Budget], variants: Collection[str], task: str) -> str:
    """Returns a sentence on the runs behind a table of variants; empty where nothing is known of them.

    Args:
        budgets: budgets of the runs on the table's split and chip.
        variants: variants of the table.
        task: task of the runs.
    """
    groups: dict[tuple[int, ...], dict[str, None]] = {}
    for budget in budgets:
        if budget.task == task and budget.variant in variants:
            amount = (budget.steps, budget.kernels, budget.configs, budget.validations)
            groups.setdefault(amount, {})[budget.variant] = None
    if not groups:
        return ""
    decisions = labels_of(task).decisions if LEARNED[task].ranks_decisions else ""
    return sentence("models", "budget_note", task=task, groups=groups, decisions=decisions)


def write_budgets(budgets: Sequence[Budget], path: Path) -> None:
    """Writes all runs as JSON, equal for equal runs. Raises: DataError, if that is impossible."""
    write_json(path, [asdict(budget) | {"samples": budget.samples} for budget in budgets])


def write_wall_times(cells: Iterable[Path], machine: Path) -> None:
    """Writes how long the trained cells in these folders took on this machine: `wall_times.json`.

    A list of objects as JSON: `experiment`, `cell`, and `seconds`, the wall time of the call that finished
    the run. Cells whose time nobody wrote down are left out: those that another machine has trained, or that
    took over the files of another cell.

    Args:
        cells: folders of the trained cells.
        machine: folder of the facts of the machine, with the times of cells in `train`.

    Raises:
        DataError: for a damaged file, or if the file cannot be written.
    """
    times = []
    for folder in cells:
        experiment, cell = folder.parent.name, folder.name
        timing = machine / "train" / experiment / f"{cell}.json"
        if timing.exists():
            seconds = mapping(read_json(timing), timing, "").get("seconds")
            times.append({"experiment": experiment, "cell": cell, "seconds": seconds})
    write_json(machine / "wall_times.json", times)


_RISING = ("tau", "opa")
"""Names of metrics of which more is better; of all others less is."""


@dataclass(frozen=True)
class Selected:
    """The best value of one training run on its validation programs, and the budget of the run."""

    budget: Budget
    value: float


def runs_of_networks(selected: Iterable[Selected], variant: re.Pattern[str]) -> pd.DataFrame:
    """Returns a row for each run of the variants that a pattern matches, in their order.

    Returns:
        the fields of `Budget`, `samples` of a step, the best `value`, and a column for each other named group
        of the pattern.
    """
    rows = [
        match.groupdict()
        | asdict(run.budget)
        | {"samples": run.budget.kernels * run.budget.configs, "value": run.value}
        for run in selected
        if (match := variant.fullmatch(run.budget.variant))
    ]
    columns = (*(field.name for field in fields(Budget)), "samples", "value", *variant.groupindex)
    return pd.DataFrame(rows, columns=list(dict.fromkeys(columns)))


def rises(column: str) -> bool:
    """Returns whether more is better of a column of training histories, such as `validation/tau`."""
    return column.rpartition("/")[2] in _RISING


def read_history(path: Path, column: str) -> tuple[tuple[float, float], ...]:
    """Returns (epoch, value) pairs of a column of a training curve, epochs without a value left out.

    Raises:
        DataError: if the file is missing, or has no such column or a value that is no number.
    """
    rows = list(csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8"))))
    try:
        return tuple((float(row["epoch"]), float(row[column])) for row in rows if row[column] != "")
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"no numbers in column {column!r}", where=path, expected="epoch and metrics"
        ) from error


def read_selected(
    cells: Iterable[Path],
    budgets: Sequence[Budget],
    columns: Mapping[str, str],
    wanted: Callable[[str], bool],
) -> tuple[Selected, ...]:
    """Returns the best validation value of trained cells, in their order.

    Args:
        cells: folders of trained cells.
        budgets: budgets of the cells, in the same order (`read_budgets`).
        columns: task -> column of its histories; cells of other tasks are left out.
        wanted: returns whether a variant, as budgets call it, is asked for.

    Raises:
        DataError: for a history that is missing, or has no numbers in its task's column.
    """
    selected = []
    for folder, budget in zip(cells, budgets, strict=True):
        if wanted(budget.variant) and budget.task in columns:
            column = columns[budget.task]
            values = [value for _, value in read_history(folder / "history.csv", column)]
            if values:
                selected.append(Selected(budget, max(values) if rises(column) else min(values)))
    return tuple(selected)
