"""Training runs as their folders tell of them: budgets, training curves, best values on validation programs.

Models are comparable where their budgets are equal, so the report shows whether they are. Wall times differ
from machine to machine and have a file of their own.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

from costbench.artifacts import read_bytes, read_json, write_json
from costbench.errors import DataError
from costbench.reports.dataset_files import mapping
from costbench.reports.declarations import fill_table
from costbench.reports.table import Table, Value
from costbench.tasks import LEARNED, labels_of

_CELL = re.compile(r"([a-z]+)-([a-z]+[0-9]*)-([A-Za-z0-9_.]+?)-([a-z0-9_-]+)-s(\d+)")
_NUMBERS = ("steps", "kernels", "configs", "validations")


@dataclass(frozen=True)
class Budget:
    """Budget of one training run.

    Attributes:
        experiment: entry of section `experiments`.
        task: the compiler's decision.
        split: which programs were held out.
        chip: what was measured.
        variant: of the experiment.
        seed: of the run.
        steps: done.
        kernels: of a step.
        configs: decisions of a kernel in a step, at most.
        validations: on the validation programs.
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

    @property
    def amount(self) -> tuple[int, int, int, int]:
        """Returns the numbers that have to be equal for a fair comparison."""
        return self.steps, self.kernels, self.configs, self.validations


def read_budgets(cells: Iterable[Path]) -> tuple[Budget, ...]:
    """Budgets of the trained cells in these folders, each below that of its experiment.

    A variant that an earlier experiment trains for the same task, split and chip is called
    `EXPERIMENT.VARIANT`, as in results.

    Raises:
        DataError: for a folder that is called after no cell, or holds no finished one.
    """
    taken: dict[tuple[str, ...], str] = {}
    found = []
    for budget in map(_read, cells):
        first = taken.setdefault((budget.task, budget.split, budget.chip, budget.variant), budget.experiment)
        apart = first != budget.experiment
        found.append(replace(budget, variant=f"{budget.experiment}.{budget.variant}") if apart else budget)
    return tuple(found)


def _read(folder: Path) -> Budget:
    match = _CELL.fullmatch(folder.name)
    if match is None:
        raise DataError(f"{folder.name!r} names no cell", where=folder)
    done = folder / "done.json"
    content = mapping(read_json(done), done, "")
    numbers = {name: _number(content.get(name), done, name) for name in _NUMBERS}
    task, split, chip, variant, seed = match.groups()
    return Budget(
        experiment=folder.parent.name,
        task=task,
        split=split,
        chip=chip,
        variant=variant,
        seed=int(seed),
        **numbers,
    )


def _number(value: object, path: Path, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"{value!r}", where=path, field=name, expected="a whole number")
    return value


def budget_table(budgets: Sequence[Budget]) -> Table:
    """Returns a table with one row for runs of a variant of an experiment that had equal budgets."""
    groups: dict[tuple[str, str, tuple[int, int, int, int]], list[Budget]] = {}
    for one in budgets:
        groups.setdefault((one.experiment, one.variant, one.amount), []).append(one)
    rows: list[tuple[Value, ...]] = [
        (experiment, variant, len(own), *amount[:3], own[0].samples, amount[3])
        for (experiment, variant, amount), own in groups.items()
    ]
    return fill_table("budgets", rows)


def budget_note(budgets: Sequence[Budget], variants: Mapping[str, str], task: str) -> str:
    """Returns a sentence on the runs behind a table of variants; empty where nothing is known of them.

    Args:
        budgets: of the runs on the table's split and chip.
        variants: of the table -> how it calls them.
        task: of the runs.
    """
    own = [one for one in budgets if one.task == task and one.variant in variants]
    groups: dict[tuple[int, int, int, int], list[str]] = {}
    for one in own:
        names = groups.setdefault(one.amount, [])
        if variants[one.variant] not in names:
            names.append(variants[one.variant])
    if not groups:
        return ""
    amounts = {amount: _described(amount, task) for amount in groups}
    if len(groups) == 1:
        return f"Training of each on the {task} task: {next(iter(amounts.values()))}."
    parts = [f"{', '.join(names)}: {amounts[amount]}" for amount, names in groups.items()]
    return f"Training on the {task} task differs, so compare with care. {'; '.join(parts)}."


def _described(amount: tuple[int, int, int, int], task: str) -> str:
    steps, kernels, configs, validations = amount
    each = f" x {configs} {labels_of(task).decisions}" if LEARNED[task].ranks_decisions else ""
    batch = f"{kernels} kernels{each}"
    return f"{steps:,} steps of {batch}, validated {validations} times"


def write_budgets(budgets: Sequence[Budget], path: Path) -> None:
    """Write all runs as JSON, equal for equal runs. Raises: DataError, if that is impossible."""
    write_json(path, [asdict(one) | {"samples": one.samples} for one in budgets])


def write_wall_times(cells: Iterable[Path], machine: Path) -> None:
    """Write how long the trained cells in these folders took on this machine: `wall_times.json`.

    A list of objects as JSON: `experiment`, `cell`, and `seconds`, the wall time of the call that finished
    the run. Cells whose time nobody wrote down are left out: those that another machine has trained, or that
    took over the files of another cell.

    Args:
        cells: their folders.
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


_HISTORY = "history.csv"
_RISING = ("tau", "opa")
"""Names of metrics of which more is better; of all others less is."""


@dataclass(frozen=True)
class Selected:
    """The best value of one training run on its validation programs, and what the run was given."""

    budget: Budget
    value: float


Number = TypeVar("Number", int, float)
Place: TypeAlias = tuple[str, str, str]
"""Task, split and chip."""
ByNetwork: TypeAlias = dict[str, dict[Number, list[Selected]]]
"""Training runs by network and what is varied of it."""


def by_network(
    selected: Iterable[Selected],
    variant: re.Pattern[str],
    varied: Callable[[Selected, re.Match[str]], Number],
) -> dict[Place, ByNetwork[Number]]:
    """Returns the runs of some variants by place, network and what is varied, in their order.

    Args:
        selected: all runs.
        variant: matches the variants that count, with a group `network`.
        varied: of a run and the match of its variant, such as its steps.
    """
    found: dict[Place, ByNetwork[Number]] = {}
    for one in selected:
        match = variant.fullmatch(one.budget.variant)
        if match is not None:
            place = one.budget.task, one.budget.split, one.budget.chip
            of_network = found.setdefault(place, {}).setdefault(match["network"], {})
            of_network.setdefault(varied(one, match), []).append(one)
    return found


def rises(column: str) -> bool:
    """Returns whether more is better of a column of training histories, such as `validation/tau`."""
    return column.rpartition("/")[2] in _RISING


def read_history(path: Path, column: str) -> tuple[tuple[float, float], ...]:
    """(epoch, value) pairs of a column of a training curve, epochs without a value left out.

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
        budgets: theirs, in the same order (`read_budgets`).
        columns: task -> column of its histories; cells of other tasks are left out.
        wanted: whether a variant, as budgets call it, is asked for.

    Raises:
        DataError: for a history that is missing, or has no numbers in its task's column.
    """
    found = []
    for folder, budget in zip(cells, budgets, strict=True):
        if wanted(budget.variant) and budget.task in columns:
            column = columns[budget.task]
            values = [value for _, value in read_history(folder / _HISTORY, column)]
            if values:
                found.append(Selected(budget, max(values) if rises(column) else min(values)))
    return tuple(found)
