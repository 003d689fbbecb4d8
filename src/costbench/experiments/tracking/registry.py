"""Registers the best trained model of a task in MLflow's model registry, and finds what is registered.

The best one has the alias `champion`, under which `mlflow models serve` finds it (docs/serving.md). Every
profile has registered models of its own, so a run in miniature never replaces what another profile
registered. A logged model consists of its checkpoint's two files and the source of
`costbench.serving.mlflow_model`; nothing is pickled, and costbench itself must be installed. Logging takes
seconds, so only models that are registered are logged.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costbench.artifacts import digest_bytes, read_bytes
from costbench.errors import DataError, choose
from costbench.experiments.tracking.queries import CELL_TAGS, CellFilter, find_runs
from costbench.experiments.tracking.runs import KEY, addressed, client_of, require_store, store_errors
from costbench.serving.requests import DEFAULT_LIMITS
from costbench.tasks import KERNEL_TASKS

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.models import ModelSignature

_log = logging.getLogger(__name__)
CHAMPION = "champion"
MODELS: Mapping[str, str] = {name: f"costbench-{name}" for name in KERNEL_TASKS}
"""What the names of registered models begin with, by task."""
_SERVED = Path(__file__).parents[2] / "serving" / "mlflow_model.py"
_SERVED_DIGEST = "costbench.served_digest"
_SAME = (KEY, _SERVED_DIGEST)
"""Tags in which two versions of one model agree."""
MODEL_FILES = ("model.json", "weights.pt")
"""Files of a trained model."""
_SCHEME = "models:/"


def model_name(task: str, profile: str) -> str:
    """Returns the name of the registered model of a task in a profile, such as `costbench-tile-laptop`.

    Raises:
        ChoiceError: for a task without registered models.
    """
    return f"{choose(MODELS, task, 'task')}-{profile}"


@dataclass(frozen=True)
class Registered:
    """A version of a registered model.

    Attributes:
        name: name of the model.
        version: number.
        is_new: whether the version was created by this call; False where there was one of the same model.
    """

    name: str
    version: str
    is_new: bool

    @property
    def uri(self) -> str:
        """Returns the model's URI, for `mlflow models serve -m`."""
        return f"models:/{self.name}@{CHAMPION}"


def is_registered(name: str) -> bool:
    """Returns whether a name is the address of a registered model."""
    return name.startswith(_SCHEME)


def registered_model(uri: str, name: str) -> tuple[Path, str, str]:
    """Returns the folder of a registered model's checkpoint, and the task and chip that it was trained for.

    Args:
        uri: address of the store.
        name: `models:/NAME@ALIAS` or `models:/NAME/VERSION`.

    Raises:
        DataError: if tracking is off, there is no store, it has no such model, or that is none of costbench.
    """
    require_store(uri)
    with store_errors(uri), addressed(uri):
        from mlflow.artifacts import download_artifacts
        from mlflow.exceptions import MlflowException
        from mlflow.models import Model

        try:
            folder = Path(download_artifacts(artifact_uri=name, tracking_uri=uri))
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            names = ", ".join(sorted(model.name for model in client_of(uri).search_registered_models()))
            expected = f"models:/NAME@{CHAMPION} or models:/NAME/VERSION; there are {names or 'none'}"
            raise DataError(f"no such model: {error.message}", where=name, expected=expected) from error
        flavour = Model.load(str(folder)).flavors.get("python_function", {})
    try:
        checkpoint, config = flavour["artifacts"]["checkpoint"]["path"], flavour["config"]
        return folder / checkpoint, str(config["task"]), str(config["chip"])
    except (KeyError, TypeError) as error:
        expected = "a model that the stage `register` has registered"
        raise DataError("no model of costbench", where=name, expected=expected) from error


def best_candidate(uri: str, cells: CellFilter) -> pd.Series[Any] | None:
    """Returns the run whose model should be the champion: the best one whose folder still holds its model.

    Only models validated on the largest number of kernels, and decisions of each, are compared, since a
    metric on the few kernels of a short training says little. Returns a row of `find_runs`, or None if there
    is no such run.

    Raises:
        DataError: if the store cannot be used.
    """
    import pandas as pd

    runs = find_runs(uri, cells)
    runs = runs[runs["is_there"]]
    sizes = runs.reindex(columns=[f"params.model.validation.{name}" for name in ("kernels", "configs")])
    sizes = sizes.apply(pd.to_numeric).fillna(0)  # 0 where unknown
    # Best first among equal sizes, as in `runs`.
    order = sizes.sort_values(list(sizes.columns), ascending=False, kind="stable").index
    return None if runs.empty else runs.loc[order[0]]


