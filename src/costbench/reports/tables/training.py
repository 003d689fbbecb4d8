"""Tabulates learning curves: a few networks, trained anew for each of several numbers of steps.

A variant `curve-<network>-<steps>` is a point. Its network was trained for that budget from the start,
learning rate schedule included: the state of a longer training after as many steps would be that of a network
whose learning rate is still high.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench.artifacts import read_bytes
from costbench.errors import DataError
from costbench.params import load_yaml
from costbench.reports.described_table import described_table
from costbench.reports.papers.numbers import TunedSetting, fixed_settings, tuned_settings
from costbench.reports.results import SPLIT_NAMES, Results
from costbench.reports.table import Column, Table, Value
from costbench.reports.training_runs import Budget, Selected, by_network, rises
from costbench.tasks import KERNEL_TASKS, LEARNED, labels_of

_VARIANT = re.compile(r"curve-(?P<network>[a-z0-9_-]+)-(?P<steps>[0-9]+)")
_MODEL = "learned"
_ABLATION = "graphsage-column-wise"
"""Of the networks of lpm2021's Table 4 the one that marks the ablations' budget; all of them have one."""


@dataclass(frozen=True)
class Point:
    """A network after a budget.

    Attributes:
        steps: of training.
        validation: best value on the validation programs, by which the network was selected; mean over seeds.
        error: mean error on the test programs, in percent.
        tau: mean of Kendall's tau on the test programs.
    """

    steps: int
    validation: float
    error: float | None = None
    tau: float | None = None


@dataclass(frozen=True)
class Curves:
    """The learning curves of a task on one split and chip.

    Attributes:
        task: the compiler's decision.
        split: which programs were held out.
        chip: what was measured.
        column: of training histories that `validation` is of, such as `validation/tau`.
        networks: name -> points, by steps.
        ablations: steps in which the ablations' samples are seen; None where no ablation was run.
        samples: decisions that a network sees in a step, at most.
    """

    task: str
    split: str
    chip: str
    column: str
    networks: Mapping[str, tuple[Point, ...]]
    ablations: float | None
    samples: int

    @property
    def name(self) -> str:
        """`tile_random_tpu_v2`: names files."""
        return f"{self.task}_{self.split}_{self.chip}"

    @property
    def budgets(self) -> tuple[int, ...]:
        """Returns the steps that all networks were trained for, ascending."""
        steps = [{point.steps for point in points} for points in self.networks.values()]
        return tuple(sorted(set.intersection(*steps))) if steps else ()


def is_curve(variant: str) -> bool:
    """Returns whether a variant is a point of a learning curve."""
    return _VARIANT.fullmatch(variant) is not None


def learning_curves(
    results: Results, selected: Sequence[Selected], budgets: Sequence[Budget], columns: Mapping[str, str]
) -> tuple[Curves, ...]:
    """Returns the learning curves, in the order of their training runs.

    Args:
        results: has the test results.
        selected: best validation values of the points' training runs.
        budgets: of all training runs, to find the ablations' one.
        columns: task -> column of histories that `selected` is of.
    """
    runs = by_network(selected, _VARIANT, lambda one, _: one.budget.steps)
    found = []
    for (task, split, chip), networks in runs.items():
        budget = next(own[0].budget for points in networks.values() for own in points.values())
        per_step = budget.kernels * budget.configs
        shown = {
            name: tuple(_point(results, steps, own) for steps, own in sorted(points.items()))
            for name, points in networks.items()
        }
        seen = [
            one.samples
            for one in budgets
            if (one.task, one.split, one.chip, one.variant) == (task, split, chip, _ABLATION)
        ]
        marked = min(seen) / per_step if seen else None
        found.append(Curves(task, split, chip, columns[task], shown, marked, per_step))
    return tuple(found)


def _point(results: Results, steps: int, runs: Sequence[Selected]) -> Point:
    one = runs[0].budget
    validation = float(np.mean([run.value for run in runs]))
    cell = results.cell(one.task, one.split, one.chip, one.variant)
    if cell is None:
        return Point(steps, validation)
    error, tau = (m.mean(cell.over_programs(_MODEL, m.metric)) for m in cell.described.measures)
    return Point(steps, validation, error, tau)


def order_at(
    curves: Curves, steps: int, value: Callable[[Point], float | None], rising: bool
) -> tuple[str, ...]:
    """Returns the networks after a budget, the best first; those without a value are left out.

    Args:
        curves: of a task.
        steps: the budget.
        value: what of a point to compare.
        rising: whether more of it is better.
    """
    ranked = []
    for name, points in curves.networks.items():
        found = next((value(point) for point in points if point.steps == steps), None)
        if found is not None:
            ranked.append((-found if rising else found, name))
    return tuple(name for _, name in sorted(ranked))


def settled_after(
    curves: Curves, value: Callable[[Point], float | None], rising: bool
) -> tuple[int | None, tuple[str, ...]]:
    """Returns the least budget from which on the order of the networks no longer changes, and that order.

    None where the last budget still changed the order, or only one budget was run: one order alone is not
    known to last. Budgets that only some networks were trained for do not count.

    Args:
        curves: of a task.
        value: what of a point to compare.
        rising: whether more of it is better.
    """
    orders = [order_at(curves, steps, value, rising) for steps in curves.budgets]
    if not orders:
        return None, ()
    least = len(orders) - 1
    while least > 0 and orders[least - 1] == orders[-1]:
        least -= 1
    return (curves.budgets[least] if least < len(orders) - 1 else None), orders[-1]


def curves_table(curves: Curves) -> Table:
    """Returns one row a network and budget: validation value, test error and tau.

    Args:
        curves: of a task, split and chip.
    """
    error, tau = LEARNED[curves.task].measures
    selected_by = curves.column.replace("/", " ").replace("_", " ")
    rows: list[tuple[Value, ...]] = [
        (name, point.steps, point.steps * curves.samples, point.validation, point.error, point.tau)
        for name, points in curves.networks.items()
        for point in points
    ]
    where = f"{SPLIT_NAMES.get(curves.split, curves.split)}, {curves.chip}"
    return described_table(
        "curves",
        rows,
        name=f"curves_{curves.name}",
        heading=labels_of(curves.task).heading,
        where=where,
        selected_by=selected_by,
        decimals=3 if tau.short in curves.column else 1,
        error=error.title,
        tau=tau.title,
    )


_RATES_VARIANT = re.compile(r"rate-(?P<network>[a-z0-9_-]+?)-(?P<rate>[0-9]+e-[0-9]+)")


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
    return _RATES_VARIANT.fullmatch(variant) is not None


def rates_of(selected: Sequence[Selected], columns: Mapping[str, str]) -> tuple[Rates, ...]:
    """Returns the values by network and rate, in the order of the training runs.

    Args:
        selected: best validation values of training runs.
        columns: task -> column of histories that they are of.
    """
    runs = by_network(selected, _RATES_VARIANT, lambda _, match: float(match["rate"]))
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


Settings = Mapping[str, object]
# Of table 6 and 7: header, and where our section has it.
_TUNED: Mapping[str, tuple[str, str]] = {
    "hidden": ("hidden", "net.hidden"),
    "l2_normalize": ("L2 norm", "net.l2_normalize"),
    "module_layers": ("module layers", "net.module_layers"),
    "transformer_layers": ("Transformer layers", "net.transformer_layers"),
    "heads": ("GAT heads", "net.gat_heads"),
    "learning_rate": ("learning rate", "optimizer.learning_rate"),
    "decay": ("decay", "optimizer.decay"),
    "gradient_clip": ("clipping", "optimizer.gradient_clip_norm"),
    "dropout": ("dropout", "net.dropout"),
    "loss": ("loss", "loss"),
    "residual": ("added to", "net.residual"),
}
_DECAY, _SCHEDULE = "optimizer.decay", "optimizer.schedule"


def settings_tables(params: Settings) -> tuple[Table, ...]:
    """Table 5 beside section `train`, tables 6 and 7 beside what sweeps found (or what `train` says).

    Args:
        params: section -> its values. `train` maps a task to settings (`net`, `optimizer`, `loss`); `tuned`,
            if there, a task to variants (`graphsage-lstm`, or any name) to settings of the same shape.

    Raises:
        ParamsError: if the package's data of the paper are broken.
    """
    trained = {
        task: own for task in KERNEL_TASKS if isinstance(own := setting(params, f"train.{task}"), Mapping)
    }
    tables = [_fixed_table(trained)] if trained else []
    for task in KERNEL_TASKS:
        own = setting(params, f"tuned.{task}")
        models = dict(own) if isinstance(own, Mapping) else {}
        if not models and task in trained:
            models = {"section train": trained[task]}
        if models:
            tables.append(_tuned_table(task, models))
    return tuple(tables)


def setting(values: object, path: str) -> object:
    """The value at a dotted path of nested mappings, or None."""
    for key in path.split("."):
        if not isinstance(values, Mapping) or key not in values:
            return None
        values = values[key]
    return values


def shown_setting(value: object) -> str:
    """Returns a value of a parameter file as tables show it: `yes`, `0.001`, `mean, max`; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _fixed_table(trained: Mapping[str, Settings]) -> Table:
    paper = fixed_settings()
    columns = (
        Column("parameter", "Parameter"),
        Column("applies_to", "Applies to"),
        Column("setting", "Our setting"),
        *(Column(f"ours_{task}", f"ours, {task}") for task in trained),
        Column("paper", paper.paper),
    )
    rows = tuple(
        (
            row.parameter,
            row.applies_to,
            row.setting,
            *(shown_setting(setting(settings, row.setting)) for settings in trained.values()),
            row.value,
        )
        for row in paper.rows
    )
    title = f"Settings that are the same for all networks of a task, beside {paper.table} of {paper.paper}"
    notes = (
        "– where our parameters do not say: the network's own default holds, such as 4 heads in a "
        "Transformer; its outputs are always summed.",
    )
    return Table(f"{paper.paper}_{_file(paper.table)}", title, columns, rows, 0, notes)


