"""What lowering says of a kernel, decoded from its packed words; one tile size as compiled code sees it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.access import Access, AxisMap, access_loops, array_shape
from costbench.compiler.lowering.loop_nest import LoopNest, loop_nest
from costbench.compiler.lowering.packed import AXIS, PackedNest, unpacked
from costbench.compiler.tile_footprint import Tile, mean_extent, new_tile, set_sizes, set_tile

Axes = np.ndarray


def laid_out(kernel: Kernel, extents: tuple[int, ...]) -> tuple[PackedNest, Tile, int]:
    """The packed nest, the tile with its sizes, and the bit set of loops that take steps."""
    packed = unpacked(loop_nest(kernel).words)
    tile = new_tile(packed)
    moving = set_tile(packed, np.array(extents, dtype=np.int64), tile)
    set_sizes(packed, tile, len(tile.sizes))
    return packed, tile, moving


def box_axes(packed: PackedNest, box: int) -> Axes:
    """The axes of a box, physical order from major to minor."""
    return packed.axes[packed.boxes[box]["first_axis"] : packed.boxes[box + 1]["first_axis"]]


def transfer_axes(packed: PackedNest, transfer: int) -> Axes:
    """The axes of a transfer, physical order from major to minor."""
    return box_axes(packed, packed.transfers[transfer]["box"])


def maps_of(axes: Axes) -> Access:
    """The maps of some packed axes, in their order."""
    return tuple(AxisMap(*(axis[name].item() for name in AxisMap._fields)) for axis in axes)


@dataclass(frozen=True)
class Copy:
    """A copy between main memory and the scratchpad.

    Attributes:
        sizes: physical order from major to minor.
        maps: likewise.
        is_output: whether main memory is written.
        row_elements: of rows read by address, else 0.
    """

    sizes: tuple[int, ...]
    maps: Access
    is_output: bool
    row_elements: int

    @property
    def loops(self) -> tuple[int, ...]:
        """The loops that move its tile."""
        return access_loops(self.maps)


def copies_of(nest: LoopNest) -> list[Copy]:
    """The copies of a kernel in order: inputs, then outputs."""
    packed = unpacked(nest.words)
    copies = []
    for number, transfer in enumerate(packed.transfers):
        axes = transfer_axes(packed, number)
        sizes = tuple(int(size) for size in axes["size"])
        rows = int(transfer["row_elements"])
        copies.append(Copy(sizes, maps_of(axes), bool(transfer["is_output"]), rows))
    return copies


def accesses_of(kernel: Kernel) -> dict[int, Access]:
    """The access of every input and instruction by position, in logical order."""
    packed = unpacked(loop_nest(kernel).words)
    accesses = {}
    for node in packed.nodes:
        shape = array_shape(kernel.instruction(int(node["position"])).shape)
        maps = maps_of(box_axes(packed, node["box"]))
        by_axis = dict(zip(reversed(shape.layout), maps, strict=True))
        accesses[int(node["position"])] = tuple(by_axis[axis] for axis in range(shape.rank))
    return accesses


def elements_in_tile(axis_map: AxisMap, size: int, *elements: float) -> float:
    """Elements of an axis of `size` in a tile that has so many elements along each loop."""
    axis = np.zeros(1, dtype=AXIS)
    for name, value in axis_map._asdict().items():
        axis[name] = value
    axis["size"], axis["is_window"] = size, axis_map.is_window
    return float(mean_extent(axis[0], np.array([float(e) for e in elements] or [1.0])))
