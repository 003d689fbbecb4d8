"""A loop nest as a few flat arrays, from which compiled code prices one tile size after the other.

Most values of a kernel are cut alike, so what a tile size needs is worked out once per distinct *box*: the
tile of a shape under an access. Instructions and copies refer to boxes by number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiler.lowering.access import NO_LOOP, Access, array_shape, whole
from costbench.compiler.lowering.loop_nest import LANES, SUBLANES, LoopNest, native_units
from costbench.compiler.lowering.transfers import Transfer
from costbench.execution.compiled import compiled, compiled_step
from costbench.hlo.shape import ElementType, Shape

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Columns of `PackedNest.loops`.
UNITS, UNIT, EXTENT = range(3)
# Columns of `PackedNest.axes`: the map's fields, the axis' size, elements of a native tile, and what follows.
(
    LOOP,
    SCALE,
    WINDOW_LOOP,
    WINDOW,
    STRIDE,
    DILATION,
    BASE_DILATION,
    PADDING,
    SIZE,
    NATIVE,
    LIMIT,
    STEP,
    ALIGNED_STEP,
    IS_WINDOW,
) = range(14)
_GIVEN_AXIS_COLUMNS = 10
AXIS_COLUMNS = 14
# Columns of `PackedNest.boxes`.
FIRST_AXIS, MASK, IS_UNMAPPED = range(3)
# Columns of `PackedNest.transfers`.
BOX, IS_OUTPUT, NATIVE_BYTES, ELEMENT_BYTES, ROW_ELEMENTS, NUM_ELEMENTS = range(6)
# Columns of `PackedNest.nodes`, and what a node is.
POSITION, NODE_BOX, KIND = range(3)
INPUT, INSTRUCTION, AFTER_CONTRACTION = range(3)
# Entries of `PackedNest.head`.
NUM_OUTPUT_LOOPS, RESULT_BOX, NUM_COPIED_BOXES = range(3)
# Lengths, which come next in `Packed.ints`.
_NUM_LOOPS, _NUM_ORDER, _NUM_BOXES, _NUM_TRANSFERS, _NUM_NODES = range(3, 8)
HEAD = 8

RESULT_TILE_BYTES = 1024.0 * 4
"""A native tile of a contraction's sums, which are float32 whatever its result is."""
_BITS = [element_type.bits for element_type in sorted(ElementType)]
_TUPLE = ElementType.TUPLE
_BoxKey = tuple[int, tuple[int, ...], tuple[int, ...]]


class PackedNest(NamedTuple):
    """A loop nest in numbers; every column is named by a constant of this module.

    Attributes:
        head: int64 [3]: loops over the output; box of a contraction's result, -1 without one; boxes that are
            copied or accumulate sums: they come first.
        loops: float64 [num_loops, 3]: native tiles, elements of one, elements.
        order: int64, loops of more than one native tile, outermost first.
        axes: float64 [num_axes, 14], physical order from major to minor, boxes end to end.
        boxes: int64 [num_boxes + 1, 3]: first axis; bit set of the loops that move it; whether its value has
            no map, so that it is worked on as one vector.
        transfers: float64 [num_transfers, 6].
        nodes: int64 [num_nodes, 3]: position, box, kind of every input and instruction.
    """

    head: IntArray
    loops: FloatArray
    order: IntArray
    axes: FloatArray
    boxes: IntArray
    transfers: FloatArray
    nodes: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """The arrays of a nest end to end: to hand two arrays to compiled code takes less time than seven.

    Attributes:
        ints: head, lengths, order, boxes, nodes.
        floats: the bound, loops, transfers, axes.
    """

    ints: IntArray
    floats: FloatArray

    @property
    def num_boxes(self) -> int:
        """Distinct boxes."""
        return int(self.ints[_NUM_BOXES])

    @property
    def bound_bytes(self) -> float:
        """Scratchpad that no tile size exceeds: everything whole, twice, and the sums of a contraction."""
        return float(self.floats[0])


def pack(nest: LoopNest) -> Packed:
    """The arrays of a nest; worked out once and kept with it, like its own cached properties."""
    known: Packed | None = vars(nest).get("packed")
    if known is None:
        known = vars(nest)["packed"] = _pack(nest)
    return known


