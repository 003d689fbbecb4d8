"""Opens, fills and closes MLflow runs: an experiment per stage, a run per cell, nested below grid or sweep.

Results never depend on tracking: no run identifier, time or address of the tracking server goes into a result
file, so equal parameters still give equal bytes. The store is `sqlite:///mlflow.db` in the working folder, or
the one that `MLFLOW_TRACKING_URI` names; `COSTBENCH_TRACKING=off` turns tracking off.

Calls are batched, since each costs a transaction of some 15 ms on SQLite. If the store is lost after a run
has begun, the rest of the run is not recorded and a warning is logged, but the training continues.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costbench.artifacts import digest_bytes
from costbench.errors import DataError, one_line
from costbench.execution.workers import load
from costbench.experiments.tracking.relative_artifacts import artifact_location
from costbench.experiments.writer import is_gone, this_process

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput
    from sqlalchemy.engine import URL

_log = logging.getLogger(__name__)
DEFAULT_URI = "sqlite:///mlflow.db"
_SQLITE = "sqlite:///"
_DATABASES = ("sqlite", "postgresql", "mysql")
_CONNECT_S = 10
OFF = ""
"""Value in place of a store's URI with which nothing is tracked."""
ABOUT = "mlflow.note.content"
"""Tag: description of a run or an experiment, which MLflow's pages show."""
PARENT = "mlflow.parentRunId"
"""Tag: the parent run."""
KIND = "costbench.kind"
"""Tag: kind of run: `cell`, `grid` (of cells), `trial`, `sweep` (of trials), `autotune`, `report`, or
`replaced`, a cell that was trained again."""
WORK = "costbench.work"
"""Tag: the work that a run is an attempt at, as `work_of` names it."""
KEY = "costbench.key"
"""Tag: digest of everything that a trained cell depends on, as in its `done.json`."""
FOLDER = "costbench.folder"
"""Tag: folder of the checkpoint."""
# A server that does not answer is given up after half a minute at most, not after MLflow's three minutes.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
# Before anything is computed somebody waits, and can be told sooner.
_PATIENCE_AT_FIRST = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}
_WRITER = "costbench.writer"
_TAG_REVISION = "git_revision"
_TAG_PARAMS = "costbench.params_digest"
_TAG_DATA = "costbench.data_digest"
_EXPERIMENTS: Mapping[str, str] = {
    "costbench/train": "Trainings: a run for each grid of an experiment, and below it one for each cell.",
    "costbench/sweep": "Searches for hyper-parameters: a run for each study, below it one for each trial.",
    "costbench/report": "Reports: headline numbers; tables, figures and the page as artifacts.",
    "costbench/autotune": "Searches for decisions on the test programs: the median speed-up of every arm.",
}
_RUNS: Mapping[str, str] = {
    "grid": "All trainings of experiment {experiment} of profile {profile}: a model for each split ({split}),"
    " chip ({chip}), variant ({variant}) and seed ({seed}). The runs below this one are its cells.",
    "cell": "Cost model of the task {task}, trained for {chip} on the split {split} with seed {seed}: variant"
    " {variant} of experiment {experiment}, profile {profile}. Network: {encoder}, {reduction}."
    " `best_metric` is {monitor} on the validation programs, of the epoch that was kept.",
    "sweep": "Search for hyper-parameters of the cost models of the task {task}, on the split {split} and"
    " {chip}, profile {profile}. The runs below this one are its trials.",
    "trial": "Trial {trial} of the study {study}: a cost model of the task {task}, trained for {chip}."
    " `best_metric` is {monitor} on the validation programs.",
    "report": "Report of profile {profile}. Metrics are its headline numbers; tables, figures and the"
    " page are among the artifacts.",
    "autotune": "Cost models at work in the compiler and in autotuners, on the test programs of profile"
    " {profile}: the median speed-up of every arm and budget.",
}


class RunStopped(Exception):  # noqa: N818 - no error, as StopIteration is none
    """Raised inside a tracked run to end it early on purpose: the run is marked as killed, not as failed."""


@dataclass(frozen=True)
class Provenance:
    """Digests of what the numbers of a run depend on.

    Attributes:
        params_digest: digest of the parameters.
        data_digest: digest of the samples.
        git_revision: revision of the code.
    """

    params_digest: str
    data_digest: str
    git_revision: str


