"""Inlines calls: a program as JAX lowers it becomes one in which every instruction stands where it runs.

`jax.jit` makes a computation of its own of each function within a function, `jax.nn.relu` and `jnp.where`
among them. XLA's passes inline these calls before they fuse, so kernels are parts of the inlined program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from costbench.errors import HloError
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.limits import MAX_INSTRUCTIONS

SEPARATOR = "/"
_CALL = Opcode.CALL


def inline_calls(module: HloModule, max_instructions: int = MAX_INSTRUCTIONS) -> HloModule:
    """Returns the module with every call replaced by the instructions of its computation, at any depth.

    An instruction of a computation that is called several times is named after the call as well,
    `call.1/add.3`. Members of a tuple that a computation returns become the members themselves.
    Computations that only calls ran are left out; a module without calls is returned itself.

    Args:
        module: the module.
        max_instructions: number of instructions that it may have then.

    Raises:
        HloError: if there would be more, which calls of computations that call others twice reach soon.
    """
    if not any(_CALL in computation.opcodes for computation in module.computations):
        return module
    module = _without_unused(module)
    calls = [
        [inst.called[0] for inst in computation.instructions if inst.opcode is _CALL]
        for computation in module.computations
    ]
    num_calls = Counter(callee for callees in calls for callee in callees)
    flat: list[HloComputation] = []
    # Callees come before their callers, so what is called has no calls any more.
    for computation, callees in zip(module.computations, calls, strict=True):
        size = len(computation.instructions) + sum(len(flat[callee].instructions) for callee in callees)
        if size > max_instructions:
            problem, expected = "too many instructions with calls inlined", f"at most {max_instructions}"
            raise HloError(problem, where=module.name, field=computation.name, expected=expected)
        flat.append(_inlined(computation, flat, num_calls))
    return _without_unused(replace(module, computations=tuple(flat))).verify()


def _inlined(
    computation: HloComputation, callees: Sequence[HloComputation], num_calls: Mapping[int, int]
) -> HloComputation:
    if _CALL not in computation.opcodes:
        return computation
    flat: list[Instruction] = []
    positions: list[int] = []
    for inst in computation.instructions:
        operands = tuple(positions[operand] for operand in inst.operands)
        controls = tuple(positions[other] for other in inst.control_predecessors)
        if inst.opcode is _CALL:
            body = callees[inst.called[0]]
            prefix = inst.name + SEPARATOR if num_calls[inst.called[0]] > 1 else ""
            positions.append(_append(flat, body, operands, controls, prefix))
        elif inst.opcode is Opcode.GET_TUPLE_ELEMENT and flat[operands[0]].opcode is Opcode.TUPLE:
            positions.append(flat[operands[0]].operands[inst.tuple_index])
        else:
            positions.append(len(flat))
            flat.append(inst.rewire(inst.shape, operands, controls))
    return HloComputation(computation.name, tuple(flat), positions[computation.root])


def _append(
    flat: list[Instruction],
    body: HloComputation,
    arguments: Sequence[int],
    controls: tuple[int, ...],
    prefix: str,
) -> int:
    """Appends what a call runs; returns the position of its result."""
    positions: list[int] = []
    for inst in body.instructions:
        if inst.opcode is Opcode.PARAMETER:
            positions.append(arguments[inst.parameter_number])
            continue
        operands = tuple(positions[operand] for operand in inst.operands)
        before = (*controls, *(positions[other] for other in inst.control_predecessors))
        positions.append(len(flat))
        flat.append(replace(inst.rewire(inst.shape, operands, before), name=prefix + inst.name))
    return positions[body.root]


def _without_unused(module: HloModule) -> HloModule:
    """Returns the module without computations that nothing runs."""
    waiting, used = [module.entry], set[int]()
    while waiting:
        number = waiting.pop()
        if number not in used:
            used.add(number)
            waiting += [callee for inst in module.computations[number].instructions for callee in inst.called]
    new = {number: position for position, number in enumerate(sorted(used))}
    computations = []
    for number in new:
        body = module.computations[number]
        instructions = tuple(
            replace(inst, called=tuple(new[callee] for callee in inst.called)) if inst.called else inst
            for inst in body.instructions
        )
        computations.append(replace(body, instructions=instructions))
    return HloModule(module.name, tuple(computations), new[module.entry])
