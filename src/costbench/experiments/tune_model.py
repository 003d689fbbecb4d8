"""From a file and a model's name to a tuned program."""

from __future__ import annotations

from pathlib import Path

from costbench.autotuning.kernel_costs import EstimatedKernels, KernelCosts, TiledKernels
from costbench.compiler.program import PreparedProgram
from costbench.experiments.tune_fusion import tune_fusion
from costbench.experiments.tune_program import ANALYTICAL, NO_MODEL, Session, Tuned
from costbench.experiments.tune_tiles import tune_tiles
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_module
from costbench.hlo.text_reader import looks_like_text, module_from_text
from costbench.models.analytical import AnalyticalModel
from costbench.models.cost_model import CostModel


def tuned(session: Session, name: str) -> Tuned:
    """Tunes the program of a session, under a name.

    Raises:
        HloError: if the file is no HLO module.
        UnsupportedKernelError: for a kernel that cannot be priced.
        DataError: for a model that cannot be read or is of the other task.
    """
    program = PreparedProgram(unfused(program_in(session.options.file)), name)
    model, architecture = session.options.model, session.target.architecture
    analytical = AnalyticalModel(architecture)
    if session.options.task == "tile":
        return tune_tiles(program, session, _tile_model(model, analytical))
    tiled = TiledKernels(program.lowering, architecture, analytical)
    return tune_fusion(program, session, tiled, _fusion_model(model, tiled, analytical))


def program_in(path: Path) -> HloModule:
    """The program in a file: a binary message, plain or compressed, or HLO text.

    Raises:
        HloError: if it is missing or no HLO module.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    return module_from_text(text, where=str(path)) if looks_like_text(text) else read_module(path)


def unfused(module: HloModule) -> HloModule:
    """The program as it was before it was fused, where it was."""
    fused = any(inst.opcode is Opcode.FUSION for inst in module.entry_computation.instructions)
    return inline_fusions(module) if fused else module


def _tile_model(name: str, analytical: AnalyticalModel) -> CostModel | None:
    if name == NO_MODEL:
        return None
    if name == ANALYTICAL:
        return analytical
    from costbench.models.checkpoint import load_checkpoint

    return load_checkpoint(Path(name), analytical=analytical)


def _fusion_model(name: str, tiled: TiledKernels, analytical: AnalyticalModel) -> KernelCosts | None:
    if name == NO_MODEL:
        return None
    if name == ANALYTICAL:
        return EstimatedKernels(tiled)
    from costbench.autotuning.learned_kernels import LearnedKernels
    from costbench.models.checkpoint import load_checkpoint

    return LearnedKernels(tiled, load_checkpoint(Path(name), analytical=analytical))
