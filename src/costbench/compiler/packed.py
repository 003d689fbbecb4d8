"""A loop nest as a few flat arrays, from which compiled code prices one tile size after the other.

Most values of a kernel are cut alike, so what a tile size needs is worked out once per distinct *box*: the
tile of a shape under an access. Instructions and copies refer to boxes by number.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiled import compiled, compiled_step
from costbench.compiler.access import NO_LOOP, Access, AxisMap, array_shape, whole
from costbench.compiler.loop_nest import LANES, SUBLANES, LoopNest
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
_AXIS_COLUMNS = 14
# Columns of `PackedNest.boxes`.
FIRST_AXIS, MASK, IS_UNMAPPED = range(3)
# Columns of `PackedNest.transfers`.
BOX, IS_OUTPUT, NATIVE_BYTES, ELEMENT_BYTES, ROW_ELEMENTS, NUM_ELEMENTS = range(6)
# Columns of `PackedNest.nodes`, and what a node is.
POSITION, NODE_BOX, KIND = range(3)
INPUT, INSTRUCTION, AFTER_CONTRACTION = range(3)
# Entries of `PackedNest.head`.
NUM_OUTPUT_LOOPS, RESULT_BOX, NUM_COPIED_BOXES = range(3)

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
        bound_bytes: scratchpad that no tile size exceeds: everything whole, twice, and the sums.
    """

    head: IntArray
    loops: FloatArray
    order: IntArray
    axes: FloatArray
    boxes: IntArray
    transfers: FloatArray
    nodes: IntArray
    bound_bytes: float


def pack(nest: LoopNest) -> PackedNest:
    """The arrays of a nest; worked out once and kept with it, like its own cached properties."""
    known: PackedNest | None = vars(nest).get("packed")
    if known is None:
        known = vars(nest)["packed"] = _pack(nest)
    return known


def native_tile_bytes(shape: Shape) -> float:
    """Bytes of one native tile: 8 x 128 (or 1,024) elements; of the value itself for a scalar."""
    bits = _BITS[shape.element_type]
    return bits * (LANES * SUBLANES / 8) if shape.dimensions else bits / 8


def box_of(packed: PackedNest, position: int) -> int:
    """Number of the box of a value.

    Raises:
        KeyError: if the kernel neither makes nor reads the value.
    """
    found = np.flatnonzero(packed.nodes[:, POSITION] == position)
    if not len(found):
        raise KeyError(position)
    return int(packed.nodes[found[0], NODE_BOX])


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
        rank = len(dimensions)
        self.num_axes += rank
        if rank == 1:
            self.axes += _axis(access[0], dimensions[0], LANES * SUBLANES)
            return
        for place, axis in enumerate(reversed(shape.minor_to_major or shape.layout), 1 - rank):
            native = LANES if place == 0 else SUBLANES if place == -1 else 1
            self.axes += _axis(access[axis], dimensions[axis], native)


def _axis(m: AxisMap, size: int, native: int) -> tuple[float, ...]:
    return (
        m.loop,
        m.scale,
        m.window_loop,
        m.window,
        m.stride,
        m.dilation,
        m.base_dilation,
        m.padding,
        size,
        native,
    )


