"""Inlines what a compiler fused or made asynchronous: programs become plain instructions again.

A dump of a compiled program holds decisions of the compiler that made it: which instructions are fused, and
what runs at the same time as something else. Programs are compiled here again, from plain instructions:

* a fusion is replaced by its body, at any depth;
* `async-start`, `async-update` and `async-done` by the computation that they run, where `async-done` is;
* `all-reduce-start`, `all-gather-start`, `collective-permute-start` and their `done` by the collective;
* `copy-start` and `copy-done` by a copy. One between memory spaces that keeps the layout becomes no kernel:
  the kernel that reads the value transfers it from main memory, tile by tile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from costbench.errors import HloError
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.limits import MAX_INSTRUCTIONS, MAX_NESTING

_O = Opcode
_PAIRS = {
    _O.ASYNC_START: _O.ASYNC_DONE,
    _O.COPY_START: _O.COPY_DONE,
    _O.ALL_REDUCE_START: _O.ALL_REDUCE_DONE,
    _O.ALL_GATHER_START: _O.ALL_GATHER_DONE,
    _O.COLLECTIVE_PERMUTE_START: _O.COLLECTIVE_PERMUTE_DONE,
}
_PLAIN = {
    _O.COPY_START: _O.COPY,
    _O.ALL_REDUCE_START: _O.ALL_REDUCE,
    _O.ALL_GATHER_START: _O.ALL_GATHER,
    _O.COLLECTIVE_PERMUTE_START: _O.COLLECTIVE_PERMUTE,
}
_COMPILED = frozenset({_O.FUSION, *_PAIRS})


@dataclass(frozen=True)
class InlinedModule:
    """A module without fusions and asynchronous pairs, and what became of the instructions of the original.

    Attributes:
        module: the module; the original itself where there was nothing to inline.
        values: position of the value of every instruction of the original, by computation and position.
        bounds: half-open range of the positions that an instruction became, likewise; empty for one that
            became another's.
    """

    module: HloModule
    values: tuple[tuple[int, ...], ...]
    bounds: tuple[tuple[tuple[int, int], ...], ...]


def inline_fusions(module: HloModule, max_instructions: int = MAX_INSTRUCTIONS) -> HloModule:
    """Returns the module without fusions and asynchronous pairs in any computation that runs.

    See `trace_inlining`, which also says what became of each instruction.
    """
    return trace_inlining(module, max_instructions).module


def trace_inlining(module: HloModule, max_instructions: int = MAX_INSTRUCTIONS) -> InlinedModule:
    """Inlines fusions and asynchronous pairs in all computations that run.

    Computations stay where they are (bodies of fusions, now unused, too): positions of callees do not move.
    A get-tuple-element of an inlined tuple becomes the member itself. A start whose value is read by anything
    but its update and done stays as it is. A module without any of this is returned itself.

    Args:
        module: the module.
        max_instructions: number of instructions that it may have then.

    Raises:
        HloError: if there would be more, which fusions that call others twice reach soon, or if fusions lie
            deeper within fusions than `costbench.limits` say.
    """
    inlined = {
        callee
        for computation in module.computations
        for inst in computation.instructions
        if inst.opcode in (_O.FUSION, _O.ASYNC_START)
        for callee in inst.called
    } - {module.entry}
    _check_size(module, inlined, max_instructions)
    computations, values, bounds = [], [], []
    for index, computation in enumerate(module.computations):
        is_plain = not any(inst.opcode in _COMPILED for inst in computation.instructions)
        if index in inlined or is_plain:
            positions = list(range(len(computation.instructions)))
            ends = [position + 1 for position in positions]
            computations.append(computation)
        else:
            flat: list[Instruction] = []
            ends = []
            positions = _emit(module, computation, None, flat, ends)
            root = positions[computation.root]
            computations.append(HloComputation(computation.name, tuple(flat), root))
        values.append(tuple(positions))
        bounds.append(tuple(zip([0, *ends[:-1]], ends, strict=True)))
    if all(new is old for new, old in zip(computations, module.computations, strict=True)):
        return InlinedModule(module, tuple(values), tuple(bounds))
    flat_module = replace(module, computations=tuple(computations)).verify()
    return InlinedModule(flat_module, tuple(values), tuple(bounds))


def _check_size(module: HloModule, inlined: Collection[int], max_instructions: int) -> None:
    """Refuses a module that is too large or deep once computations are inlined wherever they are called."""
    sizes: list[int] = []
    levels: list[int] = []
    total = 0
    for index, computation in enumerate(module.computations if inlined else ()):
        bodies = [
            inst.called[0] for inst in computation.instructions if inst.opcode in (_O.FUSION, _O.ASYNC_START)
        ]
        size = len(computation.instructions) + sum(sizes[body] for body in bodies)
        sizes.append(min(size, max_instructions + 1))
        levels.append(1 + max((levels[body] for body in bodies), default=-1))
        total += 0 if index in inlined else sizes[index]
        if total > max_instructions:
            problem, expected = "too many instructions with fusions inlined", f"at most {max_instructions}"
            raise HloError(problem, where=module.name, field=computation.name, expected=expected)
        if levels[index] > MAX_NESTING:
            problem, expected = "fusions within fusions", f"at most {MAX_NESTING} levels"
            raise HloError(problem, where=module.name, field=computation.name, expected=expected)


def _emit(
    module: HloModule,
    computation: HloComputation,
    arguments: tuple[int, ...] | None,
    flat: list[Instruction],
    ends: list[int] | None = None,
) -> list[int]:
    """Appends a computation's instructions to `flat`; returns the new position of each.

    The position of an asynchronous start is that of its first operand: no instruction that stays reads it.
    The length of `flat` after each instruction is appended to `ends`.
    """
    positions: list[int] = []
    starts = dict(_starts(computation))
    for position, inst in enumerate(computation.instructions):
        if ends is not None and position:
            ends.append(len(flat))
        operands = tuple(positions[o] for o in inst.operands)
        if arguments is not None and inst.opcode is _O.PARAMETER:
            positions.append(arguments[inst.parameter_number])
        elif inst.opcode is _O.FUSION:
            positions.append(_emit_call(module, inst, operands, flat))
        elif starts.get(position) == position:
            positions.append(operands[0] if operands else -1)
        elif position in starts and inst.opcode is _O.ASYNC_UPDATE:
            positions.append(operands[0])
        elif position in starts:
            start = computation.instructions[starts[position]]
            operands = tuple(positions[o] for o in start.operands)
            if start.opcode is _O.ASYNC_START:
                positions.append(_emit_call(module, start, operands, flat))
            else:
                plain = start.rewire(inst.shape, operands, _controls(start, positions))
                flat.append(replace(plain, name=inst.name, opcode=_PLAIN[start.opcode]))
                positions.append(len(flat) - 1)
        elif inst.opcode is _O.GET_TUPLE_ELEMENT and flat[operands[0]].opcode is _O.TUPLE:
            positions.append(flat[operands[0]].operands[inst.tuple_index])
        else:
            flat.append(inst.rewire(inst.shape, operands, _controls(inst, positions)))
            positions.append(len(flat) - 1)
    if ends is not None:
        ends.append(len(flat))
    return positions


def _emit_call(
    module: HloModule, inst: Instruction, operands: tuple[int, ...], flat: list[Instruction]
) -> int:
    """Appends the computation that an instruction calls; returns the position of what it returns."""
    body = module.computations[inst.called[0]]
    return _emit(module, body, operands, flat)[body.root]


def _controls(inst: Instruction, positions: Sequence[int]) -> tuple[int, ...]:
    return tuple(positions[c] for c in inst.control_predecessors if positions[c] >= 0)


def _starts(computation: HloComputation) -> Iterator[tuple[int, int]]:
    """Yields the members of asynchronous pairs that can be inlined, each with its start."""
    for position, inst in enumerate(computation.instructions):
        if inst.opcode in _PAIRS and (members := _members(computation, position)) is not None:
            yield from ((member, position) for member in members)


def _members(computation: HloComputation, start: int) -> list[int] | None:
    """Returns a start, its updates and its done; None if anything else reads it."""
    instructions, members, pending = computation.instructions, [start], [start]
    done = _PAIRS[instructions[start].opcode]
    while pending:
        member = pending.pop()
        users = computation.users[member]
        if member == computation.root or not users:
            return None
        for user in users:
            if instructions[user].opcode is _O.ASYNC_UPDATE:
                pending.append(user)
            elif instructions[user].opcode is not done:
                return None
            members.append(user)
    return members
