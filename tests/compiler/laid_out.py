"""One tile size of a kernel as compiled code sees it."""

from __future__ import annotations

import numpy as np

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.lowering.packed import BOX, FIRST_AXIS, PackedNest, pack, unpacked
from costbench.compiler.tiling.footprint import Tile, new_tile, set_sizes, set_tile


def laid_out(kernel: Kernel, extents: tuple[int, ...]) -> tuple[PackedNest, Tile, int]:
    """The packed nest, the tile with its sizes, and the bit set of loops that take steps."""
    arrays = pack(loop_nest(kernel))
    packed = unpacked(arrays.ints, arrays.floats)
    tile = new_tile(packed)
    moving = set_tile(packed, np.array(extents, dtype=np.int64), tile)
    set_sizes(packed, tile, len(tile.sizes))
    return packed, tile, moving


def transfer_axes(packed: PackedNest, transfer: int) -> np.ndarray:
    """The packed axes of a transfer, physical order from major to minor."""
    box = int(packed.transfers[transfer, BOX])
    return packed.axes[packed.boxes[box, FIRST_AXIS] : packed.boxes[box + 1, FIRST_AXIS]]
