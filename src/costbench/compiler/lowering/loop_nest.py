"""Lowers the kernels of a program to loop nests, one by one or many in one call.

One loop runs over each physical axis of the iteration shape, major to minor; the loops over a contraction
come after them. A tile size says how many native tiles each loop advances at a time; everything that a cost
model needs (iterations, tiles of operands, how often they are fetched) follows from loop nest and tile size.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import KernelArrays, kernel_arrays, kernel_positions
from costbench.compiler.lowering.access import NO_LOOP
from costbench.compiler.lowering.iteration_space import MAX_LOOPS, IterationSpace, KernelAxis, Loop
from costbench.compiler.lowering.lower import SEVERAL_CONTRACTIONS, Lists, Nests, lower_from
from costbench.compiler.lowering.propagation import Search
from costbench.compiler.lowering.tables import LoweringTables
from costbench.compiler.lowering.work import WorkTables
from costbench.compiler.spaces import TileSizes
from costbench.errors import UnsupportedKernelError
from costbench.hlo.module import HloModule

_WORDS_PER_KERNEL, _WORDS_PER_NODE = 64, 32


@dataclass(frozen=True, eq=False)
class LoopNest:
    """The lowering of one kernel before tile sizes are chosen.

    Attributes:
        kernel: the kernel that is lowered.
        space: iteration space of the kernel.
        words: the packed nest, see `lowering.packed`.
        tables: work tables of the kernel's computation.
        derived: cache of what cost models derive from the nest, by name of the model.
    """

    kernel: Kernel
    space: IterationSpace
    words: F64
    tables: WorkTables
    derived: dict[str, F64] = field(default_factory=dict, repr=False)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """Returns `num_output_loops` over the anchor's physical axes, major first, then the contraction's."""
        return self.space.loops

    @property
    def num_output_loops(self) -> int:
        """Returns the number of loops over the result; the loops after them sum."""
        return self.space.num_output_loops

    @property
    def kernel_axes(self) -> tuple[KernelAxis, ...]:
        """Returns the right-hand side's axes in physical order, empty without a contraction."""
        return self.space.kernel_axes

    @property
    def contraction(self) -> int | None:
        """Returns the position of the convolution or dot, or None."""
        return self.space.anchor if self.space.contracts else None

    @property
    def units(self) -> I64:
        """Returns native tiles along each loop, int64 [num_loops]."""
        return self.space.units

    @property
    def is_tiled(self) -> bool:
        """Returns whether the kernel has tile sizes to choose; without loops one tile covers everything."""
        return bool(self.space.loops)

    def extents(self, tile_sizes: TileSizes) -> I64:
        """Returns native tiles that each loop advances per iteration, int64 [n, num_loops].

        Raises:
            UnsupportedKernelError: if the bounds do not belong to this kernel.
        """
        shape = (tile_sizes.kernel_bounds.shape[1], tile_sizes.output_bounds.shape[1])
        if not self.is_tiled:
            return np.zeros((len(tile_sizes.output_bounds), 0), dtype=np.int64)
        loops, kernel_axes, num_output = self.space.loops, self.space.kernel_axes, self.space.num_output_loops
        if shape != (len(kernel_axes), num_output):
            raise UnsupportedKernelError(
                f"tile of rank {shape[0]} (kernel) and {shape[1]} (output)",
                where=self.kernel.module.name,
                field="tile size",
                expected=f"ranks {len(kernel_axes)} and {num_output}",
            )
        extents = np.ones((len(tile_sizes.output_bounds), len(loops)), dtype=np.int64)
        extents[:, :num_output] = tile_sizes.output_bounds
        for axis, kernel_axis in enumerate(kernel_axes):
            if kernel_axis.loop >= num_output:
                loop = loops[kernel_axis.loop]
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

    def tile_sizes(self, extents: I64) -> TileSizes:
        """Returns the bounds a compiler records for loop extents [n, num_loops]: the inverse of `extents`."""
        kernel_bounds = np.empty((len(extents), len(self.kernel_axes)), dtype=np.int64)
        for axis, kernel_axis in enumerate(self.kernel_axes):
            if kernel_axis.loop == NO_LOOP:
                kernel_bounds[:, axis] = kernel_axis.units
                continue
            elements = extents[:, kernel_axis.loop] * self.loops[kernel_axis.loop].unit
            kernel_bounds[:, axis] = np.minimum(-(-elements // kernel_axis.unit), kernel_axis.units)
        return TileSizes(kernel_bounds, extents[:, : self.num_output_loops].copy())

    def trips(self, extents: I64) -> I64:
        """Returns the iterations of each loop, ceil(units / extent), int64 [n, num_loops]."""
        return -(-self.units // extents)

    def iterations(self, tile_sizes: TileSizes) -> I64:
        """Returns the iterations of the whole nest, int64 [n]."""
        result: I64 = self.trips(self.extents(tile_sizes)).prod(axis=1)
        return result


@dataclass(frozen=True, eq=False)
class LoweredKernels:
    """k kernels of one computation, lowered.

    Attributes:
        module: the program.
        computation: position of the kernels' computation.
        kernels: positions of their instructions, inputs and outputs.
        nests: packed loop nests.
        spaces: iteration spaces that `nests.spaces` numbers.
        tables: work tables of the computation.
    """

    module: HloModule
    computation: int
    kernels: KernelArrays
    nests: Nests
    spaces: tuple[IterationSpace, ...]
    tables: WorkTables

    def __len__(self) -> int:
        return len(self.nests.spaces)

    def kernel(self, number: int) -> Kernel:
        """Returns one of the kernels."""
        return Kernel(self.module, self.computation, *kernel_positions(self.kernels, number))

    def nest(self, number: int) -> LoopNest:
        """Returns the loop nest of one of the kernels."""
        ends = self.nests.ends
        words = self.nests.words[ends[number] : ends[number + 1]]
        return LoopNest(self.kernel(number), self.spaces[self.nests.spaces[number]], words, self.tables)


class _Body:
    """Lowering state of one computation: its tables, and buffers for compiled code."""

    def __init__(self, module: HloModule, computation: int) -> None:
        body = module.computations[computation]
        self.search = Search(
            np.zeros(4, dtype=np.int64), *np.zeros((9, len(body.instructions)), dtype=np.int64)
        )
        self.grow_lists(2 * len(body.instructions) + 64)
        self.work = WorkTables(module, body)
        self.tables = LoweringTables(body)

    def max_copies(self, kernels: KernelArrays) -> int:
        """Returns an upper bound on boxes and on copies of a kernel: two per node, one per member written."""
        instructions = self.tables.body.instructions
        written = sum(len(list(instructions[p].shape.leaves())) for p in kernels.outputs.tolist())
        return 2 * (len(kernels.inputs) + len(kernels.instructions)) + len(kernels.outputs) + written + 1

    def grow_lists(self, length: int) -> None:
        """Replaces the buffers by ones for kernels of up to `length` boxes and copies."""
        a, b, c, d, e, f = np.zeros((6, length), dtype=np.int64)
        counts, order = np.zeros(3, dtype=np.int64), np.zeros(MAX_LOOPS, dtype=np.int64)
        self.lists = Lists(counts, a, b, c, d, e, f, order, np.zeros((length, 4)))


class Lowering:
    """Lowers kernels of one program; results that kernels share are computed once and cached.

    The cache grows with the program, not with the number of kernels.

    Args:
        module: the program, layouts assigned.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._bodies: dict[int, _Body] = {}

    def loop_nest(self, kernel: Kernel) -> LoopNest:
        """Returns the loop nest of a kernel of the program.

        Raises:
            UnsupportedKernelError: if it holds more than one contraction, or belongs to another program.
        """
        if kernel.module is not self.module:
            raise UnsupportedKernelError(
                "a kernel of another program", where=kernel.module.name, expected=self.module.name
            )
        nests, body = self._lower(kernel.computation, kernel_arrays([kernel.positions]))
        space = body.tables.spaces[nests.spaces[0]]
        return LoopNest(kernel, space, nests.words[: nests.ends[1]].copy(), body.work)

    def lower(self, computation: int, kernels: KernelArrays) -> LoweredKernels:
        """Lowers kernels of one computation, given by positions.

        Raises:
            UnsupportedKernelError: if a kernel holds more than one contraction.
        """
        nests, body = self._lower(computation, kernels)
        spaces = tuple(body.tables.spaces)
        return LoweredKernels(self.module, computation, kernels, nests, spaces, body.work)

    def _lower(self, computation: int, kernels: KernelArrays) -> tuple[Nests, _Body]:
        body = self._bodies.get(computation)
        if body is None or body.tables.is_full:
            body = self._bodies[computation] = _Body(self.module, computation)
        tables = body.tables
        tables.make_ready(np.concatenate([kernels.inputs, kernels.instructions]))
        count = len(kernels.inputs_offsets) - 1
        nodes = len(kernels.inputs) + len(kernels.instructions)
        nests = Nests(
            np.zeros(_WORDS_PER_KERNEL * count + _WORDS_PER_NODE * nodes),
            np.zeros(count + 1, dtype=np.int64),
            np.zeros(count, dtype=np.int64),
        )
        done = 0
        while True:
            done, key = lower_from(tables.arrays, body.search, body.lists, kernels, done, nests)
            if done == count:
                break
            if key:
                tables.fill(key)
            elif (needed := body.max_copies(kernels)) > len(body.lists.node_boxes):
                body.grow_lists(needed)
            else:
                nests = nests._replace(words=np.concatenate([nests.words, np.zeros_like(nests.words)]))
        if (nests.spaces == SEVERAL_CONTRACTIONS).any():
            raise UnsupportedKernelError(
                "several contractions in one kernel", where=self.module.name, expected="at most one"
            )
        return nests, body


def loop_nest(kernel: Kernel) -> LoopNest:
    """Lowers a kernel to loops; `Lowering` is faster where a program has many.

    Raises:
        UnsupportedKernelError: if it holds more than one contraction.
    """
    return Lowering(kernel.module).loop_nest(kernel)
