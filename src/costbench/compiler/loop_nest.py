"""The loops a kernel is lowered to, and the tiles of every value that they move.

One loop per physical axis of the iteration shape, major to minor, then the loops over a contraction. Loops
that only sum run inside those that move a result. A tile size says how many native tiles each loop advances
at a time; everything a cost model needs (iterations, tiles of operands, how often they are fetched again)
follows from the nest and the tile size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from costbench.compiler.access import NO_LOOP, Access, access_loops, array_shape
from costbench.compiler.contraction import CONTRACTIONS, ContractionAxes, contraction_axes
from costbench.compiler.kernel import Kernel
from costbench.compiler.propagation import Propagation
from costbench.compiler.tile_sizes import TileSizes
from costbench.compiler.transfers import Transfer, transfers_of
from costbench.errors import UnsupportedKernelError
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

LANES = 128
SUBLANES = 8
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_REDUCTIONS = frozenset({Opcode.REDUCE})
_UNTILED = frozenset(
    {
        Opcode.FFT,
        Opcode.CHOLESKY,
        Opcode.TRIANGULAR_SOLVE,
        Opcode.CUSTOM_CALL,
        Opcode.RNG_GET_AND_UPDATE_STATE,
    }
)


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of the nest.

    Attributes:
        extent: elements it walks over.
        unit: elements of one native tile along it.
        contraction: whether it sums (contraction and window loops) rather than walks over the result.
        fixed: whether it cannot be cut (the sorted axis of a sort).
    """

    extent: int
    unit: int
    contraction: bool = False
    fixed: bool = False

    @property
    def units(self) -> int:
        """Native tiles along the loop: ceil(extent / unit), at least 1."""
        return max(1, -(-self.extent // self.unit))


@dataclass(frozen=True, slots=True)
class KernelAxis:
    """One axis of the right-hand side: which loop cuts it, its native tiles and elements per native tile."""

    loop: int
    units: int
    unit: int


@dataclass(frozen=True, eq=False)
class LoopNest:
    """The lowering of one kernel before tile sizes are chosen.

    Attributes:
        kernel: what is lowered.
        anchor: position of the value whose shape the output loops walk over.
        anchor_shape: its shape; of the largest member for a tuple.
        contraction: position of the convolution or dot, if there is one.
        loops: `num_output_loops` over the anchor's physical axes, major to minor, then the contraction's.
        kernel_axes: the right-hand side's axes in physical order, empty without a contraction.
        accesses: position -> access, for every value of the kernel and its inputs.
        transfers: what is copied in and out.
        operand_accesses: accesses of the contraction's left-hand and right-hand side.
    """

    kernel: Kernel
    anchor: int
    anchor_shape: Shape
    contraction: int | None
    loops: tuple[Loop, ...]
    num_output_loops: int
    kernel_axes: tuple[KernelAxis, ...]
    accesses: dict[int, Access]
    transfers: tuple[Transfer, ...]
    operand_accesses: tuple[Access, Access] = ((), ())

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The loops from outermost to innermost.

        A contraction walks over the columns of its right-hand side first, so that weights stay while rows
        pass. Everywhere, loops that only sum run inside those that move a result.
        """
        columns: set[int] = set()
        kept = {loop for t in self.transfers if t.is_output for loop in t.loops}
        if self.contraction is not None:
            kept = set(range(self.num_output_loops))
            left, right = self.operand_accesses
            columns = (set(access_loops(right)) - set(access_loops(left))) & kept
        return tuple(
            sorted(range(len(self.loops)), key=lambda loop: (loop not in columns, loop not in kept, loop))
        )

    @cached_property
    def units(self) -> IntArray:
        """Native tiles along each loop, int64 [num_loops]."""
        return np.array([loop.units for loop in self.loops], dtype=np.int64)

    @property
    def is_tiled(self) -> bool:
        """Whether the kernel has tile sizes to choose; without loops its one tile is everything."""
        return bool(self.loops)

    @cached_property
    def after_contraction(self) -> frozenset[int]:
        """Instructions that run once per result tile, on the contraction's finished sums."""
        if self.contraction is None:
            return frozenset()
        reached = {self.contraction}
        for position in self.kernel.instructions:
            if reached.intersection(self.kernel.instruction(position).operands):
                reached.add(position)
        return frozenset(reached - {self.contraction})

    def extents(self, tile_sizes: TileSizes) -> IntArray:
        """Native tiles that each loop advances per iteration, int64 [n, num_loops].

        Raises:
            UnsupportedKernelError: if the bounds do not belong to this kernel.
        """
        num_kernel = len(self.kernel_axes) if self.kernel_axes else 0
        shape = (tile_sizes.kernel_bounds.shape[1], tile_sizes.output_bounds.shape[1])
        if not self.is_tiled:
            return np.zeros((len(tile_sizes), 0), dtype=np.int64)
        if shape != (num_kernel, self.num_output_loops):
            raise UnsupportedKernelError(
                f"tile of rank {shape[0]} (kernel) and {shape[1]} (output)",
                where=self.kernel.module.name,
                field="tile size",
                expected=f"ranks {num_kernel} and {self.num_output_loops}",
            )
        extents = np.ones((len(tile_sizes), len(self.loops)), dtype=np.int64)
        extents[:, : self.num_output_loops] = tile_sizes.output_bounds
        for axis, kernel_axis in enumerate(self.kernel_axes):
            if kernel_axis.loop >= self.num_output_loops:
                loop = self.loops[kernel_axis.loop]
                tiles = -(-(tile_sizes.kernel_bounds[:, axis] * kernel_axis.unit) // loop.unit)
                inside = (tile_sizes.kernel_bounds[:, axis] <= kernel_axis.units) & (tiles >= 1)
                # The last native tile of the right-hand side may reach beyond the loop's end.
                extents[:, kernel_axis.loop] = np.where(inside, np.minimum(tiles, loop.units), 0)
        if (extents < 1).any() or (extents > self.units).any():
            raise UnsupportedKernelError(
                "tile bound outside of the shape",
                where=self.kernel.module.name,
                field="tile size",
                expected=f"1 to {self.units.tolist()} native tiles",
            )
        return extents

    def tile_sizes(self, extents: IntArray) -> TileSizes:
        """The bounds a compiler records for loop extents [n, num_loops]: the inverse of `extents`."""
        kernel_bounds = np.empty((len(extents), len(self.kernel_axes)), dtype=np.int64)
        for axis, kernel_axis in enumerate(self.kernel_axes):
            if kernel_axis.loop == NO_LOOP:
                kernel_bounds[:, axis] = kernel_axis.units
                continue
            elements = extents[:, kernel_axis.loop] * self.loops[kernel_axis.loop].unit
            kernel_bounds[:, axis] = np.minimum(-(-elements // kernel_axis.unit), kernel_axis.units)
        return TileSizes(kernel_bounds, extents[:, : self.num_output_loops].copy())

    def trips(self, extents: IntArray) -> IntArray:
        """Iterations of each loop, ceil(units / extent), int64 [n, num_loops]."""
        return -(-self.units // extents)

    def iterations(self, tile_sizes: TileSizes) -> IntArray:
        """Iterations of the whole nest, int64 [n]."""
        result: IntArray = self.trips(self.extents(tile_sizes)).prod(axis=1)
        return result

    def full_elements(self, extents: IntArray) -> list[FloatArray]:
        """Elements per tile along each loop as the compute sees them: whole tiles, cut at the loop's end."""
        return [
            np.minimum(extents[:, i] * float(loop.unit), float(loop.units * loop.unit))
            for i, loop in enumerate(self.loops)
        ]

    def mean_elements(self, extents: IntArray) -> list[FloatArray]:
        """Elements along each loop averaged over its tiles: what copies move, edge tiles being cut short."""
        trips = self.trips(extents)
        return [loop.units * loop.unit / trips[:, i] for i, loop in enumerate(self.loops)]


def loop_nest(kernel: Kernel) -> LoopNest:
    """Lowers a kernel to loops.

    Raises:
        UnsupportedKernelError: if it holds more than one contraction, or nothing to compute.
    """
    hero = _contraction(kernel)
    anchor, anchor_shape = _anchor(kernel, hero)
    untiled = anchor_shape.rank == 0 or _is_untiled(kernel)
    loops = [] if untiled else _output_loops(kernel, anchor, anchor_shape)
    num_output_loops = len(loops)
    axes: ContractionAxes | None = None
    kernel_axes: tuple[KernelAxis, ...] = ()
    if hero is not None and not untiled:
        output_loop = {axis: i for i, axis in enumerate(reversed(anchor_shape.layout))}
        axes = contraction_axes(kernel, hero, output_loop, num_output_loops)
        loops += [Loop(extent, unit, contraction=True) for extent, unit in axes.loops]
        kernel_axes = tuple(KernelAxis(*axis) for axis in axes.kernel_axes)
    fixed = {} if axes is None else {(anchor, place): access for place, access in enumerate(axes.operands)}
    accesses = Propagation(kernel, anchor, anchor_shape, num_output_loops, fixed).run()
    return LoopNest(
        kernel=kernel,
        anchor=anchor,
        anchor_shape=anchor_shape,
        contraction=hero,
        loops=tuple(loops),
        num_output_loops=num_output_loops,
        kernel_axes=kernel_axes,
        accesses=accesses,
        transfers=transfers_of(kernel, accesses),
        operand_accesses=axes.operands if axes is not None else ((), ()),
    )


def native_units(shape: Shape) -> tuple[int, ...]:
    """Elements of one native tile along each physical axis, major to minor: ..., 1, 1, 8, 128; or 1,024."""
    if shape.rank == 1:
        return (LANES * SUBLANES,)
    return (1,) * (shape.rank - 2) + (SUBLANES, LANES) if shape.rank else ()


def _contraction(kernel: Kernel) -> int | None:
    found = [p for p in kernel.instructions if kernel.instruction(p).opcode in CONTRACTIONS]
    if len(found) > 1:
        raise UnsupportedKernelError(
            f"{len(found)} contractions in one kernel", where=kernel.module.name, expected="at most one"
        )
    return found[0] if found else None


def _anchor(kernel: Kernel, hero: int | None) -> tuple[int, Shape]:
    """The value to iterate over: the contraction, a reduction's operand, an update, or the largest output."""
    if hero is not None:
        return hero, kernel.instruction(hero).shape
    candidates = []
    for position in kernel.outputs or kernel.instructions[-1:]:
        inst = kernel.instruction(position)
        if inst.opcode is Opcode.GET_TUPLE_ELEMENT and inst.operands[0] in kernel.members:
            position = inst.operands[0]
            inst = kernel.instruction(position)
        source = position
        if inst.opcode in _REDUCTIONS:
            source = inst.operands[0]
        elif inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
            source = inst.operands[1]
        elif inst.opcode is Opcode.SCATTER:
            source = inst.operands[-1]
        candidates.append((source, array_shape(kernel.instruction(source).shape)))
    return max(candidates, key=lambda item: item[1].num_elements)


def _is_untiled(kernel: Kernel) -> bool:
    work = [kernel.instruction(p) for p in kernel.instructions]
    if any(inst.opcode in _UNTILED for inst in work):
        return True
    # A lone reshape that moves data is one fixed routine.
    return all(inst.opcode in (Opcode.RESHAPE, Opcode.BITCAST) for inst in work)


def _output_loops(kernel: Kernel, anchor: int, shape: Shape) -> list[Loop]:
    fixed = _fixed_axes(kernel, anchor, shape)
    units = native_units(shape)
    order = tuple(reversed(shape.layout))
    return [
        Loop(shape.dimensions[axis], units[place], fixed=axis in fixed) for place, axis in enumerate(order)
    ]


def _fixed_axes(kernel: Kernel, anchor: int, shape: Shape) -> frozenset[int]:
    fixed: set[int] = set()
    for position in kernel.instructions:
        inst = kernel.instruction(position)
        if inst.opcode in (Opcode.SORT, Opcode.TOPK) and array_shape(inst.shape).rank == shape.rank:
            fixed.update(inst.dimensions or (shape.rank - 1,))
        elif inst.opcode is Opcode.RNG_BIT_GENERATOR and inst.shape.is_tuple:
            continue
    return frozenset(fixed)
