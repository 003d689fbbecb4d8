"""Tunes a program, given its file and the name of a model: loads both and runs the task's searches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from costbench.autotuning.kernel_costs import EstimatedKernels, GivenKernels, KernelCosts, TiledKernels
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.layout.space import layout_space
from costbench.compiler.program import PreparedProgram
from costbench.compiler.trip_counts import assumed_trip_counts
from costbench.errors import DataError, UnsupportedKernelError, choose
from costbench.execution.dotted import is_dotted
from costbench.experiments.autotuning.fusion_tuning import tune_fusion
from costbench.experiments.autotuning.layout_tuning import tune_layouts
from costbench.experiments.autotuning.outside_prices import (
    NO_PRICES,
    OutsidePrices,
    read_prices,
    require_kernels,
)
from costbench.experiments.autotuning.session import ANALYTICAL, NO_MODEL, Session, TuningResult
from costbench.experiments.autotuning.tile_tuning import tune_tiles
from costbench.experiments.grid.cells import cell_from_name
from costbench.experiments.tracking.registry import is_registered, registered_model
from costbench.experiments.tracking.runs import tracking_uri
from costbench.hlo.conversion import module_from_proto
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.proto.hlo_pb2 import HloModuleProto
from costbench.hlo.reader import read_proto
from costbench.models.cost_model import CostModel
from costbench.models.user_model import load_user_model
from costbench.tasks import TaskName

if TYPE_CHECKING:
    from costbench.models.learned import LearnedCostModel

_log = logging.getLogger(__name__)
_MAX_LISTED = 8


def tune_program(session: Session, name: str) -> TuningResult:
    """Tunes the program of a session and returns the result under the program name `name`.

    Raises:
        HloError: if the file is not an HLO module.
        UnsupportedKernelError: if no kernel can be priced; for layouts, if any cannot.
        ParamsError: for a wrong file of prices.
        DataError: for a model that cannot be read or is of the other task.
    """
    options = session.options
    proto = read_proto(options.file)
    session.origins |= op_names(proto)
    module = inline_fusions(module_from_proto(proto, where=str(options.file)))
    program = PreparedProgram(module, name, unknown_trip_count=options.trip_count)
    for loop, (trips, bounded) in assumed_trip_counts(
        program.module, unknown_trip_count=options.trip_count
    ).items():
        basis = "the bound in its condition" if bounded else "--trip-count, as no bound is known"
        _log.warning("%s: loop %s: %d iterations assumed: %s", name, loop, trips, basis)
    return choose(TUNE, session.options.task, "task")(program, session)


def _tune_tiles(program: PreparedProgram, session: Session) -> TuningResult:
    analytical = AnalyticalModel(session.target.architecture)
    model = _tile_model(session.options.model, session.target.name, analytical)
    return tune_tiles(program, session, model, _prices(program, session.options.prices))


def _tune_fusion(program: PreparedProgram, session: Session) -> TuningResult:
    architecture = session.target.architecture
    analytical = AnalyticalModel(architecture)
    tiled = TiledKernels(program.lowering, architecture, analytical)
    model = _fusion_model(session.options.model, session.target.name, tiled, analytical)
    return tune_fusion(program, session, tiled, model, _prices(program, session.options.prices))


def _tune_layouts(program: PreparedProgram, session: Session) -> TuningResult:
    options = session.options
    if options.model not in (ANALYTICAL, NO_MODEL):
        expected = f"{ANALYTICAL} or {NO_MODEL}; `costbench evaluate --data` scores layout networks"
        raise DataError("does not rank layouts here", where=options.model, field="--model", expected=expected)
    if options.prices is not None:
        raise DataError("has no effect with --task layout", field="--prices", expected="to be left out")
    require_kernels(program)
    for left_out in NO_PRICES.left_out(program.unique_kernels):
        expected = "a program that the chip runs whole; --task tile and fusion leave such instructions out"
        raise UnsupportedKernelError(
            left_out.reason, where=program.name, field=left_out.example, expected=expected
        )
    space = layout_space(program.module, unknown_trip_count=options.trip_count)
    return tune_layouts(space, session, program.name, has_model=options.model == ANALYTICAL)


TUNE: Mapping[str, Callable[[PreparedProgram, Session], TuningResult]] = {
    "tile": _tune_tiles,
    "fusion": _tune_fusion,
    "layout": _tune_layouts,
}


def _prices(program: PreparedProgram, path: Path | None) -> OutsidePrices:
    """Returns the prices in a file; a warning is logged for those by which no kernel is priced."""
    prices = read_prices(path)
    if unused := prices.unused(program.unique_kernels):
        expected = "the opcode or custom call of a kernel that the chip does not run"
        _log.warning("%s: %s: prices nothing here (expected %s)", path, ", ".join(unused), expected)
    return prices


def op_names(proto: HloModuleProto) -> dict[str, str]:
    """Returns what the user's code calls instructions, by their names, where a dump has kept it."""
    return {
        inst.name: inst.metadata.op_name
        for computation in proto.computations
        for inst in computation.instructions
        if inst.metadata.op_name
    }


