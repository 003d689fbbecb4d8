"""The files of a trained model: a description (JSON) and `weights.pt` (tensors only), checked to be finite.

Both are written atomically, the description last, with the digest of the weights, so a folder holds a
complete model or fails to load. Weights are read with `weights_only=True`, which runs no code from the file.
Equal models give equal bytes.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from costbench.artifacts import digest_bytes, read_bytes, read_json, write_bytes
from costbench.errors import CostbenchError, DataError
from costbench.models.spec import Predicts

WEIGHTS_FILE = "weights.pt"
PREDICTS: Mapping[object, Predicts] = {"score": "score", "log_runtime_ns": "log_runtime_ns"}
_Scaling = TypeVar("_Scaling")


def read_description(path: Path, kind: str, keys: set[str], noun: str) -> dict[str, object]:
    """Returns the content of a description.

    Args:
        path: path of the description.
        kind: format that it says it has.
        keys: all its keys, among them `predicts`.
        noun: kind of model, for errors.

    Raises:
        DataError: if it cannot be read, or says anything else.
    """
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != kind:
        raise DataError(f"is no {noun}", where=path, field="format", expected=kind)
    if set(content) != keys:
        raise DataError(f"keys {sorted(content)}", where=path, expected=", ".join(sorted(keys)))
    if content["predicts"] not in PREDICTS:
        expected = "one of " + ", ".join(map(str, PREDICTS))
        raise DataError(f"{content['predicts']!r}", where=path, field="predicts", expected=expected)
    return content


def read_weights(path: Path, content: Mapping[str, object]) -> bytes:
    """Returns the weights beside a description.

    Raises:
        DataError: if they cannot be read, or are not those that it was written with.
    """
    weights = read_bytes(path.with_name(WEIGHTS_FILE))
    if digest_bytes(weights) != content["weights_sha256"]:
        raise DataError(
            f"not the weights that {path.name} was written with",
            where=path.with_name(WEIGHTS_FILE),
            expected=f"SHA-256 {content['weights_sha256']}",
        )
    return weights


def read_scaling(
    from_dict: Callable[[Mapping[str, object]], _Scaling], content: Mapping[str, object], path: Path
) -> _Scaling:
    """Returns the scalers of a description.

    Raises:
        DataError: naming the file, for what is none.
    """
    values = content["scaling"]
    if not isinstance(values, dict):
        raise DataError("is no scaling", where=path, field="scaling", expected="a mapping")
    try:
        return from_dict(values)
    except CostbenchError as error:
        raise DataError(error.problem, where=path, field="scaling", expected=error.expected) from error


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Name the file in errors about what it describes."""
    try:
        yield
    except CostbenchError as error:
        raise DataError(
            error.problem, where=error.where or path, field=error.field, expected=error.expected
        ) from error


def save_weights(net: nn.Module, path: Path) -> str:
    """Write the weights of a network, on any device; returns the SHA-256 of the file.

    Raises:
        DataError: if a weight is NaN or infinite, or the file cannot be written.
    """
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in net.state_dict().items()}
    _require_finite(state, path)
    buffer = io.BytesIO()
    # Into memory first: written to a path, torch puts the path's name into the file.
    torch.save(state, buffer)
    write_bytes(path, buffer.getvalue())
    return digest_bytes(buffer.getvalue())


def load_weights(net: nn.Module, weights: bytes, path: Path) -> None:
    """Give a network the weights of a file.

    Args:
        net: the network; changed.
        weights: content of the file.
        path: path of the file, for errors.

    Raises:
        DataError: for damaged weights, those of another network, or NaN or infinite ones.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
        net.load_state_dict(state)
    except Exception as error:
        # torch raises whatever it meets first in damaged bytes: pickle, zip, key, type and runtime errors.
        first_line = str(error).strip().split("\n", 1)[0][:200]
        raise DataError(f"no weights of this network: {first_line}", where=path) from error
    _require_finite(net.state_dict(), path)


def _require_finite(state: Mapping[str, Tensor], path: Path) -> None:
    for name, tensor in state.items():
        if not torch.isfinite(tensor).all():
            raise DataError("NaN or infinite", where=path, field=name, expected="finite weights")