@dataclass(frozen=True)
class Dataset:
    """Samples that a run reads.

    Attributes:
        name: name of the data set.
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
        """Returns MLflow's representation of the data set."""
        from mlflow.data.code_dataset_source import CodeDatasetSource
        from mlflow.data.pandas_dataset import from_pandas
        from mlflow.entities import Dataset as Entity
        from mlflow.entities import DatasetInput, InputTag

        # Samples are computed by a stage, so their MLflow source is code, with the folder as a tag.
        made_by = CodeDatasetSource({"mlflow.source.name": "costbench generate", "folder": str(self.source)})
        with warnings.catch_warnings():
            # MLflow warns that integer columns cannot hold missing values; counts are never missing.
            warnings.filterwarnings("ignore", message=".*Inferred schema contains integer")
            dataset = from_pandas(self.contents, source=made_by, name=self.name, digest=self.digest)
            entity = Entity(**dataset.to_dict())  # infers the schema
        return DatasetInput(entity, [InputTag("mlflow.data.context", self.role)])


@dataclass(frozen=True)
class TrackedRun:
    """One open run.

    Attributes:
        uri: address of the tracking server or database.
        experiment: name.
        run_id: MLflow's identifier; must never be written into results.
    """

    uri: str
    experiment: str
    run_id: str

    def log_params(self, params: Mapping[str, object]) -> None:
        """Logs settings; nested mappings become dotted names."""

        def log(client: MlflowClient) -> None:
            from mlflow.entities import Param

            flat = [Param(key, str(value)[:6000]) for key, value in sorted(_flatten(params))]
            client.log_batch(self.run_id, params=flat)

        self._send(log)

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Logs numbers of one step. Characters that MLflow refuses in names become underscores."""
        self.log_history([(step, metrics)])

    def log_history(self, steps: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """Logs numbers of many steps, in as few calls as possible."""

        def log(client: MlflowClient) -> None:
            from mlflow.entities import Metric

            now = int(time.time() * 1000)
            flat = [
                Metric(re.sub(r"[^\w./ :-]", "_", key), float(value), now, step)
                for step, metrics in steps
                for key, value in sorted(metrics.items())
            ]
            client.log_batch(self.run_id, metrics=flat)

        self._send(log)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Sets tags; unlike settings they may change."""
        self._send(lambda client: _set_tags(client, self.run_id, tags))

    def log_datasets(self, datasets: Sequence[Dataset]) -> None:
        """Logs what was read: digests, and tables of their contents as schema and profile."""
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
        """Logs files as artifacts under `folder`."""

        def log(client: MlflowClient) -> None:
            for path in paths:
                client.log_artifact(self.run_id, str(path), folder)

        self._send(log)

    def log_folder(self, path: Path) -> None:
        """Logs all files of a folder as artifacts under the folder's name, in one call."""
        self._send(lambda client: client.log_artifacts(self.run_id, str(path), path.name))

    def end(self, status: str) -> None:
        """Closes the run: `FINISHED`, `FAILED` or `KILLED`."""
        self._send(lambda client: client.set_terminated(self.run_id, status))

    def _send(self, log: Callable[[MlflowClient], None]) -> None:
        if self.uri == OFF:
            return
        from mlflow.exceptions import MlflowException

        try:
            log(client_of(self.uri))
        except (MlflowException, OSError) as error:
            # A lost record must not end a training.
            problem = f"{self.uri}: not tracked: {one_line(error)[:300]}"
            _log.warning("%s", without_password(problem))


def work_of(*parts: str) -> str:
    """Returns a name for the work of a run, the same in every process and on every machine."""
    return digest_bytes("\0".join(parts).encode())[:32]


