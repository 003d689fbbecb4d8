"""Compiled lowering: turns many kernels of one computation, given by positions, into packed loop nests.

A kernel is lowered in four steps. Its iteration space follows from its anchor and from the axes that its
instructions allow to be cut. `propagate` finds the access of every value: which loops move its tile. Then the
copies between main memory and the scratchpad are listed, and with them the distinct *boxes*: a box is the
tile of a shape under an access. Copies and instructions whose values have the same shape and access share a
box, so that its size is computed once per tile size. Where only slices, gathers or scatters read an input,
only what they read is copied. At last the packed nest is written.
"""

from __future__ import annotations

from typing import NamedTuple

from costbench.arrays import F64, I64
from costbench.compiler.kernel_arrays import KernelArrays
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
from costbench.compiler.lowering.propagation import (
    MISSING_KEY,
    STAMP,
    Search,
    look_up,
    propagate,
    start_kernel,
)
from costbench.compiler.lowering.tables import (
    ADDRESSES,
    CONTRACTS,
    COUNT_BITS,
    FIXED_SHIFT,
    FIXES_AXES,
    LOOPS,
    MISSING,
    NONE,
    NOT_PARTIAL,
    OVER_CONTRACTION,
    TILED,
    UNTILED,
    UPDATES,
    WORKS,
    WRITES,
    LoweringArrays,
)
from costbench.execution.compiled import compiled

NUM_BOXES, NUM_COPIES, NUM_AXES = range(3)
"""Entries of `Lists.counts`."""


class Lists(NamedTuple):
    """Buffers for the boxes and copies of the kernel that is being lowered.

    Attributes:
        counts: [3]: numbers of boxes, copies, axes of boxes.
        box_access: [*], row of the access of each box.
        box_shape: [*], number of the shape of each box.
        copy_box: [*], box of each copy.
        copy_access: [*], row of each copy's access.
        is_output: [*], 1 for copies to main memory.
        node_boxes: [*], boxes of inputs and instructions.
        order: [64], loops of more than one native tile, outermost first.
        figures: [*, 4], last four fields of `packed.TRANSFER` for each copy.
    """

    counts: I64
    box_access: I64
    box_shape: I64
    copy_box: I64
    copy_access: I64
    is_output: I64
    node_boxes: I64
    order: I64
    figures: F64


class LoweredKernel(NamedTuple):
    """A kernel, its anchor, its contraction or NONE, and the number of its iteration space."""

    inputs: I64
    instructions: I64
    outputs: I64
    anchor: int
    contraction: int
    space: int


@compiled
def _box(tables: LoweringArrays, lists: Lists, row: int, shape: int) -> int:
    """Returns the number of the box of an access (its row) and a shape, added if it is new.

    Kernels have few boxes, so a linear search suffices.
    """
    for box in range(lists.counts[NUM_BOXES]):
        if lists.box_access[box] == row and lists.box_shape[box] == shape:
            return box
    number = lists.counts[NUM_BOXES]
    lists.box_access[number], lists.box_shape[number] = row, shape
    lists.counts[NUM_BOXES] += 1
    is_mapped = tables.accesses[row].rank == tables.shapes[shape].rank
    lists.counts[NUM_AXES] += tables.shapes[shape].rank if is_mapped else 1
    return int(number)


@compiled
def box_of_value(tables: LoweringArrays, search: Search, lists: Lists, position: int) -> int:
    """Returns the number of the box of a value of the kernel that is being lowered."""
    row = tables.access_rows[search.final[position]]
    return _box(tables, lists, row, tables.values[position].shape)


@compiled
def _add_copy(lists: Lists, box: int, is_output: int) -> int:
    """Appends a copy without its figures and returns its number."""
    number = lists.counts[NUM_COPIES]
    lists.copy_box[number], lists.is_output[number] = box, is_output
    lists.copy_access[number] = lists.box_access[box]
    lists.counts[NUM_COPIES] += 1
    return int(number)


@compiled
def _copy_value(
    tables: LoweringArrays, search: Search, lists: Lists, position: int, row_elements: int
) -> None:
    """Appends the copy from main memory of a value under its access in the kernel."""
    row = tables.access_rows[search.final[position]]
    _copy_cut(tables, lists, position, row, 0, row_elements)


@compiled
def _copy_cut(
    tables: LoweringArrays, lists: Lists, position: int, row: int, is_output: int, row_elements: int
) -> None:
    """Appends the copy of a value under the access in `row`.

    If `row_elements` is not 0, the copy addresses rows of that many elements one by one.
    """
    number = _add_copy(lists, _box(tables, lists, row, tables.values[position].shape), is_output)
    value, figures = tables.values[position], lists.figures[number]
    figures[0], figures[1] = value.native_bytes, value.element_bytes
    figures[2], figures[3] = row_elements, value.num_elements


