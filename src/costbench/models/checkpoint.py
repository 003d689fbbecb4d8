"""Saves and loads trained models: a folder with `model.json` (description) and `weights.pt` (tensors only).

Both are written atomically, and `model.json` holds the digest of the weights, so a folder holds a
complete model or fails to load. Weights are read with `weights_only=True`, which runs no code from the file.
Equal models give equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from os import PathLike
from pathlib import Path

import torch

from costbench.artifacts import digest_bytes, read_bytes, read_json, write_json
from costbench.errors import CostbenchError, DataError
from costbench.features import schema
from costbench.models.batch.graph_batch import FeatureScaling
from costbench.models.cost_model import CostModel
from costbench.models.execution_spec import DEFAULT_EXECUTION, Execution
from costbench.models.learned import LearnedCostModel, LearnedCostNet
from costbench.models.net_spec import NetSpec, Predicts
from costbench.models.weights import load_weights, save_weights
from costbench.params import parse

MODEL_FILE = "model.json"
WEIGHTS_FILE = "weights.pt"
FORMAT = "costbench learned model 1"
_PREDICTS: Mapping[str, Predicts] = {"score": "score", "log_runtime_ns": "log_runtime_ns"}


def features_digest() -> str:
    """Returns a digest of the feature names: a model must read the features that it was trained on."""
    tables = (schema.NODE_FEATURES, schema.DECISION_FEATURES, schema.STATIC_FEATURES)
    return digest_bytes("\n".join(",".join(schema.names(table)) for table in tables).encode())[:16]


def save_checkpoint(
    folder: str | PathLike[str], net: LearnedCostNet, scaling: FeatureScaling, predicts: Predicts
) -> None:
    """Write a model to `folder`, replacing an existing one.

    Args:
        folder: created if it does not exist.
        net: the network, on any device.
        scaling: scalers that it was trained with.
        predicts: what its output means.

    Raises:
        DataError: if a weight is NaN or infinite, or the folder cannot be written.
    """
    place = Path(folder)
    digest = save_weights(net, place / WEIGHTS_FILE)
    content = {
        "format": FORMAT,
        "features": features_digest(),
        "net": asdict(net.spec),
        "predicts": predicts,
        "scaling": scaling.to_dict(),
        "weights_sha256": digest,
    }
    write_json(place / MODEL_FILE, content)


def load_checkpoint(
    folder: str | PathLike[str],
    execution: Execution = DEFAULT_EXECUTION,
    analytical: CostModel | None = None,
    device: torch.device | str = "cpu",
) -> LearnedCostModel:
    """Load the model in `folder`.

    Args:
        folder: written by `save_checkpoint`.
        execution: how to run the network on a CPU.
        analytical: the analytical model of the chip, which a hybrid calls for kernels without estimates.
        device: where to run the network.

    Raises:
        DataError: naming the file and the field, if a file is missing, truncated, damaged, of another format
            or other features, or no model at all.
    """
    place = Path(folder)
    content = _read_model(place / MODEL_FILE)
    weights = read_bytes(place / WEIGHTS_FILE)
    if digest_bytes(weights) != content["weights_sha256"]:
        raise DataError(
            "not the weights that model.json was written with",
            where=place / WEIGHTS_FILE,
            expected=f"SHA-256 {content['weights_sha256']}",
        )
    scaling = _scaling(content["scaling"], place / MODEL_FILE)
    try:
        spec = parse(NetSpec, content["net"], where=place / MODEL_FILE, field="net")
        net = LearnedCostNet(spec, scaling.sizes)
    except CostbenchError as error:
        raise DataError(
            error.problem, where=error.where, field=error.field, expected=error.expected
        ) from error
    load_weights(net, weights, place / WEIGHTS_FILE)
    return LearnedCostModel(net, scaling, _PREDICTS[str(content["predicts"])], execution, analytical, device)


def _read_model(path: Path) -> dict[str, object]:
    content = read_json(path)
    keys = {"format", "features", "net", "predicts", "scaling", "weights_sha256"}
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError("is no learned model", where=path, field="format", expected=FORMAT)
    if set(content) != keys:
        raise DataError(f"keys {sorted(content)}", where=path, expected=", ".join(sorted(keys)))
    if content["features"] != features_digest():
        problem = f"trained on other features ({content['features']})"
        raise DataError(problem, where=path, field="features", expected=f"{features_digest()}; train again")
    if content["predicts"] not in _PREDICTS:
        expected = "one of " + ", ".join(_PREDICTS)
        raise DataError(f"{content['predicts']!r}", where=path, field="predicts", expected=expected)
    return content


def _scaling(content: object, path: Path) -> FeatureScaling:
    if not isinstance(content, dict):
        raise DataError("is no scaling", where=path, field="scaling", expected="a mapping")
    try:
        return FeatureScaling.from_dict(content)
    except CostbenchError as error:
        raise DataError(error.problem, where=path, field="scaling", expected=error.expected) from error