def tracking_uri() -> str:
    """Returns `MLFLOW_TRACKING_URI`, or the SQLite file of the working folder; `OFF` if tracking is off."""
    if os.environ.get("COSTBENCH_TRACKING") == "off":
        return OFF
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def client_of(uri: str) -> MlflowClient:
    """Returns an MLflow client of a store."""
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    # MLflow takes a second to import, which a stage that tracks nothing should not spend.
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def require_store(uri: str) -> None:
    """Checks that a store exists: MLflow makes an SQLite file where there is none, also to read from.

    Raises:
        DataError: if tracking is off, the file of the store does not exist, or its database does not answer.
    """
    if uri == OFF:
        raise DataError("is off", where="COSTBENCH_TRACKING", expected="a tracking store to read")
    _require_database(uri)
    file = Path(uri.removeprefix(_SQLITE).partition("?")[0])
    if uri.startswith(_SQLITE) and not file.exists():
        raise DataError("no such tracking store", where=uri, expected="trained models, which make one")


@contextmanager
def addressed(uri: str) -> Iterator[None]:
    """Sets and restores MLflow's global tracking URI, which logging a model and tables of runs use."""
    import mlflow

    before, named = mlflow.get_tracking_uri(), os.environ.get("MLFLOW_TRACKING_URI")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)
        if named is None:
            os.environ.pop("MLFLOW_TRACKING_URI", None)
        else:
            os.environ["MLFLOW_TRACKING_URI"] = named


@contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """Turns errors of MLflow and of its files into one of ours. Raises: DataError, naming the store."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError) as error:
        raise _unusable(uri, getattr(error, "message", error)) from error
    except Exception as error:
        from alembic.util.exc import CommandError  # of databases alone; a server needs no import of it

        if not isinstance(error, CommandError):
            raise
        problem = f"has tables of another program, as Optuna, or of a newer MLflow: {error}"
        raise _unusable(uri, problem) from error


def _unusable(uri: str, problem: object) -> DataError:
    expected = "another MLFLOW_TRACKING_URI, or COSTBENCH_TRACKING=off"
    text = without_password(f"cannot be used for tracking: {problem}")
    return DataError(text, where=without_password(uri), expected=expected)


def without_password(text: str) -> str:
    """Returns text that may hold addresses, with asterisks for their passwords."""
    return re.sub(r"(://[^/\s:@]*):[^/\s@]*@", r"\1:***@", text)


def is_in_memory(url: URL) -> bool:
    """Returns whether the address of a SQLite database names no file: each connection would have its own."""
    return ":memory:" in (url.database or ":memory:") or url.query.get("mode") == "memory"


def _require_database(uri: str) -> None:
    """Connects to the database of a store: MLflow would try one that does not answer for an hour.

    Raises:
        DataError: if that is impossible, or the database is in memory, which ends with its process.
    """
    if not uri.startswith(_DATABASES):
        return
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.pool import NullPool

    try:
        url = make_url(uri)
        if url.get_backend_name() != "sqlite":
            settings = {"connect_timeout": _CONNECT_S}
            create_engine(url, poolclass=NullPool, connect_args=settings).connect().close()
        elif is_in_memory(url):
            raise _unusable(uri, "a database in memory")
    except (SQLAlchemyError, ImportError) as error:
        raise _unusable(uri, one_line(error)) from error


def prepare(uri: str, experiment: str) -> str:
    """Creates database, tables and experiment if need be, and returns the experiment's identifier.

    Raises:
        DataError: if the store cannot be used, naming it.
    """
    if uri == OFF:
        return ""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for chatty in ("mlflow.store.db.utils", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    is_server = uri.startswith("http")
    load(("mlflow",) if is_server else ("mlflow", "mlflow.store.tracking.sqlalchemy_store"))
    tags = {ABOUT: _EXPERIMENTS[experiment]} if experiment in _EXPERIMENTS else {}
    _require_database(uri)
    with store_errors(uri), _locked(uri), _impatient():
        client = client_of(uri)
        existing = client.get_experiment_by_name(experiment)
        if existing is None:
            return str(client.create_experiment(experiment, artifact_location(uri, experiment), tags))
        for key in tags.keys() - existing.tags.keys():
            client.set_experiment_tag(existing.experiment_id, key, tags[key])
        return str(existing.experiment_id)


@contextmanager
def _impatient() -> Iterator[None]:
    """Lets calls of a server be given up after some ten seconds, where the environment does not say when."""
    for name, value in _PATIENCE_AT_FIRST.items():
        if os.environ.get(name) in (None, _PATIENCE[name]):
            os.environ[name] = value
    try:
        yield
    finally:
        for name, value in _PATIENCE_AT_FIRST.items():
            if os.environ[name] == value:
                os.environ[name] = _PATIENCE[name]


@contextmanager
def _locked(uri: str) -> Iterator[None]:
    """Locks the folder of an SQLite database: MLflow fails where two processes create its tables at once."""
    path = Path(uri.removeprefix(_SQLITE).partition("?")[0])
    if not uri.startswith(_SQLITE) or not path.parent.is_dir():
        yield
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # where the file system has no locks, it is as if there were none
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@contextmanager
def tracked_run(
    uri: str,
    experiment: str,
    name: str,
    provenance: Provenance,
    more_tags: Mapping[str, str] | None = None,
    *,
    goes_on: bool = False,
) -> Iterator[TrackedRun]:
    """Opens a run that is marked as finished when the block ends, and as failed when it raises.

    Abandoned runs of the same experiment are marked as killed: those whose process on this machine has ended,
    and those with the same tag `WORK`.

    Args:
        uri: address of the store.
        experiment: name of the experiment; created if need be.
        name: name of the run, such as `laptop/main-tile/tile-random-tpu_v2-main-s0`.
        provenance: logged as tags to search by.
        more_tags: further tags; `PARENT` nests the run below another.
        goes_on: whether to continue the run with the same tag `WORK`, if there is one.

    Raises:
        DataError: if the store cannot be used.
    """
    if uri == OFF:
        yield TrackedRun(OFF, experiment, "")
        return
    experiment_id = prepare(uri, experiment)
    more_tags = more_tags or {}
    tags = {
        _TAG_REVISION: provenance.git_revision,
        _TAG_PARAMS: provenance.params_digest,
        _TAG_DATA: provenance.data_digest,
        "mlflow.source.git.commit": provenance.git_revision.split("+")[0],
        _WRITER: this_process(),
        **describe(more_tags.get(KIND, ""), more_tags),
        **more_tags,
    }
    with store_errors(uri):
        run_id = _begin(client_of(uri), experiment_id, name, tags, goes_on)
    run, status = TrackedRun(uri, experiment, run_id), "FAILED"
    try:
        yield run
        status = "FINISHED"
    except RunStopped:
        status = "KILLED"
        raise
    finally:
        run.end(status)


def describe(kind: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Returns the tag with the description of a run of a kind with these tags; empty for an unknown kind."""
    return {ABOUT: _RUNS[kind].format_map(_Unknown(tags))} if kind in _RUNS else {}