def _tile_model(name: str, chip: str, analytical: AnalyticalModel) -> CostModel | None:
    if name == NO_MODEL:
        return None
    if name == ANALYTICAL:
        return analytical
    if is_dotted(name):
        return load_user_model(name, analytical.architecture).for_task("tile")
    return _checkpoint(name, "tile", chip, analytical)


def _fusion_model(
    name: str, chip: str, tiled: TiledKernels, analytical: AnalyticalModel
) -> KernelCosts | None:
    if name == NO_MODEL:
        return None
    if name == ANALYTICAL:
        return EstimatedKernels(tiled)
    if is_dotted(name):
        return GivenKernels(tiled, load_user_model(name, tiled.architecture).for_task("fusion"))
    from costbench.autotuning.learned_kernels import LearnedKernels

    return LearnedKernels(tiled, _checkpoint(name, "fusion", chip, analytical))


def _checkpoint(name: str, task: TaskName, chip: str, analytical: AnalyticalModel) -> LearnedCostModel:
    from costbench.models.checkpoint import load_checkpoint

    return load_checkpoint(model_folder(name, task, chip), analytical=analytical)


def model_folder(name: str, task: TaskName, chip: str) -> Path:
    """Returns the folder of a trained model, which must be of the task, as far as its place tells.

    A warning is logged for one that was trained for another chip.

    Args:
        name: folder of the model, or its address in the registry.
        task: name of the task.
        chip: name of the chip that it is used for.

    Raises:
        DataError: if there is no such model, or it is of another task.
    """
    from costbench.models.checkpoint import MODEL_FILE

    folder, trained_for, trained_on = _locate(name)
    if not folder.is_dir():
        expected = (
            "the folder of a trained model, models:/NAME@champion, module:Class of your own, "
            f"{ANALYTICAL} or {NO_MODEL}"
        )
        raise DataError("no such folder", where=folder, field="--model", expected=expected)
    if not (folder / MODEL_FILE).is_file():
        cells = sorted(path.parent.relative_to(folder).as_posix() for path in folder.rglob(MODEL_FILE))
        listed = ", ".join(cells[:_MAX_LISTED]) + (", ..." if len(cells) > _MAX_LISTED else "")
        expected = f"one of the models in it: {listed}" if cells else "a folder that holds model.json"
        raise DataError("is no model itself", where=folder, field="--model", expected=expected)
    if (trained_for or task) != task:
        raise DataError(f"trained for the task {trained_for}", where=name, expected=f"a model for {task}")
    if (trained_on or chip) != chip:
        _log.warning("%s: trained for %s, used for %s: its ranking may be off", name, trained_on, chip)
    return folder


def _locate(name: str) -> tuple[Path, str | None, str | None]:
    """Returns the folder of a model, and the task and chip that it was trained for; None where not known."""
    if is_registered(name):
        return registered_model(tracking_uri(), name)
    folder = Path(name)
    with suppress(DataError):
        cell = cell_from_name(folder.resolve().name)
        return folder, cell.task, cell.chip
    return folder, None, None