def _tuned_table(task: str, models: Mapping[str, object]) -> Table:
    paper = tuned_settings(task)
    shown = {key: header for key, (header, _) in _TUNED.items()}
    columns = [Column("model", "Model"), Column("whose", "Whose")]
    columns += [Column(key, header) for key, header in shown.items()]
    printed = {row.variant: row for row in paper.rows}
    rows: list[tuple[Value, ...]] = []
    for row in paper.rows:
        rows.append((row.label, paper.paper, *_of_paper(row)))
        if row.variant in models:
            rows.append((row.label, "ours", *_of_ours(models[row.variant])))
    rows += [(_name(n, v), "ours", *_of_ours(v)) for n, v in models.items() if n not in printed]
    title = f"Settings tuned on the {task} data, beside {paper.table} of {paper.paper}"
    notes = (
        "– where a setting does not apply or is not named. Ours: gradients are clipped by norm. Decay: what "
        "the learning rate is multiplied by after an epoch, or the share of it that a cosine ends at.",
        "added to: what a network's output is added to; with the analytical estimate it is a hybrid.",
    )
    return Table(f"{paper.paper}_{_file(paper.table)}", title, tuple(columns), tuple(rows), 0, notes)


def _file(table: str) -> str:
    return table.replace(" ", "").lower()


