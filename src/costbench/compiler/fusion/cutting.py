"""Turns groups of instructions into kernels.

That is, which instructions run inside, which values are read from memory and which are written there.

A kernel holds the nodes of its group and the duplicated instructions that these need.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, Bool
from costbench.compiler.fusion.facts import ARRAY, CONSTANT, CONTROL, FLAGS, FREE, KIND, PORT, BodyFacts
from costbench.compiler.fusion.group_graph import Groups
from costbench.compiler.fusion.groups import GroupReads, leaving
from costbench.compiler.fusion.reads import ReadGraph
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.execution.compiled import compiled


class BodyNodes(NamedTuple):
    """What kernels are cut from: the nodes of a computation of n instructions, and the duplicates they need.

    Attributes:
        is_node: [n], whether an instruction runs in one kernel only (is not merely duplicated).
        runs: [n], whether a kernel can be made for it.
        free: [n], whether it is a reshape, transpose or copy that moves no data.
        is_array: [n], whether its value has more than one element.
        clones_offsets: [n + 1], where the duplicates that a node needs begin in `clones`.
        clones: positions.
        operands_offsets: [n + 1], where the operands of each instruction begin in `operands`.
        operands: positions.
        capacity: [2], upper bounds on the instructions and on the inputs of all kernels of one cut together.
    """

    is_node: Bool
    runs: Bool
    free: Bool
    is_array: Bool
    clones_offsets: I64
    clones: I64
    operands_offsets: I64
    operands: I64
    capacity: I64


@compiled
def body_nodes(b: BodyFacts, graph: ReadGraph) -> BodyNodes:
    """Returns what kernels of a computation are cut from."""
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
    return BodyNodes(
        graph.is_node, runs, free, is_array, offsets, clones[:number].copy(),
        b.operands_offsets, b.operands, capacity,
    )  # fmt: skip


@compiled
def _add_clones(
    b: BodyFacts, graph: ReadGraph, position: int, clones: I64, number: int, visited: I64
) -> tuple[I64, int]:
    """Appends the duplicated instructions that a node's kernel computes for it to `clones[:number]`.

    Returns the list, which may have moved, and its new length.
    """
    first, cursor = b.operands_offsets[position], number
    for i in range(first, b.operands_offsets[position + 1]):
        operand = b.operands[i]
        is_constant = b.facts[operand, FLAGS] & CONSTANT != 0
        is_new = graph.duplicated[operand] and visited[operand] != position
        # Scalars are part of whatever reads them; nothing is ever read from memory for them.
        if is_new and (is_constant or b.clones[b.facts[position, PORT] + i - first]):
            clones, number = _append(clones, number, operand)
            visited[operand] = position
    while cursor < number:
        clone = clones[cursor]
        cursor += 1
        for i in range(b.operands_offsets[clone], b.operands_offsets[clone + 1]):
            operand = b.operands[i]
            if graph.duplicated[operand] and visited[operand] != position:
                clones, number = _append(clones, number, operand)
                visited[operand] = position
    return clones, number


@compiled
def _append(values: I64, number: int, value: int) -> tuple[I64, int]:
    if number == len(values):
        values = np.concatenate((values, np.empty_like(values)))
    values[number] = value
    return values, number + 1


@compiled
def cut_out(g: Groups, reads: GroupReads, nodes: BodyNodes) -> KernelArrays:
    """Returns the kernels of all groups; groups of arguments, scalars and the like become none."""
    return cut_groups(g, reads, nodes, groups_that_run(g, nodes))


@compiled
def cut_groups(g: Groups, reads: GroupReads, nodes: BodyNodes, chosen: I64) -> KernelArrays:
    """Returns the kernels of the chosen groups, ordered by rank."""
    ranks = np.empty(len(chosen), dtype=np.int64)
    for i in range(len(chosen)):
        ranks[i] = g.rank[chosen[i]]
    order = chosen[np.argsort(ranks)]
    count = len(nodes.is_node)
    instructions = np.empty(nodes.capacity[0], dtype=np.int64)
    inputs = np.empty(nodes.capacity[1], dtype=np.int64)
    outputs = np.empty(count, dtype=np.int64)
    ends = np.zeros((3, len(order) + 1), dtype=np.int64)
    mark, seen = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    uses = np.zeros(count, dtype=np.int64)
    kernels = 0
    for stamp in range(1, len(order) + 1):
        group = order[stamp - 1]
        first, first_input, first_output = ends[0, kernels], ends[1, kernels], ends[2, kernels]
        num_outputs = 0
        for position in leaving(g, reads, group, group):
            if nodes.is_node[position]:
                outputs[first_output + num_outputs] = position
                num_outputs += 1
        if num_outputs == 0:
            continue
        number = _collect(g, nodes, group, instructions[first:], mark, stamp)
        number = _drop_leading_reshapes(nodes, instructions[first : first + number], mark, stamp, uses)
        num_inputs, any_array = _list_inputs(
            nodes, instructions[first : first + number], inputs[first_input:], mark, seen, stamp
        )
        if any_array:
            kernels += 1
            ends[0, kernels] = first + number
            ends[1, kernels] = first_input + num_inputs
            ends[2, kernels] = first_output + num_outputs
    return KernelArrays(
        ends[0, : kernels + 1].copy(), instructions[: ends[0, kernels]].copy(),
        ends[1, : kernels + 1].copy(), inputs[: ends[1, kernels]].copy(),
        ends[2, : kernels + 1].copy(), outputs[: ends[2, kernels]].copy(),
    )  # fmt: skip


@compiled
def groups_that_run(g: Groups, nodes: BodyNodes) -> I64:
    """Returns the groups that hold something to run, in order of the first instruction that does."""
    count = len(nodes.is_node)
    is_listed = np.zeros(count, dtype=np.bool_)
    groups = np.empty(count, dtype=np.int64)
    number = 0
    for position in range(count):
        group = g.group[position]
        if nodes.is_node[position] and nodes.runs[position] and not is_listed[group]:
            is_listed[group] = True
            groups[number] = group
            number += 1
    return groups[:number].copy()


@compiled
def _collect(g: Groups, nodes: BodyNodes, group: int, inside: I64, mark: I64, stamp: int) -> int:
    """Writes a group's nodes and their duplicates into `inside`, ascending; marks and counts them."""
    number = 0
    member = group
    for _ in range(g.size[group]):
        if nodes.is_node[member]:
            if mark[member] != stamp:
                mark[member] = stamp
                inside[number] = member
                number += 1
            for i in range(nodes.clones_offsets[member], nodes.clones_offsets[member + 1]):
                clone = nodes.clones[i]
                if mark[clone] != stamp:
                    mark[clone] = stamp
                    inside[number] = clone
                    number += 1
        member = g.following[member]
    inside[:number].sort()
    return number


