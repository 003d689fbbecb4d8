"""A loop nest packed into one flat array, from which compiled code prices one tile size after the other.

Most values of a kernel have the same tile, so tile sizes are computed once per distinct *box*: the tile of a
shape under an access. Instructions and copies refer to boxes by number. All parts are stored end to end in an
array of 8-byte words; `unpacked` returns them as arrays of records with named fields.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64, AnyArray
from costbench.compiler.lowering.access import NO_LOOP
from costbench.execution.compiled import compiled, compiled_step

# The words of a packed nest have 8 bytes each, float64 or (by their record) int64.
HEAD = np.dtype(
    [
        ("bound_bytes", "f8"),
        ("num_output_loops", "i8"),
        ("result_box", "i8"),
        ("num_copied_boxes", "i8"),
        ("num_loops", "i8"),
        ("num_order", "i8"),
        ("num_boxes", "i8"),
        ("num_axes", "i8"),
        ("num_transfers", "i8"),
        ("num_nodes", "i8"),
    ]
)
"""First record: scratchpad that no tile size exceeds, what `PackedNest` says, lengths of what follows."""
LOOP = np.dtype([("units", "f8"), ("unit", "f8"), ("extent", "f8")])
"""Native tiles along a loop, elements of one, elements."""
ACCESS_MAP = [
    ("loop", "i8"),
    ("scale", "f8"),
    ("window_loop", "i8"),
    ("window", "f8"),
    ("stride", "f8"),
    ("dilation", "f8"),
    ("base_dilation", "f8"),
    ("padding", "f8"),
]
"""The fields of an `AxisMap`."""
AXIS = np.dtype(
    [
        *ACCESS_MAP,
        ("size", "f8"),
        ("native", "f8"),
        ("limit", "f8"),
        ("advance", "f8"),
        ("aligned_advance", "f8"),
        ("is_window", "i8"),
    ]
)
"""An axis of a box: its map; elements, elements of a native tile, native tiles (`limit`); elements between
the starts of two tiles for each native tile that the loop advances (`advance`), the same in native tiles
where tiles never start inside one, else 0 (`aligned_advance`); whether tiles overlap or leave gaps."""
BOX = np.dtype([("first_axis", "i8"), ("mask", "i8"), ("is_unmapped", "i8"), ("native_elements", "i8")])
"""Where the axes of a box begin; bit set of the loops that move it; whether its value has no map, so that it
is worked on as one vector; elements of a native tile."""
TRANSFER = np.dtype(
    [
        ("box", "i8"),
        ("is_output", "i8"),
        ("native_bytes", "f8"),
        ("element_bytes", "f8"),
        ("row_elements", "f8"),
        ("num_elements", "f8"),
    ]
)
"""A copy: its box, its direction, bytes of a native tile and of an element; the contiguous elements that an
index selects, 0 for a copy without indices; elements of the value."""
NODE = np.dtype([("position", "i8"), ("box", "i8"), ("kind", "i8")])
"""An input or instruction of the kernel: its position, the box of its value, one of the kinds below."""
INPUT, INSTRUCTION, AFTER_CONTRACTION = range(3)
HEAD_WORDS, LOOP_WORDS, AXIS_WORDS, BOX_WORDS, TRANSFER_WORDS, NODE_WORDS = (
    kind.itemsize // 8 for kind in (HEAD, LOOP, AXIS, BOX, TRANSFER, NODE)
)
SUM_BYTES = 4.0
"""An element of a contraction's sums, which are float32 whatever its result is."""


