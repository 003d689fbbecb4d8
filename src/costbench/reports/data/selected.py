"""Reads what training runs were selected by: their best values on validation programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

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
