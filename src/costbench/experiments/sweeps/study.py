"""An Optuna study in an SQLite or PostgreSQL database, whose trials are reproducible.

A trial is identified by its *ordinal*, its index among the trials of the study that are not retries. Sampler
and training draw from random streams named after the ordinal, so a sweep that is killed and continued ends as
one that was not, and workers that join later draw other values than those that joined before. Every running
trial has a heartbeat in the database, which Optuna's own tools can read, too. A trial whose heartbeat has
stopped is marked as failed and queued again by the next worker that checks, on any machine.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError, UpdateFinishedTrialError
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from costbench.artifacts import digest_bytes
from costbench.errors import DataError, ParamsError, one_line
from costbench.experiments.sweeps.space import Stored
from costbench.experiments.tracking.runs import is_in_memory
from costbench.experiments.writer import is_gone, this_process
from costbench.installation import install_line
from costbench.rng import stream_key

ENVIRONMENT = "OPTUNA_STORAGE"
_EXPECTED = "such as sqlite:////path/optuna.db or postgresql+psycopg://USER@HOST/DATABASE"
_CONNECT: dict[str, dict[str, object]] = {"sqlite": {"timeout": 60}, "postgresql": {"connect_timeout": 10}}
AGAIN = "an undamaged database; without it and the folder `sweep`, `costbench sweep` makes both again"
_DAMAGE = ("malformed", "not a database", "no such column", "no such table", "decode")
"""What SQLite says of files whose bits have changed."""
_ATTEMPTS = 4
_PAUSE_S = 0.5


@dataclass(frozen=True)
class StorageSpec:
    """A database of studies.

    Attributes:
        url: address in SQLAlchemy's notation.
        heartbeat_s: seconds between a trial's heartbeats.
        max_retries: number of times that a trial is started again after its worker ended.
    """

    url: str
    heartbeat_s: int = 20
    max_retries: int = 3

    @property
    def name(self) -> str:
        """Returns the URL without its password."""
        try:
            return make_url(self.url).render_as_string(hide_password=True)
        except SQLAlchemyError:
            return "storage"

    @property
    def grace_s(self) -> int:
        """Seconds without a heartbeat after which a trial counts as lost."""
        return 3 * self.heartbeat_s


def storage_url(url: str | None, folder: Path) -> str:
    """Returns the URL, or without one that of the environment, or else that of a file in `folder`."""
    return url or os.environ.get(ENVIRONMENT) or f"sqlite:///{folder / 'optuna.db'}"


def open_storage(spec: StorageSpec) -> RDBStorage:
    """Connects to a database, and creates its tables if need be.

    Raises:
        ParamsError: for text that is not a database URL, or one whose driver is not installed.
        DataError: if the database cannot be reached or used.
    """
    # Errors that end a trial are raised, too, and then logged in one line.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=ExperimentalWarning)  # of heartbeats
    connect = _connect_settings(spec)
    with reachable(spec), _undamaged(spec):
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                storage = RDBStorage(
                    spec.url,
                    # Connections are closed after use: a trial takes minutes or hours, and a server's
                    # connections are few.
                    engine_kwargs={"connect_args": connect, "poolclass": NullPool},
                    heartbeat_interval=spec.heartbeat_s,
                    grace_period=spec.grace_s,
                    heartbeat_stale_trial_callback=retry(spec),
                )
                _check_pages(storage.engine)
                _lock_transactions(storage.engine)
                return storage
            except ImportError as error:
                raise ParamsError(
                    f"the driver {getattr(error.__cause__, 'name', error)} is not installed",
                    where=spec.name,
                    expected=f"for PostgreSQL `{install_line('sweep-postgres')}` and postgresql+psycopg://",
                ) from error
            except RuntimeError as error:  # tables of another version of Optuna
                raise DataError(one_line(error), where=spec.name) from error
            except SQLAlchemyError as error:
                # Another process creates the tables at the same moment.
                is_race = any(sign in str(error).lower() for sign in ("already exists", "unique constraint"))
                if attempt == _ATTEMPTS or not is_race:
                    raise
            time.sleep(_PAUSE_S)
    raise AssertionError("every attempt returns or raises")


def _check_pages(engine: Engine) -> None:
    """Raises ValueError if the pages of an SQLite file contradict each other."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            state = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        if state != "ok":
            raise ValueError(state)


def _lock_transactions(engine: Engine) -> None:
    """Lets a transaction on SQLite lock the database when it begins.

    Optuna locks the row of a trial that it claims or ends (`SELECT ... FOR UPDATE`), which SQLite ignores:
    two workers would both read that the trial is waiting, and both train it.
    """
    if engine.dialect.name != "sqlite":
        return

    @event.listens_for(engine, "connect")
    def leave_transactions(connection: DBAPIConnection, _record: object) -> None:
        connection.isolation_level = None  # no BEGIN of the driver, which comes late

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _connect_settings(spec: StorageSpec) -> dict[str, object]:
    """Returns settings of the driver after creating the folder of an SQLite file."""
    try:
        url = make_url(spec.url)
        settings = _CONNECT[url.get_backend_name()]
    except (SQLAlchemyError, KeyError) as error:
        raise ParamsError("no URL of a database", where="storage", expected=_EXPECTED) from error
    if url.get_backend_name() == "sqlite":
        if is_in_memory(url):
            expected = f"a file, which all workers open, {_EXPECTED}"
            raise ParamsError("a database in memory", where=spec.name, expected=expected)
        Path(url.database or "").parent.mkdir(parents=True, exist_ok=True)
    return settings


