"""Tables of tracked runs: trained cells by task, split, chip, experiment, profile and variant, best first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costbench.artifacts import read_json
from costbench.errors import ChoiceError, DataError, choose
from costbench.experiments.tracking.runs import (
    FOLDER,
    KEY,
    KIND,
    addressed,
    client_of,
    prepare,
    require_store,
    store_errors,
    without_password,
)
from costbench.tasks import LEARNED

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

TRAINED = "costbench/train"
"""Name of the MLflow experiment in which cells are tracked."""
CELL_TAGS = (
    "task", "split", "chip", "experiment", "variant", "seed", "encoder", "reduction", "profile",
    "git_revision",
)  # fmt: skip
"""Tags of a cell that are columns of `find_runs`."""
_COLUMNS: Mapping[str, str] = {
    "run_id": "run_id",
    "tags.mlflow.runName": "name",
    "metrics.best_metric": "metric",
    "tags.monitor": "monitor",
    f"tags.{FOLDER}": "path",
    f"tags.{KEY}": "key",
    **{f"tags.{tag}": tag for tag in CELL_TAGS},
}
_PARAM = "params."
_LARGER_IS_BETTER: Mapping[str, bool] = {
    "tau": True,
    "ape": False,
    "slowdown": False,
    "mape": False,
    "opa": True,
}


@dataclass(frozen=True)
class CellFilter:
    """Filter for cells; None accepts any value.

    Attributes:
        task: the compiler's decision.
        split: split that says which programs were held out.
        chip: the chip that was measured.
        experiment: entry of section `experiments`.
        profile: profile of the parameter file.
        variant: variant of the experiment.
        monitor: the validation metric that cells are compared by; by default that of the task.
    """

    task: str
    split: str | None = None
    chip: str | None = None
    experiment: str | None = None
    profile: str | None = None
    variant: str | None = None
    monitor: str | None = None

    @property
    def metric(self) -> str:
        """Returns the metric to compare by. Raises: ChoiceError, for an unknown task or metric."""
        monitor = choose(LEARNED, self.task, "task").monitor if self.monitor is None else self.monitor
        choose(_LARGER_IS_BETTER, monitor, "metric")
        return monitor

    def query(self) -> str:
        """Returns the filter in MLflow's query language."""
        tags = {field.name: getattr(self, field.name) for field in fields(self)} | {"monitor": self.metric}
        values = {name: value for name, value in tags.items() if value is not None} | {KIND: "cell"}
        for name, value in values.items():
            if "'" in value:
                raise ChoiceError(f"no {name} has a quotation mark: {value}")
        parts = [f"tags.`{name}` = '{value}'" for name, value in sorted(values.items())]
        return " and ".join([*parts, "attributes.status = 'FINISHED'", "metrics.best_metric > -1e300"])


def search_runs(uri: str, experiment: str, query: str, order_by: str | None = None) -> pd.DataFrame:
    """Returns MLflow's table of the runs of an experiment: `run_id`, `tags.NAME`, `params.NAME` and so on.

    Raises:
        DataError: if the store cannot be used.
    """
    prepare(uri, experiment)
    with store_errors(uri), addressed(uri):
        import mlflow

        order = None if order_by is None else [order_by]
        return mlflow.search_runs(experiment_names=[experiment], filter_string=query, order_by=order)


def experiment_pages(uri: str, server: str) -> dict[str, str]:
    """Returns addresses of MLflow's pages that list runs, by name of the experiment; without empty ones.

    The page that MLflow opens, and the links on it, lead to traces of language models instead: their
    addresses lack the `workflowType`.

    Args:
        uri: address of the tracking store.
        server: address of `mlflow ui`.

    Raises:
        DataError: if tracking is off, or the store does not exist or cannot be used.
    """
    require_store(uri)
    prepare(uri, TRAINED)
    with store_errors(uri):
        client = client_of(uri)
        experiments = sorted(client.search_experiments(), key=lambda experiment: str(experiment.name))
        page = f"{server}/#/experiments/{{}}?workflowType=machine_learning"
        return {
            experiment.name: page.format(experiment.experiment_id)
            for experiment in experiments
            if client.search_runs([experiment.experiment_id], max_results=1)
        }