@compiled
def _drop_leading_reshapes(nodes: BodyNodes, inside: I64, mark: I64, stamp: int, uses: I64) -> int:
    """Moves free reshapes of inputs out of the kernel, unless it also reads the input in another form."""
    number = len(inside)
    any_free = False
    for position in inside:
        any_free |= nodes.free[position]
    while any_free:
        _count_uses(nodes, inside[:number], uses, 1)
        for position in inside[:number]:
            if nodes.free[position]:
                source = nodes.operands[nodes.operands_offsets[position]]
                if abs(mark[source]) != stamp and uses[source] == 1:
                    mark[position] = -stamp
        _count_uses(nodes, inside[:number], uses, -1)
        num_left = 0
        for position in inside[:number]:
            if mark[position] == stamp:
                inside[num_left] = position
                num_left += 1
            else:
                mark[position] = 0
        any_free = num_left < number
        number = num_left
    return number


@compiled
def _count_uses(nodes: BodyNodes, inside: I64, uses: I64, step: int) -> None:
    for position in inside:
        for i in range(nodes.operands_offsets[position], nodes.operands_offsets[position + 1]):
            uses[nodes.operands[i]] += step


@compiled
def _list_inputs(
    nodes: BodyNodes, inside: I64, inputs: I64, mark: I64, seen: I64, stamp: int
) -> tuple[int, bool]:
    """Writes what is read from outside into `inputs`, ascending; returns how many, and if any is an array."""
    number, any_array = 0, False
    for position in inside:
        any_array |= nodes.is_array[position]
        for i in range(nodes.operands_offsets[position], nodes.operands_offsets[position + 1]):
            operand = nodes.operands[i]
            if mark[operand] != stamp and seen[operand] != stamp:
                seen[operand] = stamp
                inputs[number] = operand
                number += 1
                any_array |= nodes.is_array[operand]
    inputs[:number].sort()
    return number, any_array
