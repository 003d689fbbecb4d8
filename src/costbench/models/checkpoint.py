"""Saves and loads models of kernels: a folder with `model.json` and `weights.pt`, see `model_files`."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path

import torch

from costbench.artifacts import digest_bytes
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.estimate_quality import knowledge_of
from costbench.errors import DataError
from costbench.features import schema
from costbench.features.roofline import read_roofline
from costbench.features.user_features import load_user_features
from costbench.models.cost_model import CostModel
from costbench.models.graph_batch import FeatureScaling
from costbench.models.learned import LearnedCostModel, LearnedCostNet
from costbench.models.model_files import ModelFormat
from costbench.models.spec import DEFAULT_EXECUTION, Execution, NetSpec, Predicts

MODEL_FILE = "model.json"


def features_digest(extra: str = "") -> str:
    """Returns a digest of the feature names: a model must read the features that it was trained on.

    Args:
        extra: dotted path of further features of nodes, which follows with its version; empty for none.

    Raises:
        ParamsError: if those features cannot be loaded.
    """
    tables = (schema.NODE_FEATURES, schema.DECISION_FEATURES, schema.STATIC_FEATURES)
    digest = digest_bytes("\n".join(",".join(schema.names(table)) for table in tables).encode())[:16]
    return f"{digest} {extra}@{load_user_features(extra).version}" if extra else digest


def _check_features(digest: object) -> None:
    known = features_digest(str(digest).partition(" ")[2].rpartition("@")[0])
    if digest != known:
        raise DataError(f"trained on other features ({digest})", expected=f"{known}; train again")


_FORMAT: ModelFormat[LearnedCostNet, FeatureScaling] = ModelFormat(
    file=MODEL_FILE,
    name="costbench learned model 1",
    noun="learned model",
    spec=NetSpec,
    scaling_from_dict=FeatureScaling.from_dict,
    build=lambda spec, scaling: LearnedCostNet(spec, scaling.sizes),
    extra="features",
    check_extra=_check_features,
)


def save_checkpoint(
    folder: str | PathLike[str], net: LearnedCostNet, scaling: FeatureScaling, predicts: Predicts
) -> None:
    """Writes a model of kernels; arguments and errors are those of `ModelFormat.write`."""
    _FORMAT.write(folder, net, scaling, predicts, features_digest(net.spec.features))


def load_checkpoint(
    folder: str | PathLike[str],
    execution: Execution = DEFAULT_EXECUTION,
    analytical: AnalyticalModel | None = None,
    device: torch.device | str = "cpu",
) -> LearnedCostModel:
    """Loads the model of kernels in `folder`.

    Args:
        folder: folder written by `save_checkpoint`.
        execution: settings for running the network on a CPU.
        analytical: the analytical model of the chip, which a hybrid calls for kernels without estimates, in
            the quality that it was trained with; a hybrid of a real machine has its own, a roofline.
        device: device to run the network on.

    Raises:
        DataError: naming the file and the field, if a file is missing, truncated, damaged, of another format
            or other features, or no model at all.
    """
    saved = _FORMAT.read(folder)
    quality = saved.net.spec.estimate
    if quality and analytical is not None:
        analytical = replace(analytical, knowledge=knowledge_of(quality))
    estimate: CostModel | None = read_roofline(Path(folder)) or analytical
    return LearnedCostModel(saved.net, saved.scaling, saved.predicts, execution, estimate, device)
