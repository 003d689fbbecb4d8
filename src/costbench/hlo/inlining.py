"""Inlines fusions: turns a compiled kernel with nested fusions into one computation of plain instructions."""

from __future__ import annotations

from dataclasses import replace

from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode


def inline_fusions(module: HloModule) -> HloModule:
    """Returns the module with every fusion of its entry computation replaced by its body, at any depth.

    Other computations stay where they are (the bodies, now unused, too), so positions of callees do not move.
    A get-tuple-element of an inlined tuple becomes the member itself.
    """
    entry = _inline(module, module.entry_computation)
    computations = list(module.computations)
    computations[module.entry] = entry
    return replace(module, computations=tuple(computations)).verify()


def _inline(module: HloModule, computation: HloComputation) -> HloComputation:
    flat: list[Instruction] = []
    place = _emit(module, computation, None, flat)
    return HloComputation(name=computation.name, instructions=tuple(flat), root=place[computation.root])


def _emit(
    module: HloModule, computation: HloComputation, arguments: tuple[int, ...] | None, flat: list[Instruction]
) -> list[int]:
    """Appends a computation's instructions to `flat`; returns the new position of each."""
    place: list[int] = []
    for inst in computation.instructions:
        operands = tuple(place[o] for o in inst.operands)
        if arguments is not None and inst.opcode is Opcode.PARAMETER:
            place.append(arguments[inst.parameter_number])
        elif inst.opcode is Opcode.FUSION:
            body = module.computations[inst.called[0]]
            place.append(_emit(module, body, operands, flat)[body.root])
        elif inst.opcode is Opcode.GET_TUPLE_ELEMENT and flat[operands[0]].opcode is Opcode.TUPLE:
            place.append(flat[operands[0]].operands[inst.tuple_index])
        else:
            controls = tuple(place[c] for c in inst.control_predecessors)
            flat.append(replace(inst, operands=operands, control_predecessors=controls))
            place.append(len(flat) - 1)
    return place
