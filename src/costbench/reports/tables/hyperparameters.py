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
from costbench.reports.claims.claim import TPUGRAPHS
from costbench.reports.declared_tables import fill_table
from costbench.reports.page import paragraphs
from costbench.reports.papers.printed import printed_settings
from costbench.reports.table import Table
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
    paper = printed_settings("lpm2021", "fixed")
    rows = [
        {
            **row,
            "paper": row["value"],
            **{
                f"ours_{task}": shown_setting(setting(settings, str(row["setting"])))
                for task, settings in trained.items()
            },
        }
        for row in paper.rows
    ]
    return fill_table("fixed_settings", rows, name=paper.key, printed=paper.name, paper=paper.paper)


def _tuned_table(task: str, models: Mapping[str, object]) -> Table:
    paper = printed_settings("lpm2021", f"tuned_{task}")
    rows: list[dict[str, object]] = []
    for row in paper.rows:
        printed = {key: shown_setting(row.get(key)) for key in _PATHS}
        rows.append({"model": row["label"], "whose": paper.paper, **printed})
        if row["variant"] in models:
            ours = _tuned_values(models[str(row["variant"])])
            rows.append({"model": row["label"], "whose": "ours", **ours})
    in_paper = {row["variant"] for row in paper.rows}
    for name, values in models.items():
        if name not in in_paper:
            network = [str(setting(values, f"net.{key}")) for key in ("encoder", "reduction")]
            label = name if "None" in network else f"{name} ({' + '.join(network)})"
            rows.append({"model": label, "whose": "ours", **_tuned_values(values)})
    return fill_table("tuned_settings", rows, name=paper.key, task=task, printed=paper.name)


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
    paper = printed_settings(TPUGRAPHS, "settings")
    rows = [
        {"parameter": row["parameter"]}
        | {f"ours_{task}": _tried_values(settings.get(task), str(row["setting"])) for task in _TRIED_TASKS}
        | {f"paper_{task}": row[task] for task in _TRIED_TASKS}
        for row in paper.rows
    ]
    return fill_table(f"{TPUGRAPHS}_table5", rows, printed=paper.name)


_TRIED_TASKS = ("layout", "tile")


def _tried_values(variants: object, path: str) -> str:
    """Returns the different values of a setting over variants, in order: `listmle, mse`."""
    if not isinstance(variants, Mapping) or not variants:
        return "–"
    if not path:
        return "Adam"
    values = (_tried_value(variant, path) for variant in variants.values())
    return ", ".join(dict.fromkeys(value for value in values if value != "–")) or "–"


def _tried_value(variant: object, path: str) -> str:
    if path == "iterations":
        numbers = [setting(variant, key) for key in ("epochs", "batch.per_epoch")]
        return str(numbers[0] * numbers[1]) if all(isinstance(number, int) for number in numbers) else "–"  # type: ignore[operator]
    if path == "batch":
        return " x ".join(shown_setting(setting(variant, f"batch.{key}")) for key in ("kernels", "configs"))
    return shown_setting(setting(variant, path))


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
    epochs = list(csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8"))))
    if not epochs or not set(_HEAD) <= set(epochs[0]):
        raise DataError("no trials", where=path, expected=f"the columns {', '.join(_HEAD)}")
    best = load_yaml(folder / f"{task}.yaml")
    trials = {row["trial"]: row for row in epochs}.values()
    rows = [
        {key: _short(value) for key, value in row.items()}
        | {
            "trial": row["trial"] + ("*" if row["trial"] == str(best.get("trial")) else ""),
            "epochs": row["epochs"],
            "metric": float(row["metric"]) if row["metric"] else None,
        }
        for row in trials
    ]
    notes = paragraphs("models", "trials_notes", hybrids="net.residual" in epochs[0])
    return fill_table(
        "trials", rows, name=f"sweep_{task}", notes=notes, task=task, monitor=best.get("monitor")
    )


def _short(value: str) -> str:
    try:
        return f"{float(value):.3g}"
    except ValueError:
        return value or "–"
