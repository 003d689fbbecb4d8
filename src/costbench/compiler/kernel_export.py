"""Exports a kernel as a module of its own: for files of other tools, and to inspect one kernel alone.

The entry computation has a parameter for every input, in order, then the kernel's instructions; it returns
the kernel's output, or a tuple of them. Computations that the instructions call (reducers, comparisons) are
copied, too.
`costbench.compiler.kernel.kernel_from_module` reads it back as a kernel with the same fingerprint.
"""

from __future__ import annotations

from dataclasses import replace

from costbench.compiler.kernel import Kernel
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape


def kernel_module(kernel: Kernel, name: str = "kernel") -> HloModule:
    """Returns the kernel as a stand-alone, verified module."""
    computations: list[HloComputation] = []
    place: dict[int, int] = {}
    for position in kernel.instructions:
        for callee in kernel.instruction(position).called:
            _carry(kernel.module, callee, computations, place)
    computations.append(_entry(kernel, place, name))
    return HloModule(name, tuple(computations), len(computations) - 1).verify()


def _carry(module: HloModule, index: int, computations: list[HloComputation], place: dict[int, int]) -> None:
    """Copies a computation, after those that it calls."""
    if index in place:
        return
    computation = module.computations[index]
    for inst in computation.instructions:
        for callee in inst.called:
            _carry(module, callee, computations, place)
    instructions = tuple(_recalled(inst, place) for inst in computation.instructions)
    place[index] = len(computations)
    computations.append(replace(computation, instructions=instructions))


def _recalled(inst: Instruction, place: dict[int, int]) -> Instruction:
    return replace(inst, called=tuple(place[callee] for callee in inst.called)) if inst.called else inst


def _entry(kernel: Kernel, place: dict[int, int], name: str) -> HloComputation:
    instructions: list[Instruction] = []
    where: dict[int, int] = {}
    for number, position in enumerate(kernel.inputs):
        where[position] = number
        shape = kernel.instruction(position).shape
        instructions.append(
            Instruction(f"parameter.{number}", Opcode.PARAMETER, shape, parameter_number=number)
        )
    for position in kernel.instructions:
        inst = kernel.instruction(position)
        where[position] = len(instructions)
        operands = tuple(where[operand] for operand in inst.operands)
        # Control dependencies on other kernels do not apply to the kernel alone.
        controls = tuple(where[c] for c in inst.control_predecessors if c in kernel.members)
        instructions.append(replace(_recalled(inst, place), operands=operands, control_predecessors=controls))
    outputs = tuple(where[position] for position in kernel.outputs)
    if len(outputs) == 1:
        return HloComputation(name, tuple(instructions), outputs[0])
    shapes = tuple(instructions[position].shape for position in outputs)
    result = Shape(ElementType.TUPLE, tuple_shapes=shapes)
    instructions.append(Instruction(f"tuple.{len(instructions)}", Opcode.TUPLE, result, outputs))
    return HloComputation(name, tuple(instructions), len(instructions) - 1)
