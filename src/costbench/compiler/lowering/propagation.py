"""Finds the accesses of all values of a kernel by propagating that of its anchor through every instruction.

Accesses propagate forwards to users and backwards to operands until nothing new is reached. A broadcast's
operand and a reduction's result have fewer axes than the other side, so at first accesses cross those two
only in the direction that loses axes, and the other way only when nothing else is left. A value with several
uses ends up with an access that covers them all.

Where several accesses reach a value the first one counts, so the order of the loops below is part of the
result. A rule that has not been applied to an access before stops the search: its key is left in the state,
and the caller starts the kernel again once `LoweringTables.fill` has stored the result. This code only reads
and writes integers: a kernel of ten instructions takes about a microsecond.
"""

from __future__ import annotations

from typing import NamedTuple

from costbench.arrays import I64
from costbench.compiler.lowering.tables import (
    BROADCASTS,
    INDICES,
    MISSING,
    NONE,
    REDUCES,
    RESULT,
    SCATTERS,
    WANTED,
    WIDER,
    LoweringArrays,
    key_of,
    slot_of,
)
from costbench.execution.compiled import compiled

# Entries of `Search.state`.
STAMP, MISSING_KEY, NUM_UNREACHED, NUM_UNSPREAD = range(4)
_OUTSIDE = -3


class Search(NamedTuple):
    """Buffers for propagation in a computation of n instructions, reused for every kernel.

    Instead of clearing arrays between kernels, each kernel has a number, its stamp: an entry is valid only if
    it holds the stamp of the kernel that is being lowered.

    Attributes:
        state: [4]: stamp, missing key or 0, lengths of the last two arrays.
        inside: [n], stamp of inputs and instructions.
        made: [n], stamp of instructions.
        known: [n], accesses so far, by number, or NONE.
        by_use: [n], stamp of values whose access follows from their uses.
        needed: [n], access that the uses seen so far need, or NONE.
        final: [n], final accesses.
        reached: [n], stamp of instructions that depend on a contraction.
        unreached: [n], instructions that may still lack an access.
        unspread: [n], instructions whose operands may still lack one, last first.
    """

    state: I64
    inside: I64
    made: I64
    known: I64
    by_use: I64
    needed: I64
    final: I64
    reached: I64
    unreached: I64
    unspread: I64


@compiled
def look_up(tables: LoweringArrays, search: Search, kind: int, first: int, second: int) -> int:
    """Returns the result of a rule; if it has not been applied yet, MISSING, with its key in the state."""
    key = key_of(kind, first, second)
    slot = slot_of(tables.keys, key)
    if tables.keys[slot] == 0:
        search.state[MISSING_KEY] = key
        return MISSING
    return int(tables.results[slot])


@compiled
def start_kernel(search: Search, inputs: I64, instructions: I64) -> None:
    """Prepares the buffers for a kernel: a new stamp, and nothing known about its values."""
    search.state[STAMP] += 1
    stamp, count = search.state[STAMP], len(instructions)
    for position in inputs:
        search.inside[position], search.known[position] = stamp, NONE
    for i in range(count):
        position = instructions[i]
        search.inside[position], search.made[position], search.known[position] = stamp, stamp, NONE
        search.unreached[i], search.unspread[count - 1 - i] = position, position
    search.state[NUM_UNREACHED], search.state[NUM_UNSPREAD] = count, count


@compiled
def propagate(
    tables: LoweringArrays, search: Search, inputs: I64, instructions: I64, anchor: int, access: int
) -> bool:
    """Finds the access of every instruction and input of the kernel that is being lowered.

    Returns:
        False if the result of a rule is missing; `final` is filled in otherwise.
    """
    search.inside[anchor] = search.state[STAMP]
    search.known[anchor] = access
    _settle(tables, search)
    if search.state[NUM_UNREACHED] and not search.state[MISSING_KEY]:
        _adopt_alike(tables, search, anchor, access)
        _forwards(tables, search, False)
        if not search.state[MISSING_KEY]:
            _settle(tables, search)
    if search.state[MISSING_KEY]:
        return False
    _serve_all_uses(tables, search, inputs, instructions)
    search.final[anchor] = access
    return bool(search.state[MISSING_KEY] == 0)


@compiled
def _settle(tables: LoweringArrays, search: Search) -> None:
    """Propagates accesses forwards and backwards until nothing new is reached."""
    any_found = True
    while any_found:
        any_found = _forwards(tables, search, True)
        if not search.state[MISSING_KEY]:
            any_found |= _backwards(tables, search)
        any_found &= search.state[MISSING_KEY] == 0