def retry(spec: StorageSpec) -> RetryHeartbeatStaleTrialCallback:
    """Returns the callback that queues a failed trial again with its values, ordinal and reported metrics."""
    return RetryHeartbeatStaleTrialCallback(spec.max_retries, inherit_intermediate_values=True)


@contextmanager
def reachable(spec: StorageSpec) -> Iterator[None]:
    """Turns errors of the database into a `DataError` of one line.

    Raises:
        DataError: naming the database, without its password.
    """
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = error.__cause__ or error
        line = next(iter(str(cause).splitlines()), type(cause).__name__)
        expected = AGAIN if any(sign in line for sign in _DAMAGE) else _EXPECTED
        raise DataError(f"cannot be used: {line}", where=spec.name, expected=expected) from error


@contextmanager
def _undamaged(spec: StorageSpec) -> Iterator[None]:
    """Turns what Optuna raises for rows that it did not write into a `DataError`."""
    try:
        yield
    except (LookupError, ValueError, TypeError, ArithmeticError, AttributeError, AssertionError) as error:
        raise DataError(f"damaged: {one_line(error)}", where=spec.name, expected=AGAIN) from error


_CHECKSUM = "costbench.sha256"
_IDENTITY = "costbench.identity"
_WRITER = "costbench.writer"
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class PrunerSpec:
    """When trials are stopped early: if after an epoch they are worse than most finished ones were then.

    Attributes:
        keep_percent: percentage of trials that continue; 50 is Optuna's median pruner, 100 prunes none.
        startup_trials: number of finished trials before any is pruned.
        warmup_epochs: epochs that every trial trains.
    """

    keep_percent: float = 50.0
    startup_trials: int = 4
    warmup_epochs: int = 1

    def __post_init__(self) -> None:
        if not 0.0 < self.keep_percent <= 100.0:
            raise ValueError(f"keep_percent is {self.keep_percent}, must be in (0, 100]")
        for name in ("startup_trials", "warmup_epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")

    def build(self) -> optuna.pruners.BasePruner:
        """Returns Optuna's pruner; its steps are trained epochs."""
        if self.keep_percent == 100.0:
            return optuna.pruners.NopPruner()
        return optuna.pruners.PercentilePruner(
            self.keep_percent, n_startup_trials=self.startup_trials, n_warmup_steps=self.warmup_epochs
        )


@dataclass(frozen=True)
class StudySpec:
    """Settings of a study.

    Attributes:
        name: name of the study.
        storage: database that holds it.
        larger_is_better: whether a larger metric is better.
        identity: digests of what its trials depend on, by name; a study with another identity is not
            continued.
        trials: number of trials to finish, pruned ones included.
        seed: seed of sampler and trials.
        startup_trials: trials drawn at random before the sampler learns from results.
        pruner: rule by which trials are stopped early.
        first: values of the first trial; if empty, they are drawn as well.
    """

    name: str
    storage: StorageSpec
    larger_is_better: bool
    identity: Mapping[str, str]
    trials: int
    seed: int
    startup_trials: int
    pruner: PrunerSpec
    first: Mapping[str, Stored] = field(default_factory=dict)


def open_study(spec: StudySpec) -> optuna.Study:
    """Creates the study, or joins it.

    Raises:
        ParamsError, DataError: as `open_storage`, or where a study of this name has another identity.
    """
    storage = open_storage(spec.storage)
    with reachable(spec.storage), _undamaged(spec.storage):
        study = optuna.create_study(
            study_name=spec.name,
            storage=storage,
            sampler=OrdinalSampler(spec.seed, spec.startup_trials),
            pruner=spec.pruner.build(),
            direction="maximize" if spec.larger_is_better else "minimize",
            load_if_exists=True,
        )
        identity = study.user_attrs.get(_IDENTITY)
        empty = not study.get_trials(deepcopy=False)
        if identity is None and empty:
            identity = dict(spec.identity)
            study.set_user_attr(_IDENTITY, identity)
        if identity == dict(spec.identity):
            if empty and spec.first:
                study.enqueue_trial(dict(spec.first), skip_if_exists=True)
            return study
    before: Mapping[str, str] = identity or {}
    names = sorted({*before, *spec.identity})
    other = [name for name in names if before.get(name) != spec.identity.get(name)]
    raise DataError(
        f"there is a study of this name made from another {', '.join(other)}",
        where=spec.storage.name,
        field=spec.name,
        expected="another name (--study), or `optuna delete-study` first",
    )


