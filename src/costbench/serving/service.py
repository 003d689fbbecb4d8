"""A trained cost model that answers requests: costs of tile sizes, or runtimes of fused kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.tile_space import nest_tile_space
from costbench.errors import CostbenchError, DataError, choose
from costbench.models.checkpoint import load_checkpoint
from costbench.models.cost_model import CostModel
from costbench.serving.requests import read_kernel, read_tiles
from costbench.target import Architecture, load_target
from costbench.tasks import KERNEL_TASKS

Row = Mapping[str, Any]
Answer = dict[str, Any]


class CostService:
    """Answers requests with a cost model.

    Args:
        model: the cost model.
        task: `tile`: costs of tile sizes; `fusion`: the runtime at the tile size that the compiler chooses.
        chip: that the model was trained for, by name.

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
        """One answer a request, in order.

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
