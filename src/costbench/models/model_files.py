"""Models on disk: a folder with a description (JSON) and `weights.pt` (tensors only), checked to be finite.

A `ModelFormat` says what differs between kinds of models; one writer and one reader serve all. Both files
are written atomically, the description last, with the digest of the weights, so a folder holds a complete
model or fails to load. Weights are read with `weights_only=True`, which runs no code from the file. Equal
models give equal bytes.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from costbench.artifacts import (
    digest_bytes,
    read_bytes,
    read_json,
    with_checksum,
    without_checksum,
    write_bytes,
    write_json,
)
from costbench.errors import CostbenchError, DataError
from costbench.models.spec import Predicts
from costbench.params import parse

WEIGHTS_FILE = "weights.pt"
_PREDICTS: Mapping[str, Predicts] = {"score": "score", "log_runtime_ns": "log_runtime_ns"}


class _Scaling(Protocol):
    """Scalers of a network's inputs."""

    def to_dict(self) -> dict[str, object]:
        """Returns plain values for JSON."""
        ...


Net = TypeVar("Net", bound=nn.Module)
Scaling = TypeVar("Scaling", bound=_Scaling)


@dataclass(frozen=True)
class SavedModel(Generic[Net, Scaling]):
    """What is read from a folder.

    Attributes:
        net: the network, with its weights, on the CPU.
        scaling: scalers that it was trained with.
        predicts: what its output means.
        extra: value of the format's own key.
    """

    net: Net
    scaling: Scaling
    predicts: Predicts
    extra: Any


@dataclass(frozen=True)
class ModelFormat(Generic[Net, Scaling]):
    """How models of one kind stand in a folder.

    Attributes:
        file: name of the description.
        name: format that the description says it has.
        noun: kind of model, for errors.
        spec: class of the network's hyper-parameters.
        scaling_from_dict: makes scalers of what their `to_dict` returned.
        build: builds the network of some hyper-parameters for scaled inputs.
        extra: key of the description that other formats do not have.
        check_extra: raises a `DataError` for a value of that key that cannot be used.
    """

    file: str
    name: str
    noun: str
    spec: type[Any]
    scaling_from_dict: Callable[[Mapping[str, Any]], Scaling]
    build: Callable[[Any, Scaling], Net]
    extra: str
    check_extra: Callable[[object], None]

    def write(
        self, folder: str | PathLike[str], net: Net, scaling: Scaling, predicts: Predicts, extra: object
    ) -> None:
        """Writes a model to `folder`, replacing an existing one.

        Args:
            folder: folder, created if it does not exist.
            net: the network, on any device; its attribute `spec` has the hyper-parameters.
            scaling: scalers that it was trained with.
            predicts: what its output means.
            extra: value of the format's own key.

        Raises:
            DataError: if a weight is NaN or infinite, or the folder cannot be written.
        """
        content = {
            "format": self.name,
            "net": asdict(net.spec),  # type: ignore[call-overload]
            "predicts": predicts,
            "scaling": scaling.to_dict(),
            "weights_sha256": save_weights(net, Path(folder) / WEIGHTS_FILE),
            self.extra: extra,
        }
        write_json(Path(folder) / self.file, with_checksum(content))

    def read(self, folder: str | PathLike[str]) -> SavedModel[Net, Scaling]:
        """Returns the model in `folder`.

        Raises:
            DataError: naming the file and the field, if a file is missing, truncated, damaged, of another
                format, or no model at all.
        """
        path = Path(folder) / self.file
        if not path.exists():
            raise DataError("no such file", where=path, expected=f"the folder of a {self.noun}")
        content = read_json(path)
        if not isinstance(content, dict) or content.get("format") != self.name:
            raise DataError(f"is no {self.noun}", where=path, field="format", expected=self.name)
        content = without_checksum(content, path)
        keys = {"format", "net", "predicts", "scaling", "weights_sha256", self.extra}
        if set(content) != keys:
            raise DataError(f"keys {sorted(content)}", where=path, expected=", ".join(sorted(keys)))
        predicts = _PREDICTS.get(str(content["predicts"]))
        if predicts is None:
            expected = "one of " + ", ".join(_PREDICTS)
            raise DataError(f"{content['predicts']!r}", where=path, field="predicts", expected=expected)
        with _naming(path, self.extra):
            self.check_extra(content[self.extra])
        if not isinstance(content["scaling"], dict):
            raise DataError("is no scaling", where=path, field="scaling", expected="a mapping")
        with _naming(path, "scaling"):
            scaling = self.scaling_from_dict(content["scaling"])
        with _naming(path, None):
            spec = parse(self.spec, content["net"], where=path, field="net")
            self._require_weights(spec, scaling, path)
            net = self.build(spec, scaling)
        load_weights(net, path, content["weights_sha256"])
        return SavedModel(net, scaling, predicts, content[self.extra])

    def _require_weights(self, spec: object, scaling: Scaling, path: Path) -> None:
        """Raises DataError where a description asks for a larger network than its weights can be of."""
        stored = len(read_bytes(path.with_name(WEIGHTS_FILE)))
        try:
            with torch.device("meta"):  # where tensors have sizes and no memory
                net = self.build(spec, scaling)
        except CostbenchError:
            # A user's part may read values while it is built. Any other mistake is found by building it next.
            return
        needed = sum(tensor.nbytes for tensor in net.state_dict().values())
        if needed > stored:
            problem = f"no weights of this network: {stored} bytes in {WEIGHTS_FILE}"
            raise DataError(problem, where=path, field="net", expected=f"at least {needed}")


@contextmanager
def _naming(path: Path, field: str | None) -> Iterator[None]:
    """Names the file, and the field if one is given, in errors about what stands there."""
    try:
        yield
    except CostbenchError as error:
        raise error.recast(DataError, where=error.where or path, field=field or error.field) from error


def save_weights(net: nn.Module, path: Path) -> str:
    """Writes the weights of a network, on any device; returns the SHA-256 of the file.

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


def load_weights(net: nn.Module, description: Path, sha256: object) -> None:
    """Gives a network the weights that stand beside a description.

    Args:
        net: the network; changed.
        description: path of the description.
        sha256: SHA-256 of the weights, which the description has.

    Raises:
        DataError: for weights that are missing, damaged or not those that the description was written with,
            those of another network, and NaN or infinite ones.
    """
    path = description.with_name(WEIGHTS_FILE)
    weights = read_bytes(path)
    if digest_bytes(weights) != sha256:
        problem = f"not the weights that {description.name} was written with"
        raise DataError(problem, where=path, expected=f"SHA-256 {sha256}")
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
