"""Experiments and runs that say on MLflow's pages what they hold, and files that lie beside the database.

MLflow writes absolute paths of files into its database, so a copy of a folder would read and write the files
of the original. In a store that is addressed by a relative path, such as the default one, they are made
relative to the working folder, as the address is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient

ABOUT = "mlflow.note.content"
"""Tag: description of a run or an experiment."""
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
_SQLITE = "sqlite:///"
_LOCATIONS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "storage_location"),
)
_FILES = "mlruns"
_LOCK_TIMEOUT_S = 60.0


class _Unknown(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return f"(no {key})"


def described(kind: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tag with the description of a run of a kind with these tags; empty for an unknown kind."""
    return {ABOUT: _RUNS[kind].format_map(_Unknown(tags))} if kind in _RUNS else {}


def make_experiment(client: MlflowClient, name: str) -> None:
    """Create an experiment with a description, or give one that exists the description that it lacks."""
    tags = {ABOUT: _EXPERIMENTS[name]} if name in _EXPERIMENTS else {}
    found = client.get_experiment_by_name(name)
    if found is None:
        client.create_experiment(name, tags=tags)
        return
    for key in tags.keys() - found.tags.keys():
        client.set_experiment_tag(found.experiment_id, key, tags[key])


def make_relative(uri: str) -> None:
    """Write the places of files as paths relative to the working folder, if the store's address is one.

    Raises:
        sqlite3.Error: if the database cannot be written.
    """
    database = PurePosixPath(uri.removeprefix(_SQLITE).partition("?")[0])
    if not uri.startswith(_SQLITE) or database.is_absolute() or database.name in {"", ":memory:"}:
        return
    with closing(sqlite3.connect(database, timeout=_LOCK_TIMEOUT_S)) as connection, connection:
        for table, column in _LOCATIONS:
            # Elsewhere are the files of experiments whose place a user chose.
            query = f"SELECT rowid, {column} FROM {table} WHERE {column} LIKE '%/{_FILES}/%'"  # noqa: S608
            found = [(row, str(place)) for row, place in connection.execute(query)]
            if not found and table == "experiments":
                return  # what lies below an experiment has its place from it
            made = [(f"{_FILES}/{place.rpartition(f'/{_FILES}/')[2]}", row) for row, place in found]
            connection.executemany(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", made)  # noqa: S608
