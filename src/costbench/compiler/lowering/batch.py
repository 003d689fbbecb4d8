"""Lowering many kernels of one computation in one call, straight to packed nests.

They are the numbers that `Lowering` and `pack` give, but no object is made for any of the kernels. Those out
of the ordinary are left to these two: several contractions, operations that need an axis whole, slices and
the like of values that are read from memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiler.kernel_arrays import KernelArrays
from costbench.compiler.lowering.access import WHOLE
from costbench.compiler.lowering.anchors import LANES, SUBLANES
from costbench.compiler.lowering.arrays import (
    ACCESS_LOOPS,
    ACCESS_RANK,
    CARRIER,
    CONTRACTION_WALK,
    COUNT_BITS,
    FIRST_AXIS,
    FIRST_LOOP,
    FIRST_MAP,
    MISSING,
    NONE,
    NUM_ELEMENTS,
    NUM_LOOPS,
    NUM_OUTPUT_LOOPS,
    RANK,
    SHAPE,
    SHAPE_ELEMENTS,
    SHAPE_RANK,
    SOURCE,
    TRAITS,
    WALK,
    WALK_ACCESS,
    WALKED,
    WHOLE_ACCESS,
    WRITES,
    WRITES_ITSELF,
    WRITTEN_ACCESS,
    WRITTEN_SHAPE,
    LoweringArrays,
)
from costbench.compiler.lowering.batch_propagation import (
    MISSING_KEY,
    STAMP,
    Room,
    enter,
    looked_up,
    propagate,
)
from costbench.compiler.lowering.packed import (
    AFTER_CONTRACTION,
    AXIS_COLUMNS,
    HEAD,
    INPUT,
    INSTRUCTION,
    complete,
)
from costbench.compiler.lowering.value_tables import CONTRACTS, FIXES_AXES, READS_PART, UNTILED, WORKS
from costbench.execution.compiled import compiled

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
LEFT_OUT = -1
"""The walk of a kernel that is to be lowered on its own."""
_WHOLE_AXIS = np.array(WHOLE, dtype=np.float64)
_NUM_BOXES, _NUM_COPIES, _NUM_AXES = range(3)


class Nests(NamedTuple):
    """Packed nests of k kernels, end to end.

    Attributes:
        ints: see `Packed`.
        floats: see `Packed`.
        ints_ends: [k + 1], where those of each kernel begin; nothing for a kernel that is left out.
        floats_ends: [k + 1].
        walks: [k], number of each kernel's walk, or LEFT_OUT.
    """

    ints: IntArray
    floats: FloatArray
    ints_ends: IntArray
    floats_ends: IntArray
    walks: IntArray


class Scratch(NamedTuple):
    """Room for the boxes and copies of one kernel.

    Attributes:
        counts: [3], boxes, copies, axes of boxes.
        boxes: [*, 2], row of the access, shape.
        copies: [*, 3], box, whether it is an output, row of the access.
        figures: [*, 4], of copies.
        node_boxes: [*], of inputs and instructions.
        order: [64], loops of more than one native tile, outermost first.
    """

    counts: IntArray
    boxes: IntArray
    copies: IntArray
    figures: FloatArray
    node_boxes: IntArray
    order: IntArray


class _Kernel(NamedTuple):
    """A kernel and what it walks over: `contraction` is -1 without one."""

    inputs: IntArray
    instructions: IntArray
    outputs: IntArray
    anchor: int
    contraction: int
    walk: int


def new_scratch(num_instructions: int) -> Scratch:
    """Room for the kernels of a computation."""
    most = 4 * num_instructions + 64
    return Scratch(
        np.zeros(3, dtype=np.int64),
        np.zeros((most, 2), dtype=np.int64),
        np.zeros((most, 3), dtype=np.int64),
        np.zeros((most, 4)),
        np.zeros(most, dtype=np.int64),
        np.zeros(64, dtype=np.int64),
    )


@compiled
def lower_from(
    a: LoweringArrays, r: Room, s: Scratch, kernels: KernelArrays, first: int, nests: Nests
) -> int:
    """Lowers kernels from the given one on, until a key is missing or there is no room in `nests`.

    Returns:
        the kernel that it stopped at; the number of kernels when all are done.
    """
    for k in range(first, len(nests.walks)):
        inputs = kernels.inputs[kernels.inputs_offsets[k] : kernels.inputs_offsets[k + 1]]
        inside = kernels.instructions[kernels.instructions_offsets[k] : kernels.instructions_offsets[k + 1]]
        outputs = kernels.outputs[kernels.outputs_offsets[k] : kernels.outputs_offsets[k + 1]]
        r.state[MISSING_KEY] = 0
        enter(r, inputs, inside)
        nests.walks[k] = LEFT_OUT
        nests.ints_ends[k + 1], nests.floats_ends[k + 1] = nests.ints_ends[k], nests.floats_ends[k]
        anchor, contraction, walk = _walk_of(a, r, inside, outputs)
        if walk != LEFT_OUT and walk != MISSING:
            kernel = _Kernel(inputs, inside, outputs, anchor, contraction, walk)
            access = a.walks[walk, WALK_ACCESS] if walk else a.facts[anchor, WHOLE_ACCESS]
            if propagate(a, r, inputs, inside, anchor, access) and _list_boxes(a, r, s, kernel):
                if not _write(a, r, s, kernel, nests, k):
                    return k
                nests.walks[k] = walk
        if r.state[MISSING_KEY]:
            return k
    return len(nests.walks)


@compiled
def _walk_of(a: LoweringArrays, r: Room, inside: IntArray, outputs: IntArray) -> tuple[int, int, int]:
    """The anchor of the kernel entered, its contraction or -1, and its walk; see `Lowering.loop_nest`."""
    traits, contraction = 0, NONE
    stamp = r.state[STAMP]
    for position in inside:
        own = a.facts[position, TRAITS]
        first = a.operands_offsets[position]
        if own & CONTRACTS and traits & CONTRACTS:
            return NONE, NONE, LEFT_OUT
        if own & READS_PART:
            source = a.operands[first]
            if r.inside[source] == stamp and r.made[source] != stamp:
                return NONE, NONE, LEFT_OUT
        if own & CONTRACTS:
            contraction = position
        traits |= own
    if traits & FIXES_AXES:
        return NONE, NONE, LEFT_OUT
    anchor = contraction if contraction != NONE else _anchor_of(a, r, inside, outputs)
    if a.facts[anchor, RANK] and traits & WORKS and not traits & UNTILED:
        return anchor, contraction, looked_up(a, r, WALK, anchor, 1 if contraction != NONE else 0)
    return anchor, contraction, 0 if contraction == NONE else LEFT_OUT


@compiled
def _anchor_of(a: LoweringArrays, r: Room, inside: IntArray, outputs: IntArray) -> int:
    best = NONE
    for position in outputs if len(outputs) else inside[-1:]:
        carrier = a.facts[position, CARRIER]
        if carrier != NONE and r.made[carrier] == r.state[STAMP]:
            position = carrier
        walked = a.facts[position, WALKED]
        if best == NONE or a.facts[walked, NUM_ELEMENTS] > a.facts[best, NUM_ELEMENTS]:
            best = walked
    return int(best)


# ---- boxes and copies ------------------------------------------------------------------------------------


@compiled
def _box(a: LoweringArrays, s: Scratch, row: int, shape: int) -> int:
    for box in range(s.counts[_NUM_BOXES]):
        if s.boxes[box, 0] == row and s.boxes[box, 1] == shape:
            return box
    number = s.counts[_NUM_BOXES]
    s.boxes[number, 0], s.boxes[number, 1] = row, shape
    s.counts[_NUM_BOXES] += 1
    is_mapped = a.accesses[row, ACCESS_RANK] == a.shapes[shape, SHAPE_RANK]
    s.counts[_NUM_AXES] += a.shapes[shape, SHAPE_RANK] if is_mapped else 1
    return int(number)


@compiled
def _copy(a: LoweringArrays, s: Scratch, row: int, shape: int, is_output: int, figures: FloatArray) -> None:
    number = s.counts[_NUM_COPIES]
    s.copies[number, 0], s.copies[number, 1] = _box(a, s, row, shape), is_output
    s.copies[number, 2] = row
    for column in range(4):
        s.figures[number, column] = figures[column]
    s.counts[_NUM_COPIES] += 1


@compiled
def _list_boxes(a: LoweringArrays, r: Room, s: Scratch, kernel: _Kernel) -> bool:
    """Lists copies, distinct boxes and the nodes' boxes; False if a key is missing or there is no room."""
    s.counts[:] = 0
    for position in kernel.inputs:
        row = a.identity[r.found[position]]
        _copy(a, s, row, a.facts[position, SHAPE], 0, a.figures[position])
    for position in kernel.outputs:
        access = r.found[a.facts[position, SOURCE]]
        row = a.identity[access]
        if a.facts[position, WRITES_ITSELF] and a.accesses[row, ACCESS_RANK] == a.facts[position, RANK]:
            _copy(a, s, row, a.facts[position, SHAPE], 1, a.figures[position])
            continue
        found = looked_up(a, r, WRITES, position, access)
        first, count = found >> COUNT_BITS, found & ((1 << COUNT_BITS) - 1)
        nodes = len(kernel.inputs) + len(kernel.instructions)
        if found == MISSING or s.counts[_NUM_COPIES] + count + nodes + 1 > len(s.boxes):
            return False
        for i in range(first, first + count):
            _copy(a, s, a.written[i, WRITTEN_ACCESS], a.written[i, WRITTEN_SHAPE], 1, a.written_figures[i])
    return True


