"""Whole programs: computations of instructions, checked once when they are made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from costbench.errors import HloError
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.operand_checks import operand_problem
from costbench.hlo.shape import Shape

_ANY = -1
_NUM_OPERANDS: dict[Opcode, int] = {
    Opcode.PARAMETER: 0,
    Opcode.CONSTANT: 0,
    Opcode.IOTA: 0,
    Opcode.CONVOLUTION: 2,
    Opcode.DOT: 2,
    Opcode.BROADCAST: 1,
    Opcode.RESHAPE: 1,
    Opcode.TRANSPOSE: 1,
    Opcode.SLICE: 1,
    Opcode.REVERSE: 1,
    Opcode.PAD: 2,
    Opcode.SELECT: 3,
    Opcode.CLAMP: 3,
    Opcode.GATHER: 2,
    Opcode.SELECT_AND_SCATTER: 3,
    Opcode.GET_TUPLE_ELEMENT: 1,
    Opcode.COPY: 1,
    Opcode.CONVERT: 1,
    Opcode.ADD: 2,
    Opcode.MULTIPLY: 2,
    Opcode.SUBTRACT: 2,
    Opcode.DIVIDE: 2,
    Opcode.MAXIMUM: 2,
    Opcode.MINIMUM: 2,
    Opcode.COMPARE: 2,
    Opcode.WHILE: 1,
}
_NUM_CALLED: dict[Opcode, int] = {
    Opcode.WHILE: 2,
    Opcode.FUSION: 1,
    Opcode.CALL: 1,
    Opcode.REDUCE: 1,
    Opcode.REDUCE_WINDOW: 1,
    Opcode.SCATTER: 1,
    Opcode.SELECT_AND_SCATTER: 2,
    Opcode.SORT: 1,
    Opcode.MAP: 1,
}


@dataclass(frozen=True)
class HloComputation:
    """A function: instructions in an order where operands come first, and the position of the root."""

    name: str
    instructions: tuple[Instruction, ...]
    root: int

    @property
    def root_instruction(self) -> Instruction:
        """The instruction whose value the computation returns."""
        return self.instructions[self.root]

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """Positions of the parameters, by parameter number."""
        found = [i for i, inst in enumerate(self.instructions) if inst.opcode is Opcode.PARAMETER]
        return tuple(sorted(found, key=lambda i: self.instructions[i].parameter_number))

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For every position, the positions that read it, ascending, each once."""
        users: list[list[int]] = [[] for _ in self.instructions]
        for position, inst in enumerate(self.instructions):
            for operand in dict.fromkeys(inst.operands):
                users[operand].append(position)
        return tuple(tuple(u) for u in users)


@dataclass(frozen=True)
class HloModule:
    """A program: computations (callees before callers), and the position of the entry computation."""

    name: str
    computations: tuple[HloComputation, ...]
    entry: int

    @property
    def entry_computation(self) -> HloComputation:
        """The computation that runs first."""
        return self.computations[self.entry]

    @property
    def num_instructions(self) -> int:
        """Instructions of all computations together."""
        return sum(len(c.instructions) for c in self.computations)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Index of each computation's first instruction, all laid end to end (TpuGraphs' node ids)."""
        offsets = [0]
        for computation in self.computations:
            offsets.append(offsets[-1] + len(computation.instructions))
        return tuple(offsets)

    def verify(self) -> HloModule:
        """Checks every invariant that later stages rely on, and returns the module itself.

        Raises:
            HloError: naming the module, the instruction and what was expected.
        """
        if not self.computations:
            raise HloError("no computations", where=self.name, expected="at least the entry computation")
        if not 0 <= self.entry < len(self.computations):
            raise HloError(f"entry computation {self.entry} does not exist", where=self.name)
        for position, computation in enumerate(self.computations):
            self._verify_computation(position, computation)
        return self

    def _verify_computation(self, position: int, computation: HloComputation) -> None:
        if not 0 <= computation.root < len(computation.instructions):
            raise HloError(
                f"root {computation.root} does not exist",
                where=self.name,
                field=computation.name,
                expected=f"a position below {len(computation.instructions)}",
            )
        numbers = [computation.instructions[p].parameter_number for p in computation.parameters]
        if numbers != list(range(len(numbers))):
            raise HloError(
                f"parameter numbers {numbers}",
                where=self.name,
                field=computation.name,
                expected="0, 1, 2, ... each once",
            )
        for index, inst in enumerate(computation.instructions):
            problem = _instruction_problem(index, inst) or self._called_problem(position, inst)
            problem = problem or _shape_problem(inst.shape)
            problem = problem or operand_problem(
                inst, [computation.instructions[o].shape for o in inst.operands]
            )
            if problem:
                raise HloError(problem, where=self.name, field=f"{computation.name}/{inst.name}")

    def _called_problem(self, position: int, inst: Instruction) -> str | None:
        for callee in inst.called:
            if not 0 <= callee < position:
                return f"calls computation {callee}, expected one stored before {position}"
        want = _NUM_CALLED.get(inst.opcode)
        if want is not None and len(inst.called) != want:
            return f"{inst.opcode.xla_name} calls {len(inst.called)} computations, expected {want}"
        return None


def _instruction_problem(index: int, inst: Instruction) -> str | None:
    for operand in inst.operands:
        if not 0 <= operand < index:
            return f"operand {operand} is not stored before its user at {index}"
    want = _NUM_OPERANDS.get(inst.opcode, _ANY)
    if want != _ANY and len(inst.operands) != want:
        return f"{inst.opcode.xla_name} has {len(inst.operands)} operands, expected {want}"
    if inst.opcode is Opcode.GATHER and inst.gather is None:
        return "gather without dimension numbers"
    if inst.opcode is Opcode.SCATTER and inst.scatter is None:
        return "scatter without dimension numbers"
    for dimension in inst.window:
        if dimension.size < 0 or dimension.stride < 1 or dimension.base_dilation < 1:
            return f"impossible window {dimension}"
    return None


def _shape_problem(shape: Shape) -> str | None:
    for leaf in shape.leaves():
        if any(size < 0 for size in leaf.dimensions):
            return f"negative size in shape {leaf}"
        order = leaf.minor_to_major
        if order and sorted(order) != list(range(leaf.rank)):
            return f"layout {order} is no permutation of {leaf.rank} axes"
    return None
