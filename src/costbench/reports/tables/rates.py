"""Tabulates learning rates: of each network the rate with the best validation value after a short training.

A variant `rate-<network>-<rate>`, such as `rate-gat-lstm-3e-4`, is one training. Test programs have no part
in the choice: values are those of validation programs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from costbench.reports.results import SPLIT_NAMES
from costbench.reports.table import Column, Table, Value
from costbench.reports.training_runs import Selected, by_network, rises
from costbench.tasks import labels_of

_VARIANT = re.compile(r"rate-(?P<network>[a-z0-9_-]+?)-(?P<rate>[0-9]+e-[0-9]+)")


@dataclass(frozen=True)
class Rates:
    """Best validation values by network and learning rate, of a task on one split and chip.

    Attributes:
        task: the compiler's decision.
        split: which programs were held out.
        chip: what was measured.
        column: of training histories, such as `validation/tau`.
        networks: name -> learning rate -> value, mean over seeds.
        steps: of the trainings.
    """

    task: str
    split: str
    chip: str
    column: str
    networks: Mapping[str, Mapping[float, float]]
    steps: Set[int]

    @property
    def tried(self) -> tuple[float, ...]:
        """Returns all rates, ascending."""
        return tuple(sorted({rate for values in self.networks.values() for rate in values}))

    def chosen(self, network: str) -> float:
        """Returns the rate with the best value; of equals the least."""
        sign = -1.0 if rises(self.column) else 1.0
        values = self.networks[network]
        return min(sorted(values), key=lambda rate: sign * values[rate])


def is_rate(variant: str) -> bool:
    """Returns whether a variant is a training of the choice of learning rates."""
    return _VARIANT.fullmatch(variant) is not None


def rates_of(selected: Sequence[Selected], columns: Mapping[str, str]) -> tuple[Rates, ...]:
    """Returns the values by network and rate, in the order of the training runs.

    Args:
        selected: best validation values of training runs.
        columns: task -> column of histories that they are of.
    """
    runs = by_network(selected, _VARIANT, lambda _, match: float(match["rate"]))
    return tuple(
        Rates(
            *place,
            columns[place[0]],
            {
                name: {rate: float(np.mean([run.value for run in own])) for rate, own in by_rate.items()}
                for name, by_rate in networks.items()
            },
            {run.budget.steps for by_rate in networks.values() for own in by_rate.values() for run in own},
        )
        for place, networks in runs.items()
    )


def rates_table(rates: Rates) -> Table:
    """Returns one row a network: the value with each rate, and the rate that is chosen.

    Args:
        rates: of a task, split and chip.
    """
    more = rises(rates.column)
    selected_by = rates.column.replace("/", " ").replace("_", " ")
    columns = (
        Column("network", "Network"),
        *(
            Column(
                key=f"rate_{rate:g}",
                header=f"{rate:g}",
                group=f"{selected_by}, by learning rate",
                decimals=3 if more else 1,
                better="higher" if more else "lower",
                contest="rate",
            )
            for rate in rates.tried
        ),
        Column("chosen", "Chosen"),
    )
    rows: list[tuple[Value, ...]] = [
        (name, *(values.get(rate) for rate in rates.tried), f"{rates.chosen(name):g}")
        for name, values in rates.networks.items()
    ]
    steps = " or ".join(f"{count:,}" for count in sorted(rates.steps))
    where = f"{SPLIT_NAMES.get(rates.split, rates.split)}, {rates.chip}"
    notes = (
        f"Best values on validation programs, of trainings of {steps} steps. Nothing here was chosen on test "
        "programs.",
    )
    title = f"Learning rates, {labels_of(rates.task).heading}, {where}"
    return Table(f"rates_{rates.task}_{rates.split}_{rates.chip}", title, columns, tuple(rows), 0, notes)