@compiled
def _list_nodes(a: LoweringArrays, r: Room, s: Scratch, kernel: _Kernel) -> None:
    node = 0
    for position in kernel.inputs:
        s.node_boxes[node] = _box(a, s, a.identity[r.found[position]], a.facts[position, SHAPE])
        node += 1
    for position in kernel.instructions:
        s.node_boxes[node] = _box(a, s, a.identity[r.found[position]], a.facts[position, SHAPE])
        node += 1


@compiled
def _list_order(a: LoweringArrays, s: Scratch, kernel: _Kernel) -> int:
    """Lists the loops of more than one native tile; says how many. See `LoopNest.order`."""
    first, number = a.walks[kernel.walk, FIRST_LOOP], a.walks[kernel.walk, NUM_LOOPS]
    kept, everything = 0, (1 << number) - 1
    for copy in range(s.counts[_NUM_COPIES]):
        if s.copies[copy, 1]:
            kept |= a.accesses[s.copies[copy, 2], ACCESS_LOOPS]
    if a.walks[kernel.walk, CONTRACTION_WALK]:
        kept = everything
    count = 0
    for wanted in (1, 0):
        for place in range(number):
            loop = a.loop_order[first + place]
            if kept >> loop & 1 == wanted and a.loops[first + loop, 0] > 1.0:
                s.order[count] = loop
                count += 1
    return count


