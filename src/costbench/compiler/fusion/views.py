"""Turns groups of instructions into kernels: which instructions run inside, which values are read from memory
and which are written there.

A kernel holds the nodes of its group and the duplicated instructions that these need.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, Bool
from costbench.compiler.fusion.group_graph import Groups
from costbench.compiler.fusion.group_reads import GroupReads
from costbench.compiler.fusion.groups import leaving
from costbench.compiler.fusion.reads import ReadGraph
from costbench.compiler.fusion.rules import Kind
from costbench.compiler.kernel_arrays import KernelArrays, lists_to_arrays
from costbench.execution.compiled import compiled


class BodyArrays(NamedTuple):
    """A computation of n instructions.

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


def body_arrays(graph: ReadGraph) -> BodyArrays:
    """Returns the arrays of a computation."""
    instructions = graph.body.instructions
    count = len(instructions)
    is_node = [graph.is_node(position) for position in range(count)]
    clones = [graph.clones(position) if node else [] for position, node in enumerate(is_node)]
    operands = [inst.operands for inst in instructions]
    arity = [len(one) for one in operands]
    capacity = [
        sum(1 + len(copies) for copies in clones),
        sum(arity[p] + sum(arity[c] for c in copies) for p, copies in enumerate(clones)),
    ]
    return BodyArrays(
        np.array(is_node, dtype=bool),
        np.array([kind is not Kind.CONTROL for kind in graph.kinds], dtype=bool),
        np.array(graph.free, dtype=bool),
        np.array(
            [any(leaf.num_elements > 1 for leaf in inst.shape.leaves()) for inst in instructions], dtype=bool
        ),
        *lists_to_arrays(clones),
        *lists_to_arrays(operands),
        np.array(capacity, dtype=np.int64),
    )


@compiled
def cut_out(g: Groups, reads: GroupReads, body: BodyArrays) -> KernelArrays:
    """Returns the kernels of all groups; groups of arguments, scalars and the like become none."""
    return cut_groups(g, reads, body, groups_that_run(g, body))


@compiled
def cut_groups(g: Groups, reads: GroupReads, body: BodyArrays, chosen: I64) -> KernelArrays:
    """Returns the kernels of the chosen groups, ordered by rank."""
    ranks = np.empty(len(chosen), dtype=np.int64)
    for i in range(len(chosen)):
        ranks[i] = g.rank[chosen[i]]
    order = chosen[np.argsort(ranks)]
    count = len(body.is_node)
    instructions = np.empty(body.capacity[0], dtype=np.int64)
    inputs = np.empty(body.capacity[1], dtype=np.int64)
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
            if body.is_node[position]:
                outputs[first_output + num_outputs] = position
                num_outputs += 1
        if num_outputs == 0:
            continue
        number = _collect(g, body, group, instructions[first:], mark, stamp)
        number = _without_leading_reshapes(body, instructions[first : first + number], mark, stamp, uses)
        num_inputs, any_array = _inputs_of(
            body, instructions[first : first + number], inputs[first_input:], (mark, seen), stamp
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
def groups_that_run(g: Groups, body: BodyArrays) -> I64:
    """Returns the groups that hold something to run, in order of the first instruction that does."""
    count = len(body.is_node)
    known = np.zeros(count, dtype=np.bool_)
    found = np.empty(count, dtype=np.int64)
    number = 0
    for position in range(count):
        group = g.group[position]
        if body.is_node[position] and body.runs[position] and not known[group]:
            known[group] = True
            found[number] = group
            number += 1
    return found[:number].copy()


@compiled
def _collect(g: Groups, body: BodyArrays, group: int, inside: I64, mark: I64, stamp: int) -> int:
    """Writes a group's nodes and their duplicates into `inside`, ascending; marks and counts them."""
    number = 0
    member = group
    for _ in range(g.size[group]):
        if body.is_node[member]:
            if mark[member] != stamp:
                mark[member] = stamp
                inside[number] = member
                number += 1
            for i in range(body.clones_offsets[member], body.clones_offsets[member + 1]):
                clone = body.clones[i]
                if mark[clone] != stamp:
                    mark[clone] = stamp
                    inside[number] = clone
                    number += 1
        member = g.following[member]
    inside[:number].sort()
    return number


@compiled
def _without_leading_reshapes(body: BodyArrays, inside: I64, mark: I64, stamp: int, uses: I64) -> int:
    """Moves free reshapes of inputs out of the kernel, unless it also reads the input in another form."""
    number = len(inside)
    any_free = False
    for position in inside:
        any_free |= body.free[position]
    while any_free:
        _count_uses(body, inside[:number], uses, 1)
        for position in inside[:number]:
            if body.free[position]:
                source = body.operands[body.operands_offsets[position]]
                if abs(mark[source]) != stamp and uses[source] == 1:
                    mark[position] = -stamp
        _count_uses(body, inside[:number], uses, -1)
        kept = 0
        for position in inside[:number]:
            if mark[position] == stamp:
                inside[kept] = position
                kept += 1
            else:
                mark[position] = 0
        any_free = kept < number
        number = kept
    return number


@compiled
def _count_uses(body: BodyArrays, inside: I64, uses: I64, step: int) -> None:
    for position in inside:
        for i in range(body.operands_offsets[position], body.operands_offsets[position + 1]):
            uses[body.operands[i]] += step


@compiled
def _inputs_of(
    body: BodyArrays, inside: I64, inputs: I64, marks: tuple[I64, I64], stamp: int
) -> tuple[int, bool]:
    """Writes what is read from outside into `inputs`, ascending; returns how many, and if any is an array."""
    mark, seen = marks
    number, any_array = 0, False
    for position in inside:
        any_array |= body.is_array[position]
        for i in range(body.operands_offsets[position], body.operands_offsets[position + 1]):
            operand = body.operands[i]
            if mark[operand] != stamp and seen[operand] != stamp:
                seen[operand] = stamp
                inputs[number] = operand
                number += 1
                any_array |= body.is_array[operand]
    inputs[:number].sort()
    return number, any_array