class _Unknown(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return f"(no {key})"


def _begin(
    client: MlflowClient, experiment_id: str, name: str, tags: Mapping[str, str], goes_on: bool
) -> str:
    """Returns the identifier of a new run, or of the one that is continued."""
    work = tags.get(WORK)
    first = _first_of(client, experiment_id, work) if goes_on and work else None
    _end_lost(client, experiment_id, None if goes_on else work)
    if first is None:
        run_id: str = client.create_run(experiment_id, run_name=name, tags=dict(tags)).info.run_id
        # If two machines create the run at the same time, both continue with the earlier one.
        first = (_first_of(client, experiment_id, work) or run_id) if goes_on and work else run_id
        if first == run_id:
            return run_id
        client.delete_run(run_id)
    client.update_run(first, status="RUNNING")
    _set_tags(client, first, tags)
    return first


def _first_of(client: MlflowClient, experiment_id: str, work: str) -> str | None:
    runs = client.search_runs([experiment_id], f"tags.`{WORK}` = '{work}'", max_results=100)
    return min(((run.info.start_time, run.info.run_id) for run in runs), default=(0, None))[1]


def _end_lost(client: MlflowClient, experiment_id: str, work: str | None) -> None:
    """Marks runs as killed whose process has ended, and earlier attempts at the same `work`."""
    for run in client.search_runs([experiment_id], "attributes.status = 'RUNNING'"):
        tags = run.data.tags
        if is_gone(tags.get(_WRITER, "")) or (work is not None and tags.get(WORK) == work):
            client.set_terminated(run.info.run_id, "KILLED")


def _set_tags(client: MlflowClient, run_id: str, tags: Mapping[str, str]) -> None:
    from mlflow.entities import RunTag

    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in sorted(tags.items())])


def _flatten(params: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in params.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value