# ---- writing ---------------------------------------------------------------------------------------------


@compiled
def _write(a: LoweringArrays, r: Room, s: Scratch, kernel: _Kernel, nests: Nests, k: int) -> bool:
    """Writes the packed nest of a kernel; False if there is no room left."""
    result = NONE
    if kernel.contraction != NONE:
        row = a.identity[r.found[kernel.contraction]]
        result = _box(a, s, row, a.facts[kernel.contraction, SHAPE])
    num_copied = s.counts[_NUM_BOXES]
    _list_nodes(a, r, s, kernel)
    order = _list_order(a, s, kernel)
    num_boxes, num_copies = s.counts[_NUM_BOXES], s.counts[_NUM_COPIES]
    num_nodes = len(kernel.inputs) + len(kernel.instructions)
    num_loops = a.walks[kernel.walk, NUM_LOOPS]
    first, first_float = nests.ints_ends[k], nests.floats_ends[k]
    end = first + HEAD + order + 3 * (num_boxes + 1) + 3 * num_nodes
    end_float = first_float + 1 + 3 * num_loops + 6 * num_copies + AXIS_COLUMNS * s.counts[_NUM_AXES]
    if end > len(nests.ints) or end_float > len(nests.floats):
        return False
    ints, floats = nests.ints[first:end], nests.floats[first_float:end_float]
    head = (a.walks[kernel.walk, NUM_OUTPUT_LOOPS], result, num_copied)
    lengths = (num_loops, order, num_boxes, num_copies, num_nodes)
    for i in range(3):
        ints[i] = head[i]
    for i in range(5):
        ints[3 + i] = lengths[i]
    for i in range(order):
        ints[HEAD + i] = s.order[i]
    _write_nodes(a, r, s, kernel, ints[end - first - 3 * num_nodes :])
    _write_loops(a, s, kernel, floats[1:])
    boxes, axes = ints[HEAD + order :], floats[1 + 3 * num_loops + 6 * num_copies :]
    _write_boxes(a, s, boxes, axes)
    complete(ints, floats)
    nests.ints_ends[k + 1], nests.floats_ends[k + 1] = end, end_float
    return True


