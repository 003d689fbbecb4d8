"""The loops a kernel is lowered to, and the tiles of every value that they move.

One loop per physical axis of the iteration shape, major to minor, then the loops over a contraction. Loops that
only sum run inside those that move a result. A tile size says how many native tiles each loop advances at a time; everything a cost model needs
(iterations, tiles of operands, how often they are fetched again) follows from the nest and the tile size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from costbench.compiler.access import (
    NO_LOOP,
    Access,
    AxisMap,
    access_loops,
    operand_access,
    result_access,
    scatter_index_access,
    whole,
    wider,
)
from costbench.compiler.contraction import ContractionAxes, contraction_axes
from costbench.compiler.kernel import Kernel
from costbench.compiler.tile_sizes import TileSizes
from costbench.errors import UnsupportedKernelError
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

LANES = 128
SUBLANES = 8
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

CONTRACTIONS = frozenset({Opcode.CONVOLUTION, Opcode.DOT})
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
class Transfer:
    """A value copied between main memory and the scratchpad.

    Attributes:
        position: the value, in the kernel's computation.
        shape: what is moved (for an update in place, the update).
        access: how its tile follows the loops.
        is_output: written to main memory rather than read.
        row_elements: for values addressed by indices, the contiguous elements an index selects; else 0.
    """

    position: int
    shape: Shape
    access: Access
    is_output: bool
    row_elements: int = 0

    @property
    def loops(self) -> tuple[int, ...]:
        """The loops whose progress changes the tile."""
        return access_loops(self.access)


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
        limits = np.array([loop.units for loop in self.loops])
        if (extents < 1).any() or (extents > limits).any():
            raise UnsupportedKernelError(
                "tile bound outside of the shape",
                where=self.kernel.module.name,
                field="tile size",
                expected=f"1 to {limits.tolist()} native tiles",
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
        units = np.array([loop.units for loop in self.loops], dtype=np.int64)
        return -(-units // extents)

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
    accesses = _propagate(kernel, hero, axes, anchor, anchor_shape, num_output_loops)
    return LoopNest(
        kernel=kernel,
        anchor=anchor,
        anchor_shape=anchor_shape,
        contraction=hero,
        loops=tuple(loops),
        num_output_loops=num_output_loops,
        kernel_axes=kernel_axes,
        accesses=accesses,
        transfers=_transfers(kernel, accesses),
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


def array_shape(shape: Shape) -> Shape:
    """The shape itself, or the largest member of a tuple."""
    return max(shape.leaves(), key=lambda leaf: leaf.num_elements) if shape.is_tuple else shape


def _anchor(kernel: Kernel, hero: int | None) -> tuple[int, Shape]:
    """The value to iterate over: the contraction, a reduction's operand, an update, or the largest output."""
    if hero is not None:
        return hero, kernel.instruction(hero).shape
    candidates = []
    for position in kernel.outputs or kernel.instructions[-1:]:
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


def _propagate(
    kernel: Kernel,
    hero: int | None,
    axes: ContractionAxes | None,
    anchor: int,
    anchor_shape: Shape,
    num_output_loops: int,
) -> dict[int, Access]:
    """Accesses of all values: forwards from the anchor, then backwards to the inputs."""
    body = kernel.body
    identity = [AxisMap()] * anchor_shape.rank
    for loop, axis in enumerate(reversed(anchor_shape.layout)):
        if loop < num_output_loops:
            identity[axis] = AxisMap(loop=loop)
    known: dict[int, Access] = {anchor: tuple(identity)}
    _forwards(kernel, known)
    needed: dict[int, Access] = {}
    for position in reversed(kernel.instructions):
        inst = body.instructions[position]
        access = known.get(position, needed.get(position))
        if access is None:
            access = whole(array_shape(inst.shape))
        known[position] = access
        for place, operand in enumerate(inst.operands):
            if position == hero and axes is not None:
                wanted = axes.operands[place]
            else:
                wanted = _wanted(kernel, inst, place, access, known)
            needed[operand] = wider(needed.get(operand), wanted)
    for position in kernel.inputs:
        # The loops walk over the anchor, also where it comes from outside.
        if position != anchor:
            known[position] = needed.get(position, whole(array_shape(body.instructions[position].shape)))
    return known


