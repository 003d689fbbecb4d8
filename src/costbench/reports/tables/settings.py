"""lpm2021's tables 5 to 7: its hyper-parameters beside ours, from the parameters of training and of sweeps.

Parameters come as a plain mapping of sections, as they stand in the file; what is not there is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping

from costbench.reports.papers.numbers import TunedSetting, fixed_settings, tuned_settings
from costbench.reports.table import Column, Table, Value
from costbench.tasks import KERNEL_TASKS

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
