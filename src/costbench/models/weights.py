"""Reads and writes the weights of a network: a file of tensors alone, checked to be finite."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from costbench.artifacts import digest_bytes, write_bytes
from costbench.errors import DataError


def save_weights(net: nn.Module, path: Path) -> str:
    """Writes the weights of a network, on any device, and returns the SHA-256 of the file.

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
    """Gives a network the weights of a file.

    Args:
        net: the network; changed.
        weights: content of the file.
        path: of the file, for errors.

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
        raise DataError(f"no weights of this network: {_first_line(error)}", where=path) from error
    _require_finite(net.state_dict(), path)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:200]


def _require_finite(state: Mapping[str, Tensor], path: Path) -> None:
    for name, tensor in state.items():
        if not torch.isfinite(tensor).all():
            raise DataError("NaN or infinite", where=path, field=name, expected="finite weights")
