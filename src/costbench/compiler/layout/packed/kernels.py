"""Kernels of a laid-out computation: fused as the heuristic does, cut out by `fusion.views`, and hashed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, U64
from costbench.compiler.fusion.views import BodyArrays, cut_out
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.compiler.kernel_hashes import Labels, kernel_hashes
from costbench.compiler.layout.packed.facts import ARRAY, CONSTANT, FLAGS, FREE, KIND, PORT
from costbench.compiler.layout.packed.grouping import default_groups
from costbench.compiler.layout.packed.memory import peak_bytes
from costbench.compiler.layout.packed.reads import CONTROL, Body, Graph
from costbench.execution.compiled import compiled


class CutKernels(NamedTuple):
    """The k kernels of a computation.

    Attributes:
        kernels: positions of their instructions, inputs and outputs, in an order in which they can run.
        hashes: [k], equal for kernels that cost the same.
        peak_bytes: most bytes in memory at one time while the computation runs, callees not counted.
    """

    kernels: KernelArrays
    hashes: U64
    peak_bytes: int


@compiled
def cut_kernels(b: Body, labels: U64) -> CutKernels:
    """Returns the kernels of a computation.

    It is one compiled call, since every call from Python checks and converts all arrays that it takes and
    returns.

    Args:
        b: the computation.
        labels: uint64 [n, 2], of each instruction the hash of its label and of its shape alone.
    """
    grouped = default_groups(b)
    arrays = body_arrays(b, grouped.graph)
    kernels = cut_out(grouped.groups, grouped.reads, arrays)
    hashes = kernel_hashes(kernels, arrays, Labels(labels[:, 0].copy(), labels[:, 1].copy()))
    return CutKernels(kernels, hashes, peak_bytes(b, kernels))


@compiled
def body_arrays(b: Body, graph: Graph) -> BodyArrays:
    """Returns a computation as `fusion.views` reads it."""
    count = len(graph.is_node)
    offsets = np.zeros(count + 1, dtype=np.int64)
    clones = np.empty(max(1, 2 * len(b.operands)), dtype=np.int64)
    runs, free = np.empty(count, dtype=np.bool_), np.empty(count, dtype=np.bool_)
    is_array = np.empty(count, dtype=np.bool_)
    visited = np.full(count, -1, dtype=np.int64)
    capacity = np.zeros(2, dtype=np.int64)
    number = 0
    for position in range(count):
        flags = b.facts[position, FLAGS]
        runs[position] = b.facts[position, KIND] != CONTROL
        free[position] = flags & FREE != 0
        is_array[position] = flags & ARRAY != 0
        if graph.is_node[position]:
            first = number
            clones, number = _add_clones(b, graph, position, clones, number, visited)
            for i in range(first, number):
                capacity[1] += b.operands_offsets[clones[i] + 1] - b.operands_offsets[clones[i]]
            capacity[0] += 1
            capacity[1] += b.operands_offsets[position + 1] - b.operands_offsets[position]
        offsets[position + 1] = number
    capacity[0] += number
    return BodyArrays(
        graph.is_node, runs, free, is_array, offsets, clones[:number].copy(),
        b.operands_offsets, b.operands, capacity,
    )  # fmt: skip


@compiled
def _add_clones(
    b: Body, graph: Graph, position: int, clones: I64, number: int, visited: I64
) -> tuple[I64, int]:
    """Appends the duplicated instructions that a node's kernel computes for it to the first `number` of
    `clones`; returns the list, which may have moved, and its new length.
    """
    first, place = b.operands_offsets[position], number
    for i in range(first, b.operands_offsets[position + 1]):
        operand = b.operands[i]
        scalar = b.facts[operand, FLAGS] & CONSTANT != 0
        wanted = graph.duplicated[operand] and visited[operand] != position
        if wanted and (scalar or b.clones[b.facts[position, PORT] + i - first]):
            clones, number = _appended(clones, number, operand)
            visited[operand] = position
    while place < number:
        clone = clones[place]
        place += 1
        for i in range(b.operands_offsets[clone], b.operands_offsets[clone + 1]):
            operand = b.operands[i]
            if graph.duplicated[operand] and visited[operand] != position:
                clones, number = _appended(clones, number, operand)
                visited[operand] = position
    return clones, number


@compiled
def _appended(values: I64, number: int, value: int) -> tuple[I64, int]:
    if number == len(values):
        values = np.concatenate((values, np.empty_like(values)))
    values[number] = value
    return values, number + 1
