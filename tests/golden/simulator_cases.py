"""One small case for each mechanism of the simulated machine, and its price on each chip, kept in a file.

Run as a script to write the file again, after a change of the machine that is meant:

    PYTHONPATH=src:. python tests/golden/simulator_cases.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np

from costbench.artifacts import write_json
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.hardware.device import Device
from costbench.hardware.simulator import Breakdown, simulate_nest
from costbench.target import available_targets, load_target
from tests.compiler import small_kernels as small

GOLDEN = Path(__file__).with_name("simulator.json")
Tile = tuple[int, ...]
CASES: dict[str, tuple[Callable[[], Kernel], tuple[Tile, ...]]] = {
    "launch_and_fixed_routines": (small.lone_reshape, ((),)),
    "fill_and_drain": (small.unary, ((32, 4), (4, 4))),
    "overlap_of_copies_and_compute": (lambda: small.unary(opcode="tanh", times=8), ((8, 4), (2, 4))),
    "fetching_again_by_loop_order": (small.dot, ((4, 1, 4), (8, 1, 2), (4, 3, 4))),
    "pieces_and_descriptors": (lambda: small.unary("f32[16,64,512]"), ((4, 8, 4), (4, 8, 2), (4, 2, 2))),
    "memory_banks": (lambda: small.elementwise("f32[256,4096]"), ((32, 1), (32, 2))),
    "tiles_inside_native_tiles": (
        lambda: small.copy("bf16[32,5,5,256]{3,0,2,1}", "bf16[32,5,5,256]{3,2,1,0}"),
        ((8, 5, 1, 2), (7, 5, 1, 2)),
    ),
    "rows_by_address": (small.gather, ((64, 2), (8, 2))),
    "matrix_padding": (lambda: small.dot("f32[256,192]", "f32[192,384]"), ((32, 3, 2),)),
    "weight_load_and_drain": (lambda: small.dot("f32[256,512]"), ((1, 3, 4), (32, 3, 4))),
    "accumulation": (small.dot, ((8, 3, 4), (8, 3, 1))),
    "halo_and_taps": (small.convolution, ((8, 16, 2, 2, 3, 3, 1), (8, 4, 2, 2, 1, 3, 1))),
    "dilated_base": (small.transposed_convolution, ((8, 16, 2, 2, 3, 3, 1),)),
    "positions_that_fill_the_depth": (
        small.filter_gradient,
        ((3, 3, 16, 2, 2, 12, 2), (3, 3, 16, 2, 2, 4, 2)),
    ),
    "groups_on_the_vector_unit": (small.depthwise, ((8, 16, 2, 1, 3, 3),)),
    "full_edge_tiles": (lambda: small.unary("f32[40,128]", times=100), ((5, 1), (3, 1))),
    "transcendentals": (lambda: small.unary(opcode="exponential", times=20), ((32, 4),)),
    "random_bits": (small.random_bits, ((32, 4),)),
    "reduction_over_lanes": (lambda: small.reduction(dimensions=(2,)), ((16, 4, 2),)),
    "reduction_over_sublanes": (lambda: small.reduction(dimensions=(1,)), ((16, 4, 2),)),
    "misaligned_copies": (small.copy, ((64, 4, 2), (16, 4, 2))),
    "misaligned_copies_of_packed_rows": (
        lambda: small.copy("bf16[32,64,256]{2,1,0}", "bf16[32,64,256]{2,0,1}"),
        ((64, 4, 2),),
    ),
    "windows": (small.pooling, ((8, 8, 1, 1), (8, 2, 1, 1))),
    "sorting": (small.sort, ((8, 8),)),
}


def prices() -> dict[str, object]:
    """Chip -> case -> part of the runtime -> nanoseconds for each tile; and what a device measures."""
    return {
        chip: {name: _price(make(), tiles, chip) for name, (make, tiles) in CASES.items()}
        for chip in available_targets()
    }


def _price(kernel: Kernel, tiles: tuple[Tile, ...], chip: str) -> dict[str, list[float]]:
    nest, target = loop_nest(kernel), load_target(chip)
    extents = np.array(tiles, dtype=np.int64).reshape(len(tiles), -1)
    parts = simulate_nest(nest, extents, target)
    found = {
        field.name: [round(float(v), 4) for v in getattr(parts, field.name)] for field in fields(Breakdown)
    }
    found["runtime_ns"] = [round(float(v), 4) for v in parts.runtime_ns]
    found["measured_ns"] = [float(v) for v in Device(target).measure_nest(nest, extents).runtime_ns]
    return found


if __name__ == "__main__":
    write_json(GOLDEN, prices())
