"""Last step of lowering: writes the packed loop nest of a kernel from its accesses, copies and boxes."""

from __future__ import annotations

from typing import NamedTuple

from costbench.arrays import F64, I64
from costbench.compiler.lowering.arrays import NONE, LoweringArrays
from costbench.compiler.lowering.boxes import (
    NUM_AXES,
    NUM_BOXES,
    NUM_COPIES,
    Lists,
    LoweredKernel,
    box_of_value,
    list_order,
)
from costbench.compiler.lowering.packed import (
    AFTER_CONTRACTION,
    AXIS_WORDS,
    BOX_WORDS,
    HEAD,
    HEAD_WORDS,
    INPUT,
    INSTRUCTION,
    LOOP_WORDS,
    NODE_WORDS,
    TRANSFER_WORDS,
    PackedNest,
    complete,
    unpacked,
)
from costbench.compiler.lowering.propagation import STAMP, Search
from costbench.execution.compiled import compiled


class Nests(NamedTuple):
    """Packed nests of k kernels, end to end.

    Attributes:
        words: words of all nests.
        ends: [k + 1], where the words of each nest begin.
        spaces: [k], number of each kernel's iteration space; -1 for one that cannot be lowered.
    """

    words: F64
    ends: I64
    spaces: I64


@compiled
def write_nest(
    tables: LoweringArrays, search: Search, lists: Lists, kernel: LoweredKernel, nests: Nests, k: int
) -> bool:
    """Appends the packed nest of a kernel; returns False if the array of words is too short."""
    result = NONE
    if kernel.contraction != NONE:
        result = box_of_value(tables, search, lists, kernel.contraction)
    num_copied, node = lists.counts[NUM_BOXES], 0
    for position in kernel.inputs:
        lists.node_boxes[node] = box_of_value(tables, search, lists, position)
        node += 1
    for position in kernel.instructions:
        lists.node_boxes[node] = box_of_value(tables, search, lists, position)
        node += 1
    order = list_order(tables, lists, kernel)
    space = tables.spaces[kernel.space]
    num_boxes, num_copies = lists.counts[NUM_BOXES], lists.counts[NUM_COPIES]
    num_axes = lists.counts[NUM_AXES]
    start = nests.ends[k]
    end = start + HEAD_WORDS + LOOP_WORDS * space.num_loops + order + BOX_WORDS * (num_boxes + 1)
    end += NODE_WORDS * node + TRANSFER_WORDS * num_copies + AXIS_WORDS * num_axes
    if end > len(nests.words):
        return False
    words = nests.words[start:end]
    head = words[:HEAD_WORDS].view(HEAD)[0]
    head.num_output_loops, head.result_box = space.num_output_loops, result
    head.num_copied_boxes, head.num_loops, head.num_order = num_copied, space.num_loops, order
    head.num_boxes, head.num_axes = num_boxes, num_axes
    head.num_transfers, head.num_nodes = num_copies, node
    nest = unpacked(words)
    _write_loops(tables, lists, kernel, nest)
    _write_nodes(tables, search, lists, kernel, nest)
    _write_boxes(tables, lists, nest)
    complete(words)
    nests.ends[k + 1] = end
    return True


@compiled
def _write_loops(tables: LoweringArrays, lists: Lists, kernel: LoweredKernel, nest: PackedNest) -> None:
    """Writes loops, their order and copies."""
    first = tables.spaces[kernel.space].first_loop
    for loop in range(len(nest.loops)):
        known, row = tables.loops[first + loop], nest.loops[loop]
        row.units, row.unit, row.extent = known.units, known.unit, known.extent
    for place in range(len(nest.order)):
        nest.order[place] = lists.order[place]
    for copy in range(len(nest.transfers)):
        transfer, figures = nest.transfers[copy], lists.figures[copy]
        transfer.box, transfer.is_output = lists.copy_box[copy], lists.is_output[copy]
        transfer.native_bytes, transfer.element_bytes = figures[0], figures[1]
        transfer.row_elements, transfer.num_elements = figures[2], figures[3]


@compiled
def _write_nodes(
    tables: LoweringArrays, search: Search, lists: Lists, kernel: LoweredKernel, nest: PackedNest
) -> None:
    """Writes inputs and instructions; those that follow a contraction run on its finished sums."""
    node, stamp = 0, search.state[STAMP]
    for position in kernel.inputs:
        row = nest.nodes[node]
        row.position, row.box, row.kind = position, lists.node_boxes[node], INPUT
        node += 1
    if kernel.contraction != NONE:
        search.reached[kernel.contraction] = stamp
    for position in kernel.instructions:
        kind = INSTRUCTION
        for slot in range(tables.operands_offsets[position], tables.operands_offsets[position + 1]):
            if search.reached[tables.operands[slot]] == stamp and position != kernel.contraction:
                search.reached[position] = stamp
                kind = AFTER_CONTRACTION
        row = nest.nodes[node]
        row.position, row.box, row.kind = position, lists.node_boxes[node], kind
        node += 1


@compiled
def _write_boxes(tables: LoweringArrays, lists: Lists, nest: PackedNest) -> None:
    """Writes boxes and what is known of their axes before `complete`."""
    place = 0
    for box in range(len(nest.boxes) - 1):
        access, shape = tables.accesses[lists.box_access[box]], tables.shapes[lists.box_shape[box]]
        row = nest.boxes[box]
        row.first_axis, row.mask, row.is_unmapped = place, 0, 0
        row.native_elements = shape.native_elements
        if access.rank != shape.rank:
            # Without maps that fit the shape, the value is treated as one vector that is not cut.
            row.is_unmapped = 1
            _write_whole(nest, place, max(1, shape.num_elements), shape.native_elements)
            place += 1
            continue
        for number in range(shape.first_axis, shape.first_axis + shape.rank):
            known = tables.axes[number]
            axis, given = nest.axes[place], tables.maps[access.first_map + known.axis]
            axis.loop, axis.scale = given.loop, given.scale
            axis.window_loop, axis.window = given.window_loop, given.window
            axis.stride, axis.dilation = given.stride, given.dilation
            axis.base_dilation, axis.padding = given.base_dilation, given.padding
            axis.size, axis.native = known.size, known.native
            axis.advance, axis.aligned_advance, axis.is_window = 0.0, 0.0, 0
            place += 1
    last = nest.boxes[len(nest.boxes) - 1]
    last.first_axis, last.mask, last.is_unmapped, last.native_elements = place, 0, 0, 0


@compiled
def _write_whole(nest: PackedNest, place: int, num_elements: int, native_elements: int) -> None:
    """Writes the one axis of a vector that no loop cuts."""
    axis = nest.axes[place]
    axis.loop, axis.scale, axis.window_loop, axis.window = NONE, 1.0, NONE, 1.0
    axis.stride, axis.dilation, axis.base_dilation, axis.padding = 1.0, 1.0, 1.0, 0.0
    axis.size, axis.native = num_elements, native_elements
    axis.advance, axis.aligned_advance, axis.is_window = 0.0, 0.0, 0
