"""Files of runs and models that lie relative to the working folder, so that a store can be copied with them.

MLflow turns a path into an absolute one before it writes it into its database. It leaves addresses of other
schemes alone, and looks up who reads them in the entry points `mlflow.artifact_repository`, where this module
stands for `working-folder:`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

_SCHEME = "working-folder:"
_SQLITE = "sqlite:///"


def open_artifacts(
    artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None
) -> LocalArtifactRepository:
    """Returns what reads and writes files of an address such as `working-folder:mlruns/costbench-train`."""
    # MLflow imports this module while it is imported itself.
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    return LocalArtifactRepository(artifact_uri.removeprefix(_SCHEME), tracking_uri, registry_uri)


def artifact_location(uri: str, experiment: str) -> str | None:
    """Returns where files of an experiment lie; None, MLflow's choice, unless the store's is relative.

    >>> artifact_location("sqlite:///mlflow.db", "costbench/train")
    'working-folder:mlruns/costbench-train'
    """
    database = PurePosixPath(uri.removeprefix(_SQLITE).partition("?")[0])
    if not uri.startswith(_SQLITE) or database.is_absolute() or database.name in {"", ":memory:"}:
        return None
    return f"{_SCHEME}mlruns/{experiment.replace('/', '-')}"
