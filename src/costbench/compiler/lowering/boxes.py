"""Lists the copies of a kernel between main memory and scratchpad, and its boxes.

A *box* is the tile of a shape under an access. Copies and instructions whose values have the same shape and
access share a box, so that its size is computed once per tile size. Where only slices, gathers or scatters
read an input, only what they read is copied.
"""

from __future__ import annotations

from typing import NamedTuple

from costbench.arrays import F64, I64
from costbench.compiler.lowering.arrays import COUNT_BITS, MISSING, NONE, WRITES, LoweringArrays
from costbench.compiler.lowering.propagation import Search, looked_up
from costbench.compiler.lowering.values import ADDRESSES, NOT_PARTIAL, UPDATES
from costbench.execution.compiled import compiled

NUM_BOXES, NUM_COPIES, NUM_AXES = range(3)
"""Entries of `Lists.counts`."""


class Lists(NamedTuple):
    """Buffers for the boxes and copies of the kernel that is being lowered.

    Attributes:
        counts: [3]: numbers of boxes, copies, axes of boxes.
        box_access: [*], row of each box's access.
        box_shape: [*], number of each box's shape.
        copy_box: [*], box of each copy.
        copy_access: [*], row of each copy's access.
        is_output: [*], 1 for copies to main memory.
        node_boxes: [*], boxes of inputs and instructions.
        order: [64], loops of more than one native tile, outermost first.
        figures: [*, 4], the last four fields of `packed.TRANSFER` for each copy.
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
    row = tables.access_rows[search.found[position]]
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
    row = tables.access_rows[search.found[position]]
    _copy_cut(tables, lists, position, row, 0, row_elements)


@compiled
def _copy_cut(
    tables: LoweringArrays, lists: Lists, position: int, row: int, is_output: int, row_elements: int
) -> None:
    """Appends the copy of a value under the access in `row`; if `row_elements` is not 0, the copy addresses
    rows of that many elements one by one.
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
    most = 2 * nodes + len(kernel.outputs) + 1
    if most > len(lists.node_boxes):
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
        access = search.found[tables.values[position].source]
        rank = tables.accesses[tables.access_rows[access]].rank
        if tables.values[position].writes_itself and rank == tables.values[position].rank:
            _copy_cut(tables, lists, position, tables.access_rows[access], 1, 0)
            continue
        found = looked_up(tables, search, WRITES, position, access)
        if found == MISSING:
            return False
        first, count = found >> COUNT_BITS, found & ((1 << COUNT_BITS) - 1)
        most += count
        if most > len(lists.node_boxes):
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
    """Returns the kind of partial read that all users in the kernel have in common, and the first user; or
    NOT_PARTIAL if they read all of the input or differ.
    """
    kind, first_user = NOT_PARTIAL, NONE
    for user in kernel.instructions:
        if _reads(tables, user, position):
            own = tables.values[user].partial
            if tables.operands[tables.operands_offsets[user]] != position or own == NOT_PARTIAL:
                return NOT_PARTIAL, NONE
            if first_user != NONE and own != kind:
                return NOT_PARTIAL, NONE
            if first_user == NONE:
                kind, first_user = own, user
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
    kept = (1 << space.num_loops) - 1
    if not space.contracts:
        kept = 0
        for copy in range(lists.counts[NUM_COPIES]):
            if lists.is_output[copy]:
                kept |= tables.accesses[lists.copy_access[copy]].loops
    count = 0
    for wanted in (1, 0):
        for place in range(space.first_loop, space.first_loop + space.num_loops):
            loop = tables.loop_order[place]
            if kept >> loop & 1 == wanted and tables.loops[space.first_loop + loop].units > 1.0:
                lists.order[count] = loop
                count += 1
    return count