def _pack(nest: LoopNest) -> PackedNest:
    boxes = _Boxes()
    transfers: list[float] = []
    for t in nest.transfers:
        shape = t.shape
        bits = _BITS[shape.element_type]
        transfers += (
            boxes.number(shape, t.access),
            t.is_output,
            native_tile_bytes(shape),
            bits / 8,
            t.row_elements,
            math.prod(shape.dimensions),
        )
    result = -1
    if nest.contraction is not None:
        result = boxes.number(nest.anchor_shape, nest.accesses[nest.contraction])
    num_copied = len(boxes.numbers)
    nodes = _nodes(nest, boxes)
    head = np.array((nest.num_output_loops, result, num_copied), dtype=np.int64)
    loops = [value for loop in nest.loops for value in (loop.units, loop.unit, loop.extent)]
    given = np.array(boxes.axes, dtype=np.float64).reshape(-1, _GIVEN_AXIS_COLUMNS)
    packed_loops = np.array(loops, dtype=np.float64).reshape(-1, 3)
    packed_boxes = np.array([*boxes.rows, boxes.num_axes, 0, 0], dtype=np.int64).reshape(-1, 3)
    copies = np.array(transfers, dtype=np.float64).reshape(-1, 6)
    axes = _derived(given, packed_loops, packed_boxes)
    bound = _bound_bytes(axes, packed_boxes, copies, result if nest.is_tiled else -1)
    order = np.array([loop for loop in nest.order if loops[3 * loop] > 1], dtype=np.int64)
    return PackedNest(head, packed_loops, order, axes, packed_boxes, copies, nodes, bound)


def _nodes(nest: LoopNest, boxes: _Boxes) -> IntArray:
    kernel = nest.kernel
    instructions, accesses = kernel.body.instructions, nest.accesses
    after = nest.after_contraction
    rows: list[int] = []
    for positions, kind in ((kernel.inputs, INPUT), (kernel.instructions, INSTRUCTION)):
        for position in positions:
            shape = instructions[position].shape
            if shape.element_type is _TUPLE:
                shape = array_shape(shape)
            box = boxes.number(shape, accesses[position])
            rows += (position, box, AFTER_CONTRACTION if position in after else kind)
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


@compiled
def _derived(given: FloatArray, loops: FloatArray, boxes: IntArray) -> FloatArray:
    """Completes the columns of axes, and the bit sets of boxes in place."""
    axes = np.empty((len(given), _AXIS_COLUMNS))
    for a in range(len(given)):
        axis = axes[a]
        axis[:_GIVEN_AXIS_COLUMNS] = given[a]
        axis[LIMIT] = max(1.0, np.ceil(axis[SIZE] / axis[NATIVE]))
        axis[STEP], axis[ALIGNED_STEP] = 0.0, 0.0
        if axis[LOOP] != NO_LOOP:
            # Elements between the starts of two tiles for each native tile that the loop advances; and native
            # tiles, where they never start inside one.
            axis[STEP] = loops[int(axis[LOOP]), UNIT] * axis[SCALE] * axis[STRIDE] / axis[BASE_DILATION]
            step = axis[STEP] / axis[NATIVE]
            if step >= 1.0 and step == np.floor(step):
                axis[ALIGNED_STEP] = step
        axis[IS_WINDOW] = (
            axis[WINDOW] != 1 or axis[WINDOW_LOOP] != NO_LOOP or axis[STRIDE] != 1 or axis[BASE_DILATION] != 1
        )
    for box in range(len(boxes) - 1):
        for a in range(boxes[box, FIRST_AXIS], boxes[box + 1, FIRST_AXIS]):
            for column in (LOOP, WINDOW_LOOP):
                loop = int(axes[a, column])
                if loop != NO_LOOP:
                    boxes[box, MASK] |= 1 << loop
    return axes


@compiled
def _bound_bytes(axes: FloatArray, boxes: IntArray, transfers: FloatArray, result: int) -> float:
    total = 0.0
    for t in range(len(transfers)):
        total += 2.0 * _whole_tiles(axes, boxes, int(transfers[t, BOX])) * transfers[t, NATIVE_BYTES]
    if result >= 0:
        total += _whole_tiles(axes, boxes, result) * RESULT_TILE_BYTES
    return total


@compiled_step
def _whole_tiles(axes: FloatArray, boxes: IntArray, box: int) -> float:
    first, end = boxes[box, FIRST_AXIS], boxes[box + 1, FIRST_AXIS]
    size = 1.0 if end > first else 0.0
    for axis in range(first, end):
        size *= axes[axis, LIMIT]
    return size