@compiled
def list_copies(tables: LoweringArrays, search: Search, lists: Lists, kernel: LoweredKernel) -> bool:
    """Lists copies and their boxes; returns False if a rule's result is missing or a list is too short."""
    lists.counts[:] = 0
    nodes = len(kernel.inputs) + len(kernel.instructions)
    # Every input and output is copied once, a slice of an input once more for each slice.
    max_copies = 2 * nodes + len(kernel.outputs) + 1
    if max_copies > len(lists.node_boxes):
        return False
    reads_part = False
    for position in kernel.instructions:
        reads_part |= tables.values[position].partial != NOT_PARTIAL
    for position in kernel.inputs:
        if reads_part:
            _copy_input(tables, search, lists, kernel, position)
        else:
            _copy_value(tables, search, lists, position, 0)
    for position in kernel.outputs:
        access = search.final[tables.values[position].source]
        rank = tables.accesses[tables.access_rows[access]].rank
        if tables.values[position].writes_itself and rank == tables.values[position].rank:
            _copy_cut(tables, lists, position, tables.access_rows[access], 1, 0)
            continue
        copies = look_up(tables, search, WRITES, position, access)
        if copies == MISSING:
            return False
        first, count = copies >> COUNT_BITS, copies & ((1 << COUNT_BITS) - 1)
        max_copies += count
        if max_copies > len(lists.node_boxes):
            return False
        for i in range(first, first + count):
            copy = tables.written[i]
            figures = lists.figures[_add_copy(lists, _box(tables, lists, copy.access, copy.shape), 1)]
            figures[0], figures[1] = copy.native_bytes, copy.element_bytes
            figures[2], figures[3] = copy.row_elements, copy.num_elements
    return True


@compiled
def _copy_input(
    tables: LoweringArrays, search: Search, lists: Lists, kernel: LoweredKernel, position: int
) -> None:
    """Appends the copies of an input; only of what is sliced or addressed, if nothing else reads it."""
    kind, first_user = _partial_use(tables, kernel, position)
    if kind == NOT_PARTIAL:
        _copy_value(tables, search, lists, position, 0)
    elif kind == ADDRESSES:
        user = tables.values[first_user]
        _copy_value(tables, search, lists, user.partial_source, user.row_elements)
    elif kind != UPDATES:
        for user in kernel.instructions:
            if _reads(tables, user, position):
                _copy_value(tables, search, lists, tables.values[user].partial_source, 0)


@compiled
def _partial_use(tables: LoweringArrays, kernel: LoweredKernel, position: int) -> tuple[int, int]:
    """Returns the kind of partial read that all users in the kernel have in common, and the first user.

    It is NOT_PARTIAL if they read all of the input or differ.
    """
    kind, first_user = NOT_PARTIAL, NONE
    for user in kernel.instructions:
        if _reads(tables, user, position):
            partial = tables.values[user].partial
            if tables.operands[tables.operands_offsets[user]] != position or partial == NOT_PARTIAL:
                return NOT_PARTIAL, NONE
            if first_user != NONE and partial != kind:
                return NOT_PARTIAL, NONE
            if first_user == NONE:
                kind, first_user = partial, user
    return int(kind), int(first_user)


@compiled
def _reads(tables: LoweringArrays, user: int, position: int) -> bool:
    """Returns whether an instruction has a value among its operands."""
    for slot in range(tables.operands_offsets[user], tables.operands_offsets[user + 1]):
        if tables.operands[slot] == position:
            return True
    return False


@compiled
def list_order(tables: LoweringArrays, lists: Lists, kernel: LoweredKernel) -> int:
    """Lists the loops of more than one native tile, outermost first, and returns how many there are.

    A contraction has an order of its own. In all kernels, loops that only sum run inside those that move a
    result, so that no partial sums leave the scratchpad.
    """
    space = tables.spaces[kernel.space]
    moving = (1 << space.num_loops) - 1
    if not space.contracts:
        moving = 0
        for copy in range(lists.counts[NUM_COPIES]):
            if lists.is_output[copy]:
                moving |= tables.accesses[lists.copy_access[copy]].loops
    count = 0
    for is_moving in (1, 0):
        for index in range(space.first_loop, space.first_loop + space.num_loops):
            loop = tables.loop_order[index]
            if moving >> loop & 1 == is_moving and tables.loops[space.first_loop + loop].units > 1.0:
                lists.order[count] = loop
                count += 1
    return count


# ---- the packed nest -------------------------------------------------------------------------------------


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
        loop_record, row = tables.loops[first + loop], nest.loops[loop]
        row.units, row.unit, row.extent = loop_record.units, loop_record.unit, loop_record.extent
    for index in range(len(nest.order)):
        nest.order[index] = lists.order[index]
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
    index = 0
    for box in range(len(nest.boxes) - 1):
        access, shape = tables.accesses[lists.box_access[box]], tables.shapes[lists.box_shape[box]]
        row = nest.boxes[box]
        row.first_axis, row.mask, row.is_unmapped = index, 0, 0
        row.native_elements = shape.native_elements
        if access.rank != shape.rank:
            # Without maps that fit the shape, the value is treated as one vector that is not cut.
            row.is_unmapped = 1
            _write_whole(nest, index, max(1, shape.num_elements), shape.native_elements)
            index += 1
            continue
        for number in range(shape.first_axis, shape.first_axis + shape.rank):
            shape_axis = tables.axes[number]
            axis, axis_map = nest.axes[index], tables.maps[access.first_map + shape_axis.axis]
            axis.loop, axis.scale = axis_map.loop, axis_map.scale
            axis.window_loop, axis.window = axis_map.window_loop, axis_map.window
            axis.stride, axis.dilation = axis_map.stride, axis_map.dilation
            axis.base_dilation, axis.padding = axis_map.base_dilation, axis_map.padding
            axis.size, axis.native = shape_axis.size, shape_axis.native
            axis.advance, axis.aligned_advance, axis.is_window = 0.0, 0.0, 0
            index += 1
    last = nest.boxes[len(nest.boxes) - 1]
    last.first_axis, last.mask, last.is_unmapped, last.native_elements = index, 0, 0, 0


