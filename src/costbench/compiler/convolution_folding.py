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

_WEIGHTS = 1


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
        weights = instructions[inst.operands[_WEIGHTS]]
        if weights.opcode is Opcode.REVERSE and _is_spatial(inst, weights):
            folded.add(inst.operands[_WEIGHTS])
            instructions[position] = _with_reversed_window(inst, weights)
    if not folded:
        return computation
    read = {operand for inst in instructions for operand in inst.operands} | {computation.root}
    return _without(instructions, computation, folded - read)


def _is_spatial(convolution: Instruction, reverse: Instruction) -> bool:
    assert convolution.convolution is not None
    return set(reverse.dimensions) <= set(convolution.convolution.kernel_spatial)


def _with_reversed_window(inst: Instruction, reverse: Instruction) -> Instruction:
    assert inst.convolution is not None
    window = tuple(
        replace(w, reversal=not w.reversal) if axis in reverse.dimensions else w
        for axis, w in zip(inst.convolution.kernel_spatial, inst.window, strict=True)
    )
    operands = (inst.operands[0], reverse.operands[0])
    return replace(inst, window=window, operands=operands)


def _without(
    instructions: list[Instruction], computation: HloComputation, removed: set[int]
) -> HloComputation:
    """Returns the computation with these instructions, but for those at the removed positions."""
    new_position: dict[int, int] = {}
    remaining: list[Instruction] = []
    for position, inst in enumerate(instructions):
        if position in removed:
            continue
        new_position[position] = len(remaining)
        operands = tuple(new_position[operand] for operand in inst.operands)
        controls = tuple(new_position[c] for c in inst.control_predecessors if c in new_position)
        is_same = (operands, controls) == (inst.operands, inst.control_predecessors)
        remaining.append(inst if is_same else inst.rewire(inst.shape, operands, controls))
    return HloComputation(computation.name, tuple(remaining), new_position[computation.root])
