"""Finds trained cells in MLflow by task, split, chip, experiment, profile and variant, best first."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from costbench.artifacts import read_json
from costbench.errors import ChoiceError, DataError, choose
from costbench.experiments.tracking.record import OFF, client_of
from costbench.experiments.tracking.runs import FOLDER, KEY, KIND, prepare, store_errors
from costbench.tasks import LEARNED

if TYPE_CHECKING:
    from mlflow.entities import Run
    from rich.table import Table

TRAINED = "costbench/train"
"""Name of the MLflow experiment in which cells are tracked."""
_LARGER_IS_BETTER: Mapping[str, bool] = {
    "tau": True,
    "ape": False,
    "slowdown": False,
    "mape": False,
    "opa": True,
}
_PAGE = 1000


@dataclass(frozen=True)
class Wanted:
    """Filter for cells; None accepts any value.

    Attributes:
        task: the compiler's decision.
        split: which programs were held out.
        chip: the chip that was measured.
        experiment: entry of section `experiments`.
        profile: of the parameter file.
        variant: of the experiment.
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
        """Return the metric to compare by. Raises: ChoiceError, for an unknown task or metric."""
        monitor = choose(LEARNED, self.task, "task").monitor if self.monitor is None else self.monitor
        choose(_LARGER_IS_BETTER, monitor, "metric")
        return monitor

    @property
    def larger_is_better(self) -> bool:
        """Whether a larger metric is better."""
        return _LARGER_IS_BETTER[self.metric]

    def query(self) -> str:
        """Return the filter in MLflow's query language."""
        tags = {field.name: getattr(self, field.name) for field in fields(self)} | {"monitor": self.metric}
        wanted = {name: value for name, value in tags.items() if value is not None} | {KIND: "cell"}
        for name, value in wanted.items():
            if "'" in value:
                raise ChoiceError(f"no {name} has a quotation mark: {value}")
        parts = [f"tags.`{name}` = '{value}'" for name, value in sorted(wanted.items())]
        return " and ".join([*parts, "attributes.status = 'FINISHED'", "metrics.best_metric > -1e300"])


@dataclass(frozen=True)
class TrainedRun:
    """A finished cell.

    Attributes:
        run_id: MLflow's identifier.
        name: profile, experiment and cell.
        metric: validation metric of the model that was kept.
        monitor: name of this metric.
        tags: task, split, chip, experiment, variant, seed, encoder, reduction, profile, git_revision.
        params: all settings, by dotted name.
        folder: the cell's folder, which holds the model.
        key: digest of everything that it was trained from.
        is_there: whether the folder still holds this model; it may have been trained again since.
    """

    run_id: str
    name: str
    metric: float
    monitor: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    folder: Path
    key: str
    is_there: bool

    @property
    def validated_on(self) -> tuple[int, int]:
        """Return how many kernels, and decisions of each, the metric is over at most; 0 where unknown."""
        kernels, configs = (
            self.params.get(f"model.validation.{name}", "") for name in ("kernels", "configs")
        )
        return int(kernels or 0), int(configs or 0)

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return {
            "run_id": self.run_id, "name": self.name, "metric": self.metric, "monitor": self.monitor,
            **self.tags, "params": dict(self.params), "path": str(self.folder), "is_there": self.is_there,
        }  # fmt: skip


_TAGS = (
    "task", "split", "chip", "experiment", "variant", "seed", "encoder", "reduction", "profile",
    "git_revision",
)  # fmt: skip


def experiment_pages(uri: str, server: str) -> dict[str, str]:
    """Return addresses of MLflow's pages that list runs, by name of the experiment; without empty ones.

    The page that MLflow opens, and the links on it, lead to traces of language models instead: their
    addresses lack the `workflowType`.

    Args:
        uri: of the tracking store.
        server: address of `mlflow ui`.

    Raises:
        DataError: if tracking is off or the store cannot be used.
    """
    if uri == OFF:
        raise DataError("is off", where="COSTBENCH_TRACKING", expected="a tracking store to look at")
    prepare(uri, TRAINED)
    with store_errors(uri):
        client = client_of(uri)
        found = sorted(client.search_experiments(), key=lambda one: str(one.name))
        return {
            one.name: f"{server}/#/experiments/{one.experiment_id}?workflowType=machine_learning"
            for one in found
            if client.search_runs([one.experiment_id], max_results=1)
        }


def best_runs(uri: str, wanted: Wanted) -> list[TrainedRun]:
    """Return the runs as `find_runs` does. Raises: DataError, if there are none."""
    if uri == OFF:
        raise DataError("is off", where="COSTBENCH_TRACKING", expected="a tracking store to search")
    runs = find_runs(uri, wanted)
    if not runs:
        expected = "`costbench train`, or other filters"
        raise DataError(f"no finished run with {wanted.query()}", where=uri, expected=expected)
    return runs


def find_runs(uri: str, wanted: Wanted) -> list[TrainedRun]:
    """Return finished cells, best first; equal ones in order of their names.

    Metrics of different splits, chips and profiles are over different validation kernels, so comparing them
    says little about which model is better.

    Args:
        uri: of the tracking store.
        wanted: the filter.

    Raises:
        ChoiceError: for an unknown task or metric.
        DataError: if the store cannot be used.
    """
    if uri == OFF:
        return []
    query = wanted.query()
    found: list[Run] = []
    prepare(uri, TRAINED)
    with store_errors(uri):
        client = client_of(uri)
        experiment = client.get_experiment_by_name(TRAINED)
        token: str | None = None
        while experiment is not None:
            page = client.search_runs([experiment.experiment_id], query, max_results=_PAGE, page_token=token)
            found.extend(page)
            token = page.token
            if not token:
                break
    sign = -1.0 if wanted.larger_is_better else 1.0
    return sorted(map(_trained, found), key=lambda run: (sign * run.metric, run.name, run.run_id))


def runs_table(runs: Sequence[TrainedRun]) -> Table:
    """Return one or more runs with the same metric as a table for a terminal."""
    from rich.table import Table

    table = Table(title=f"Validation {runs[0].monitor}, best first")
    table.add_column("run", no_wrap=True)
    table.add_column(runs[0].monitor, justify="right", no_wrap=True)
    for header in ("profile/experiment/cell", "network, loss, learning rate", "model in"):
        table.add_column(header, overflow="fold")
    for run in runs:
        names = ("net.encoder", "net.reduction", "net.hidden", "loss", "optimizer.learning_rate")
        settings = ", ".join(run.params.get(f"model.{name}", "?") for name in names)
        place = os.path.relpath(run.folder) if run.is_there else "no longer there"
        table.add_row(run.run_id, f"{run.metric:.4f}", run.name, settings, place)
    return table


def _trained(run: Run) -> TrainedRun:
    tags = run.data.tags
    folder, key = Path(tags.get(FOLDER, "")), tags.get(KEY, "")
    return TrainedRun(
        run_id=run.info.run_id,
        name=run.info.run_name,
        metric=run.data.metrics["best_metric"],
        monitor=tags["monitor"],
        tags={name: tags.get(name, "") for name in _TAGS},
        params=dict(run.data.params),
        folder=folder,
        key=key,
        is_there=_key_in(folder) == key,
    )


def _key_in(folder: Path) -> object:
    try:
        done = read_json(folder / "done.json")
    except DataError:
        return None
    return done.get("key") if isinstance(done, dict) else None
