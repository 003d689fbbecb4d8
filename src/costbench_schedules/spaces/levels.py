"""The tiles and structure knobs of many configurations as arrays: loops, their order, their buffers.

Loops have two numberings. In the flat one a spatial loop is level * S + axis and the reduction loops follow
likewise; the trunk of every loop order begins as the flat one. `permutation` leads from a place in the loop
order to the flat number. Buffers are what schedules access: whole tensors, or the parts of them that copies
and sums are kept in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from costbench.arrays import I64, AnyInt, Bool
from costbench_schedules.operators.operators import Access, Operator
from costbench_schedules.spaces.space import (
    CACHES,
    ORDERS,
    PADDINGS,
    PARALLEL,
    REDUCE_LEVELS,
    SPATIAL_LEVELS,
    ScheduleSpace,
)


@dataclass(frozen=True, eq=False)
class Levels:
    """The loops of n configurations, with S spatial axes, A axes and L loops.

    Attributes:
        operator: operator that is scheduled.
        extents: number of iterations by flat number, int64 [n, L].
        steps: distance that one iteration moves along the loop's axis, int64 [n, L].
        axis_of: axis of each flat number, int64 [L].
        level_of: level of each flat number, int64 [L].
        permutation: flat numbers in loop order, int64 [n, L].
        first_reduce: number of loops around the first reduction loop, int64 [n].
        num_parallel: number of loops that are fused and run in parallel, int64 [n].
        cache_outer: number of spatial levels around the buffer of sums, int64 [n]; 0 without one.
        vectorized: whether the vector loop is vectorised, bool [n].
        unroll: limit of the knob `unroll`, int64 [n].
        padding: choice of the padding knob by name, [n].
    """

    operator: Operator
    extents: I64
    steps: I64
    axis_of: I64
    level_of: I64
    permutation: I64
    first_reduce: I64
    num_parallel: I64
    cache_outer: I64
    vectorized: Bool
    unroll: I64
    padding: npt.NDArray[np.str_]

    @property
    def num_spatial(self) -> int:
        """Returns the number of spatial loops."""
        return SPATIAL_LEVELS * len(self.operator.spatial)

    @property
    def vector_loop(self) -> int:
        """Returns the flat number of the loop that may be vectorised: the last spatial axis, innermost."""
        return self.num_spatial - 1

    def outside(self, buffer: Buffer) -> Bool:
        """Returns which loops lie outside a buffer that holds a part of a tensor, bool [n, L]."""
        spatial = np.arange(len(self.axis_of)) < self.num_spatial
        return spatial & (self.level_of < buffer.outer[:, None])

    def strides(self, buffer: Buffer) -> I64:
        """Returns by how many elements an iteration of each loop moves in a buffer, int64 [n, L], flat."""
        weights = buffer.dim_strides @ buffer.coefficients
        return np.where(self.outside(buffer), 0, weights[:, self.axis_of] * self.steps)

    def touched(self, buffer: Buffer, inside: I64) -> I64:
        """Returns the distinct elements of a buffer within boxes of the iteration space, int64 [n, k].

        In a dimension indexed by a x + b y with b = 1 there are min(X Y, a (X - 1) + Y) distinct values.

        Args:
            buffer: buffer that is accessed.
            inside: extents of the boxes, int64 [n, k, A].
        """
        scope = np.where(self.outside(buffer), 1, self.extents)
        limits = np.stack(
            [np.prod(scope[:, self.axis_of == axis], axis=1) for axis in range(inside.shape[2])], axis=1
        )
        extents = np.minimum(inside, limits[:, None])
        result = np.ones(extents.shape[:2], dtype=np.int64)
        for dim, coefficients in enumerate(buffer.coefficients):
            used = np.flatnonzero(coefficients)
            span = 1 + (extents[:, :, used] - 1) @ coefficients[used]
            values = np.minimum(span, np.prod(extents[:, :, used], axis=2))
            result *= np.minimum(values, buffer.shape[:, dim, None])
        return result


@dataclass(frozen=True, eq=False)
class _Structure:
    """What the loop orders of an operator have in common.

    Attributes:
        axis_of: axis of each flat number.
        level_of: level of each flat number.
        permutations: flat numbers in the loop order of each order, int64 [orders, L].
        reduce_levels: number of spatial levels around the first reduction level of each order, int64
            [orders].
    """

    axis_of: I64
    level_of: I64
    permutations: I64
    reduce_levels: I64


@lru_cache(maxsize=64)
def _structure(num_spatial: int, num_reduce: int) -> _Structure:
    blocks = {f"S{level}": level * num_spatial + np.arange(num_spatial) for level in range(SPATIAL_LEVELS)}
    start = SPATIAL_LEVELS * num_spatial
    blocks |= {
        f"R{level}": start + level * num_reduce + np.arange(num_reduce) for level in range(REDUCE_LEVELS)
    }
    axes = [np.tile(np.arange(num_spatial), SPATIAL_LEVELS)]
    axes.append(np.tile(num_spatial + np.arange(num_reduce), REDUCE_LEVELS))
    levels = [
        np.repeat(np.arange(SPATIAL_LEVELS), num_spatial),
        np.repeat(np.arange(REDUCE_LEVELS), num_reduce),
    ]
    return _Structure(
        np.concatenate(axes),
        np.concatenate(levels),
        np.array([np.concatenate([blocks[name] for name in order]) for order in ORDERS.values()]),
        np.array([order.index("R0") for order in ORDERS.values()]),
    )


def levels_of(space: ScheduleSpace, rows: AnyInt) -> Levels:
    """Returns the loops of configurations [n, m] of a space."""
    operator = space.operator
    spatial, reduce = len(operator.spatial), len(operator.reduce)
    structure = _structure(spatial, reduce)
    tiles = [np.array(knob.values, dtype=np.int64) for knob in space.knobs[: spatial + reduce]]
    factors = [table[rows[:, index]] for index, table in enumerate(tiles)]
    steps = [_suffix_products(factor) for factor in factors]
    knobs = {knob.name: (index, knob.values) for index, knob in enumerate(space.knobs)}
    chosen = {
        name: np.array(values)[rows[:, index]]
        for name, (index, values) in knobs.items()
        if index >= len(tiles)
    }
    order = np.array([list(ORDERS).index(str(value)) for value in knobs["order"][1]])[
        rows[:, knobs["order"][0]]
    ]
    reduce_levels = structure.reduce_levels[order]
    both = chosen["parallel"] == PARALLEL[3]
    first = 1 + next((i for i, axis in enumerate(operator.spatial) if axis.extent > 1), spatial - 1)
    counts = np.select(
        [chosen["parallel"] == name for name in PARALLEL[:3]], [0, first, spatial], 2 * spatial
    )
    cache = np.select(
        [chosen["cache"] == CACHES[0], chosen["cache"] == CACHES[1]], [0, reduce_levels], 1 + both
    )
    return Levels(
        operator,
        _flat(factors, spatial),
        _flat(steps, spatial),
        structure.axis_of,
        structure.level_of,
        structure.permutations[order],
        reduce_levels * spatial,
        counts.astype(np.int64),
        cache.astype(np.int64),
        chosen["vectorize"] == 1,
        chosen["unroll"].astype(np.int64),
        chosen["padding"],
    )


def _suffix_products(factors: I64) -> I64:
    """Returns the product of the factors after each one, int64 [n, levels]."""
    products = np.cumprod(factors[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(products // factors, dtype=np.int64)


def _flat(parts: list[I64], spatial: int) -> I64:
    """Returns values per axis and level by flat number, int64 [n, L]."""
    blocks = [np.stack(group, axis=2) for group in (parts[:spatial], parts[spatial:]) if group]
    return np.concatenate([block.reshape(len(block), -1) for block in blocks], axis=1)


SUMS = "sums"
"""Name of the buffer that sums are kept in, the output itself where a schedule has none."""


@dataclass(frozen=True, eq=False)
class Buffer:
    """A buffer of n schedules, with D dimensions, accessed at indices affine in A axes.

    Attributes:
        name: name of the tensor, or `SUMS`.
        shape: extents of its dimensions, int64 [n, D].
        outer: number of spatial levels around the loops whose part of the tensor it holds, int64 [n]; 0: all
            of it.
        coefficients: coefficient of each axis in each dimension's index, int64 [D, A].
        padded: whether it is a padded input.
        inline: whether it is an input that is read without a padded copy, bool [n].
    """

    name: str
    shape: I64
    outer: I64
    coefficients: I64
    padded: bool
    inline: Bool

    @property
    def dim_strides(self) -> I64:
        """Returns the elements between neighbours in each dimension, row-major, int64 [n, D]."""
        products = np.cumprod(self.shape[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(products // self.shape, dtype=np.int64)

    @property
    def size(self) -> I64:
        """Returns the number of elements, int64 [n]."""
        return np.asarray(np.prod(self.shape, axis=1), dtype=np.int64)


def _coefficients(operator: Operator, access: Access) -> I64:
    names = [axis.name for axis in operator.axes]
    table = np.zeros((len(access.strides), len(names)), dtype=np.int64)
    for dim, index in enumerate(access.strides):
        for axis, coefficient in index:
            table[dim, names.index(axis)] += coefficient
    return table


def buffers_of(levels: Levels) -> tuple[Buffer, ...]:
    """Returns what the computation accesses, in the order of the operator's accesses."""
    return tuple(_buffer(levels, access) for access in levels.operator.accesses)