def best_runs(uri: str, cells: CellFilter) -> pd.DataFrame:
    """Returns the runs as `find_runs` does. Raises: DataError, if there are none."""
    require_store(uri)
    runs = find_runs(uri, cells)
    if runs.empty:
        expected = "`costbench train`, or other filters"
        problem = f"no finished run with {cells.query()}"
        raise DataError(problem, where=without_password(uri), expected=expected)
    return runs


def find_runs(uri: str, cells: CellFilter) -> pd.DataFrame:
    """Returns finished cells, best first; equal ones in order of their names.

    Metrics of different splits, chips and profiles are over different validation kernels, so comparing them
    says little about which model is better.

    Args:
        uri: address of the tracking store.
        cells: filter for the cells.

    Returns:
        A row per cell: `run_id`, MLflow's identifier; `name`, profile, experiment and cell; `metric`, the
        validation metric of the model that was kept, and `monitor`, its name; `path`, the cell's folder;
        `key`, digest of everything that it was trained from; `is_there`, whether the folder still holds this
        model, which may have been trained again since; the tags `CELL_TAGS`, empty where a cell has none; and
        all settings as `params.NAME`.

    Raises:
        ChoiceError: for an unknown task or metric.
        DataError: if the store cannot be used.
    """
    runs = search_runs(uri, TRAINED, cells.query())
    settings = [str(name) for name in runs.columns if str(name).startswith(_PARAM)]
    runs = runs.reindex(columns=[*_COLUMNS, *settings]).rename(columns=_COLUMNS)
    runs = runs.fillna(dict.fromkeys(("path", "key", *CELL_TAGS), ""))
    runs["is_there"] = [
        _read_key(Path(path)) == key for path, key in zip(runs["path"], runs["key"], strict=True)
    ]
    ascending = [not _LARGER_IS_BETTER[cells.metric], True, True]
    return runs.sort_values(["metric", "name", "run_id"], ascending=ascending, ignore_index=True)


def to_records(runs: pd.DataFrame) -> list[dict[str, object]]:
    """Returns runs as JSON values, the settings of each below `params`."""
    return [
        {str(name): value for name, value in row.items() if name != "key" and not _is_param(name)}
        | {"params": {name.removeprefix(_PARAM): value for name, value in _params(row).items()}}
        for row in runs.to_dict("records")
    ]


def runs_table(runs: pd.DataFrame) -> Table:
    """Returns one or more runs with the same metric as a table for a terminal."""
    from rich.table import Table

    monitor = str(runs["monitor"].iloc[0])
    table = Table(title=f"Validation {monitor}, best first")
    table.add_column("run", no_wrap=True)
    table.add_column(monitor, justify="right", no_wrap=True)
    for header in ("profile/experiment/cell", "network, loss, learning rate"):
        table.add_column(header, overflow="fold")
    names = ("net.encoder", "net.reduction", "net.hidden", "loss", "optimizer.learning_rate")
    for row in runs.to_dict("records"):
        settings = ", ".join(_params(row).get(f"{_PARAM}model.{name}", "?") for name in names)
        table.add_row(row["run_id"], f"{row['metric']:.4f}", row["name"], settings)
    return table


def _is_param(name: object) -> bool:
    return str(name).startswith(_PARAM)


def _params(row: Mapping[Any, Any]) -> dict[str, str]:
    """Returns the settings of a run: strings, unlike those that only other runs have."""
    return {str(name): value for name, value in row.items() if _is_param(name) and isinstance(value, str)}


def _read_key(folder: Path) -> object:
    try:
        done = read_json(folder / "done.json")
    except DataError:
        return None
    # Results of a packed cell say the same, without the model.
    return done.get("key") if isinstance(done, dict) and (folder / "weights.pt").is_file() else None
