"""Logs settings, metrics, data sets and files of one MLflow run.

Calls are batched, since each costs a transaction of some 15 ms on SQLite. If the store is lost after a run
has begun, the rest of the run is not recorded and a warning is logged, but the training continues.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput

_log = logging.getLogger(__name__)
OFF = ""
"""Value in place of a store's URI with which nothing is tracked."""
# Limit of one call of MLflow's batch interface.
_METRICS_PER_CALL = 1000
_PARAMS_PER_CALL = 100


@dataclass(frozen=True)
class TrackedRun:
    """One open run.

    Attributes:
        uri: of the tracking server or database.
        experiment: name.
        run_id: MLflow's identifier; must never be written into results.
    """

    uri: str
    experiment: str
    run_id: str

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log settings; nested mappings become dotted names."""

        def log(client: MlflowClient) -> None:
            from mlflow.entities import Param

            flat = [Param(key, str(value)[:6000]) for key, value in sorted(_flatten(params))]
            for start in range(0, len(flat), _PARAMS_PER_CALL):
                client.log_batch(self.run_id, params=flat[start : start + _PARAMS_PER_CALL])

        self._send(log)

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Log numbers of one step. Characters that MLflow refuses in names become underscores."""
        self.log_history([(step, metrics)])

    def log_history(self, steps: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """Log numbers of many steps, in as few calls as possible."""

        def log(client: MlflowClient) -> None:
            from mlflow.entities import Metric

            now = int(time.time() * 1000)
            flat = [
                Metric(_metric_name(key), float(value), now, step)
                for step, metrics in steps
                for key, value in sorted(metrics.items())
            ]
            for start in range(0, len(flat), _METRICS_PER_CALL):
                client.log_batch(self.run_id, metrics=flat[start : start + _METRICS_PER_CALL])

        self._send(log)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags; unlike settings they may change."""

        def log(client: MlflowClient) -> None:
            from mlflow.entities import RunTag

            client.log_batch(self.run_id, tags=[RunTag(key, value) for key, value in sorted(tags.items())])

        self._send(log)

    def log_datasets(self, datasets: Sequence[Dataset]) -> None:
        """Log what was read: digests, and tables of their contents as schema and profile."""
        from mlflow.exceptions import MlflowException

        def log(client: MlflowClient) -> None:
            inputs = [dataset.entity() for dataset in datasets]
            try:
                client.log_inputs(self.run_id, datasets=inputs)
            except MlflowException:
                # MLflow looks a data set up and then creates it: another process may have created it in
                # between.
                client.log_inputs(self.run_id, datasets=inputs)

        self._send(log)

    def log_files(self, paths: Sequence[Path], folder: str) -> None:
        """Log files as artifacts under `folder`."""

        def log(client: MlflowClient) -> None:
            for path in paths:
                client.log_artifact(self.run_id, str(path), folder)

        self._send(log)

    def log_folder(self, path: Path) -> None:
        """Log all files of a folder as artifacts under the folder's name, in one call."""
        self._send(lambda client: client.log_artifacts(self.run_id, str(path), path.name))

    def end(self, status: str) -> None:
        """Close the run: `FINISHED`, `FAILED` or `KILLED`."""
        self._send(lambda client: client.set_terminated(self.run_id, status))

    def _send(self, log: Callable[[MlflowClient], None]) -> None:
        if self.uri == OFF:
            return
        from mlflow.exceptions import MlflowException

        try:
            log(client_of(self.uri))
        except (MlflowException, OSError) as error:
            # A lost record must not end a training.
            _log.warning("%s: not tracked: %s", self.uri, " ".join(str(error).split())[:300])


@dataclass(frozen=True)
class Dataset:
    """Samples that a run reads.

    Attributes:
        name: of the data set.
        digest: identity of its bytes.
        contents: a small description, such as one row per program; not the data.
        source: folder of the data set.
        role: `training` or `validation`.
    """

    name: str
    digest: str
    contents: pd.DataFrame
    source: Path
    role: str

    def entity(self) -> DatasetInput:
        """Return MLflow's representation of the data set."""
        from mlflow.data.code_dataset_source import CodeDatasetSource
        from mlflow.data.pandas_dataset import from_pandas
        from mlflow.entities import DatasetInput, InputTag

        # Samples are computed by a stage, so their MLflow source is code, with the folder as a tag.
        made_by = CodeDatasetSource({"mlflow.source.name": "costbench generate", "folder": str(self.source)})
        with warnings.catch_warnings():
            # MLflow warns that integer columns cannot hold missing values; counts are never missing.
            warnings.filterwarnings("ignore", message=".*Inferred schema contains integer")
            dataset = from_pandas(self.contents, source=made_by, name=self.name, digest=self.digest)
            entity = dataset._to_mlflow_entity()  # noqa: SLF001 - the schema is inferred in here
        return DatasetInput(entity, [InputTag("mlflow.data.context", self.role)])


def modules_of(uri: str) -> tuple[str, ...]:
    """Return the modules that tracking to a store imports, which takes a second or two."""
    if uri == OFF:
        return ()
    return ("mlflow",) if uri.startswith("http") else ("mlflow", "mlflow.store.tracking.sqlalchemy_store")


def client_of(uri: str) -> MlflowClient:
    """Return an MLflow client of a store."""
    # MLflow takes a second to import, which a stage that tracks nothing should not spend.
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _flatten(params: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in params.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value


def _metric_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_-./ :" else "_" for c in name)
