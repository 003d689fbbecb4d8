"""Hyper-parameters: the papers' tables of them beside ours, and the trials of a sweep.

Ours come as a plain mapping of sections, as they stand in the parameter file; what is not there is not shown.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from costbench.artifacts import read_bytes
from costbench.errors import DataError
from costbench.params import load_yaml
from costbench.reports.declarations import fill_table
from costbench.reports.papers.printed import fixed_settings, tried_settings, tuned_settings
from costbench.reports.table import Column, Table, Value
from costbench.tasks import KERNEL_TASKS

Settings = Mapping[str, object]
_PATHS: Mapping[str, str] = {
    "hidden": "net.hidden",
    "l2_normalize": "net.l2_normalize",
    "module_layers": "net.module_layers",
    "transformer_layers": "net.transformer_layers",
    "heads": "net.gat_heads",
    "learning_rate": "optimizer.learning_rate",
    "decay": "optimizer.decay",
    "gradient_clip": "optimizer.gradient_clip_norm",
    "dropout": "net.dropout",
    "loss": "loss",
    "residual": "net.residual",
}
"""Columns of lpm2021's tables 6 and 7, and where our section has them."""


def settings_tables(params: Settings) -> tuple[Table, ...]:
    """Returns table 5 beside section `train`, tables 6 and 7 beside what sweeps found (or what `train` says).

    Args:
        params: section -> its values. `train` maps a task to settings (`net`, `optimizer`, `loss`); `tuned`,
            if there, a task to variants (`graphsage-lstm`, or any name) to settings of the same shape.

    Raises:
        ParamsError: if the package's data of the paper are broken.
    """
    trained = {
        task: of_task
        for task in KERNEL_TASKS
        if isinstance(of_task := setting(params, f"train.{task}"), Mapping)
    }
    tables = [_fixed_table(trained)] if trained else []
    for task in KERNEL_TASKS:
        tuned = setting(params, f"tuned.{task}")
        models = dict(tuned) if isinstance(tuned, Mapping) else {}
        if not models and task in trained:
            models = {"section train": trained[task]}
        if models:
            tables.append(_tuned_table(task, models))
    return tuple(tables)


def setting(values: object, path: str) -> object:
    """Returns the value at a dotted path of nested mappings, or None."""
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
        return ", ".join(str(element) for element in value)
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
    rows: list[dict[str, str]] = []
    for row in paper.rows:
        printed = {key: shown_setting(getattr(row, key, None)) for key in _PATHS}
        rows.append({"model": row.label, "whose": paper.paper, **printed})
        if row.variant in models:
            rows.append({"model": row.label, "whose": "ours", **_tuned_values(models[row.variant])})
    variants = {row.variant for row in paper.rows}
    for name, values in models.items():
        if name not in variants:
            network = [str(setting(values, f"net.{key}")) for key in ("encoder", "reduction")]
            label = name if "None" in network else f"{name} ({' + '.join(network)})"
            rows.append({"model": label, "whose": "ours", **_tuned_values(values)})
    name, printed_as = f"{paper.paper}_{_file(paper.table)}", f"{paper.table} of {paper.paper}"
    return fill_table("tuned_settings", rows, name=name, task=task, printed=printed_as)


def _file(table: str) -> str:
    return table.replace(" ", "").lower()


def _tuned_values(values: object) -> dict[str, str]:
    """Returns a model's values of the columns of tables 6 and 7."""
    shown = {key: shown_setting(setting(values, path)) for key, path in _PATHS.items()}
    if setting(values, "optimizer.schedule") == "cosine":
        shown["decay"] = f"cosine to {shown['decay']}"
    return shown


def tried_table(settings: Mapping[str, object]) -> Table:
    """Returns tpugraphs2023's Table 5: the values that it tried beside those of our variants.

    Args:
        settings: task -> variant -> its parameters of training, for the tasks that have variants.
    """
    paper = tried_settings()
    rows = [
        {
            "parameter": row.parameter,
            "ours_layout": _tried_values(settings.get("layout"), row.setting),
            "paper_layout": row.layout,
            "ours_tile": _tried_values(settings.get("tile"), row.setting),
            "paper_tile": row.tile,
        }
        for row in paper.rows
    ]
    return fill_table("tpugraphs2023_table5", rows, printed=f"{paper.table} of {paper.paper}")


def _tried_values(variants: object, path: str) -> str:
    """Returns the different values of a setting over variants, in order: `listmle, mse`."""
    if not isinstance(variants, Mapping) or not variants:
        return "–"
    if not path:
        return "Adam"
    values = (_tried_value(one, path) for one in variants.values())
    return ", ".join(dict.fromkeys(value for value in values if value != "–")) or "–"


def _tried_value(variant: object, path: str) -> str:
    if path == "iterations":
        numbers = [setting(variant, key) for key in ("epochs", "batch.per_epoch")]
        return str(numbers[0] * numbers[1]) if all(isinstance(one, int) for one in numbers) else "–"  # type: ignore[operator]
    if path == "batch":
        return " x ".join(shown_setting(setting(variant, f"batch.{key}")) for key in ("kernels", "configs"))
    return shown_setting(setting(variant, path))


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
    """Returns the trials of a task in order, each after its last epoch; None where it was not swept.

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