@compiled
def unpacked(ints: IntArray, floats: FloatArray) -> PackedNest:
    """The single arrays of a nest, for compiled code."""
    num_loops, num_boxes = ints[_NUM_LOOPS], ints[_NUM_BOXES]
    boxes = HEAD + ints[_NUM_ORDER]
    nodes = boxes + 3 * (num_boxes + 1)
    transfers = 1 + 3 * num_loops
    axes = transfers + 6 * ints[_NUM_TRANSFERS]
    return PackedNest(
        ints[:HEAD],
        floats[1:transfers].reshape(num_loops, 3),
        ints[HEAD:boxes],
        floats[axes:].reshape((len(floats) - axes) // AXIS_COLUMNS, AXIS_COLUMNS),
        ints[boxes:nodes].reshape(num_boxes + 1, 3),
        floats[transfers:axes].reshape(ints[_NUM_TRANSFERS], 6),
        ints[nodes:].reshape(ints[_NUM_NODES], 3),
    )


@compiled_step
def num_boxes_of(ints: IntArray) -> int:
    """Distinct boxes, from the packed ints."""
    return int(ints[_NUM_BOXES])


@compiled_step
def loop_units(floats: FloatArray, loop: int) -> float:
    """Native tiles along a loop, from the packed floats."""
    return float(floats[1 + 3 * loop + UNITS])


def native_tile_bytes(shape: Shape) -> float:
    """Bytes of one native tile: 8 x 128 (or 1,024) elements; of the value itself for a scalar."""
    bits = _BITS[shape.element_type]
    return bits * (LANES * SUBLANES / 8) if shape.dimensions else bits / 8


def copy_figures(transfer: Transfer) -> tuple[float, ...]:
    """What a copy is beside its box: bytes of a native tile, of an element, row elements, elements."""
    size = transfer.figures[0]
    return (size * (LANES * SUBLANES) if transfer.shape.dimensions else size, *transfer.figures)


class _Boxes:
    """Distinct boxes, numbered as they are met."""

    def __init__(self) -> None:
        self.numbers: dict[_BoxKey, int] = {}
        self.rows: list[int] = []
        self.axes: list[float] = []
        self.num_axes = 0

    def number(self, shape: Shape, access: Access) -> int:
        # Accesses live as long as the nest; most values of a kernel share a few of them.
        key = (id(access), shape.dimensions, shape.minor_to_major)
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.numbers)
            if len(access) == len(shape.dimensions):
                self._add(shape, access, is_unmapped=0)
            else:
                # Without maps that fit, everything is worked on in one go, as a vector.
                flat = Shape(ElementType.F32, (max(1, shape.num_elements),))
                self._add(flat, whole(flat), is_unmapped=1)
        return found

    def _add(self, shape: Shape, access: Access, *, is_unmapped: int) -> None:
        self.rows += (self.num_axes, 0, is_unmapped)
        dimensions = shape.dimensions
        self.num_axes += len(dimensions)
        order = reversed(shape.minor_to_major or shape.layout)
        for axis, native in zip(order, native_units(shape), strict=True):
            # The fields of a map are the first columns.
            self.axes += access[axis]
            self.axes += (dimensions[axis], native)


