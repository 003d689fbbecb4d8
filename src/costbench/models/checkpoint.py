"""Saves and loads models of kernels: a folder with `model.json` (description) and `weights.pt` (tensors).

`model_files` has what this format shares with that of layout models.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path

import torch

from costbench.artifacts import digest_bytes, write_json
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.estimate_quality import knowledge_of
from costbench.errors import DataError
from costbench.features import schema
from costbench.models.graph_batch import FeatureScaling
from costbench.models.learned import LearnedCostModel, LearnedCostNet
from costbench.models.model_files import (
    PREDICTS,
    WEIGHTS_FILE,
    load_weights,
    naming_file,
    read_description,
    read_scaling,
    read_weights,
    save_weights,
)
from costbench.models.spec import DEFAULT_EXECUTION, Execution, NetSpec, Predicts
from costbench.params import parse

MODEL_FILE = "model.json"
FORMAT = "costbench learned model 1"


def features_digest() -> str:
    """Returns a digest of the feature names: a model must read the features that it was trained on."""
    tables = (schema.NODE_FEATURES, schema.DECISION_FEATURES, schema.STATIC_FEATURES)
    return digest_bytes("\n".join(",".join(schema.names(table)) for table in tables).encode())[:16]


def save_checkpoint(
    folder: str | PathLike[str], net: LearnedCostNet, scaling: FeatureScaling, predicts: Predicts
) -> None:
    """Write a model of kernels to `folder`, replacing an existing one.

    Args:
        folder: folder, created if it does not exist.
        net: the network, on any device.
        scaling: scalers that it was trained with.
        predicts: what its output means.

    Raises:
        DataError: if a weight is NaN or infinite, or the folder cannot be written.
    """
    content = {
        "format": FORMAT,
        "features": features_digest(),
        "net": asdict(net.spec),
        "predicts": predicts,
        "scaling": scaling.to_dict(),
        "weights_sha256": save_weights(net, Path(folder) / WEIGHTS_FILE),
    }
    write_json(Path(folder) / MODEL_FILE, content)


def load_checkpoint(
    folder: str | PathLike[str],
    execution: Execution = DEFAULT_EXECUTION,
    analytical: AnalyticalModel | None = None,
    device: torch.device | str = "cpu",
) -> LearnedCostModel:
    """Load the model of kernels in `folder`.

    Args:
        folder: folder written by `save_checkpoint`.
        execution: settings for running the network on a CPU.
        analytical: the analytical model of the chip, which a hybrid calls for kernels without estimates, in
            the quality that it was trained with.
        device: device to run the network on.

    Raises:
        DataError: naming the file and the field, if a file is missing, truncated, damaged, of another format
            or other features, or no model at all.
    """
    path = Path(folder) / MODEL_FILE
    keys = {"format", "features", "net", "predicts", "scaling", "weights_sha256"}
    content = read_description(path, FORMAT, keys, "learned model")
    if content["features"] != features_digest():
        problem = f"trained on other features ({content['features']})"
        raise DataError(problem, where=path, field="features", expected=f"{features_digest()}; train again")
    weights = read_weights(path, content)
    scaling = read_scaling(FeatureScaling.from_dict, content, path)
    with naming_file(path):
        spec = parse(NetSpec, content["net"], where=path, field="net")
        net = LearnedCostNet(spec, scaling.sizes)
    load_weights(net, weights, path.with_name(WEIGHTS_FILE))
    if spec.estimate and analytical is not None:
        analytical = replace(analytical, knowledge=knowledge_of(spec.estimate))
    return LearnedCostModel(net, scaling, PREDICTS[content["predicts"]], execution, analytical, device)
