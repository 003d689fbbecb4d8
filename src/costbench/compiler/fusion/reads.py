"""The graph on which fusion works: which instruction reads whose value in one computation.

Nodes are the instructions that run in one kernel only. Duplicated instructions, which every reader computes
for itself, are no nodes: an edge (a read) leads through them to the value that they are computed from, and
says whether a broadcast repeats that value on the way to its reader.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, Bool
from costbench.compiler.fusion.facts import (
    BROADCAST,
    CHEAP,
    CONSTANT,
    CONTROL,
    CONVERTS,
    DUPLICATED,
    ELEMENTWISE,
    FLAGS,
    FREE,
    GENERATED,
    KIND,
    PORT,
    BodyFacts,
)
from costbench.execution.compiled import compiled

_MIN_READS = 64


class ReadGraph(NamedTuple):
    """The reads of a computation of n instructions, r of them.

    Attributes:
        duplicated: [n], whether an instruction is computed again wherever it is read.
        rootless: [n], whether it is computed from constants alone.
        is_node: [n], whether it runs in one kernel only.
        is_result: [n], whether it is a node whose value the computation returns.
        reads: [n + 1], where the reads of each node begin in the following.
        source: [r], position of the value.
        port: [r], port (operand) of the reader.
        repeated: [r], whether a broadcast lies between.
        readers: [n + 1], where the readers of each value begin in `by_source`.
        by_source: [r], the reads again, by number, in order of their source.
        user: [r], reader, by number of the read.
    """

    duplicated: Bool
    rootless: Bool
    is_node: Bool
    is_result: Bool
    reads: I64
    source: I64
    port: I64
    repeated: Bool
    readers: I64
    by_source: I64
    user: I64


@compiled
def read_graph(b: BodyFacts, recomputed: Bool) -> ReadGraph:
    """Returns the reads of a computation.

    Args:
        b: the computation.
        recomputed: [n], instructions that are duplicated because that saves memory traffic, although no rule
            asks for it.
    """
    duplicated, rootless = _duplicated(b, recomputed)
    stored = _stored(b, duplicated)
    is_node = stored | ~duplicated
    reads, rows = _reads(b, duplicated, stored, is_node)
    source, port, repeated = rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2] > 0
    count = len(duplicated)
    user = np.empty(len(source), dtype=np.int64)
    readers = np.zeros(count + 1, dtype=np.int64)
    for position in range(count):
        for i in range(reads[position], reads[position + 1]):
            user[i] = position
            readers[source[i] + 1] += 1
    for position in range(count):
        readers[position + 1] += readers[position]
    ends = readers[:-1].copy()
    by_source = np.empty(len(source), dtype=np.int64)
    for i in range(len(source)):
        by_source[ends[source[i]]] = i
        ends[source[i]] += 1
    is_result = _results(b, is_node)
    return ReadGraph(
        duplicated, rootless, is_node, is_result, reads, source, port, repeated, readers, by_source, user
    )


@compiled
def _duplicated(b: BodyFacts, recomputed: Bool) -> tuple[Bool, Bool]:
    """Returns which instructions are duplicated, and which are computed from constants alone."""
    count = len(b.facts)
    duplicated, rootless = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    for position in range(count):
        flags = b.facts[position, FLAGS]
        by_rule = flags & DUPLICATED != 0
        if flags & GENERATED:
            duplicated[position] = rootless[position] = by_rule
            continue
        first, stop = b.operands_offsets[position], b.operands_offsets[position + 1]
        from_constants = stop > first and b.facts[position, KIND] == ELEMENTWISE and flags & CHEAP != 0
        for i in range(first, stop):
            from_constants = from_constants and rootless[b.operands[i]]
        is_duplicated = by_rule or from_constants or recomputed[position]
        if flags & CONVERTS and b.facts[b.operands[first], KIND] == CONTROL:
            is_duplicated = True
        duplicated[position] = is_duplicated
        passed_on = is_duplicated and stop == first + 1 and rootless[b.operands[first]]
        rootless[position] = from_constants or passed_on
    return duplicated, rootless


@compiled
def _stored(b: BodyFacts, duplicated: Bool) -> Bool:
    """Returns which duplicated values a loop, a sort and so on needs in memory."""
    stored = np.zeros(len(duplicated), dtype=np.bool_)
    for position in range(len(duplicated)):
        if duplicated[position]:
            continue
        first = b.operands_offsets[position]
        for i in range(first, b.operands_offsets[position + 1]):
            if not b.clones[b.facts[position, PORT] + i - first]:
                _store(b, duplicated, stored, b.operands[i])
    _store(b, duplicated, stored, b.root)
    return stored


@compiled
def _store(b: BodyFacts, duplicated: Bool, stored: Bool, position: int) -> None:
    while duplicated[position] and b.facts[position, FLAGS] & FREE:
        position = b.operands[b.operands_offsets[position]]
    if duplicated[position] and not b.facts[position, FLAGS] & CONSTANT:
        stored[position] = True


@compiled
def _results(b: BodyFacts, is_node: Bool) -> Bool:
    """Returns the nodes that the root is, or is computed from through duplicated instructions."""
    is_result, visited = np.zeros(len(is_node), dtype=np.bool_), np.zeros(len(is_node), dtype=np.bool_)
    stack = [b.root]
    while len(stack):
        position = stack.pop()
        if is_node[position]:
            is_result[position] = True
        elif not visited[position]:
            visited[position] = True
            for i in range(b.operands_offsets[position], b.operands_offsets[position + 1]):
                stack.append(b.operands[i])
    return is_result


@compiled
def _reads(b: BodyFacts, duplicated: Bool, stored: Bool, is_node: Bool) -> tuple[I64, I64]:
    """Returns where the reads of each node begin, [n + 1]; source, port and repetition of each, [r, 3]."""
    count = len(duplicated)
    offsets = np.zeros(count + 1, dtype=np.int64)
    rows = np.empty((_MIN_READS + 2 * len(b.operands), 3), dtype=np.int64)
    number = 0
    # Last search that came by an instruction, or found a read of it; without and with a broadcast before it.
    visited, read = np.zeros((count, 2), dtype=np.int64), np.zeros((count, 2), dtype=np.int64)
    search = 0
    for user in range(count):
        first, stop = b.operands_offsets[user], b.operands_offsets[user + 1]
        for i in range(first, stop if is_node[user] else first):
            port = b.facts[user, PORT] + i - first
            search += 1
            # Entries are positions, doubled, plus one where a broadcast lies between.
            stack = [2 * b.operands[i]]
            while len(stack):
                entry = stack.pop()
                source, repeated = entry // 2, entry % 2
                is_stored = stored[source] and not b.clones[port] and not b.facts[source, FLAGS] & FREE
                if is_stored or not duplicated[source]:
                    if read[source, repeated] != search:
                        read[source, repeated] = search
                        if number == len(rows):
                            rows = np.concatenate((rows, np.empty_like(rows)))
                        rows[number, 0], rows[number, 1], rows[number, 2] = source, port, repeated
                        number += 1
                elif visited[source, repeated] != search:
                    visited[source, repeated] = search
                    below = 1 if repeated or b.facts[source, FLAGS] & BROADCAST else 0
                    for j in range(b.operands_offsets[source], b.operands_offsets[source + 1]):
                        stack.append(2 * b.operands[j] + below)
        offsets[user + 1] = number
    return offsets, rows[:number]