class PackedNest(NamedTuple):
    """The parts of a packed nest; see the records above.

    Attributes:
        bound_bytes: upper bound on the scratchpad of any tile size: all values whole, twice, and the sums.
        num_output_loops: loops over the result; those after them sum.
        result_box: box of a contraction's result, -1 without one.
        num_copied_boxes: boxes that are copied or accumulate sums: they come first.
        loops: records LOOP.
        order: int64, loops of more than one native tile, outermost first.
        boxes: records BOX, one more than there are boxes: the last one holds the end of the axes.
        nodes: records NODE: inputs, then instructions.
        transfers: records TRANSFER.
        axes: records AXIS, boxes end to end, each from major to minor.
    """

    bound_bytes: float
    num_output_loops: int
    result_box: int
    num_copied_boxes: int
    loops: AnyArray
    order: I64
    boxes: AnyArray
    nodes: AnyArray
    transfers: AnyArray
    axes: AnyArray


@compiled
def unpacked(words: F64) -> PackedNest:
    """Returns the parts of a packed nest as views of its words."""
    head = words[:HEAD_WORDS].view(HEAD)[0]
    order = HEAD_WORDS + LOOP_WORDS * head.num_loops
    boxes = order + head.num_order
    nodes = boxes + BOX_WORDS * (head.num_boxes + 1)
    transfers = nodes + NODE_WORDS * head.num_nodes
    axes = transfers + TRANSFER_WORDS * head.num_transfers
    return PackedNest(
        head.bound_bytes,
        head.num_output_loops,
        head.result_box,
        head.num_copied_boxes,
        words[HEAD_WORDS:order].view(LOOP),
        words[order:boxes].view(np.int64),
        words[boxes:nodes].view(BOX),
        words[nodes:transfers].view(NODE),
        words[transfers:axes].view(TRANSFER),
        words[axes : axes + AXIS_WORDS * head.num_axes].view(AXIS),
    )


@compiled
def bound_bytes(words: F64) -> float:
    """Returns an upper bound on the scratchpad that any tile size needs, in bytes."""
    return float(words[:HEAD_WORDS].view(HEAD)[0].bound_bytes)


@compiled
def complete(words: F64) -> None:
    """Fills in the fields of axes and boxes that are derived from others, and the bound."""
    nest = unpacked(words)
    for axis in range(len(nest.axes)):
        _complete_axis(nest, axis)
    for box in range(len(nest.boxes) - 1):
        for axis in range(nest.boxes[box].first_axis, nest.boxes[box + 1].first_axis):
            for loop in (nest.axes[axis].loop, nest.axes[axis].window_loop):
                if loop != NO_LOOP:
                    nest.boxes[box].mask |= 1 << loop
    words[:HEAD_WORDS].view(HEAD)[0].bound_bytes = _bound_bytes(nest)


@compiled_step
def _complete_axis(nest: PackedNest, number: int) -> None:
    axis = nest.axes[number]
    axis.limit = max(1.0, np.ceil(axis.size / axis.native))
    if axis.loop != NO_LOOP:
        axis.advance = nest.loops[axis.loop].unit * axis.scale * axis.stride / axis.base_dilation
        advance = axis.advance / axis.native
        if advance >= 1.0 and advance == np.floor(advance):
            axis.aligned_advance = advance
    if axis.window != 1.0 or axis.window_loop != NO_LOOP or axis.stride != 1.0 or axis.base_dilation != 1.0:
        axis.is_window = 1


@compiled_step
def _bound_bytes(nest: PackedNest) -> float:
    total = 0.0
    for t in range(len(nest.transfers)):
        transfer = nest.transfers[t]
        total += 2.0 * _whole_tiles(nest, transfer.box) * transfer.native_bytes
    if nest.result_box >= 0 and len(nest.loops):
        sums = _whole_tiles(nest, nest.result_box) * nest.boxes[nest.result_box].native_elements
        total += sums * SUM_BYTES
    return total


@compiled_step
def _whole_tiles(nest: PackedNest, box: int) -> float:
    """Returns the native tiles of a value that no loop cuts; 0 for a scalar."""
    first, end = nest.boxes[box].first_axis, nest.boxes[box + 1].first_axis
    size = 1.0 if end > first else 0.0
    for axis in range(first, end):
        size *= nest.axes[axis].limit
    return size
