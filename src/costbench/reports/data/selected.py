"""Reads what training runs were selected by: their best values on validation programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from costbench.reports.data.budgets import Budget
from costbench.reports.data.evidence import read_history

_HISTORY = "history.csv"
_RISING = ("tau", "opa")
"""Names of metrics of which more is better; of all others less is."""


@dataclass(frozen=True)
class Selected:
    """The best value of one training run on its validation programs, and what the run was given."""

    budget: Budget
    value: float


def rises(column: str) -> bool:
    """Returns whether more is better of a column of training histories, such as `validation/tau`."""
    return column.rpartition("/")[2] in _RISING


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
