"""Saves and loads layout models: a folder with `layout_model.json` and `weights.pt` (tensors only).

Both are written atomically, the description last, with the digest of the weights, so a folder holds a
complete model or fails to load. Equal models give equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from os import PathLike
from pathlib import Path

from costbench.artifacts import digest_bytes, read_bytes, read_json, write_json
from costbench.errors import CostbenchError, DataError
from costbench.models.execution_spec import DEFAULT_EXECUTION, Execution
from costbench.models.layout.inputs import LayoutScaling
from costbench.models.layout.model import LayoutModel
from costbench.models.layout.net_spec import LayoutNetSpec
from costbench.models.layout.network import LayoutNetwork
from costbench.models.net_spec import Predicts
from costbench.models.weights import load_weights, save_weights
from costbench.params import parse

MODEL_FILE = "layout_model.json"
WEIGHTS_FILE = "weights.pt"
FORMAT = "costbench layout model 1"
_KEYS = {"format", "net", "predicts", "scaling", "seed", "weights_sha256"}
_PREDICTS: Mapping[object, Predicts] = {"score": "score", "log_runtime_ns": "log_runtime_ns"}


def save_layout_model(
    folder: str | PathLike[str], net: LayoutNetwork, scaling: LayoutScaling, predicts: Predicts, seed: int
) -> None:
    """Writes a model to `folder`, replacing an existing one.

    Raises:
        DataError: if a weight is NaN or infinite, or the folder cannot be written.
    """
    place = Path(folder)
    digest = save_weights(net, place / WEIGHTS_FILE)
    content = {
        "format": FORMAT,
        "net": asdict(net.spec),
        "predicts": predicts,
        "scaling": scaling.to_dict(),
        "seed": seed,
        "weights_sha256": digest,
    }
    write_json(place / MODEL_FILE, content)


def load_layout_model(folder: str | PathLike[str], execution: Execution = DEFAULT_EXECUTION) -> LayoutModel:
    """Loads the model in `folder`.

    Args:
        folder: written by `save_layout_model`.
        execution: how to run the network.

    Raises:
        DataError: naming the file and the field, if a file is missing, truncated, damaged, of another format,
            or no layout model at all.
    """
    place = Path(folder) / MODEL_FILE
    content = _read_model(place)
    weights = read_bytes(place.with_name(WEIGHTS_FILE))
    if digest_bytes(weights) != content["weights_sha256"]:
        raise DataError(
            f"not the weights that {MODEL_FILE} was written with",
            where=place.with_name(WEIGHTS_FILE),
            expected=f"SHA-256 {content['weights_sha256']}",
        )
    try:
        scaling = LayoutScaling.from_dict(_mapping(content["scaling"]))
        spec = parse(LayoutNetSpec, content["net"], where=place, field="net")
        net = LayoutNetwork(spec, scaling.node.num_outputs, scaling.option.num_outputs)
    except CostbenchError as error:
        where, field = error.where or place, error.field
        raise DataError(error.problem, where=where, field=field, expected=error.expected) from error
    load_weights(net, weights, place.with_name(WEIGHTS_FILE))
    seed = content["seed"]
    if not isinstance(seed, int):
        raise DataError(f"{seed!r}", where=place, field="seed", expected="int")
    return LayoutModel(net, scaling, _PREDICTS[content["predicts"]], execution, seed)


def _read_model(path: Path) -> dict[str, object]:
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError("is no layout model", where=path, field="format", expected=FORMAT)
    if set(content) != _KEYS:
        raise DataError(f"keys {sorted(content)}", where=path, expected=", ".join(sorted(_KEYS)))
    if content["predicts"] not in _PREDICTS:
        expected = "one of " + ", ".join(map(str, _PREDICTS))
        raise DataError(f"{content['predicts']!r}", where=path, field="predicts", expected=expected)
    return content


def _mapping(content: object) -> Mapping[str, object]:
    if not isinstance(content, dict):
        raise DataError("is no scaling", field="scaling", expected="a mapping")
    return content
