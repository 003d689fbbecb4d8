"""Finds the checkpoint of a registered model, such as `models:/costbench-tile-laptop@champion`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from costbench.errors import DataError
from costbench.experiments.tracking.champion import addressed
from costbench.experiments.tracking.record import OFF
from costbench.experiments.tracking.runs import store_errors

_SCHEME = "models:/"


@dataclass(frozen=True)
class RegisteredModel:
    """A version of a registered model.

    Attributes:
        folder: of the checkpoint.
        task: that the model was trained for.
        chip: likewise.
    """

    folder: Path
    task: str
    chip: str


def is_registered(name: str) -> bool:
    """Whether a name is the address of a registered model."""
    return name.startswith(_SCHEME)


def registered_model(uri: str, name: str) -> RegisteredModel:
    """Return where the checkpoint of a registered model lies, and what the model is for.

    Args:
        uri: of the store.
        name: `models:/NAME@ALIAS` or `models:/NAME/VERSION`.

    Raises:
        DataError: if tracking is off, the store has no such model, or it is none of costbench.
    """
    if uri == OFF:
        raise DataError("tracking is off", where=name, expected="a store, which MLFLOW_TRACKING_URI names")
    with store_errors(uri), addressed(uri):
        from mlflow.artifacts import download_artifacts
        from mlflow.models import Model

        folder = Path(download_artifacts(artifact_uri=name, tracking_uri=uri))
        flavour = Model.load(str(folder)).flavors.get("python_function", {})
    try:
        checkpoint, config = flavour["artifacts"]["checkpoint"]["path"], flavour["config"]
        return RegisteredModel(folder / checkpoint, str(config["task"]), str(config["chip"]))
    except (KeyError, TypeError) as error:
        expected = "a model that the stage `register` has registered"
        raise DataError("no model of costbench", where=name, expected=expected) from error
