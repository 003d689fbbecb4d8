"""Stores studies in an SQLite or PostgreSQL database, which Optuna's own tools can read, too.

Every running trial has a heartbeat in the database. A trial whose heartbeat has stopped is marked as failed
and queued again by the next worker that checks, on any machine.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from costbench.errors import DataError, ParamsError

ENVIRONMENT = "OPTUNA_STORAGE"
_EXPECTED = "such as sqlite:////path/optuna.db or postgresql+psycopg://USER@HOST/DATABASE"
_CONNECT: dict[str, dict[str, object]] = {"sqlite": {"timeout": 60}, "postgresql": {"connect_timeout": 10}}
_ATTEMPTS = 4
_PAUSE_S = 0.5


@dataclass(frozen=True)
class StorageSpec:
    """A database of studies.

    Attributes:
        url: in SQLAlchemy's notation.
        heartbeat_s: interval of a trial's heartbeats.
        max_retries: how often a trial is started again after its worker ended.
    """

    url: str
    heartbeat_s: int = 20
    max_retries: int = 3

    @property
    def name(self) -> str:
        """Return the URL without its password."""
        try:
            return make_url(self.url).render_as_string(hide_password=True)
        except SQLAlchemyError:
            return "storage"

    @property
    def grace_s(self) -> int:
        """Seconds without a heartbeat after which a trial counts as lost."""
        return 3 * self.heartbeat_s


def storage_url(given: str | None, folder: Path) -> str:
    """Return the given URL, or else that of the environment, or else that of a file in `folder`."""
    return given or os.environ.get(ENVIRONMENT) or f"sqlite:///{folder / 'optuna.db'}"


def open_storage(spec: StorageSpec) -> RDBStorage:
    """Connect, and create the tables if need be.

    Raises:
        ParamsError: for text that is not a database URL, or one whose driver is not installed.
        DataError: if the database cannot be reached or used.
    """
    # Errors that end a trial are raised, too, and then logged in one line.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=ExperimentalWarning)  # of heartbeats
    connect = _connect_settings(spec)
    with reachable(spec):
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return RDBStorage(
                    spec.url,
                    # Connections are closed after use: a trial takes minutes or hours, and a server's
                    # connections are few.
                    engine_kwargs={"connect_args": connect, "poolclass": NullPool},
                    heartbeat_interval=spec.heartbeat_s,
                    grace_period=spec.grace_s,
                    heartbeat_stale_trial_callback=retry(spec),
                )
            except ImportError as error:
                raise ParamsError(
                    f"the driver {getattr(error.__cause__, 'name', error)} is not installed",
                    where=spec.name,
                    expected="for PostgreSQL `pip install 'costbench[sweep-postgres]'` and"
                    " postgresql+psycopg://",
                ) from error
            except RuntimeError as error:  # tables of another version of Optuna
                raise DataError(" ".join(str(error).split()), where=spec.name) from error
            except SQLAlchemyError as error:
                if attempt == _ATTEMPTS or not _is_race(error):
                    raise
            time.sleep(_PAUSE_S)
    raise AssertionError("every attempt returns or raises")


def _is_race(error: SQLAlchemyError) -> bool:
    """Whether the error comes from another process creating the tables at the same moment."""
    text = str(error).lower()
    return "already exists" in text or "unique constraint" in text


def _connect_settings(spec: StorageSpec) -> dict[str, object]:
    """Return settings of the driver after creating the folder of an SQLite file."""
    try:
        url = make_url(spec.url)
        settings = _CONNECT[url.get_backend_name()]
    except (SQLAlchemyError, KeyError) as error:
        raise ParamsError("no URL of a database", where="storage", expected=_EXPECTED) from error
    if url.get_backend_name() == "sqlite" and url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    return settings


def retry(spec: StorageSpec) -> RetryHeartbeatStaleTrialCallback:
    """Return the callback that queues a failed trial again with its values, ordinal and reported metrics."""
    return RetryHeartbeatStaleTrialCallback(spec.max_retries, inherit_intermediate_values=True)


@contextmanager
def reachable(spec: StorageSpec) -> Iterator[None]:
    """Turn errors of the database into a `DataError` of one line.

    Raises:
        DataError: naming the database, without its password.
    """
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = error.__cause__ or error
        line = next(iter(str(cause).splitlines()), type(cause).__name__)
        raise DataError(f"cannot be used: {line}", where=spec.name, expected=_EXPECTED) from error
