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
            for clone in _clones(b, graph, position, visited):
                if number == len(clones):
                    clones = np.concatenate((clones, np.empty_like(clones)))
                clones[number] = clone
                number += 1
                capacity[1] += b.operands_offsets[clone + 1] - b.operands_offsets[clone]
            capacity[0] += 1
            capacity[1] += b.operands_offsets[position + 1] - b.operands_offsets[position]
        offsets[position + 1] = number
    capacity[0] += number
    return BodyArrays(
        graph.is_node, runs, free, is_array, offsets, clones[:number].copy(),
        b.operands_offsets, b.operands, capacity,
    )  # fmt: skip


@compiled
def _clones(b: Body, graph: Graph, position: int, visited: IntArray) -> list[int]:
    """Returns duplicated instructions that a node's kernel computes for it."""
    found = [position]
    first = b.operands_offsets[position]
    for i in range(first, b.operands_offsets[position + 1]):
        operand = b.operands[i]
        scalar = b.facts[operand, FLAGS] & CONSTANT != 0 and graph.duplicated[operand]
        if b.clones[b.facts[position, PORT] + i - first] or scalar:
            _add_clone(graph, found, operand, position, visited)
    place = 1
    while place < len(found):
        clone = found[place]
        for i in range(b.operands_offsets[clone], b.operands_offsets[clone + 1]):
            _add_clone(graph, found, b.operands[i], position, visited)
        place += 1
    return found[1:]


@compiled
def _add_clone(graph: Graph, found: list[int], operand: int, position: int, visited: IntArray) -> None:
    if graph.duplicated[operand] and visited[operand] != position:
        visited[operand] = position
        found.append(operand)
