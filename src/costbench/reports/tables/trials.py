"""Tabulates the trials of a sweep: values, epochs trained, metric, and which trial was chosen."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from costbench.artifacts import read_bytes
from costbench.errors import DataError
from costbench.params import load_yaml
from costbench.reports.table import Column, Table, Value

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
