"""Learning curves and learning rates: a few networks, trained again for each number of steps, or each rate.

A variant `curve-<network>-<steps>` is a point. Its network was trained for that budget from the start,
learning rate schedule included: the state of a longer training after as many steps would be that of a network
whose learning rate is still high. A variant `rate-<network>-<rate>`, such as `rate-gat-lstm-3e-4`, is a short
training with one rate; test programs have no part in the choice among them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from costbench.datasets.splits import reported_split
from costbench.reports.declared_tables import fill_table
from costbench.reports.frame import means, number
from costbench.reports.page import paragraphs
from costbench.reports.results import Division, Results
from costbench.reports.table import Column, Table
from costbench.reports.training_runs import Budget, Selected, rises, runs_of_networks

_CURVE = re.compile(r"curve-(?P<network>[a-z0-9_-]+)-(?P<steps>[0-9]+)")
_RATE = re.compile(r"rate-(?P<network>[a-z0-9_-]+?)-(?P<rate>[0-9]+e-[0-9]+)")
_MODEL = "learned"
_ABLATION = "graphsage-column-wise"
"""Of the networks of lpm2021's Table 4 the one that marks the ablations' budget; all of them have one."""


CURVE_COLUMNS = ("network", "steps", "validation", "error", "tau")


@dataclass(frozen=True)
class Curves(Division):
    """The learning curves of a task on one split and chip.

    Attributes:
        column: column of training histories that `validation` is of, such as `validation/tau`.
        points: a row a network and budget, networks one after the other, each by steps: name of the
            `network`, number of training `steps`, best value on the `validation` programs, by which the
            network was selected (mean over seeds), mean `error` in percent and mean of Kendall's `tau` on
            the test programs; NaN where it was not tested.
        ablations: steps in which the ablations' samples are seen; None where no ablation was run.
        samples: decisions that a network sees in a step, at most.
    """

    column: str
    points: pd.DataFrame
    ablations: float | None
    samples: int

    @property
    def networks(self) -> dict[str, pd.DataFrame]:
        """Points of each network, by name, in order."""
        return {str(name): points for name, points in self.points.groupby("network", sort=False)}

    @property
    def budgets(self) -> tuple[int, ...]:
        """Returns the steps that all networks were trained for, ascending."""
        counts = self.points.groupby("steps").size()
        return tuple(counts.index[counts == self.points["network"].nunique()].tolist())


def is_curve(variant: str) -> bool:
    """Returns whether a variant is a point of a learning curve."""
    return _CURVE.fullmatch(variant) is not None


def learning_curves(
    results: Results, selected: Sequence[Selected], budgets: Sequence[Budget], columns: Mapping[str, str]
) -> tuple[Curves, ...]:
    """Returns the learning curves, in the order of their training runs.

    Args:
        results: results of all variants on test programs.
        selected: best validation values of the points' training runs.
        budgets: budgets of all training runs, to find that of the ablations.
        columns: task -> column of histories that `selected` is of.
    """
    curves = []
    every = runs_of_networks(selected, _CURVE)
    # Of folds each program is tested by one of several trainings, which are one point.
    every["split"] = every["split"].map(reported_split)
    for key, runs in every.groupby(["task", "split", "chip"], sort=False):
        task, split, chip = map(str, key)
        samples = int(runs["samples"].iloc[0])
        points = [
            (network, *_values_at(results, of_steps))
            for network, of_network in runs.groupby("network", sort=False)
            for _, of_steps in of_network.groupby("steps")
        ]
        of_ablations = [
            budget.samples
            for budget in budgets
            if (budget.task, reported_split(budget.split)) == (task, split)
            if (budget.chip, budget.variant) == (chip, _ABLATION)
        ]
        ablations = min(of_ablations) / samples if of_ablations else None
        frame = pd.DataFrame(points, columns=list(CURVE_COLUMNS))
        frame = frame.astype(dict.fromkeys(("validation", "error", "tau"), "float64"))
        curves.append(Curves(task, split, chip, columns[task], frame, ablations, samples))
    return tuple(curves)


def _values_at(results: Results, runs: pd.DataFrame) -> tuple[float | None, ...]:
    """Returns the values of `CURVE_COLUMNS` of a network after a budget, by its training runs."""
    first = runs.iloc[0]
    steps, validation = int(first["steps"]), float(runs["value"].to_numpy().mean())
    cell = results.cell(*first[["task", "split", "chip", "variant"]])
    return (steps, validation, *((None, None) if cell is None else cell.means(_MODEL)))


def order_at(curves: Curves, steps: int, column: str, *, rising: bool) -> tuple[str, ...]:
    """Returns the networks after a budget, the best first; those without a value are left out.

    Args:
        curves: learning curves of a task.
        steps: number of training steps.
        column: column of points to compare.
        rising: whether more of it is better.
    """
    points = curves.points[curves.points["steps"] == steps].dropna(subset=column)
    return tuple(points.sort_values([column, "network"], ascending=[not rising, True])["network"])


def settled_after(curves: Curves, column: str, *, rising: bool) -> tuple[int | None, tuple[str, ...]]:
    """Returns the least budget from which on the order of the networks no longer changes, and that order.

    None where the last budget still changed the order, or only one budget was run: one order alone is not
    known to last. Budgets that only some networks were trained for do not count.

    Args:
        curves: learning curves of a task.
        column: column of points to compare.
        rising: whether more of it is better.
    """
    orders = [order_at(curves, steps, column, rising=rising) for steps in curves.budgets]
    if not orders:
        return None, ()
    least = len(orders) - 1
    while least > 0 and orders[least - 1] == orders[-1]:
        least -= 1
    return (curves.budgets[least] if least < len(orders) - 1 else None), orders[-1]


def curves_table(curves: Curves) -> Table:
    """Returns one row a network and budget: validation value, test error and tau.

    Args:
        curves: learning curves of a task, split and chip.
    """
    return fill_table(
        "curves",
        curves.points.assign(samples=curves.points["steps"] * curves.samples),
        name=f"curves_{curves.name}",
        selected_by=column_name(curves.column),
        decimals=3 if curves.described.measures[1].short in curves.column else 1,
        **curves.words,
    )


def column_name(column: str) -> str:
    """Returns what people call a column of training histories: `validation tau`."""
    return column.replace("/", " ").replace("_", " ")


def is_rate(variant: str) -> bool:
    """Returns whether a variant is a training of the choice of learning rates."""
    return _RATE.fullmatch(variant) is not None


def rates_tables(selected: Sequence[Selected], columns: Mapping[str, str]) -> tuple[Table, ...]:
    """Returns a row a network: the best validation value with each rate, mean over seeds, and the best rate.

    Of equal rates the least is chosen.

    Args:
        selected: best validation values of training runs.
        columns: task -> column of training histories that they are of, such as `validation/tau`.
    """
    tables = []
    runs = runs_of_networks(selected, _RATE)
    for key, of_place in runs.astype({"rate": float}).groupby(["task", "split", "chip"], sort=False):
        trained = Division(*map(str, key))
        column, more = columns[trained.task], rises(columns[trained.task])
        values = means(of_place, ["network", "rate"]).unstack("rate").loc[of_place["network"].unique()]
        best = values.idxmax(axis=1) if more else values.idxmin(axis=1)
        rates = [
            Column(
                key=f"rate_{rate:g}",
                header=f"{rate:g}",
                group=f"{column_name(column)}, by learning rate",
                decimals=3 if more else 1,
                better="higher" if more else "lower",
                contest="rate",
            )
            for rate in values
        ]
        steps = " or ".join(f"{count:,}" for count in sorted(of_place["steps"].unique()))
        tables.append(
            Table(
                f"rates_{trained.name}",
                f"Learning rates, {trained.labels.heading}, {trained.where}",
                (Column("network", "Network"), *rates, Column("chosen", "Chosen")),
                tuple(
                    (str(name), *map(number, row), f"{best[str(name)]:g}") for name, row in values.iterrows()
                ),
                notes=paragraphs("models", "rates_note", steps=steps),
            )
        )
    return tuple(tables)