@compiled
def _write_nodes(a: LoweringArrays, r: Room, s: Scratch, kernel: _Kernel, rows: IntArray) -> None:
    node, stamp = 0, r.state[STAMP]
    for position in kernel.inputs:
        rows[3 * node], rows[3 * node + 1], rows[3 * node + 2] = position, s.node_boxes[node], INPUT
        node += 1
    if kernel.contraction != NONE:
        r.reached[kernel.contraction] = stamp
    for position in kernel.instructions:
        kind = INSTRUCTION
        for slot in range(a.operands_offsets[position], a.operands_offsets[position + 1]):
            if r.reached[a.operands[slot]] == stamp and position != kernel.contraction:
                r.reached[position] = stamp
                kind = AFTER_CONTRACTION
        rows[3 * node], rows[3 * node + 1], rows[3 * node + 2] = position, s.node_boxes[node], kind
        node += 1


@compiled
def _write_loops(a: LoweringArrays, s: Scratch, kernel: _Kernel, floats: FloatArray) -> None:
    """Loops, then copies."""
    first, number = a.walks[kernel.walk, FIRST_LOOP], a.walks[kernel.walk, NUM_LOOPS]
    for loop in range(number):
        for column in range(3):
            floats[3 * loop + column] = a.loops[first + loop, column]
    for copy in range(s.counts[_NUM_COPIES]):
        place = 3 * number + 6 * copy
        floats[place], floats[place + 1] = s.copies[copy, 0], s.copies[copy, 1]
        for column in range(4):
            floats[place + 2 + column] = s.figures[copy, column]


@compiled
def _write_boxes(a: LoweringArrays, s: Scratch, rows: IntArray, axes: FloatArray) -> None:
    count, place = 0, 0
    for box in range(s.counts[_NUM_BOXES]):
        row, shape = s.boxes[box, 0], s.boxes[box, 1]
        rank, first = a.shapes[shape, SHAPE_RANK], a.shapes[shape, FIRST_AXIS]
        is_mapped = a.accesses[row, ACCESS_RANK] == rank
        rows[3 * box], rows[3 * box + 1], rows[3 * box + 2] = count, 0, 0 if is_mapped else 1
        if not is_mapped:
            # Without maps that fit, everything is worked on in one go, as a vector.
            for column in range(8):
                axes[place + column] = _WHOLE_AXIS[column]
            axes[place + 8] = max(1, a.shapes[shape, SHAPE_ELEMENTS])
            axes[place + 9] = LANES * SUBLANES
            place += AXIS_COLUMNS
            count += 1
            continue
        for axis in range(first, first + rank):
            maps = a.maps[a.accesses[row, FIRST_MAP] + int(a.axes[axis, 0])]
            for column in range(8):
                axes[place + column] = maps[column]
            axes[place + 8], axes[place + 9] = a.axes[axis, 1], a.axes[axis, 2]
            place += AXIS_COLUMNS
            count += 1
    end = 3 * s.counts[_NUM_BOXES]
    rows[end], rows[end + 1], rows[end + 2] = count, 0, 0
