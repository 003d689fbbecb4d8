"""lpm2021's tables 5 to 7: its hyper-parameters beside ours, from the parameters of training and of sweeps.

Parameters come as a plain mapping of sections, as they stand in the file; what is not there is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from costbench.reports.papers import TunedSetting, fixed_settings, tuned_settings
from costbench.reports.results import TASKS
from costbench.reports.tables import Column, Table, Value

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
}


def settings_tables(params: Settings) -> tuple[Table, ...]:
    """Table 5 beside section `train`, tables 6 and 7 beside what sweeps found (or what `train` says).

    Args:
        params: section -> its values. Of `train`, `model` is read (or its keys `net`, `optimizer`, `loss`);
            `tuned`, if there, maps a task to variants (`graphsage-lstm`, or any name) to settings of the same
            shape.

    Raises:
        ParamsError: if the package's data of the paper are broken.
    """
    train = params.get("train")
    tables = [_fixed_table(train)] if isinstance(train, Mapping) else []
    tuned = params.get("tuned")
    for task in TASKS:
        own = tuned.get(task) if isinstance(tuned, Mapping) else None
        models = dict(own) if isinstance(own, Mapping) else {}
        if not models and isinstance(train, Mapping) and isinstance(train.get("model"), Mapping):
            if task not in _names(train.get("tasks")):
                continue
            models = {"section train": train["model"]}
        if models:
            tables.append(_tuned_table(task, models))
    return tuple(tables)


def _names(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list | tuple) else tuple(TASKS)


def setting(values: object, path: str) -> object:
    """The value at a dotted path of nested mappings, or None."""
    for key in path.split("."):
        if not isinstance(values, Mapping) or key not in values:
            return None
        values = values[key]
    return values


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _fixed_table(train: Mapping[str, object]) -> Table:
    paper = fixed_settings()
    columns = (
        Column("parameter", "Parameter"),
        Column("applies_to", "Applies to"),
        Column("setting", "Our setting"),
        Column("ours", "ours"),
        Column("paper", paper.paper),
    )
    rows = tuple(
        (row.parameter, row.applies_to, row.setting, _shown(setting(train, row.setting)), row.value)
        for row in paper.rows
    )
    title = f"Settings that are fixed in all experiments, beside {paper.table} of {paper.paper}"
    notes = ("– where our parameters do not say: the network's own default holds.",)
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
    notes = ("– where a setting does not apply or is not named. Ours: gradients are clipped by norm.",)
    return Table(f"{paper.paper}_{_file(paper.table)}", title, tuple(columns), tuple(rows), 0, notes)


def _file(table: str) -> str:
    return table.replace(" ", "").lower()


def _name(name: str, values: object) -> str:
    network = [str(setting(values, f"net.{key}")) for key in ("encoder", "reduction")]
    return f"{name} ({' + '.join(network)})" if "None" not in network else name


def _of_paper(row: TunedSetting) -> tuple[str, ...]:
    known = {field.name for field in fields(row)}
    return tuple(_shown(getattr(row, key)) for key in _TUNED if key in known)


def _of_ours(values: object) -> tuple[str, ...]:
    return tuple(_shown(setting(values, path)) for _, path in _TUNED.values())
