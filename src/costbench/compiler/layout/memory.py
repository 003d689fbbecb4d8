"""Estimates the peak main memory of a computation with assigned layouts, padding included.

The estimate approximates a buffer assignment: arguments and constants stay in memory all the time; an array
that a kernel writes lives until the last kernel that reads it, or to the end if the computation returns it or
passes it to a loop, a call or a tuple.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from costbench.compiler.fusion.rules import is_free
from costbench.compiler.layout.compile import LaidOutComputation
from costbench.compiler.tiled_memory import padded_bytes
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode

STAYING = frozenset({Opcode.PARAMETER, Opcode.CONSTANT})
"""Opcodes whose values are in memory all the time."""
PASSING_ON = frozenset({Opcode.GET_TUPLE_ELEMENT, Opcode.OPT_BARRIER})
"""Opcodes whose results are their operand's buffers."""
TAKING_OVER = frozenset({Opcode.TUPLE, Opcode.WHILE, Opcode.CALL, Opcode.CONDITIONAL})
"""Opcodes that keep the buffers of their operands until the computation ends."""


def peak_bytes(part: LaidOutComputation) -> int:
    """Returns the most bytes in memory at one time while the computation runs, callees not counted."""
    body = part.body
    outputs, inputs = part.arrays.outputs, part.arrays.inputs
    made = np.repeat(np.arange(len(part.hashes)), np.diff(part.arrays.outputs_offsets))
    read = np.repeat(np.arange(len(part.hashes)), np.diff(part.arrays.inputs_offsets))
    first = dict(zip(outputs.tolist(), made.tolist(), strict=True))
    last = dict(first)
    for position, kernel in zip(inputs.tolist(), read.tolist(), strict=True):
        source = _source(body, position, first)
        if source in last:
            last[source] = max(last[source], kernel)
    for position in _handed_over(body):
        source = _source(body, position, first)
        if source in last:
            last[source] = len(part.hashes)
    change = np.zeros(len(part.hashes) + 2, dtype=np.int64)
    for position, begin in first.items():
        size = padded_bytes(body.instructions[position].shape)
        change[begin] += size
        change[last[position] + 1] -= size
    staying = sum(padded_bytes(inst.shape) for inst in body.instructions if inst.opcode in STAYING)
    return staying + int(change.cumsum().max())


def _source(body: HloComputation, position: int, made: dict[int, int]) -> int:
    """Returns the value whose buffer an instruction's result aliases."""
    while position not in made:
        inst = body.instructions[position]
        if not inst.operands or not (inst.opcode in PASSING_ON or is_free(body, inst)):
            break
        position = inst.operands[0]
    return position


def _handed_over(body: HloComputation) -> Iterator[int]:
    yield body.root
    for inst in body.instructions:
        if inst.opcode in TAKING_OVER:
            yield from inst.operands
