"""Accesses of all values of a kernel, found by compiled code: `lowering.propagation` over arrays.

Every function does what its namesake there does, in the same order, since where several maps reach a value
the first one counts. A map that was not asked for before stops the search: `MISSING`, and its key is noted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiler.lowering.arrays import (
    BROADCASTS,
    FLOW,
    INDICES,
    MISSING,
    NONE,
    ORDER,
    REDUCES,
    RESULT,
    SCATTERS,
    WANTED,
    WHOLE_ACCESS,
    WIDER,
    LoweringArrays,
    key_of,
    slot_of,
)
from costbench.execution.compiled import compiled

IntArray = npt.NDArray[np.int64]
# Entries of `Room.state`.
STAMP, MISSING_KEY, NUM_UNREACHED, NUM_UNSPREAD = range(4)
_OUTSIDE = -3


class Room(NamedTuple):
    """The state of one search in a computation of n instructions, used again for every kernel.

    Attributes:
        state: [4], see above; arrays that hold the stamp hold it for the kernel in work alone.
        inside: [n], stamp of inputs and instructions.
        made: [n], stamp of instructions.
        known: [n], accesses so far, by number, or NONE.
        wanted: [n], stamp of values whose access follows from their uses.
        needed: [n], what these need so far, or NONE.
        found: [n], the accesses in the end.
        reached: [n], stamp of what follows a contraction.
        unreached: [n], instructions that may still wait for an access.
        unspread: [n], those whose operands may, last first.
    """

    state: IntArray
    inside: IntArray
    made: IntArray
    known: IntArray
    wanted: IntArray
    needed: IntArray
    found: IntArray
    reached: IntArray
    unreached: IntArray
    unspread: IntArray


def new_room(num_instructions: int) -> Room:
    """Room for the kernels of a computation."""
    return Room(np.zeros(4, dtype=np.int64), *np.zeros((9, num_instructions), dtype=np.int64))


@compiled
def looked_up(a: LoweringArrays, r: Room, kind: int, first: int, second: int) -> int:
    """What is known about two numbers; MISSING, and the key noted, if nothing is."""
    key = key_of(kind, first, second)
    slot = slot_of(a.keys, key)
    if a.keys[slot] == 0:
        r.state[MISSING_KEY] = key
        return MISSING
    return int(a.values[slot])


@compiled
def enter(r: Room, inputs: IntArray, instructions: IntArray) -> None:
    """Makes the room that of a kernel."""
    r.state[STAMP] += 1
    stamp, count = r.state[STAMP], len(instructions)
    for position in inputs:
        r.inside[position], r.known[position] = stamp, NONE
    for i in range(count):
        position = instructions[i]
        r.inside[position], r.made[position], r.known[position] = stamp, stamp, NONE
        r.unreached[i], r.unspread[count - 1 - i] = position, position
    r.state[NUM_UNREACHED], r.state[NUM_UNSPREAD] = count, count


@compiled
def propagate(
    a: LoweringArrays, r: Room, inputs: IntArray, instructions: IntArray, anchor: int, access: int
) -> bool:
    """Finds the access of every instruction and input of the kernel entered; False if a map is missing."""
    r.inside[anchor] = r.state[STAMP]
    r.known[anchor] = access
    _settle(a, r)
    if r.state[NUM_UNREACHED] and not r.state[MISSING_KEY]:
        _adopt_alike(a, r, anchor, access)
        _forwards(a, r, False)
        if not r.state[MISSING_KEY]:
            _settle(a, r)
    if r.state[MISSING_KEY]:
        return False
    _serve_all_uses(a, r, inputs, instructions)
    r.found[anchor] = access
    return bool(r.state[MISSING_KEY] == 0)


@compiled
def _settle(a: LoweringArrays, r: Room) -> None:
    again = True
    while again:
        again = _forwards(a, r, True)
        if not r.state[MISSING_KEY]:
            again |= _backwards(a, r)
        again &= r.state[MISSING_KEY] == 0


@compiled
def _known(r: Room, position: int) -> int:
    return int(r.known[position]) if r.inside[position] == r.state[STAMP] else _OUTSIDE


@compiled
def _forwards(a: LoweringArrays, r: Room, lossless: bool) -> bool:
    kept, found = 0, False
    for i in range(r.state[NUM_UNREACHED]):
        position = r.unreached[i]
        if r.known[position] != NONE:
            continue
        result = NONE
        if not (lossless and a.facts[position, FLOW] == BROADCASTS):
            for slot in range(a.operands_offsets[position], a.operands_offsets[position + 1]):
                source = _known(r, a.operands[slot])
                if source >= 0:
                    result = source if a.same[slot] else looked_up(a, r, RESULT, slot, source)
                    if result != NONE:
                        break
        if result == MISSING:
            return False
        if result == NONE:
            r.unreached[kept] = position
            kept += 1
        else:
            r.known[position] = result
            found = True
    r.state[NUM_UNREACHED] = kept
    return found


@compiled
def _updates_of(a: LoweringArrays, r: Room, position: int) -> int:
    """For a scatter, the access of its updates where that is known."""
    if a.facts[position, FLOW] != SCATTERS:
        return NONE
    return max(_known(r, a.operands[a.operands_offsets[position + 1] - 1]), NONE)


@compiled
def _use(a: LoweringArrays, r: Room, value: tuple[int, int, int], slot: int) -> int:
    """What is read of an operand by a value: position, access, and for a scatter that of its updates."""
    position, access, updates = value
    if a.same[slot]:
        return access
    if updates != NONE and slot == a.operands_offsets[position] + 1:
        return looked_up(a, r, INDICES, position, updates)
    return looked_up(a, r, WANTED, slot, access)


@compiled
def _backwards(a: LoweringArrays, r: Room) -> bool:
    kept, found = 0, False
    for i in range(r.state[NUM_UNSPREAD]):
        position = r.unspread[i]
        access = r.known[position]
        if access == NONE:
            r.unspread[kept] = position
            kept += 1
            continue
        if a.facts[position, FLOW] == REDUCES:
            continue
        value = (position, access, _updates_of(a, r, position))
        for slot in range(a.operands_offsets[position], a.operands_offsets[position + 1]):
            operand = a.operands[slot]
            if _known(r, operand) != NONE:
                continue
            use = _use(a, r, value, slot)
            if use == MISSING:
                return False
            r.known[operand] = use
            found = True
    r.state[NUM_UNSPREAD] = kept
    return found


@compiled
def _adopt_alike(a: LoweringArrays, r: Room, anchor: int, access: int) -> None:
    for i in range(r.state[NUM_UNREACHED]):
        if a.facts[r.unreached[i], ORDER] == a.facts[anchor, ORDER]:
            r.known[r.unreached[i]] = access


@compiled
def _serve_all_uses(a: LoweringArrays, r: Room, inputs: IntArray, instructions: IntArray) -> None:
    stamp = r.state[STAMP]
    for position in inputs:
        r.wanted[position], r.needed[position] = stamp, NONE
    for i in range(r.state[NUM_UNREACHED]):
        r.wanted[r.unreached[i]], r.needed[r.unreached[i]] = stamp, NONE
    for position in instructions[::-1]:
        access = r.known[position]
        if access == NONE:
            access = r.needed[position]
            if access == NONE:
                access = a.facts[position, WHOLE_ACCESS]
        r.found[position] = access
        value = (position, access, _updates_of(a, r, position))
        for slot in range(a.operands_offsets[position], a.operands_offsets[position + 1]):
            operand = a.operands[slot]
            if r.wanted[operand] != stamp:
                continue
            use = r.known[operand] if a.facts[position, FLOW] == REDUCES else NONE
            if use == NONE:
                use = _use(a, r, value, slot)
            other = r.needed[operand]
            if use != MISSING and other not in (NONE, use):
                use = looked_up(a, r, WIDER, other, use)
            if use == MISSING:
                return
            r.needed[operand] = use
    for position in inputs:
        use = r.needed[position]
        r.found[position] = a.facts[position, WHOLE_ACCESS] if use == NONE else use