@compiled
def _write_whole(nest: PackedNest, index: int, num_elements: int, native_elements: int) -> None:
    """Writes the one axis of a vector that no loop cuts."""
    axis = nest.axes[index]
    axis.loop, axis.scale, axis.window_loop, axis.window = NONE, 1.0, NONE, 1.0
    axis.stride, axis.dilation, axis.base_dilation, axis.padding = 1.0, 1.0, 1.0, 0.0
    axis.size, axis.native = num_elements, native_elements
    axis.advance, axis.aligned_advance, axis.is_window = 0.0, 0.0, 0


# ---- the steps together ----------------------------------------------------------------------------------


SEVERAL_CONTRACTIONS = -1
"""In place of the iteration space of a kernel that cannot be lowered."""


@compiled
def lower_from(
    tables: LoweringArrays, search: Search, lists: Lists, kernels: KernelArrays, start: int, nests: Nests
) -> tuple[int, int]:
    """Lowers kernels from number `start` until a rule's result is missing or an array is too short.

    Returns:
        the number of the kernel that it stopped at, which is the number of kernels when all are done; and the
        missing key, 0 where an array of `lists` or `nests` was too short.
    """
    for k in range(start, len(nests.spaces)):
        inputs = kernels.inputs[kernels.inputs_offsets[k] : kernels.inputs_offsets[k + 1]]
        inside = kernels.instructions[kernels.instructions_offsets[k] : kernels.instructions_offsets[k + 1]]
        outputs = kernels.outputs[kernels.outputs_offsets[k] : kernels.outputs_offsets[k + 1]]
        search.state[MISSING_KEY] = 0
        start_kernel(search, inputs, inside)
        nests.ends[k + 1] = nests.ends[k]
        anchor, contraction, space = _space_of(tables, search, inside, outputs)
        nests.spaces[k] = space
        if space == SEVERAL_CONTRACTIONS:
            continue
        if space == MISSING:
            return k, int(search.state[MISSING_KEY])
        kernel = LoweredKernel(inputs, inside, outputs, anchor, contraction, space)
        # Each step runs only if the one before it found all that it needs.
        is_done = propagate(tables, search, inputs, inside, anchor, tables.spaces[space].access)
        is_done = is_done and list_copies(tables, search, lists, kernel)
        if not (is_done and write_nest(tables, search, lists, kernel, nests, k)):
            return k, int(search.state[MISSING_KEY])
    return len(nests.spaces), 0


@compiled
def _space_of(tables: LoweringArrays, search: Search, inside: I64, outputs: I64) -> tuple[int, int, int]:
    """Returns anchor, contraction or NONE, and iteration space of the kernel that is being lowered."""
    traits, contraction = 0, NONE
    for position in inside:
        value_traits = tables.values[position].traits
        if value_traits & CONTRACTS:
            if traits & CONTRACTS:
                return NONE, NONE, SEVERAL_CONTRACTIONS
            contraction = position
        traits |= value_traits
    anchor = contraction if contraction != NONE else _anchor_of(tables, search, inside, outputs)
    bits = OVER_CONTRACTION if contraction != NONE else 0
    if tables.values[anchor].rank and traits & WORKS and not traits & UNTILED:
        bits |= TILED
        if traits & FIXES_AXES:
            bits |= _fixed_axes(tables, inside, anchor) << FIXED_SHIFT
    return anchor, contraction, look_up(tables, search, LOOPS, anchor, bits)


@compiled
def _anchor_of(tables: LoweringArrays, search: Search, inside: I64, outputs: I64) -> int:
    """Returns the anchor of a kernel without contraction.

    It is its largest output, or the value that this one is reduced or scattered from.
    """
    best = NONE
    for position in outputs if len(outputs) else inside[-1:]:
        carrier = tables.values[position].carrier
        if carrier != NONE and search.made[carrier] == search.state[STAMP]:
            position = carrier
        anchor = tables.values[position].anchor
        if best == NONE or tables.values[anchor].num_elements > tables.values[best].num_elements:
            best = anchor
    return int(best)


@compiled
def _fixed_axes(tables: LoweringArrays, inside: I64, anchor: int) -> int:
    """Returns the bit set of the anchor's axes that a sort in the kernel needs whole."""
    fixed = 0
    for position in inside:
        if tables.values[position].rank == tables.values[anchor].rank:
            fixed |= tables.values[position].fixed_axes
    return fixed
