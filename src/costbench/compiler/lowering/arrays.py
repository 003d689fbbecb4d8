"""Record types of the tables that compiled lowering code reads, and the hash table of rule results.

`lowering.tables` fills the tables; this module defines their fields.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, AnyArray, Bool
from costbench.compiler.lowering.packed import ACCESS_MAP
from costbench.execution.compiled import compiled

# Bits of `VALUE.traits`.
READY = 1
"""The row is filled in."""
CONTRACTS = 2
"""A convolution or dot."""
UNTILED = 4
"""One fixed routine, without tiles."""
WORKS = 8
"""Anything but a reshape."""
FIXES_AXES = 16
"""May not be cut along some axis."""

PLAIN, BROADCASTS, REDUCES, SCATTERS = range(4)
"""`VALUE.flow`: how accesses travel through an instruction."""

VALUE = np.dtype(
    [
        ("traits", "i8"),
        ("flow", "i8"),
        ("whole", "i8"),
        ("source", "i8"),
        ("anchor", "i8"),
        ("carrier", "i8"),
        ("shape", "i8"),
        ("order", "i8"),
        ("num_elements", "i8"),
        ("rank", "i8"),
        ("writes_itself", "i8"),
        ("fixed_axes", "i8"),
        ("partial", "i8"),
        ("partial_source", "i8"),
        ("row_elements", "i8"),
        ("native_bytes", "f8"),
        ("element_bytes", "f8"),
    ]
)
"""An instruction's value: bits and flow, see above; number of the access that takes it whole; the value whose
tiles are written where this one is an output; the value that loops run over for it; the tuple that it is a
member of, or NONE; numbers of its shape, and of its sizes and memory order; elements; axes; whether it is
written as it is; bits of the axes that it fixes; the fields of `PartialRead`; bytes of a native tile and of
an element. A tuple counts by its largest member."""
ACCESS = np.dtype([("first_map", "i8"), ("rank", "i8"), ("loops", "i8")])
"""Where the maps of an access begin, its axes, bit set of its loops."""
MAP = np.dtype(ACCESS_MAP)
SHAPE = np.dtype([("first_axis", "i8"), ("rank", "i8"), ("num_elements", "i8"), ("native_elements", "i8")])
"""Where its axes begin, how many, elements of the array and of one of its native tiles."""
SHAPE_AXIS = np.dtype([("axis", "i8"), ("size", "f8"), ("native", "f8")])
"""From major to minor: the logical axis, its elements, elements of a native tile."""
WRITTEN = np.dtype(
    [
        ("access", "i8"),
        ("shape", "i8"),
        ("native_bytes", "f8"),
        ("element_bytes", "f8"),
        ("row_elements", "f8"),
        ("num_elements", "f8"),
    ]
)
"""A copy to main memory that is not simply a value: row of its access, number of its shape, and the figures
of `packed.TRANSFER`."""
SPACE = np.dtype(
    [
        ("access", "i8"),
        ("first_loop", "i8"),
        ("num_loops", "i8"),
        ("num_output_loops", "i8"),
        ("contracts", "i8"),
    ]
)
"""An iteration space: number of the anchor's access, where its loops begin, how many it has in all and over
the output, whether a contraction decides their order."""

NONE, MISSING = -1, -2
"""Results of a key: the rule gives nothing, and the rule was not applied yet."""
RESULT, WANTED, INDICES, WIDER, WRITES, LOOPS = range(1, 7)
"""Rules, and the two numbers that they are applied to: the access of a value by its operand's (slot, access),
what is read of an operand by the value's access (slot, access), what a scatter reads of its indices
(position, access of the updates), what serves two uses (access, access), what is written of an output
(position, access), the loops over an anchor (position, bits)."""
OVER_CONTRACTION, TILED, FIXED_SHIFT = 1, 2, 2
"""The bits of LOOPS; from FIXED_SHIFT on the logical axes that may not be cut."""
KIND_BITS, SECOND_BITS, COUNT_BITS = 56, 24, 16
"""A key is kind << 56 | first << 24 | second; a result of WRITES is first row << 16 | number of rows."""


class LoweringArrays(NamedTuple):
    """The tables of a computation of n instructions so far; arrays may be longer than what they hold.

    Attributes:
        values: records VALUE, [n].
        operands_offsets: [n + 1], where the operands of each instruction begin in the following.
        operands: positions; the index of an entry is called a *slot*.
        same: for each slot, whether the value and this operand always have the same access.
        keys: int64, a hash table with open addressing; 0 where it is empty.
        results: result of the rule that each key stands for.
        access_rows: of an access by its number, its row in `accesses`.
        accesses: records ACCESS; rows are different boxes even where they are equal.
        maps: records MAP.
        shapes: records SHAPE.
        axes: records SHAPE_AXIS.
        written: records WRITTEN.
        spaces: records SPACE.
        loops: records LOOP of all spaces, end to end.
        loop_order: of the loops of each space, outermost first.
    """

    values: AnyArray
    operands_offsets: I64
    operands: I64
    same: Bool
    keys: I64
    results: I64
    access_rows: I64
    accesses: AnyArray
    maps: AnyArray
    shapes: AnyArray
    axes: AnyArray
    written: AnyArray
    spaces: AnyArray
    loops: AnyArray
    loop_order: I64


@compiled
def key_of(kind: int, first: int, second: int) -> int:
    """Returns the key of a rule applied to two numbers; never 0."""
    return kind << KIND_BITS | first << SECOND_BITS | second


@compiled
def slot_of(keys: I64, key: int) -> int:
    """Returns the index of a key in a table of 2^b entries, or where it would be inserted."""
    mask = len(keys) - 1
    # Multiplying by 2^60 over the golden ratio spreads keys that follow one another over all high bits.
    mixed = key * 0x9E3779B97F4A7C1
    slot = (mixed ^ (mixed >> 29)) & mask
    while keys[slot] not in (0, key):
        slot = (slot + 1) & mask
    return slot