def _name(name: str, values: object) -> str:
    network = [str(setting(values, f"net.{key}")) for key in ("encoder", "reduction")]
    return f"{name} ({' + '.join(network)})" if "None" not in network else name


def _of_paper(row: TunedSetting) -> tuple[str, ...]:
    return tuple(shown_setting(getattr(row, key, None)) for key in _TUNED)


def _of_ours(values: object) -> tuple[str, ...]:
    shown = {path: shown_setting(setting(values, path)) for _, path in _TUNED.values()}
    if setting(values, _SCHEDULE) == "cosine":
        shown[_DECAY] = f"cosine to {shown[_DECAY]}"
    return tuple(shown.values())


_SHOWN = {
    "net.encoder": "graph network",
    "net.reduction": "reduction",
    "net.hidden": "hidden",
    "optimizer.learning_rate": "learning rate",
    "loss": "loss",
    "net.residual": "added to",
}
_RESIDUAL = ("added to: networks that are added to the analytical estimate are hybrids.",)
_HEAD = ("trial", "state", "epochs", "metric")


def trials_table(task: str, folder: Path) -> Table | None:
    """The trials of a task in order, each after its last epoch; None where it was not swept.

    Raises:
        DataError: for a file that is not a table of trials.
        ParamsError: for a best trial that cannot be read.
    """
    path = folder / f"{task}.csv"
    if not path.exists():
        return None
    rows = list(csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8"))))
    if not rows or not set(_HEAD) <= set(rows[0]):
        raise DataError("no trials", where=path, expected=f"the columns {', '.join(_HEAD)}")
    best = load_yaml(folder / f"{task}.yaml")
    last = {row["trial"]: row for row in rows}
    varied = [name for name in _SHOWN if name in rows[0]]
    columns = [
        *(Column(name, name) for name in ("trial", "state", "epochs")),
        Column("metric", f"validation {best.get('monitor')}", decimals=3),
        *(Column(name, _SHOWN[name]) for name in varied),
    ]
    filled = tuple(_row(row, varied, best.get("trial")) for row in last.values())
    notes = (
        "The first trial is the model as section train has it, the others are Optuna's. Trials are compared "
        "on validation programs, after a small share of the training of the main results; * is the best. "
        "A pruned trial was behind half of the others.",
        *(_RESIDUAL if "net.residual" in varied else ()),
    )
    return Table(f"sweep_{task}", f"Trials of the sweep, {task} task", tuple(columns), filled, 0, notes)


def _row(row: dict[str, str], varied: list[str], best: object) -> tuple[Value, ...]:
    mark = "*" if row["trial"] == str(best) else ""
    metric = float(row["metric"]) if row["metric"] else None
    return (row["trial"] + mark, row["state"], row["epochs"], metric, *(_short(row[name]) for name in varied))


def _short(value: str) -> str:
    try:
        return f"{float(value):.3g}"
    except ValueError:
        return value or "–"
