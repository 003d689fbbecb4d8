"""Vectors that do not fit into registers: stores and loads that the compiler adds to a block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, Bool
from costbench.execution.compiled import compiled
from costbench_schedules.devices.processor import Processor
from costbench_schedules.llvm.features import NONE, StaticFeatures
from costbench_schedules.llvm.operations import KINDS

_MAX_REGISTERS = 4096
_IN_MEMORY, _CLEAN, _DIRTY, _PENDING = 0, 1, 2, 3
"""States of a value: in memory; in registers; in registers and newer than in memory; not computed yet."""


class _Values(NamedTuple):
    """A program's values, and what is known of them while a block is gone through.

    Attributes:
        blocks, starts, operands, sources, results: see `StaticFeatures`.
        weights: registers of each value.
        leaves: whether it is used in another block or in another iteration.
        next_use: instruction that reads it next; the block's end if it leaves, one more if nothing does.
        state: see `_IN_MEMORY`.
        registers: values in registers.
    """

    blocks: I64
    starts: I64
    operands: I64
    sources: I64
    results: I64
    weights: I64
    leaves: Bool
    next_use: I64
    state: I64
    registers: I64


def spills(static: StaticFeatures, processor: Processor) -> I64:
    """Returns for each block [b, 2] the loads and stores of vectors that do not fit into registers.

    Registers are given away as Belady does, the value whose next use is farthest first; values that enter a
    block are in registers as far as they fit. A loaded value that is used once is an operand in memory, and
    one that is broadcast from memory is, too.
    """
    weights = vector_registers(static, processor.core.vector_bits)
    block_of = np.repeat(np.arange(len(static.blocks) - 1), np.diff(static.blocks))
    user = block_of[np.repeat(np.arange(len(static.kinds)), np.diff(static.starts))]
    made_in = np.full(static.num_values, NONE)
    has_result = static.results != NONE
    made_in[static.results[has_result]] = block_of[has_result]
    leaves = np.zeros(static.num_values, dtype=np.bool_)
    away = (static.sources != NONE) | (made_in[static.operands] != user)
    leaves[static.operands[away]] = True
    counts = np.zeros((len(static.blocks) - 1, 2), dtype=np.int64)
    _all_blocks(
        _Values(
            static.blocks,
            static.starts,
            static.operands,
            static.sources,
            static.results,
            weights,
            leaves,
            np.full(static.num_values, NONE, dtype=np.int64),
            np.zeros(static.num_values, dtype=np.int64),
            np.zeros(_MAX_REGISTERS, dtype=np.int64),
        ),
        processor.core.vector_registers,
        counts,
    )
    return counts


def vector_registers(static: StaticFeatures, vector_bits: int) -> I64:
    """Returns the vector registers of each value: 0 for integers and operands in memory."""
    lengths = np.diff(static.starts)
    uses = np.bincount(static.operands, minlength=static.num_values)
    is_phi = np.zeros(len(static.kinds), dtype=np.bool_)
    is_phi[lengths > 0] = static.sources[static.starts[:-1][lengths > 0]] != NONE
    once = uses[np.maximum(static.results, 0)] < 2
    in_place = (static.kinds == KINDS.index("load")) & once
    in_place |= (static.kinds == KINDS.index("free")) & ~is_phi
    held = (static.results != NONE) & (static.shapes[:, 3] == 1) & ~in_place
    bits = static.shapes[held, 0] * static.shapes[held, 1]
    registers = np.zeros(static.num_values, dtype=np.int64)
    registers[static.results[held]] = np.maximum(1, -(-bits // vector_bits))
    return registers


@compiled
def _all_blocks(values: _Values, room: int, counts: I64) -> None:
    for block in range(len(values.blocks) - 1):
        begin, end = values.blocks[block], values.blocks[block + 1]
        after = np.empty(values.starts[end] - values.starts[begin], dtype=np.int64)
        if _link_uses(values, begin, end, after) > room:
            _spill_block(values, room, begin, end, after, counts[block])
        for at in range(values.starts[begin], values.starts[end]):
            values.next_use[values.operands[at]] = -1
            values.state[values.operands[at]] = _IN_MEMORY
        for instruction in range(begin, end):
            if values.results[instruction] >= 0:
                values.next_use[values.results[instruction]] = -1
                values.state[values.results[instruction]] = _IN_MEMORY


@compiled
def _link_uses(values: _Values, begin: int, end: int, after: I64) -> int:
    """Fills in `after`, the next use after each operand, and `next_use`; returns registers of all read."""
    total = 0
    for instruction in range(end - 1, begin - 1, -1):
        for at in range(values.starts[instruction + 1] - 1, values.starts[instruction] - 1, -1):
            value = values.operands[at]
            if values.weights[value] == 0 or values.sources[at] != -1:
                continue
            if values.next_use[value] < 0:
                total += values.weights[value]
                values.next_use[value] = end if values.leaves[value] else end + 1
            after[at - values.starts[begin]] = values.next_use[value]
            values.next_use[value] = instruction
    return total


@compiled
def _spill_block(values: _Values, room: int, begin: int, end: int, after: I64, counts: I64) -> None:
    """Adds the loads and stores of a block to `counts`."""
    first = values.starts[begin]
    for instruction in range(begin, end):
        if values.results[instruction] >= 0 and not _is_phi(values, instruction):
            values.state[values.results[instruction]] = _PENDING
    num, used = _entering(values, begin, end, room)
    for instruction in range(begin, end):
        for at in range(values.starts[instruction], values.starts[instruction + 1]):
            value = values.operands[at]
            if values.weights[value] == 0 or values.sources[at] != -1:
                continue
            values.next_use[value] = after[at - first]
            if values.state[value] == _IN_MEMORY:
                counts[0] += values.weights[value]
                if values.next_use[value] <= end:
                    values.state[value] = _CLEAN
                    num, used = _keep(values, value, num, used, room, end, counts)
            elif values.next_use[value] > end:
                num, used = _drop(values, value, num, used)
        value = values.results[instruction]
        # A phi is where the value of the last iteration is: in a register, or in memory.
        if value >= 0 and values.weights[value] and not _is_phi(values, instruction):
            if values.next_use[value] < 0:
                values.next_use[value] = end if values.leaves[value] else end + 1
            values.state[value] = _DIRTY
            num, used = _keep(values, value, num, used, room, end, counts)


@compiled
def _is_phi(values: _Values, instruction: int) -> bool:
    at = values.starts[instruction]
    return bool(at < values.starts[instruction + 1] and values.sources[at] != -1)


@compiled
def _entering(values: _Values, begin: int, end: int, room: int) -> tuple[int, int]:
    """Keeps the values that enter a block as far as they fit; returns how many, and their registers."""
    num, used = 0, 0
    for at in range(values.starts[begin], values.starts[end]):
        value = values.operands[at]
        needs = values.weights[value]
        if needs and values.sources[at] == -1 and values.state[value] == _IN_MEMORY and used + needs <= room:
            values.state[value] = _CLEAN
            values.registers[num] = value
            num, used = num + 1, used + needs
    return num, used


@compiled
def _keep(
    values: _Values, value: int, num: int, used: int, room: int, end: int, counts: I64
) -> tuple[int, int]:
    """Puts a value into registers; those used last leave, and are stored if memory does not have them."""
    num, used = num + 1, used + values.weights[value]
    values.registers[num - 1] = value
    while used > room and num > 1:
        victim = 0
        for slot in range(1, num - 1):
            if values.next_use[values.registers[slot]] > values.next_use[values.registers[victim]]:
                victim = slot
        spilled = values.registers[victim]
        if values.state[spilled] == _DIRTY and values.next_use[spilled] <= end:
            counts[1] += values.weights[spilled]
        # The value itself stays the last one, which is not a victim.
        values.registers[victim], values.registers[num - 2] = values.registers[num - 2], spilled
        values.registers[num - 2] = value
        values.state[spilled] = _IN_MEMORY
        num, used = num - 1, used - values.weights[spilled]
    return num, used


@compiled
def _drop(values: _Values, value: int, num: int, used: int) -> tuple[int, int]:
    for slot in range(num):
        if values.registers[slot] == value:
            values.registers[slot] = values.registers[num - 1]
            values.state[value] = _IN_MEMORY
            return num - 1, used - values.weights[value]
    return num, used
