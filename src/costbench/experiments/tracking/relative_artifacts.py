"""Files of runs and models that lie relative to the working folder, so that a store can be copied with them.

MLflow turns a path into an absolute one before it writes it into its database. It leaves addresses of other
schemes alone, and looks up who reads them in the entry points `mlflow.artifact_repository`, where this module
stands for `working-folder:`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

_SCHEME = "working-folder:"
_SQLITE = "sqlite:///"


def open_artifacts(
    artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None
) -> LocalArtifactRepository:
    """Returns what reads and writes files of an address such as `working-folder:mlruns/costbench-train`.

    Workers of a cluster, which may have another working folder, name the database by its whole path.
    """
    # MLflow imports this module while it is imported itself.
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    database = _database(tracking_uri or "")
    folder = database.parent if database is not None and database.is_absolute() else Path()
    return LocalArtifactRepository(
        str(folder / artifact_uri.removeprefix(_SCHEME)), tracking_uri, registry_uri
    )


def _database(uri: str) -> Path | None:
    """Returns the file of an SQLite database; None for another store."""
    path = Path(uri.removeprefix(_SQLITE).partition("?")[0])
    return path if uri.startswith(_SQLITE) and path.name not in {"", ":memory:"} else None


def artifact_location(uri: str, experiment: str) -> str | None:
    """Returns where files of an experiment lie; None, MLflow's choice, unless the store is the folder's own.

    >>> artifact_location("sqlite:///mlflow.db", "costbench/train")
    'working-folder:mlruns/costbench-train'
    """
    database = _database(uri)
    if database is None or (database.is_absolute() and database.parent != Path.cwd()):
        return None
    return f"{_SCHEME}mlruns/{experiment.replace('/', '-')}"