def _pack(nest: LoopNest) -> Packed:
    boxes = _Boxes()
    floats: list[float] = [0.0]
    for loop in nest.loops:
        floats += (loop.units, loop.unit, loop.extent)
    for t in nest.transfers:
        box = boxes.numbers.get(t.box_key)
        floats.append(boxes.number(t.shape, t.access) if box is None else box)
        floats += (t.is_output, *copy_figures(t))
    result = -1
    if nest.contraction is not None:
        result = boxes.number(nest.anchor_shape, nest.accesses[nest.contraction])
    num_copied = len(boxes.numbers)
    nodes = _nodes(nest, boxes)
    order = [loop for loop in nest.order if floats[1 + 3 * loop] > 1]
    lengths = (len(nest.loops), len(order), len(boxes.numbers), len(nest.transfers), len(nodes) // 3)
    ints = [nest.num_output_loops, result, num_copied, *lengths, *order, *boxes.rows, boxes.num_axes, 0, 0]
    packed_ints = np.array(ints + nodes, dtype=np.int64)
    return Packed(packed_ints, _completed(packed_ints, np.array(floats + boxes.axes, dtype=np.float64)))


def _nodes(nest: LoopNest, boxes: _Boxes) -> list[int]:
    kernel = nest.kernel
    instructions, accesses, numbers = kernel.body.instructions, nest.accesses, boxes.numbers
    after = nest.after_contraction
    rows: list[int] = []
    for positions, kind in ((kernel.inputs, INPUT), (kernel.instructions, INSTRUCTION)):
        for position in positions:
            shape, access = instructions[position].shape, accesses[position]
            if shape.element_type is _TUPLE:
                shape = array_shape(shape)
            box = numbers.get((id(access), shape.dimensions, shape.minor_to_major))
            if box is None:
                box = boxes.number(shape, access)
            rows += (position, box, AFTER_CONTRACTION if position in after else kind)
    return rows


@compiled
def _completed(ints: IntArray, given: FloatArray) -> FloatArray:
    """The floats of a nest with all columns of its axes, and the bound; bit sets of boxes in place."""
    first = 1 + 3 * ints[_NUM_LOOPS] + 6 * ints[_NUM_TRANSFERS]
    num_axes = (len(given) - first) // _GIVEN_AXIS_COLUMNS
    floats = np.zeros(first + num_axes * AXIS_COLUMNS)
    for place in range(first):
        floats[place] = given[place]
    nest = unpacked(ints, floats)
    for a in range(num_axes):
        for column in range(_GIVEN_AXIS_COLUMNS):
            nest.axes[a, column] = given[first + a * _GIVEN_AXIS_COLUMNS + column]
    complete(ints, floats)
    return floats


@compiled
def complete(ints: IntArray, floats: FloatArray) -> None:
    """Fills in what follows from the other numbers of a nest: of axes and boxes, and the bound."""
    nest = unpacked(ints, floats)
    for a in range(len(nest.axes)):
        _complete_axis(nest, a)
    for box in range(ints[_NUM_BOXES]):
        for a in range(nest.boxes[box, FIRST_AXIS], nest.boxes[box + 1, FIRST_AXIS]):
            loop, window_loop = int(nest.axes[a, LOOP]), int(nest.axes[a, WINDOW_LOOP])
            if loop != NO_LOOP:
                nest.boxes[box, MASK] |= 1 << loop
            if window_loop != NO_LOOP:
                nest.boxes[box, MASK] |= 1 << window_loop
    floats[0] = _bound_bytes(nest)


@compiled_step
def _complete_axis(nest: PackedNest, a: int) -> None:
    axis = nest.axes[a]
    axis[LIMIT] = max(1.0, np.ceil(axis[SIZE] / axis[NATIVE]))
    if axis[LOOP] != NO_LOOP:
        # Elements between the starts of two tiles for each native tile that the loop advances; and native
        # tiles, where they never start inside one.
        axis[STEP] = nest.loops[int(axis[LOOP]), UNIT] * axis[SCALE] * axis[STRIDE] / axis[BASE_DILATION]
        step = axis[STEP] / axis[NATIVE]
        if step >= 1.0 and step == np.floor(step):
            axis[ALIGNED_STEP] = step
    if axis[WINDOW] != 1 or axis[WINDOW_LOOP] != NO_LOOP or axis[STRIDE] != 1 or axis[BASE_DILATION] != 1:
        axis[IS_WINDOW] = 1.0


@compiled_step
def _bound_bytes(nest: PackedNest) -> float:
    total = 0.0
    for t in range(len(nest.transfers)):
        total += 2.0 * _whole_tiles(nest, int(nest.transfers[t, BOX])) * nest.transfers[t, NATIVE_BYTES]
    if nest.head[RESULT_BOX] >= 0 and len(nest.loops):
        total += _whole_tiles(nest, nest.head[RESULT_BOX]) * RESULT_TILE_BYTES
    return total


@compiled_step
def _whole_tiles(nest: PackedNest, box: int) -> float:
    first, end = nest.boxes[box, FIRST_AXIS], nest.boxes[box + 1, FIRST_AXIS]
    size = 1.0 if end > first else 0.0
    for axis in range(first, end):
        size *= nest.axes[axis, LIMIT]
    return size
