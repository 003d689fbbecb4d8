"""Runtime of a kernel on the simulated TPU, for many tile sizes, with a breakdown that adds up.

The loop nest runs prod(n_l) iterations, n_l being the iterations of loop l. Between two iterations the values
whose tile changes are copied; copying, computing and writing back overlap, combined by a soft maximum
(transfer^q + compute^q)^(1/q), or as another rule of the machine's `Formulas` says. Issuing the copies is
work of the core, so large transfers hide it as they hide computing. With count_l transitions at loop level l,

    T = launch + fill + sum_l count_l * (soft maximum(transfer_l, compute_l + issue_l) + iteration)
        + last + drain

where fill is the first copy-in, last the final iteration's compute and control, drain the final copy-out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64, Bool
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LoopNest, loop_nest
from costbench.compiler.lowering.packed import PackedNest, unpacked
from costbench.compiler.lowering.work import contraction_numbers
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_footprint import Tile, new_tile, set_sizes, set_tile
from costbench.compiler.tiled_memory import LANES
from costbench.execution.compiled import compiled, compiled_step
from costbench.hardware.machine import (
    EDGES,
    EDGES_FULL,
    EDGES_ROWS,
    ITERATION_NS,
    LAUNCH_NS,
    OVERLAP,
    OVERLAP_EXPONENT,
    OVERLAP_MAXIMUM,
    OVERLAP_SHARE,
    TRANSFER_NS,
    machine_numbers,
)
from costbench.hardware.matrix_unit import MATRIX_UNIT, matrix_time, pack_contraction, product_size
from costbench.hardware.memory import set_copy_times
from costbench.hardware.noise import COMPUTE, TRANSFER, codegen_factors, structure_of
from costbench.hardware.vector_unit import VECTOR_WORK, VectorRates, vector_ns, vector_rates
from costbench.target import Target

NUM_PARTS = 7
_LAUNCH, _FILL, _MATRIX, _VECTOR, _EXPOSED, _ITERATION, _DRAIN = range(NUM_PARTS)


@dataclass(frozen=True, eq=False)
class Breakdown:
    """The parts of a kernel's runtime, nanoseconds, each [n]; they sum to `runtime_ns`.

    Attributes:
        launch_ns: start of the kernel.
        fill_ns: first copy-in, before anything can run.
        matrix_ns: time of the matrix unit.
        vector_ns: time of the vector unit.
        exposed_transfer_ns: copying that compute does not hide.
        iteration_ns: control of the loops, and issue of the copies between two iterations.
        drain_ns: last copy-out.
    """

    launch_ns: F64
    fill_ns: F64
    matrix_ns: F64
    vector_ns: F64
    exposed_transfer_ns: F64
    iteration_ns: F64
    drain_ns: F64

    @property
    def runtime_ns(self) -> F64:
        """Returns the sum of all parts."""
        return (
            self.launch_ns
            + self.fill_ns
            + self.matrix_ns
            + self.vector_ns
            + self.exposed_transfer_ns
            + self.iteration_ns
            + self.drain_ns
        )


class PreparedKernel(NamedTuple):
    """Everything that a kernel's runtime depends on except the tile size.

    Attributes:
        words: packed loop nest.
        contraction: packed convolution or dot, see `pack_contraction`; empty without one.
        vector: `VectorAmounts` per box, [2, num_boxes, 8].
        factors: factors of generated code, [2, num_structures].
        machine: numbers of the chip, see `machine_numbers`.
    """

    words: F64
    contraction: F64
    vector: F64
    factors: F64
    machine: F64


class Workspace(NamedTuple):
    """Buffers that are overwritten for each tile size, with views and rates that stay the same.

    Attributes:
        nest: lowered kernel; the same for all tile sizes.
        tile: current tile size.
        times: nanoseconds of each copy, [num_transfers].
        masks: bit sets of the loops that move each value, int64 [num_transfers]; the same for all tile sizes.
        starts_over: whether the current loop or one further in moves the value, [num_transfers].
        rates: rates of vector work; the same for all tile sizes.
    """

    nest: PackedNest
    tile: Tile
    times: F64
    masks: I64
    starts_over: Bool
    rates: VectorRates


class ComputeTime(NamedTuple):
    """Nanoseconds of computing for one tile size; on the matrix unit every tile in full, also at the edge.

    Attributes:
        matrix_ns: time of the matrix unit, per iteration.
        vector_ns: time of the vector unit, per iteration.
        epilogue_ns: time of the vector unit for what needs finished sums, per result tile of a contraction.
    """

    matrix_ns: float
    vector_ns: float
    epilogue_ns: float


def simulate(kernel: Kernel, tile_sizes: TileSizes, target: Target) -> Breakdown:
    """Lowers a kernel, prepares it for a chip and prices its tile sizes.

    Raises:
        UnsupportedKernelError: if the kernel cannot be lowered or the tile sizes are not its own.
    """
    nest = loop_nest(kernel)
    return simulate_nest(nest, nest.extents(tile_sizes), target)


def simulate_nest(nest: LoopNest, extents: I64, target: Target) -> Breakdown:
    """Prices loop extents [n, num_loops] of a lowered kernel.

    Raises:
        UnsupportedKernelError: if the kernel holds an operation that the machine cannot run.
    """
    parts = np.empty((NUM_PARTS, len(extents)))
    price(prepare(nest, target), np.ascontiguousarray(extents), parts)
    return Breakdown(*parts)


def prepare(nest: LoopNest, target: Target) -> PreparedKernel:
    """Returns everything that prices on a chip depend on except the tile size.

    What does not depend on the chip is cached with the nest.

    Raises:
        UnsupportedKernelError: if the kernel holds an operation that the machine cannot run.
    """
    vector = nest.derived.get(VECTOR_WORK.name)
    if vector is None:
        vector = nest.tables.table(VECTOR_WORK).per_box(nest.words, nest.kernel.instructions)
        nest.derived[VECTOR_WORK.name] = vector
    return PreparedKernel(
        nest.words,
        contraction_numbers(nest.space, MATRIX_UNIT, pack_contraction),
        vector,
        codegen_factors(nest, target),
        machine_numbers(target),
    )


@compiled
def _new_workspace(kernel: PreparedKernel) -> Workspace:
    nest = unpacked(kernel.words)
    transfers = len(nest.transfers)
    masks = np.empty(transfers, dtype=np.int64)
    for transfer in range(transfers):
        masks[transfer] = nest.boxes[nest.transfers[transfer].box].mask
    return Workspace(
        nest,
        new_tile(nest),
        np.empty(transfers),
        masks,
        np.empty(transfers, dtype=np.bool_),
        vector_rates(kernel.vector, kernel.machine),
    )


@compiled
def price(kernel: PreparedKernel, extents: I64, parts: F64) -> None:
    """Fills in the first rows of [7 or more, n], in the order of `Breakdown`, for extents [n, num_loops]."""
    # One tile size after the other, not one step after the other over all of them: what a tile size needs
    # (a few hundred numbers) stays in the first-level cache, and no arrays are made.
    workspace = _new_workspace(kernel)
    for i in range(len(extents)):
        _price_tile(kernel, workspace, extents[i], parts[:, i])


@compiled_step
def _price_tile(kernel: PreparedKernel, workspace: Workspace, extents: I64, parts: F64) -> None:
    """Computes the parts [7] of one tile size."""
    nest, machine, tile = workspace.nest, kernel.machine, workspace.tile
    moving = set_tile(nest, extents, tile)
    structure = structure_of(nest, extents)
    factor = kernel.factors[COMPUTE, structure]
    set_copy_times(nest, tile, machine, kernel.factors[TRANSFER, structure], workspace.times)
    size = product_size(kernel.contraction, tile)
    if machine[EDGES] != EDGES_FULL:
        _cut_at_edges(nest, tile, machine[EDGES] == EDGES_ROWS)
    set_sizes(nest, tile, len(tile.sizes))
    matrix = matrix_time(nest, kernel.contraction, size, tile, moving, machine)
    every, after = vector_ns(nest, workspace.rates, tile, machine)
    compute = ComputeTime(matrix.matrix_ns * factor, (matrix.vector_ns + every) * factor, after * factor)
    exposed, issue, iterations, results = _between_iterations(workspace, compute, machine)
    parts[_LAUNCH] = machine[LAUNCH_NS]
    parts[_FILL], parts[_DRAIN] = 0.0, 0.0
    for transfer in range(len(nest.transfers)):
        part = _DRAIN if nest.transfers[transfer].is_output else _FILL
        parts[part] += workspace.times[transfer] + machine[TRANSFER_NS]
    parts[_MATRIX] = compute.matrix_ns * iterations
    parts[_VECTOR] = compute.vector_ns * iterations + compute.epilogue_ns * results
    parts[_EXPOSED] = exposed
    parts[_ITERATION] = machine[ITERATION_NS] * iterations + issue


@compiled_step
def _cut_at_edges(nest: PackedNest, tile: Tile, to_rows: bool) -> None:
    """Cuts what the vector unit runs over to the native tiles that the array has, averaged over the tiles.

    With `to_rows` to its rows, whole native tiles along the lanes alone.
    """
    for loop in range(len(nest.loops)):
        units, unit = nest.loops[loop].units, nest.loops[loop].unit
        elements = nest.loops[loop].extent if to_rows and unit < LANES else units * unit
        tile.full[loop] = elements / tile.trips[loop]
        tile.extents[loop] = tile.full[loop] / unit


@compiled_step
def _between_iterations(
    workspace: Workspace, compute: ComputeTime, machine: F64
) -> tuple[float, float, float, float]:
    """Returns nanoseconds of transfer that compute does not hide and of issuing copies.

    Then follow the numbers of iterations and of result tiles.

    A value's tile changes when a loop that moves it advances, or starts over after more than one step. So
    loops are visited from the innermost outwards, and each advance costs the copies of all values that this
    loop or one further in moves.
    """
    nest = workspace.nest
    exposed, issue = 0.0, 0.0
    iterations, results = 1.0, 1.0
    for position in range(len(nest.order)):
        loop = nest.order[position]
        iterations *= workspace.tile.trips[loop]
        if loop < nest.num_output_loops:
            results *= workspace.tile.trips[loop]
    outer = iterations
    transfer_ns, copies = 0.0, 0.0
    exposed_ns, known_ns, known_busy_ns = 0.0, -1.0, -1.0
    for transfer in range(len(workspace.starts_over)):
        workspace.starts_over[transfer] = False
    for position in range(len(nest.order) - 1, -1, -1):
        loop = nest.order[position]
        trips = workspace.tile.trips[loop]
        if trips == 1.0:
            continue
        outer /= trips
        if copies < len(workspace.times):
            transfer_ns, copies = _copies_at(workspace, loop)
        busy = compute.matrix_ns + compute.vector_ns + copies * machine[TRANSFER_NS]
        if loop < nest.num_output_loops:
            busy += compute.epilogue_ns
        if transfer_ns != known_ns or busy != known_busy_ns:
            exposed_ns = overlapped_ns(transfer_ns, busy, machine) - busy
            known_ns, known_busy_ns = transfer_ns, busy
        count = (trips - 1.0) * outer
        exposed += count * exposed_ns
        issue += count * copies * machine[TRANSFER_NS]
    return exposed, issue, iterations, results


@compiled_step
def _copies_at(workspace: Workspace, loop: int) -> tuple[float, float]:
    """Returns nanoseconds and number of the copies when a loop advances and all inside it start over."""
    transfer_ns, copies = 0.0, 0.0
    for transfer in range(len(workspace.times)):
        if workspace.masks[transfer] >> loop & 1:
            workspace.starts_over[transfer] = True
        if workspace.starts_over[transfer]:
            transfer_ns += workspace.times[transfer]
            copies += 1.0
    return transfer_ns, copies


@compiled_step
def overlapped_ns(transfer_ns: float, busy_ns: float, machine: F64) -> float:
    """Returns nanoseconds of copying beside computing, by the machine's rule (`Formulas.overlap`)."""
    exponent = machine[OVERLAP_EXPONENT]
    if machine[OVERLAP] == OVERLAP_MAXIMUM:
        return max(transfer_ns, busy_ns)
    if machine[OVERLAP] == OVERLAP_SHARE:
        share = 2.0 ** (1.0 / exponent) - 1.0
        return float(max(transfer_ns, busy_ns) + share * min(transfer_ns, busy_ns))
    return soft_maximum(transfer_ns, busy_ns, exponent)


@compiled_step
def soft_maximum(a: float, b: float, exponent: float) -> float:
    """Returns (a^q + b^q)^(1/q): the larger of the two, or up to 2^(1/q) times that when they are equal."""
    larger, smaller = max(a, b), min(a, b)
    if smaller <= 0.0:
        return larger
    return float(larger * (1.0 + (smaller / larger) ** exponent) ** (1.0 / exponent))
