"""Amounts of work (operation counts) of a kernel's instructions, summed per box independently of tile size.

The work of an instruction depends on its program alone, not on the kernel that it is fused into. So it is
kept in a table per computation, and a kernel only adds up rows of the table. The work of a contraction
follows from its iteration space and is computed once per space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.lowering.iteration_space import IterationSpace
from costbench.compiler.lowering.packed import AFTER_CONTRACTION, INPUT, PackedNest, unpacked
from costbench.execution.compiled import compiled
from costbench.hlo.module import HloComputation, HloModule

Amounts = tuple[float, ...]
Describe = Callable[[HloModule, HloComputation, int], Sequence[tuple[int, Amounts]]]
"""Returns for an instruction (program, computation, position) at most two values whose tiles are worked on,
and the amounts of work on each."""


class WorkModel(NamedTuple):
    """How a cost model describes the work of instructions.

    Attributes:
        name: name under which derived values are cached.
        num_amounts: number of kinds of work.
        describe: returns the work of an instruction.
    """

    name: str
    num_amounts: int
    describe: Describe


MAX_SUBJECTS = 2
EVERY_ITERATION, EVERY_RESULT = range(2)
"""When work runs: the first axis of what `work_per_box` returns."""
_UNKNOWN, _NONE = -2, -1


class WorkTable:
    """The work of the instructions of one computation, described when a kernel first needs it.

    Args:
        module: the program.
        body: the computation.
        model: the cost model whose kinds of work are described.

    Attributes:
        subjects: int64 [n, 2], positions of the values that each instruction works on.
        amounts: float64 [n, 2, num_amounts].
    """

    def __init__(self, module: HloModule, body: HloComputation, model: WorkModel) -> None:
        num_instructions = len(body.instructions)
        self.subjects = np.full((num_instructions, MAX_SUBJECTS), _UNKNOWN, dtype=np.int64)
        self.amounts = np.zeros((num_instructions, MAX_SUBJECTS, model.num_amounts))
        self._module, self._body = module, body
        self._describe = model.describe

    def complete(self, positions: I64) -> None:
        """Describes those of the given instructions that have not been described yet."""
        for position in np.unique(positions[self.subjects[positions, 0] == _UNKNOWN]).tolist():
            work = self._describe(self._module, self._body, position)
            for number, (subject, amounts) in enumerate(work):
                self.subjects[position, number] = subject
                self.amounts[position, number] = amounts
            self.subjects[position, len(work) :] = _NONE

    def per_box(self, words: F64, instructions: Sequence[int]) -> F64:
        """Returns amounts of work summed over a kernel's instructions, [2, num_boxes, num_amounts].

        Row 0 is work of every iteration, row 1 work that needs the finished sums of a contraction.

        Args:
            words: the packed nest.
            instructions: positions of the kernel's instructions.
        """
        self.complete(np.array(instructions, dtype=np.int64))
        return _per_box(words, self.subjects, self.amounts)


class WorkTables:
    """The work tables of one computation, one for each cost model that asks.

    Args:
        module: the program.
        body: the computation.
    """

    def __init__(self, module: HloModule, body: HloComputation) -> None:
        self._module = module
        self._body = body
        self._tables: dict[str, WorkTable] = {}

    def table(self, model: WorkModel) -> WorkTable:
        """Returns the table for a cost model, created on first use."""
        if model.name not in self._tables:
            self._tables[model.name] = WorkTable(self._module, self._body, model)
        return self._tables[model.name]


@compiled
def add_up(nest: PackedNest, subjects: I64, amounts: F64, result: F64) -> None:
    """Adds the work of a kernel's instructions to `result`, [2, num_boxes, num_amounts]."""
    nodes = nest.nodes
    for node in range(len(nodes)):
        if nodes[node].kind == INPUT:
            continue
        position = nodes[node].position
        when = EVERY_RESULT if nodes[node].kind == AFTER_CONTRACTION else EVERY_ITERATION
        for number in range(MAX_SUBJECTS):
            subject = subjects[position, number]
            if subject == _NONE:
                break
            # The value is the instruction itself or an operand, which comes shortly before it.
            other = node
            while nodes[other].position != subject:
                other = other - 1 if other else len(nodes) - 1
            for kind in range(amounts.shape[2]):
                result[when, nodes[other].box, kind] += amounts[position, number, kind]


@compiled
def _per_box(words: F64, subjects: I64, amounts: F64) -> F64:
    nest = unpacked(words)
    result = np.zeros((2, len(nest.boxes) - 1, amounts.shape[2]))
    add_up(nest, subjects, amounts, result)
    return result


class Ragged(NamedTuple):
    """Arrays of different lengths end to end: array i is `values[ends[i] : ends[i + 1]]`."""

    values: F64
    ends: I64


def contraction_rows(
    spaces: Sequence[IterationSpace], name: str, describe: Callable[[IterationSpace], F64]
) -> Ragged:
    """Returns the numbers that describe the contraction of each space; an empty array without one."""
    rows = [contraction_numbers(space, name, describe) for space in spaces]
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Ragged(np.concatenate([np.zeros(0), *rows]), ends)


def contraction_numbers(space: IterationSpace, name: str, describe: Callable[[IterationSpace], F64]) -> F64:
    """Returns the numbers of one space, which are cached with it under `name`."""
    if not space.contracts:
        return np.zeros(0)
    if name not in space.derived:
        space.derived[name] = describe(space)
    return space.derived[name]


@compiled
def row_of(ragged: Ragged, number: int) -> F64:
    """Returns one of the arrays."""
    return ragged.values[ragged.ends[number] : ragged.ends[number + 1]]
