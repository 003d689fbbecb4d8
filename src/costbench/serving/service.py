"""A trained cost model that answers requests: costs of tile sizes, or runtimes of fused kernels.

A request has a kernel as HLO and its tile sizes; errors say what was expected. A kernel is a module of its
own whose entry computation is the kernel: base64 of a serialised `HloModuleProto` or `HloProto` (plain or
zstd-compressed), or HLO text. A tile size counts native tiles, as `costbench.compiler.spaces` explains.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.lowering.loop_nest import LoopNest, loop_nest
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import nest_tile_space
from costbench.errors import CostbenchError, DataError, choose
from costbench.hlo.reader import module_from_bytes
from costbench.hlo.text.parser import looks_like_text, module_from_text
from costbench.models.checkpoint import load_checkpoint
from costbench.models.cost_model import CostModel
from costbench.target import Architecture, load_target
from costbench.tasks import KERNEL_TASKS

_KERNEL = "base64 of a serialised HloModuleProto or HloProto, or HLO text that begins with 'HloModule'"
_BOUNDS = ("output_bounds", "kernel_bounds")


def read_kernel(value: object, where: str) -> Kernel:
    """Returns the kernel of a request.

    Raises:
        DataError: if it is no text, or neither base64 nor HLO text.
        HloError: if it is no HLO module.
        UnsupportedKernelError: if it holds nothing but parameters.
    """
    field = f"{where}.kernel"
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"is {_short(value)}", where=field, expected=_KERNEL)
    if looks_like_text(value):
        return kernel_from_module(module_from_text(value, where=field))
    try:
        data = base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"{_short(value)} is no base64: {error}", where=field, expected=_KERNEL) from None
    return kernel_from_module(module_from_bytes(data, where=field))


def read_tiles(value: object, nest: LoopNest, where: str) -> TileSizes:
    """Returns the tile sizes of a request for a kernel.

    Args:
        value: a list of mappings with `output_bounds` and, for a kernel with a contraction, `kernel_bounds`.
        nest: the lowered kernel.
        where: name of the request, for errors.

    Raises:
        DataError: naming the tile and the list, if one is missing, of another rank than the kernel, or holds
            what is no whole number from 1 to the extent of its loop.
    """
    field = f"{where}.tiles"
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise DataError(f"is {_short(value)}", where=field, expected="a list of one or more tile sizes")
    whole = nest.tile_sizes(nest.units[None])
    largest = {name: getattr(whole, name)[0].tolist() for name in _BOUNDS}
    columns: dict[str, list[list[int]]] = {name: [] for name in _BOUNDS}
    for number, tile in enumerate(value):
        bounds = _mapping(tile, f"{field}[{number}]")
        for name in _BOUNDS:
            columns[name].append(_bounds(bounds.get(name), largest[name], f"{field}[{number}].{name}"))
    arrays = {name: np.array(rows, dtype=np.int64).reshape(len(value), -1) for name, rows in columns.items()}
    return _of_kernel(TileSizes(**arrays), nest, field)


def _of_kernel(tiles: TileSizes, nest: LoopNest, field: str) -> TileSizes:
    """Returns `tiles` after checking bounds that count the same loop in different units."""
    same_tiles = nest.tile_sizes(nest.extents(tiles))
    for name in _BOUNDS:
        bounds, expected_bounds = getattr(tiles, name), getattr(same_tiles, name)
        for number in np.flatnonzero((bounds != expected_bounds).any(axis=1))[:1]:
            expected = f"{expected_bounds[number].tolist()}, as the other bounds have it"
            raise DataError(
                f"is {bounds[number].tolist()}", where=f"{field}[{number}].{name}", expected=expected
            )
    return tiles


def _mapping(tile: object, field: str) -> Mapping[str, Any]:
    if not isinstance(tile, Mapping):
        expected = "{'output_bounds': [...], 'kernel_bounds': [...]}"
        raise DataError(f"is {_short(tile)}", where=field, expected=expected)
    for name in tile:
        if name not in _BOUNDS:
            raise DataError(f"unknown key {name!r}", where=field, expected=" and ".join(_BOUNDS))
    return tile


def _bounds(value: object, largest: Sequence[int], field: str) -> list[int]:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if value is None:
        value = []
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise DataError(f"is {_short(value)}", where=field, expected="a list of numbers")
    if len(value) != len(largest):
        expected = f"{len(largest)}, up to {list(largest)}" if largest else "none: leave it out"
        raise DataError(f"{len(value)} numbers", where=field, expected=expected)
    return [_bound(bound, limit, field) for bound, limit in zip(value, largest, strict=True)]


def _bound(value: object, limit: int, field: str) -> int:
    # A client may write 4 as 4.0; JSON's true, false and NaN are no numbers here.
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= limit:
        whole = int(value)
        if whole == value:
            return whole
    raise DataError(_short(value), where=field, expected=f"a whole number from 1 to {limit}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


Row = Mapping[str, Any]
Answer = dict[str, Any]


class CostService:
    """Answers requests with a cost model.

    Args:
        model: the cost model.
        task: `tile`: costs of tile sizes; `fusion`: the runtime at the tile size that the compiler chooses.
        chip: name of the chip that the model was trained for.

    Raises:
        ChoiceError: for an unknown task.
        TargetError: for an unknown chip.
    """

    def __init__(self, model: CostModel, task: str, chip: str) -> None:
        self._model = model
        self._chip = chip
        answers = choose(KERNEL_TASKS, task, "task").answers
        self._answer = ANSWERS[answers or ""]
        self._architecture = load_target(chip).architecture

    def answer(self, rows: Sequence[Row]) -> list[Answer]:
        """Returns one answer a request, in order.

        - tile: `kernel` and `tiles` to `costs`, lower is faster; they compare within the kernel;
        - fusion: `kernel` to `runtime_ns`.

        Raises:
            CostbenchError: naming the request and its field, for what cannot be priced.
        """
        return [self._answer_one(row, f"request {number}") for number, row in enumerate(rows)]

    def _answer_one(self, row: Row, where: str) -> Answer:
        chip = row.get("chip")
        if chip is not None and chip == chip and chip != self._chip:
            expected = f"{self._chip}, which the model was trained for"
            raise DataError(f"is {chip!r}", where=f"{where}.chip", expected=expected)
        try:
            return self._answer(self._model, row, self._architecture, where)
        except CostbenchError as error:
            if error.where is not None and error.where.startswith(where):
                raise
            raise DataError(error.message(), where=f"{where}.kernel") from error


def load_service(checkpoint: str | PathLike[str], task: str, chip: str) -> CostService:
    """Loads a trained model and returns its service.

    Raises:
        DataError: as `load_checkpoint` raises.
    """
    # A hybrid corrects the estimate of the chip's analytical model.
    analytical = AnalyticalModel(load_target(chip).architecture)
    return CostService(load_checkpoint(checkpoint, analytical=analytical), task, chip)


def _answer_costs(model: CostModel, row: Row, _architecture: Architecture, where: str) -> Answer:
    kernel = read_kernel(row.get("kernel"), where)
    tiles = read_tiles(row.get("tiles"), loop_nest(kernel), where)
    return {"costs": model.predict(kernel, tiles).tolist()}


def _answer_runtime(model: CostModel, row: Row, architecture: Architecture, where: str) -> Answer:
    kernel = read_kernel(row.get("kernel"), where)
    if row.get("tiles") is not None:
        raise DataError("given", where=f"{where}.tiles", expected="none: the compiler chooses the tile size")
    space = nest_tile_space(loop_nest(kernel), architecture)
    tile = space.nest.tile_sizes(AnalyticalModel(architecture).choose(space)[None])
    return {"runtime_ns": float(model.predict(kernel, tile)[0])}


ANSWERS: Mapping[str, Callable[[CostModel, Row, Architecture, str], Answer]] = {
    "cost": _answer_costs,
    "runtime_ns": _answer_runtime,
}
"""By what a model of the task answers."""
