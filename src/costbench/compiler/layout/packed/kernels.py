"""A laid-out computation in the form in which `fusion.views` cuts kernels out of it."""

from __future__ import annotations

import numpy as np

from costbench.compiler.fusion.views import BodyArrays
from costbench.compiler.layout.packed.facts import ARRAY, CONSTANT, FLAGS, FREE, KIND, PORT
from costbench.compiler.layout.packed.reads import CONTROL, Body, Graph, IntArray
from costbench.execution.compiled import compiled


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
    b: Body, graph: Graph, position: int, clones: IntArray, number: int, visited: IntArray
) -> tuple[IntArray, int]:
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
def _appended(values: IntArray, number: int, value: int) -> tuple[IntArray, int]:
    if number == len(values):
        values = np.concatenate((values, np.empty_like(values)))
    values[number] = value
    return values, number + 1