def register_champion(uri: str, best: pd.Series[Any]) -> Registered:
    """Makes a trained model the champion of its task and profile; a version of the same model is reused.

    Args:
        uri: address of the store.
        best: a row of `find_runs`.

    Raises:
        DataError: if the store cannot be used, or the folder no longer holds the model.
    """
    if not best["is_there"]:
        expected = "the model of this run; `costbench train` makes it again"
        raise DataError("no longer there", where=best["path"], field=best["name"], expected=expected)
    name = model_name(best["task"], best["profile"])
    served = digest_bytes(read_bytes(_SERVED))[:16]
    tags = {KEY: str(best["key"]), _SERVED_DIGEST: served, **{tag: str(best[tag]) for tag in CELL_TAGS}}
    with store_errors(uri):
        client = client_of(uri)
        versions = client.search_model_versions(f"name = '{name}'")
        same = [
            version for version in versions if all(version.tags.get(tag, "") == tags[tag] for tag in _SAME)
        ]
        if same:
            version = str(max(same, key=lambda candidate: int(candidate.version)).version)
        else:
            version = _new_version(client, uri, name, best, tags)
        champion = client.get_registered_model(name).aliases.get(CHAMPION)
        if champion is None or str(champion) != version:
            client.set_registered_model_alias(name, CHAMPION, version)
            _log.info("%s: version %s is the %s: %s", name, version, CHAMPION, best["name"])
    return Registered(name, version, not same)


def _new_version(
    client: MlflowClient, uri: str, name: str, best: pd.Series[Any], tags: Mapping[str, str]
) -> str:
    from mlflow.exceptions import MlflowException

    try:
        client.get_registered_model(name)
    except MlflowException:
        task = best["task"]
        profile = best["profile"]
        about = f"Cost models of the task {task}, trained by the profile {profile}."
        client.create_registered_model(name, {"task": task, "profile": profile}, about)
    with addressed(uri), _quiet(), tempfile.TemporaryDirectory() as folder:
        import mlflow.pyfunc
        from mlflow.models import Model

        for file in MODEL_FILES:
            shutil.copy(Path(best["path"], file), folder)
        logged = Model.log(
            None,
            mlflow.pyfunc,
            name=name,
            run_id=best["run_id"],
            params={"best_metric": float(best["metric"])},
            tags={key: value for key, value in tags.items() if value},
            python_model=str(_SERVED),
            artifacts={"checkpoint": folder},
            model_config={"task": best["task"], "chip": best["chip"], "limits": asdict(DEFAULT_LIMITS)},
            signature=_signature(best["task"]),
            input_example=example(best["task"]),
            pip_requirements=[f"costbench=={metadata.version('costbench')}"],
        )
        made = client.create_model_version(
            name,
            logged.model_uri,
            run_id=best["run_id"],
            model_id=logged.model_id,
            tags=dict(tags),
            description=f"{best['name']}: {best['monitor']} {best['metric']:.4f} on the validation set.",
        )
    return str(made.version)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences MLflow's advice on requirements and on integer columns, whose values are never missing."""
    chatty = logging.getLogger("mlflow")
    before = chatty.level
    chatty.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        chatty.setLevel(before)


def _signature(task: str) -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec
    from mlflow.types.schema import AnyType, Array, Object, Property

    # Lists of whole numbers, left to costbench to check: its errors are clearer than MLflow's.
    bounds = AnyType()  # type: ignore[no-untyped-call]
    tile = Object([Property("output_bounds", bounds), Property("kernel_bounds", bounds, required=False)])
    inputs: list[ColSpec | TensorSpec] = [ColSpec(DataType.string, "kernel")]
    if KERNEL_TASKS[task].ranks_decisions:
        inputs.append(ColSpec(Array(tile), "tiles"))
    inputs.append(ColSpec(DataType.string, "chip", required=False))
    costs = ColSpec(Array(DataType.double), "costs")
    output = costs if KERNEL_TASKS[task].ranks_decisions else ColSpec("double", "runtime_ns")
    return ModelSignature(Schema(inputs), Schema([output]))


_KERNEL = """HloModule example

ENTRY %main (a: f32[256,512], b: f32[512,256]) -> f32[256,256] {
  %a = f32[256,512]{1,0} parameter(0)
  %b = f32[512,256]{1,0} parameter(1)
  %product = f32[256,256]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %out = f32[256,256]{1,0} tanh(%product)
}
"""


def example(task: str) -> pd.DataFrame:
    """Returns an example request: a matrix product with tanh; for the task `tile`, three tile sizes of it."""
    import pandas as pd

    row: dict[str, Any] = {"kernel": _KERNEL}
    if KERNEL_TASKS[task].ranks_decisions:
        bounds = (([32, 2], [64, 2]), ([16, 1], [64, 1]), ([8, 2], [32, 2]))
        row["tiles"] = [{"output_bounds": output, "kernel_bounds": right} for output, right in bounds]
    return pd.DataFrame([row])
