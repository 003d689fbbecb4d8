"""Opens and closes MLflow runs: one experiment per stage, one run per cell, nested below grid or sweep.

Results never depend on tracking: no run identifier, time or address of the tracking server goes into a result
file, so equal parameters still give equal bytes. The store is `sqlite:///mlflow.db` in the working folder, or
the one that `MLFLOW_TRACKING_URI` names; `COSTBENCH_TRACKING=off` turns tracking off.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from costbench.artifacts import digest_bytes
from costbench.errors import DataError
from costbench.execution.process import load
from costbench.experiments.tracking.record import OFF, TrackedRun, client_of, modules_of
from costbench.experiments.tracking.store import described, make_experiment, make_relative
from costbench.experiments.writer import is_gone, this_process

if TYPE_CHECKING:
    from mlflow import MlflowClient

DEFAULT_URI = "sqlite:///mlflow.db"
PARENT = "mlflow.parentRunId"
"""Tag: the parent run."""
KIND = "costbench.kind"
"""Tag: kind of run: `cell`, `grid` (of cells), `trial`, `sweep` (of trials), `report`, or `replaced`, a cell
that was trained again."""
WORK = "costbench.work"
"""Tag: the work that a run is an attempt at, as `work_of` names it."""
KEY = "costbench.key"
"""Tag: digest of everything that a trained cell depends on, as in its `done.json`."""
FOLDER = "costbench.folder"
"""Tag: folder of the checkpoint."""
_WRITER = "costbench.writer"
_TAG_REVISION = "git_revision"
_TAG_PARAMS = "costbench.params_digest"
_TAG_DATA = "costbench.data_digest"


class RunStopped(Exception):  # noqa: N818 - no error, as StopIteration is none
    """Raised inside a tracked run to end it early on purpose: the run is marked as killed, not as failed."""


@dataclass(frozen=True)
class Provenance:
    """Digests of what the numbers of a run depend on.

    Attributes:
        params_digest: of the parameters.
        data_digest: of the samples.
        git_revision: of the code.
    """

    params_digest: str
    data_digest: str
    git_revision: str


def work_of(*parts: str) -> str:
    """Return a name for the work of a run, the same in every process and on every machine."""
    return digest_bytes("\0".join(parts).encode())[:32]


def tracking_uri() -> str:
    """Return `MLFLOW_TRACKING_URI`, or the SQLite file of the working folder; `OFF` where tracking is off."""
    if os.environ.get("COSTBENCH_TRACKING") == "off":
        return OFF
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def prepare(uri: str, experiment: str) -> None:
    """Create database, tables and experiment, so that worker processes do not race to do it.

    Raises:
        DataError: if the store cannot be used, naming it.
    """
    if uri == OFF:
        return
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for chatty in ("mlflow.store.db.utils", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    load(modules_of(uri))
    with store_errors(uri):
        make_experiment(client_of(uri), experiment)
        make_relative(uri)


@contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """Turn errors of MLflow and its database into one of ours. Raises: DataError, naming the store."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, sqlite3.Error) as error:
        said = error.message if isinstance(error, MlflowException) else str(error)
        raise DataError(f"cannot be used for tracking: {said}", where=uri) from error


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
    """Open a run that is marked as finished when the block ends, and as failed when it raises.

    Abandoned runs of the same experiment are marked as killed: those whose process on this machine has ended,
    and those with the same tag `WORK`.

    Args:
        uri: of the store.
        experiment: its name; created if need be.
        name: of the run, such as `laptop/main-tile/tile-random-tpu_v2-main-s0`.
        provenance: logged as tags to search by.
        more_tags: further tags; `PARENT` nests the run below another.
        goes_on: whether to continue the run with the same tag `WORK`, if there is one.

    Raises:
        DataError: if the store cannot be used.
    """
    if uri == OFF:
        yield TrackedRun(OFF, experiment, "")
        return
    prepare(uri, experiment)
    tags = {
        _TAG_REVISION: provenance.git_revision,
        _TAG_PARAMS: provenance.params_digest,
        _TAG_DATA: provenance.data_digest,
        "mlflow.source.git.commit": provenance.git_revision.split("+")[0],
        _WRITER: this_process(),
        **described((more_tags or {}).get(KIND, ""), more_tags or {}),
        **(more_tags or {}),
    }
    with store_errors(uri):
        run_id = _begin(client_of(uri), experiment, name, tags, goes_on)
    run, status = TrackedRun(uri, experiment, run_id), "FAILED"
    try:
        yield run
        status = "FINISHED"
    except RunStopped:
        status = "KILLED"
        raise
    finally:
        run.end(status)


def _begin(client: MlflowClient, experiment: str, name: str, tags: Mapping[str, str], goes_on: bool) -> str:
    """Return the identifier of a new run, or of the one that is continued."""
    found = client.get_experiment_by_name(experiment)
    if found is None:
        raise DataError("vanished", where=experiment, expected="an experiment of the tracking server")
    place, work = found.experiment_id, tags.get(WORK)
    first = _first_of(client, place, work) if goes_on and work else None
    _end_lost(client, place, None if goes_on else work)
    if first is None:
        own: str = client.create_run(place, run_name=name, tags=dict(tags)).info.run_id
        # If two machines create the run at the same time, both continue with the earlier one.
        first = (_first_of(client, place, work) or own) if goes_on and work else own
        if first == own:
            return own
        client.delete_run(own)
    client.update_run(first, status="RUNNING")
    for key, value in tags.items():
        client.set_tag(first, key, value)
    return first


def _first_of(client: MlflowClient, place: str, work: str) -> str | None:
    runs = client.search_runs([place], f"tags.`{WORK}` = '{work}'", max_results=100)
    return min(((run.info.start_time, run.info.run_id) for run in runs), default=(0, None))[1]


def _end_lost(client: MlflowClient, place: str, work: str | None) -> None:
    """Mark runs as killed whose process has ended, and earlier attempts at the same `work`."""
    for run in client.search_runs([place], "attributes.status = 'RUNNING'"):
        tags = run.data.tags
        if is_gone(tags.get(_WRITER, "")) or (work is not None and tags.get(WORK) == work):
            client.set_terminated(run.info.run_id, "KILLED")