class OrdinalSampler(TPESampler):
    """A tree-structured Parzen estimator (TPE) whose random stream depends on the trial's ordinal alone."""

    def __init__(self, seed: int, startup_trials: int) -> None:
        super().__init__(n_startup_trials=startup_trials)
        self._study_seed = seed
        self._startup_trials = startup_trials

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Starts the trial's random stream, as a new sampler with its seed does."""
        number = ordinals(study.get_trials(deepcopy=False))[trial.number]
        seed = stream_key(self._study_seed, "sampler", number) % 2**32
        super().__init__(n_startup_trials=self._startup_trials, seed=seed)


def ordinals(trials: Sequence[FrozenTrial]) -> list[int]:
    """Returns the index of each trial among those that are not retries; a retry has that of its original."""
    numbers: list[int] = []
    originals = 0
    for trial in trials:
        original = RetryHeartbeatStaleTrialCallback.retried_trial_number(trial)
        numbers.append(originals if original is None else numbers[original])
        originals += original is None
    return numbers


def finished_trials(study: optuna.Study) -> dict[int, FrozenTrial]:
    """Returns the complete and pruned trials by ordinal."""
    trials = study.get_trials(deepcopy=False)
    numbered = zip(ordinals(trials), trials, strict=True)
    return {number: trial for number, trial in numbered if trial.state in _FINISHED}


def seal_trial(trial: optuna.Trial, value: float | None = None) -> None:
    """Sets the checksum of a trial that is about to end, from when on a changed bit of it is noticed.

    Args:
        trial: the trial, whose epochs are all reported.
        value: result of a complete trial; None for one that is pruned.
    """
    numbers = ordinals(trials := trial.study.get_trials(deepcopy=False))
    trial.set_user_attr(_CHECKSUM, _trial_digest(trials[trial.number], numbers[trial.number], value))


def _trial_digest(trial: FrozenTrial, ordinal: int, value: float | None) -> str:
    attributes = {name: value for name, value in trial.user_attrs.items() if name != _CHECKSUM}
    epochs = sorted(trial.intermediate_values.items())
    content = [trial.number, ordinal, value, repr(epochs), sorted(trial.params.items()), attributes]
    return digest_bytes(json.dumps(content, sort_keys=True).encode())


def check_study(study: optuna.Study, storage: StorageSpec) -> None:
    """Compares every finished trial with its checksum, where it has one, and with its own epochs.

    Raises:
        DataError: naming the database, and the trial that has changed.
    """
    with reachable(storage), _undamaged(storage):
        trials = study.get_trials(deepcopy=False)
        for index, (trial, number) in enumerate(zip(trials, ordinals(trials), strict=True)):
            value = trial.value if trial.state is TrialState.COMPLETE else None
            checksum = trial.user_attrs.get(_CHECKSUM, "")
            is_whole = trial.number == index and (
                value is None or value in trial.intermediate_values.values()
            )
            if trial.state in _FINISHED and checksum:
                is_whole &= checksum == _trial_digest(trial, number, value)
            if not is_whole:
                raise ValueError(f"trial {number} of {study.study_name} has changed")


@dataclass(frozen=True)
class Progress:
    """Numbers of trials by state."""

    finished: int
    running: int
    waiting: int

    def may_start(self, trials: int) -> bool:
        """Returns whether another trial, waiting or new, should be started so that `trials` finish."""
        return self.waiting > 0 or self.finished + self.running < trials


def progress(study: optuna.Study) -> Progress:
    """Counts the study's trials by state, finished ones by ordinal."""
    states = [trial.state for trial in study.get_trials(deepcopy=False)]
    finished = len(finished_trials(study))
    return Progress(finished, states.count(TrialState.RUNNING), states.count(TrialState.WAITING))


def sign(trial: optuna.Trial) -> None:
    """Sets this process's writer tag on a trial."""
    trial.set_user_attr(f"{_WRITER}.{trial.number}", this_process())


def retry_lost(study: optuna.Study, storage: StorageSpec) -> None:
    """Requeues trials of workers that are gone: at once on this machine, else when heartbeats stop.

    Optuna alone would wait for heartbeats on this machine, too, and a continued sweep would meanwhile draw
    other values than one that was not killed (docs/decisions/0044).
    """
    fail_stale_trials(study)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if is_gone(str(trial.user_attrs.get(f"{_WRITER}.{trial.number}", ""))):
            # Another process may have failed the same trial already.
            with suppress(ValueError, UpdateFinishedTrialError):
                study.tell(trial.number, state=TrialState.FAIL)
                requeue(study, trial.number, storage)


def requeue(study: optuna.Study, number: int, storage: StorageSpec) -> None:
    """Queues a failed trial again, unless it has had all its retries."""
    retry(storage)(study, study.get_trials()[number])


def was_requeued(study: optuna.Study, number: int) -> bool:
    """Returns whether a trial was failed and queued again."""
    retried = map(RetryHeartbeatStaleTrialCallback.retry_history, study.get_trials(deepcopy=False))
    return any(number in history for history in retried)
