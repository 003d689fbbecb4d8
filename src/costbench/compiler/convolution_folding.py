"""Compiler pass that folds a `reverse` of convolution weights into the convolution's window.

The input gradient of a convolution slides the same weights backwards. As lowered, a `reverse` writes the
reversed weights to memory; XLA sets `window_reversal` on the convolution instead, as every recorded program
shows, and so does this pass. It runs before layouts are assigned.
"""

from __future__ import annotations

from dataclasses import replace

from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode

_KERNEL = 1


def fold_reversals(module: HloModule) -> HloModule:
    """Returns the module with `reverse` folded wherever only convolutions read its result as weights."""
    computations = tuple(_fold(computation) for computation in module.computations)
    return replace(module, computations=computations)


def _fold(computation: HloComputation) -> HloComputation:
    instructions = list(computation.instructions)
    folded: set[int] = set()
    for position, inst in enumerate(instructions):
        if inst.opcode is not Opcode.CONVOLUTION:
            continue
        weights = instructions[inst.operands[_KERNEL]]
        if weights.opcode is Opcode.REVERSE and _is_spatial(inst, weights):
            folded.add(inst.operands[_KERNEL])
            instructions[position] = _turned(inst, weights)
    if not folded:
        return computation
    read = {operand for inst in instructions for operand in inst.operands} | {computation.root}
    return _without(instructions, computation, folded - read)


def _is_spatial(convolution: Instruction, reverse: Instruction) -> bool:
    assert convolution.convolution is not None
    return set(reverse.dimensions) <= set(convolution.convolution.kernel_spatial)


def _turned(inst: Instruction, reverse: Instruction) -> Instruction:
    assert inst.convolution is not None
    window = tuple(
        replace(w, reversal=not w.reversal) if axis in reverse.dimensions else w
        for axis, w in zip(inst.convolution.kernel_spatial, inst.window, strict=True)
    )
    operands = (inst.operands[0], reverse.operands[0])
    return replace(inst, window=window, operands=operands)


def _without(instructions: list[Instruction], computation: HloComputation, gone: set[int]) -> HloComputation:
    place: dict[int, int] = {}
    kept: list[Instruction] = []
    for position, inst in enumerate(instructions):
        if position in gone:
            continue
        place[position] = len(kept)
        moved = tuple(place[operand] for operand in inst.operands)
        controls = tuple(place[c] for c in inst.control_predecessors if c in place)
        kept.append(
            inst
            if (moved, controls) == (inst.operands, inst.control_predecessors)
            else inst.rewire(inst.shape, moved, controls)
        )
    return HloComputation(computation.name, tuple(kept), place[computation.root])
