"""The loops a kernel is lowered to, and the tiles of every value that they move.

One loop per physical axis of the iteration shape, major to minor, then the loops over a contraction. Loops
that only sum run inside those that move a result. A tile size says how many native tiles each loop advances
at a time; everything a cost model needs (iterations, tiles of operands, how often they are fetched again)
follows from the nest and the tile size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.access import NO_LOOP, Access
from costbench.compiler.lowering.anchors import (
    LANES,
    SUBLANES,
    KernelAxis,
    Loop,
    Walk,
    anchor_of,
    native_units,
    walk_over,
)
from costbench.compiler.lowering.propagation import Propagation
from costbench.compiler.lowering.transfers import Transfer, reads_of_first_operand
from costbench.compiler.lowering.value_tables import (
    CONTRACTS,
    FIXES_AXES,
    READS_PART,
    UNTILED,
    WORKS,
    Value,
    ValueTables,
)
from costbench.compiler.tiling.sizes import TileSizes
from costbench.errors import UnsupportedKernelError
from costbench.hlo.memo import Memo
from costbench.hlo.module import HloModule
from costbench.hlo.shape import Shape

__all__ = ["LANES", "SUBLANES", "KernelAxis", "Loop", "LoopNest", "Lowering", "loop_nest", "native_units"]

IntArray = npt.NDArray[np.int64]


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
        contraction_order: the loops from outermost to innermost, where there is a contraction.
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
    contraction_order: tuple[int, ...] = ()

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The loops from outermost to innermost.

        A contraction walks over the columns of its right-hand side first, so that weights stay while rows
        pass. Everywhere, loops that only sum run inside those that move a result.
        """
        if self.contraction is not None:
            return self.contraction_order
        loops = range(len(self.loops))
        kept: set[int] = set()
        for transfer in self.transfers:
            if transfer.is_output:
                kept.update(transfer.loops)
        if len(kept) == len(loops):
            return tuple(loops)
        return (*(loop for loop in loops if loop in kept), *(loop for loop in loops if loop not in kept))

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
        instructions = self.kernel.body.instructions
        for position in self.kernel.instructions:
            if not reached.isdisjoint(instructions[position].operands):
                reached.add(position)
        reached.discard(self.contraction)
        return frozenset(reached)

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


class Lowering:
    """Lowers kernels of one program; what they share is worked out once.

    What is kept grows with the program, not with the number of kernels.

    Args:
        module: the program, layouts assigned.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._bodies: Memo[int, tuple[ValueTables, Memo[tuple[int, bool], Walk]]] = Memo(self._body)

    def loop_nest(self, kernel: Kernel) -> LoopNest:
        """As `loop_nest`, for a kernel of the program.

        Raises:
            UnsupportedKernelError: if it holds more than one contraction, or belongs to another program.
        """
        if kernel.module is not self.module:
            raise UnsupportedKernelError(
                "a kernel of another program", where=kernel.module.name, expected=self.module.name
            )
        tables, walks = self._bodies[kernel.computation]
        if tables.is_full:
            tables, walks = self._bodies[kernel.computation] = self._body(kernel.computation)
        values = [tables[position] for position in kernel.instructions]
        traits = 0
        for value in values:
            traits |= value.traits
        hero = _contraction(kernel, values) if traits & CONTRACTS else None
        anchor = anchor_of(kernel, tables) if hero is None else hero
        shape = anchor.shape
        is_tiled = bool(shape.dimensions) and traits & WORKS and not traits & UNTILED
        walk = walks[anchor.position, hero is not None] if is_tiled else Walk(anchor.whole)
        if traits & FIXES_AXES:
            walk = walk.with_fixed_axes(shape, values)
        numbers = Propagation(tables, kernel, values, anchor, walk.access).run()
        named = tables.accesses
        accesses = {position: named[number] for position, number in numbers.items()}
        in_part = {value.inst.operands[0] for value in values if value.traits & READS_PART}
        transfers: list[Transfer] = []
        for position in kernel.inputs:
            if position in in_part:
                transfers += reads_of_first_operand(kernel, accesses, position)
            else:
                transfers.append(tables.read[position, numbers[position]])
        for position in kernel.outputs:
            transfers += tables.writes[position, numbers[tables[position].source]]
        return LoopNest(
            kernel=kernel,
            anchor=anchor.position,
            anchor_shape=shape,
            contraction=None if hero is None else hero.position,
            loops=walk.loops,
            num_output_loops=walk.num_output_loops,
            kernel_axes=walk.kernel_axes,
            accesses=accesses,
            transfers=tuple(transfers),
            operand_accesses=walk.operand_accesses,
            contraction_order=walk.order,
        )

    def _body(self, computation: int) -> tuple[ValueTables, Memo[tuple[int, bool], Walk]]:
        tables = ValueTables(self.module.computations[computation])
        return tables, Memo(partial(walk_over, tables))


def loop_nest(kernel: Kernel) -> LoopNest:
    """Lowers a kernel to loops; `Lowering` is faster where a program has many.

    Raises:
        UnsupportedKernelError: if it holds more than one contraction.
    """
    return Lowering(kernel.module).loop_nest(kernel)


def _contraction(kernel: Kernel, values: Sequence[Value]) -> Value:
    found = [value for value in values if value.traits & CONTRACTS]
    if len(found) > 1:
        raise UnsupportedKernelError(
            f"{len(found)} contractions in one kernel", where=kernel.module.name, expected="at most one"
        )
    return found[0]