def _buffer(levels: Levels, access: Access) -> Buffer:
    operator, count = levels.operator, len(levels.extents)
    coefficients = _coefficients(operator, access)
    whole = np.broadcast_to(np.array(operator.tensors[access.tensor]), (count, len(access.strides)))
    never = np.zeros(count, dtype=bool)
    if access.write:
        part = _part(levels, coefficients, levels.cache_outer)
        return Buffer(
            SUMS,
            np.where(levels.cache_outer[:, None] > 0, part, whole),
            levels.cache_outer,
            coefficients,
            False,
            never,
        )
    if access.tensor not in operator.padding:
        return Buffer(access.tensor, whole, np.zeros(count, dtype=np.int64), coefficients, False, never)
    inline, tile = levels.padding == PADDINGS[0], levels.padding == PADDINGS[2]
    outer = np.where(tile, 2, 0)
    source = np.array(operator.tensors[operator.padding[access.tensor][0]])
    shape = np.where(
        tile[:, None], _part(levels, coefficients, outer), np.where(inline[:, None], source, whole)
    )
    return Buffer(access.tensor, shape, outer, coefficients, True, inline)


def _part(levels: Levels, coefficients: I64, outer: I64) -> I64:
    """Returns the shape of the part of a tensor that is accessed inside some spatial levels, int64 [n, D]."""
    spatial = np.arange(len(levels.axis_of)) < levels.num_spatial
    extents = np.where(spatial & (levels.level_of < outer[:, None]), 1, levels.extents)
    inside = [np.prod(extents[:, levels.axis_of == axis], axis=1) for axis in range(coefficients.shape[1])]
    return np.asarray(1 + (np.stack(inside, axis=1) - 1) @ coefficients.T, dtype=np.int64)


def copy_buffers(levels: Levels, part: Buffer, tensor: str) -> Buffer:
    """Returns the whole tensor that a part is copied from or to, accessed at the part's indices."""
    count = len(levels.extents)
    shape = np.broadcast_to(np.array(levels.operator.tensors[tensor]), (count, part.shape.shape[1]))
    return Buffer(
        tensor, shape, np.zeros(count, dtype=np.int64), part.coefficients, False, np.zeros(count, dtype=bool)
    )