@compiled
def _known(search: Search, position: int) -> int:
    """Returns the access of a value so far, NONE, or _OUTSIDE for a value that is not in the kernel."""
    return int(search.known[position]) if search.inside[position] == search.state[STAMP] else _OUTSIDE


@compiled
def _slots(tables: LoweringArrays, position: int) -> range:
    """Returns the slots of an instruction's operands."""
    return range(tables.operands_offsets[position], tables.operands_offsets[position + 1])


@compiled
def _forwards(tables: LoweringArrays, search: Search, lossless: bool) -> bool:
    """Propagates accesses to users once; returns whether that reached anything."""
    num_left, any_found = 0, False
    for i in range(search.state[NUM_UNREACHED]):
        position = search.unreached[i]
        if search.known[position] != NONE:
            continue
        result = NONE
        if not (lossless and tables.values[position].flow == BROADCASTS):
            for slot in _slots(tables, position):
                source = _known(search, tables.operands[slot])
                if source >= 0:
                    result = source if tables.same[slot] else look_up(tables, search, RESULT, slot, source)
                    if result != NONE:
                        break
        if result == MISSING:
            return False
        if result == NONE:
            search.unreached[num_left] = position
            num_left += 1
        else:
            search.known[position] = result
            any_found = True
    search.state[NUM_UNREACHED] = num_left
    return any_found


@compiled
def _updates_of(tables: LoweringArrays, search: Search, position: int) -> int:
    """Returns the access of a scatter's updates if that is known."""
    if tables.values[position].flow != SCATTERS:
        return NONE
    return max(_known(search, tables.operands[tables.operands_offsets[position + 1] - 1]), NONE)


@compiled
def _use(tables: LoweringArrays, search: Search, position: int, access: int, updates: int, slot: int) -> int:
    """Returns the access of an operand that a value with the given access needs.

    `updates` is the access of a scatter's updates or NONE.
    """
    if tables.same[slot]:
        return access
    if updates != NONE and slot == tables.operands_offsets[position] + 1:
        return look_up(tables, search, INDICES, position, updates)
    return look_up(tables, search, WANTED, slot, access)


@compiled
def _backwards(tables: LoweringArrays, search: Search) -> bool:
    """Propagates accesses to operands once; returns whether that reached anything."""
    num_left, any_found = 0, False
    for i in range(search.state[NUM_UNSPREAD]):
        position = search.unspread[i]
        access = search.known[position]
        if access == NONE:
            search.unspread[num_left] = position
            num_left += 1
            continue
        if tables.values[position].flow == REDUCES:
            continue
        updates = _updates_of(tables, search, position)
        for slot in _slots(tables, position):
            operand = tables.operands[slot]
            if _known(search, operand) != NONE:
                continue
            use = _use(tables, search, position, access, updates, slot)
            if use == MISSING:
                return False
            search.known[operand] = use
            any_found = True
    search.state[NUM_UNSPREAD] = num_left
    return any_found


@compiled
def _adopt_alike(tables: LoweringArrays, search: Search, anchor: int, access: int) -> None:
    """Gives the anchor's access to values of its shape and memory order that propagation did not reach."""
    for i in range(search.state[NUM_UNREACHED]):
        if tables.values[search.unreached[i]].order == tables.values[anchor].order:
            search.known[search.unreached[i]] = access


@compiled
def _serve_all_uses(tables: LoweringArrays, search: Search, inputs: I64, instructions: I64) -> None:
    """Sets final accesses: instructions keep theirs, inputs get one that covers the needs of all users."""
    stamp = search.state[STAMP]
    for position in inputs:
        search.by_use[position], search.needed[position] = stamp, NONE
    for i in range(search.state[NUM_UNREACHED]):
        search.by_use[search.unreached[i]], search.needed[search.unreached[i]] = stamp, NONE
    for position in instructions[::-1]:
        access = search.known[position]
        if access == NONE:
            access = search.needed[position]
            if access == NONE:
                access = tables.values[position].whole
        search.final[position] = access
        updates = _updates_of(tables, search, position)
        for slot in _slots(tables, position):
            operand = tables.operands[slot]
            if search.by_use[operand] != stamp:
                continue
            use = search.known[operand] if tables.values[position].flow == REDUCES else NONE
            if use == NONE:
                use = _use(tables, search, position, access, updates, slot)
            other = search.needed[operand]
            if use != MISSING and other not in (NONE, use):
                use = look_up(tables, search, WIDER, other, use)
            if use == MISSING:
                return
            search.needed[operand] = use
    for position in inputs:
        use = search.needed[position]
        search.final[position] = tables.values[position].whole if use == NONE else use
