"""The only module that talks to MLflow: one experiment a stage, one run a cell, nothing the other way.

Tracking is a record beside the results, never a source of them: no run identifier, time or address of the
tracking server goes into a result file, so equal parameters still give equal bytes. The store is
`sqlite:///mlflow.db` in the working folder, or what `MLFLOW_TRACKING_URI` names.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from costbench.errors import DataError

if TYPE_CHECKING:
    from mlflow import MlflowClient

DEFAULT_URI = "sqlite:///mlflow.db"
# What one call of MLflow's batch interface accepts.
_METRICS_PER_CALL = 1000
_PARAMS_PER_CALL = 100
_TAG_REVISION = "costbench.git_revision"
_TAG_PARAMS = "costbench.params_digest"
_TAG_DATA = "costbench.data_digest"


class RunStopped(Exception):  # noqa: N818 - no error, as StopIteration is none
    """Raised inside a tracked run that is ended early on purpose: it is marked as killed, not as failed."""


@dataclass(frozen=True)
class Provenance:
    """What numbers follow from.

    Attributes:
        params_digest: of the parameters.
        data_digest: of the samples.
        git_revision: of the code.
    """

    params_digest: str
    data_digest: str
    git_revision: str


@dataclass(frozen=True)
class TrackedRun:
    """One open run. Calls are batched, since each costs a transaction of some 15 ms on SQLite.

    Attributes:
        uri: of the tracking server or database.
        experiment: name.
        run_id: for tools that log by themselves (Lightning); never to be written into results.
    """

    uri: str
    experiment: str
    run_id: str

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log settings; nested mappings become dotted names."""
        from mlflow.entities import Param

        flat = [Param(key, str(value)[:6000]) for key, value in sorted(_flatten(params))]
        for start in range(0, len(flat), _PARAMS_PER_CALL):
            _client(self.uri).log_batch(self.run_id, params=flat[start : start + _PARAMS_PER_CALL])

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Log numbers of one step. Characters that MLflow refuses in names become underscores."""
        self.log_history([(step, metrics)])

    def log_history(self, steps: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """Log numbers of many steps, in as few calls as possible."""
        import time

        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        flat = [
            Metric(_metric_name(key), float(value), now, step)
            for step, metrics in steps
            for key, value in sorted(metrics.items())
        ]
        for start in range(0, len(flat), _METRICS_PER_CALL):
            _client(self.uri).log_batch(self.run_id, metrics=flat[start : start + _METRICS_PER_CALL])

    def log_dataset(self, name: str, digest: str, contents: pd.DataFrame, source: Path, role: str) -> None:
        """Log what was read: its digest, and a table of its contents as schema and profile.

        Args:
            name: of the data set.
            digest: identity of its bytes.
            contents: a small description, such as one row a program; not the data.
            source: the folder it lies in.
            role: `training` or `evaluation`.
        """
        from mlflow.data.code_dataset_source import CodeDatasetSource
        from mlflow.data.pandas_dataset import from_pandas
        from mlflow.entities import DatasetInput, InputTag

        # The samples are what a stage computed, so their source is code; the folder is where it put them.
        made_by = CodeDatasetSource({"mlflow.source.name": "costbench generate", "folder": str(source)})
        with warnings.catch_warnings():
            # Counts are whole numbers, and none is ever missing.
            warnings.filterwarnings("ignore", message=".*Inferred schema contains integer")
            dataset = from_pandas(contents, source=made_by, name=name, digest=digest)
            entity = dataset._to_mlflow_entity()  # noqa: SLF001 - the schema is inferred in here
        entry = DatasetInput(entity, [InputTag("mlflow.data.context", role)])
        _client(self.uri).log_inputs(self.run_id, datasets=[entry])

    def log_files(self, paths: Sequence[Path], folder: str) -> None:
        """Log files as artifacts under `folder`."""
        for path in paths:
            _client(self.uri).log_artifact(self.run_id, str(path), folder)

    def log_folder(self, path: Path) -> None:
        """Log all files of a folder as artifacts under the folder's name, in one call."""
        _client(self.uri).log_artifacts(self.run_id, str(path), path.name)


def tracking_uri() -> str:
    """`MLFLOW_TRACKING_URI`, or the SQLite file of the working folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def prepare(uri: str, experiment: str) -> None:
    """Create database, tables and experiment, so that worker processes do not race to do it.

    Raises:
        DataError: if the store cannot be used, naming it.
    """
    from mlflow.exceptions import MlflowException

    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for chatty in ("mlflow.store.db.utils", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        client = _client(uri)
        if client.get_experiment_by_name(experiment) is None:
            client.create_experiment(experiment)
    except MlflowException as error:
        raise DataError(f"cannot be used for tracking: {error.message}", where=uri) from error


@contextmanager
def tracked_run(
    uri: str, experiment: str, name: str, provenance: Provenance, more_tags: Mapping[str, str] | None = None
) -> Iterator[TrackedRun]:
    """A run that is finished when the block ends, and marked as failed when it raises.

    Args:
        uri: where to track.
        experiment: its name; created if need be.
        name: of the run, such as `tile-random-tpu_v2-s0`.
        provenance: becomes tags to search by.
        more_tags: others; `mlflow.parentRunId` nests the run below another.

    Raises:
        DataError: if the store cannot be used.
    """
    prepare(uri, experiment)
    client = _client(uri)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        raise DataError("vanished", where=uri, field=f"experiment {experiment}")
    tags = {
        _TAG_REVISION: provenance.git_revision,
        _TAG_PARAMS: provenance.params_digest,
        _TAG_DATA: provenance.data_digest,
        "mlflow.source.git.commit": provenance.git_revision.split("+")[0],
        **(more_tags or {}),
    }
    run = client.create_run(found.experiment_id, run_name=name, tags=tags)
    status = "FAILED"
    try:
        yield TrackedRun(uri, experiment, run.info.run_id)
        status = "FINISHED"
    except RunStopped:
        status = "KILLED"
        raise
    finally:
        client.set_terminated(run.info.run_id, status)


def _client(uri: str) -> MlflowClient:
    # MLflow takes a second to import, and a stage that tracks nothing should not pay it.
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def _flatten(params: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in params.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value


def _metric_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_-./ :" else "_" for c in name)
