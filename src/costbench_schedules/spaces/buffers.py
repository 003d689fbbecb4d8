"""Buffers that schedules access: whole tensors, or the parts of them that copies and sums are kept in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.arrays import I64, Bool
from costbench_schedules.operators.operators import Access, Operator
from costbench_schedules.spaces.levels import Levels
from costbench_schedules.spaces.space import PADDINGS

SUMS = "sums"
"""Name of the buffer that sums are kept in, the output itself where a schedule has none."""


@dataclass(frozen=True, eq=False)
class Buffer:
    """A buffer of n schedules, with D dimensions, accessed at indices affine in A axes.

    Attributes:
        name: the tensor's name, or `SUMS`.
        shape: int64 [n, D].
        outer: spatial levels around the loops whose part of the tensor it holds, int64 [n]; 0: all of it.
        coefficients: of each axis in each dimension's index, int64 [D, A].
        padded: whether it is a padded input.
        inline: where it is an input that is read without a padded copy, bool [n].
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
