"""Many kernels of one computation packed into a few arrays: concatenated lists of positions, with offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from costbench.arrays import I64


class KernelPositions(NamedTuple):
    """Positions in its computation of what one kernel holds, of what it reads and of what it writes."""

    instructions: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def renumber(self, numbers: Mapping[int, int]) -> KernelPositions:
        """Returns the kernel where its computation's instructions have other numbers."""
        return KernelPositions._make(tuple(numbers[p] for p in positions) for positions in self)


class KernelArrays(NamedTuple):
    """k kernels of one computation, in an order in which they can run; positions ascend within each.

    Attributes:
        instructions_offsets: [k + 1].
        instructions: positions of the kernels' own instructions.
        inputs_offsets: [k + 1].
        inputs: positions of values read from main memory.
        outputs_offsets: [k + 1].
        outputs: positions of values written there.
    """

    instructions_offsets: I64
    instructions: I64
    inputs_offsets: I64
    inputs: I64
    outputs_offsets: I64
    outputs: I64


def lists_to_arrays(lists: Sequence[Iterable[int]]) -> tuple[I64, I64]:
    """Returns offsets [n + 1] and the concatenated entries of n lists."""
    entries = [list(values) for values in lists]
    offsets = np.zeros(len(entries) + 1, dtype=np.int64)
    np.cumsum([len(values) for values in entries], out=offsets[1:])
    return offsets, np.array([value for values in entries for value in values], dtype=np.int64)


def kernel_arrays(kernels: Iterable[KernelPositions]) -> KernelArrays:
    """Packs the positions of kernels."""
    kernels = list(kernels)
    return KernelArrays(
        *lists_to_arrays([kernel.instructions for kernel in kernels]),
        *lists_to_arrays([kernel.inputs for kernel in kernels]),
        *lists_to_arrays([kernel.outputs for kernel in kernels]),
    )


def unpack_kernels(kernels: KernelArrays) -> Iterator[KernelPositions]:
    """Yields the positions of each kernel; inverse of `kernel_arrays`."""
    ends = [offsets.tolist() for offsets in kernels[::2]]
    values = [positions.tolist() for positions in kernels[1::2]]
    for k in range(len(ends[0]) - 1):
        yield KernelPositions._make(tuple(v[e[k] : e[k + 1]]) for e, v in zip(ends, values, strict=True))


def kernel_positions(kernels: KernelArrays, number: int) -> KernelPositions:
    """Returns the positions of one of the kernels."""
    return KernelPositions._make(
        tuple(positions[offsets[number] : offsets[number + 1]].tolist())
        for offsets, positions in zip(kernels[::2], kernels[1::2], strict=True)
    )


def select_kernels(kernels: KernelArrays, numbers: I64) -> KernelArrays:
    """Returns the kernels with these numbers, in this order."""
    arrays: list[I64] = []
    for offsets, positions in zip(kernels[::2], kernels[1::2], strict=True):
        lengths = (offsets[1:] - offsets[:-1])[numbers]
        ends = np.zeros(len(numbers) + 1, dtype=np.int64)
        np.cumsum(lengths, out=ends[1:])
        shifts = np.repeat(offsets[numbers] - ends[:-1], lengths)
        arrays += [ends, positions[np.arange(ends[-1]) + shifts]]
    return KernelArrays(*arrays)


def concatenate_kernels(parts: Sequence[KernelArrays]) -> KernelArrays:
    """Concatenates several packed lists of kernels."""
    arrays: list[I64] = []
    for field in range(0, len(KernelArrays._fields), 2):
        lengths = [np.diff(part[field]) for part in parts]
        ends = np.concatenate([np.zeros(1, dtype=np.int64), *lengths])
        positions = np.concatenate([np.zeros(0, dtype=np.int64), *(part[field + 1] for part in parts)])
        arrays += [np.cumsum(ends), positions]
    return KernelArrays(*arrays)