def _wanted(
    kernel: Kernel, inst: Instruction, place: int, access: Access, known: dict[int, Access]
) -> Access:
    shape = array_shape(kernel.instruction(inst.operands[place]).shape)
    updates = known.get(inst.operands[-1]) if inst.opcode is Opcode.SCATTER else None
    if updates is not None and place == 1:
        return scatter_index_access(inst, updates, shape)
    result = array_shape(inst.shape)
    alike = shape.dimensions == result.dimensions
    if alike and (inst.shape.is_tuple or kernel.instruction(inst.operands[place]).shape.is_tuple):
        return access
    wanted = operand_access(kernel.body, inst, place, access)
    return wanted if len(wanted) == shape.rank else whole(shape)


def _forwards(kernel: Kernel, known: dict[int, Access]) -> None:
    for position in kernel.instructions:
        if position in known:
            continue
        inst = kernel.instruction(position)
        for place, operand in enumerate(inst.operands):
            source = known.get(operand)
            if source is None:
                continue
            result = result_access(kernel.body, inst, place, source)
            if result is not None:
                known[position] = result
                break


def _transfers(kernel: Kernel, accesses: dict[int, Access]) -> tuple[Transfer, ...]:
    transfers = [t for position in kernel.inputs if (t := _read(kernel, accesses, position)) is not None]
    for position in kernel.outputs:
        transfers.extend(_writes(kernel, accesses, position))
    return tuple(transfers)


def _read(kernel: Kernel, accesses: dict[int, Access], position: int) -> Transfer | None:
    shape = array_shape(kernel.instruction(position).shape)
    users = [u for u in kernel.body.users[position] if u in kernel.members]
    gathers = [u for u in users if _addressed(kernel, u, position)]
    aliased = [u for u in users if _aliases(kernel, u, position)]
    if users and len(gathers) == len(users):
        user = gathers[0]
        inst = kernel.instruction(user)
        if inst.opcode is Opcode.GATHER:
            assert inst.gather is not None
            rows = int(np.prod(inst.gather.slice_sizes))
            return Transfer(position, inst.shape, accesses[user], is_output=False, row_elements=max(1, rows))
        updates = inst.operands[-1]
        return Transfer(
            position,
            array_shape(kernel.instruction(updates).shape),
            accesses[updates],
            is_output=False,
            row_elements=scatter_row_elements(kernel, inst),
        )
    if users and len(aliased) == len(users):
        return None
    return Transfer(position, shape, accesses[position], is_output=False)


def _addressed(kernel: Kernel, user: int, position: int) -> bool:
    inst = kernel.instruction(user)
    return inst.opcode in (Opcode.GATHER, Opcode.SCATTER) and inst.operands[0] == position


def _aliases(kernel: Kernel, user: int, position: int) -> bool:
    inst = kernel.instruction(user)
    return inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE and inst.operands[0] == position


def scatter_row_elements(kernel: Kernel, inst: Instruction) -> int:
    """Contiguous elements that one index of a scatter updates."""
    assert inst.scatter is not None
    updates = array_shape(kernel.instruction(inst.operands[-1]).shape)
    return max(1, int(np.prod([updates.dimensions[a] for a in inst.scatter.update_window_dims])))


def _writes(kernel: Kernel, accesses: dict[int, Access], position: int) -> list[Transfer]:
    inst = kernel.instruction(position)
    if inst.opcode in (Opcode.DYNAMIC_UPDATE_SLICE, Opcode.SCATTER):
        update = inst.operands[1 if inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE else -1]
        shape = array_shape(kernel.instruction(update).shape)
        rows = scatter_row_elements(kernel, inst) if inst.opcode is Opcode.SCATTER else 0
        return [Transfer(position, shape, accesses[update], is_output=True, row_elements=rows)]
    access = accesses[position]
    leaves = inst.shape.leaves()
    return [
        Transfer(position, leaf, access if leaf.rank == len(access) else whole(leaf), is_output=True)
        for leaf in leaves
    ]
