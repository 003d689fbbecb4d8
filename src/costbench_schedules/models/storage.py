"""Stores a fitted cost model of schedules: a folder with `model.json`, and `weights.pt` for networks.

A folder holds a complete, unchanged model or fails to load. Trees are kept as text in the format of their
library; nothing that is read runs code. Equal models give equal bytes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from costbench.artifacts import digest_bytes, read_json, with_checksum, without_checksum, write_json
from costbench.errors import CostbenchError, DataError
from costbench.models.model_files import WEIGHTS_FILE, load_weights, save_weights
from costbench.models.spec import NetSpec
from costbench.params import parse
from costbench_schedules.features.context import FEATURE_NAMES
from costbench_schedules.features.vectors import BOUNDED_BY, THRESHOLDS
from costbench_schedules.models.learner import ScheduleModel
from costbench_schedules.models.spec import GRAPH_NETWORKS, ScheduleModelSpec
from costbench_schedules.models.tree_gru import TrainedTreeGru, TreeGru, TreeGruSpec
from costbench_schedules.models.trees import LIBRARIES, Trees

FORMAT = "costbench schedule model 1"
MODEL_FILE = "model.json"
_KEYS = ("features", "fitted", "format", "spec")


@dataclass(frozen=True)
class _StoredTrees:
    """Trees as they are written."""

    library: str
    columns: int
    text: str
    text_sha256: str


@dataclass(frozen=True)
class _StoredNetwork:
    """A network as it is written."""

    net: TreeGruSpec
    weights_sha256: str


@dataclass(frozen=True)
class _StoredScaler:
    """A scaler as `MinMaxNormalizer.to_dict` describes it."""

    transform: str
    names: tuple[str, ...]
    minimum: tuple[float, ...]
    maximum: tuple[float, ...]


@dataclass(frozen=True)
class _StoredGraphNetwork:
    """A network of graphs as it is written, with the scaler of its nodes."""

    net: NetSpec
    scaler: _StoredScaler
    weights_sha256: str


def features_digest() -> str:
    """Returns a digest of what features mean: a model must read the features that it was fitted to."""
    bounds = (*BOUNDED_BY, *map(str, THRESHOLDS))
    return digest_bytes(",".join((*FEATURE_NAMES, *bounds)).encode())[:16]


def save_schedule_model(
    folder: str | PathLike[str], model: ScheduleModel[Any], spec: ScheduleModelSpec
) -> None:
    """Writes a model, replacing an existing one.

    Args:
        folder: folder of the model, which is created if it does not exist.
        model: trees or a network that is stored.
        spec: kind of the model.

    Raises:
        DataError: for another kind of model, a weight that is not finite, or a folder that cannot be written.
    """
    folder = Path(folder)
    if isinstance(model, Trees):
        digest = digest_bytes(model.text.encode())
        fitted = asdict(_StoredTrees(model.library, model.columns, model.text, digest))
    elif isinstance(model, TrainedTreeGru):
        weights = save_weights(model.net, folder / WEIGHTS_FILE)
        fitted = asdict(_StoredNetwork(model.net.spec, weights))
    elif spec.model in GRAPH_NETWORKS:
        fitted = asdict(_stored_graph_network(model, folder))
    else:
        raise _not_stored(model, folder)
    described = {"format": FORMAT, "features": features_digest(), "spec": asdict(spec), "fitted": fitted}
    write_json(folder / MODEL_FILE, with_checksum(described))


def load_schedule_model(folder: str | PathLike[str]) -> tuple[ScheduleModel[Any], ScheduleModelSpec]:
    """Returns the model of a folder, and what it was made by, which says what it reads.

    Raises:
        DataError: naming file and field, if one is missing, damaged, of other features or no model at all.
        ChoiceError: if the model's library is not installed.
    """
    path = Path(folder) / MODEL_FILE
    stored = read_json(path)
    content = without_checksum(stored, path) if isinstance(stored, dict) else {}
    if sorted(content) != sorted(_KEYS):
        raise DataError("no model of schedules", where=path, expected=f"the keys {', '.join(_KEYS)}")
    for key, expected in (("format", FORMAT), ("features", features_digest())):
        if content[key] != expected:
            raise DataError(f"{str(content[key])[:80]!r}", where=path, field=key, expected=expected)
    spec = parse(ScheduleModelSpec, content["spec"], where=path, field="spec", error=DataError)
    fitted = content["fitted"]
    if isinstance(fitted, dict) and "text" in fitted:
        stored = parse(_StoredTrees, fitted, where=path, field="fitted", error=DataError)
        return _trees(stored, path), spec
    if isinstance(fitted, dict) and "scaler" in fitted:
        graphs = parse(_StoredGraphNetwork, fitted, where=path, field="fitted", error=DataError)
        return _graph_network(graphs, path), spec
    network = parse(_StoredNetwork, fitted, where=path, field="fitted", error=DataError)
    net = TreeGru(network.net)
    load_weights(net, path, network.weights_sha256)
    return TrainedTreeGru(net.eval()), spec


def _trees(stored: _StoredTrees, path: Path) -> Trees:
    if stored.library not in LIBRARIES:
        expected = ", ".join(LIBRARIES)
        raise DataError(f"{stored.library!r}", where=path, field="fitted.library", expected=expected)
    if digest_bytes(stored.text.encode()) != stored.text_sha256:
        expected = f"SHA-256 {stored.text_sha256}"
        raise DataError("changed since it was written", where=path, field="fitted.text", expected=expected)
    predictor = LIBRARIES[stored.library].restore(stored.text)
    return Trees(predictor, stored.library, stored.columns, stored.text)


def _stored_graph_network(model: ScheduleModel[Any], folder: Path) -> _StoredGraphNetwork:
    """Writes the weights. PyG takes seconds to import: only where such a network is stored or loaded."""
    from costbench_schedules.models.graph_network import TrainedGraphNetwork

    if not isinstance(model, TrainedGraphNetwork):
        raise _not_stored(model, folder)
    scaler = _StoredScaler(**model.scaling.node.to_dict())
    return _StoredGraphNetwork(model.net.spec, scaler, save_weights(model.net, folder / WEIGHTS_FILE))


def _graph_network(stored: _StoredGraphNetwork, path: Path) -> ScheduleModel[Any]:
    from costbench_schedules.models.graph_network import restore_network

    try:
        model = restore_network(stored.net, asdict(stored.scaler))
    except CostbenchError as error:
        raise error.recast(DataError, where=path, field="fitted") from error
    load_weights(model.net, path, stored.weights_sha256)
    return model


def _not_stored(model: ScheduleModel[Any], folder: Path) -> DataError:
    return DataError(type(model).__name__, where=folder, expected="trees or a network, not a sum of models")
