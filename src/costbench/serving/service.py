"""A trained cost model that answers requests: costs of tile sizes, or runtimes of fused kernels.

A request has a kernel as HLO and its tile sizes; errors say what was expected. A kernel is a module of its
own whose entry computation is the kernel: base64 of a serialised `HloModuleProto` or `HloProto` (plain or
zstd-compressed), or HLO text. A tile size counts native tiles, as `costbench.compiler.spaces` explains.

A prediction for a kernel unlike all that the model was trained on says so, and one for a kernel that is far
from them is refused: `outside` has the feature that lies furthest out, and how many times further than in any
training kernel.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from costbench.arrays import F64
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.lowering.loop_nest import LoopNest, loop_nest
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import nest_tile_space
from costbench.errors import CostbenchError, DataError, choose
from costbench.hlo.conversion import module_from_proto
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.proto.hlo_pb2 import HloModuleProto
from costbench.hlo.reader import parse_proto
from costbench.hlo.text.parser import looks_like_text, proto_from_text
from costbench.models.checkpoint import load_checkpoint
from costbench.models.cost_model import CostModel
from costbench.models.learned import LearnedCostModel
from costbench.serving.requests import DEFAULT_LIMITS, RequestLimits, Row
from costbench.target import load_target
from costbench.tasks import KERNEL_TASKS

_KERNEL = "base64 of a serialised HloModuleProto or HloProto, or HLO text that begins with 'HloModule'"
_FIELDS = ("kernel", "tiles", "chip")
_BOUNDS = ("output_bounds", "kernel_bounds")
_MESSAGES_PER_INSTRUCTION = 64
"""Messages within an instruction: programs have four, tuples more."""


def read_kernel(value: object, where: str, limits: RequestLimits = DEFAULT_LIMITS) -> Kernel:
    """Returns the kernel of a request.

    Args:
        value: text of the request.
        where: name of the request, for errors.
        limits: limits of requests.

    Raises:
        DataError: if it is no text, neither base64 nor HLO text, or beyond the limits.
        HloError: if it is no HLO module.
        UnsupportedKernelError: if it holds nothing but parameters.
    """
    field = f"{where}.kernel"
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"is {_short(value)}", where=field, expected=_KERNEL)
    if len(value) > limits.kernel_bytes:
        expected = f"at most {limits.kernel_bytes:,}"
        raise DataError(f"has {len(value):,} characters", where=field, expected=expected)
    proto = _read_proto(value, field, limits)
    count = sum(len(computation.instructions) for computation in proto.computations)
    if count > limits.instructions:
        expected = f"at most {limits.instructions:,}"
        raise DataError(f"has {count:,} instructions", where=field, expected=expected)
    module = module_from_proto(proto, where=field)
    return kernel_from_module(inline_fusions(module, limits.instructions))


def _read_proto(value: str, field: str, limits: RequestLimits) -> HloModuleProto:
    if looks_like_text(value):
        return proto_from_text(value, where=field)
    try:
        data = base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"{_short(value)} is no base64: {error}", where=field, expected=_KERNEL) from None
    max_messages = _MESSAGES_PER_INSTRUCTION * limits.instructions
    return parse_proto(data, where=field, max_bytes=limits.body_bytes, max_messages=max_messages)


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
    _check_keys(tile, _BOUNDS, field)
    return tile


def _check_keys(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise DataError(f"unknown key {name!r}", where=where, expected=", ".join(known))


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


Answer = dict[str, Any]


class CostService:
    """Answers requests with a cost model.

    Args:
        model: the cost model.
        task: `tile`: costs of tile sizes; `fusion`: the runtime at the tile size that the compiler chooses.
        chip: name of the chip that the model was trained for.
        limits: limits of requests.

    Raises:
        ChoiceError: for an unknown task.
        TargetError: for an unknown chip.
    """

    def __init__(
        self, model: CostModel, task: str, chip: str, limits: RequestLimits = DEFAULT_LIMITS
    ) -> None:
        self._model = model
        self._limits = limits
        self._chip = chip
        answers = choose(KERNEL_TASKS, task, "task").answers
        self._answer = ANSWERS[answers or ""]
        self._architecture = load_target(chip).architecture

    def answer(self, rows: Sequence[Row]) -> list[Answer]:
        """Returns one answer a request, in order.

        - tile: `kernel` and `tiles` to `costs`, lower is faster; they compare within the kernel;
        - fusion: `kernel` to `runtime_ns`;
        - both: `outside` with `feature` and `times` where a kernel or tile size is unlike all in training.

        Raises:
            CostbenchError: naming the request and its field, for what cannot be priced or is beyond the
                limits.
        """
        sizes = (len(tiles) for row in rows if isinstance(tiles := row.get("tiles"), Sequence | np.ndarray))
        if (count := sum(sizes)) > self._limits.tiles:
            raise DataError(
                f"{count:,} tile sizes", where="tiles", expected=f"at most {self._limits.tiles:,}"
            )
        return [self._answer_one(row, f"request {number}") for number, row in enumerate(rows)]

    def _answer_one(self, row: Row, where: str) -> Answer:
        _check_keys(row, _FIELDS, where)
        chip = row.get("chip")
        if chip is not None and chip == chip and chip != self._chip:
            expected = f"{self._chip}, which the model was trained for"
            raise DataError(f"is {chip!r}", where=f"{where}.chip", expected=expected)
        try:
            return self._answer(self, row, where)
        except CostbenchError as error:
            if error.where is not None and error.where.startswith(where):
                raise
            raise DataError(error.message(), where=f"{where}.kernel") from error

    def costs(self, row: Row, where: str) -> Answer:
        """Returns the costs of a kernel's tile sizes."""
        kernel = read_kernel(row.get("kernel"), where, self._limits)
        tiles = read_tiles(row.get("tiles"), loop_nest(kernel), where)
        costs, outside = self._predict(kernel, tiles, where)
        return {"costs": costs.tolist(), **outside}

    def runtime(self, row: Row, where: str) -> Answer:
        """Returns the runtime of a kernel at the tile size that the compiler would choose."""
        kernel = read_kernel(row.get("kernel"), where, self._limits)
        if row.get("tiles") is not None:
            expected = "none: the compiler chooses the tile size"
            raise DataError("given", where=f"{where}.tiles", expected=expected)
        space = nest_tile_space(loop_nest(kernel), self._architecture)
        analytical = AnalyticalModel(self._architecture)
        tile = space.nest.tile_sizes(analytical.choose(space)[None])
        (runtime_ns,), outside = self._predict(kernel, tile, where)
        (estimate_ns,) = analytical.predict(kernel, tile)
        factor = self._limits.off_estimate
        if not 1 / factor < runtime_ns / estimate_ns < factor:
            problem = f"{runtime_ns:.3g} ns were predicted, {estimate_ns:.3g} ns estimated from operations"
            expected = f"a kernel on which both agree to a factor of {factor:,.0f}"
            raise DataError(problem, where=f"{where}.kernel", expected=expected)
        return {"runtime_ns": float(runtime_ns), **outside}

    def _predict(self, kernel: Kernel, tiles: TileSizes, where: str) -> tuple[F64, Answer]:
        """Returns the costs, and what lies outside of the training data."""
        if not isinstance(self._model, LearnedCostModel):
            return self._model.predict(kernel, tiles), {}
        graph, features = self._model.inputs(kernel, tiles)
        times, feature = self._model.scaling.beyond_training(graph, features)
        if times > self._limits.beyond_training:
            raise DataError(
                f"{feature} lies {times:,.0f} times further out than in training",
                where=f"{where}.kernel",
                expected=f"at most {self._limits.beyond_training:,.0f} times",
            )
        costs = self._model.predict_graph(graph, features, self._model.estimates(kernel, tiles))
        return costs, {"outside": {"feature": feature, "times": times}} if times > 1.0 else {}


def load_service(
    checkpoint: str | PathLike[str], task: str, chip: str, limits: RequestLimits = DEFAULT_LIMITS
) -> CostService:
    """Loads a trained model and returns its service.

    Args:
        checkpoint: folder of the model.
        task: task that it was trained for.
        chip: chip that it was trained for.
        limits: limits of requests.

    Raises:
        DataError: as `load_checkpoint` raises.
    """
    # A hybrid corrects the estimate of the chip's analytical model.
    analytical = AnalyticalModel(load_target(chip).architecture)
    return CostService(load_checkpoint(checkpoint, analytical=analytical), task, chip, limits)


ANSWERS: Mapping[str, Callable[[CostService, Row, str], Answer]] = {
    "cost": CostService.costs,
    "runtime_ns": CostService.runtime,
}
"""By what a model of the task answers."""
