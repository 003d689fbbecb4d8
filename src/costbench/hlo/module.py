"""Whole programs: `HloModule` and its computations, with the checks that every program read must pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from costbench.errors import HloError
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.verify.instructions import find_problem
from costbench.hlo.verify.problems import Context, Problem, Signature


@dataclass(frozen=True)
class HloComputation:
    """A function: instructions in an order where operands come first, and the position of the root."""

    name: str
    instructions: tuple[Instruction, ...]
    root: int

    @property
    def root_instruction(self) -> Instruction:
        """Returns the instruction whose value the computation returns."""
        return self.instructions[self.root]

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """Positions of the parameters, by parameter number."""
        positions = [i for i, inst in enumerate(self.instructions) if inst.opcode is Opcode.PARAMETER]
        return tuple(sorted(positions, key=lambda i: self.instructions[i].parameter_number))

    @cached_property
    def opcodes(self) -> tuple[int, ...]:
        """Codes of the instructions' opcodes, by position."""
        return tuple(int(inst.opcode) for inst in self.instructions)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """Returns for every position the positions that read it, ascending, each once."""
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
        """Returns the computation that runs first."""
        return self.computations[self.entry]

    @property
    def num_instructions(self) -> int:
        """Instructions of all computations together."""
        return sum(len(c.instructions) for c in self.computations)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Returns the index of each computation's first instruction among all (TpuGraphs' node ids)."""
        offsets = [0]
        for computation in self.computations:
            offsets.append(offsets[-1] + len(computation.instructions))
        return tuple(offsets)

    def verify(self, *, where: str | None = None) -> HloModule:
        """Checks every invariant that later stages rely on, and returns the module itself.

        Operands are stored before their users and callees before their callers; operands, dimension numbers,
        called computations and result shapes fit each opcode as XLA requires (`costbench.hlo.verify`).

        Args:
            where: file that the module was read from, for errors; its name where it was not read.

        Raises:
            HloError: naming the file, the instruction, its field and what was expected.
        """
        where = where or self.name
        if not self.computations:
            raise HloError("no computations", where=where, expected="at least the entry computation")
        if not 0 <= self.entry < len(self.computations):
            raise HloError(f"entry computation {self.entry} does not exist", where=where)
        signatures: list[Signature] = []
        for computation in self.computations:
            _verify_computation(computation, signatures, where)
        return self


def _verify_computation(computation: HloComputation, signatures: list[Signature], where: str) -> None:
    """Checks a computation against those stored before it, and appends its signature to theirs."""
    instructions = computation.instructions
    if not 0 <= computation.root < len(instructions):
        raise HloError(
            f"root {computation.root} does not exist",
            where=where,
            field=computation.name,
            expected=f"a position below {len(instructions)}",
        )
    numbers = [instructions[p].parameter_number for p in computation.parameters]
    if numbers != list(range(len(numbers))):
        raise HloError(
            f"parameter numbers {numbers}",
            where=where,
            field=computation.name,
            expected="0, 1, 2, ... each once",
        )
    for index, inst in enumerate(instructions):
        problem = _order_problem(index, inst, len(signatures))
        if problem is None:
            operands = [instructions[o].shape for o in inst.operands]
            problem = find_problem(inst, Context(operands, [signatures[c] for c in inst.called]))
        if problem is not None:
            raise HloError(
                problem.actual,
                where=where,
                field=f"{computation.name}/{inst.name}",
                expected=problem.expected,
            )
    parameters = tuple(instructions[p].shape for p in computation.parameters)
    signatures.append(Signature(parameters, computation.root_instruction.shape))


def _order_problem(index: int, inst: Instruction, computation: int) -> Problem | None:
    for operand in inst.operands:
        if not 0 <= operand < index:
            return Problem(f"operand at {operand}", f"one stored before its user at {index}")
    for callee in inst.called:
        if not 0 <= callee < computation:
            return Problem(f"calls computation {callee}", f"one stored before {computation}")
    return None
