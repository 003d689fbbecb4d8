"""Finds who reads whose value in a laid-out computation, on arrays: the graph of `fusion.reads`.

Nodes run in one kernel only; duplicated instructions run in every kernel that reads them, and a read leads
through them to the value that they are computed from.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, Bool
from costbench.compiler.fusion.rules import Kind
from costbench.compiler.layout.packed.facts import (
    BROADCAST,
    CHEAP,
    CONSTANT,
    CONVERTS,
    DUPLICATED,
    FLAGS,
    FREE,
    GENERATED,
    KIND,
    KINDS,
    PORT,
)
from costbench.execution.compiled import compiled

CONTROL, ELEMENTWISE = KINDS[Kind.CONTROL], KINDS[Kind.ELEMENTWISE]
_FEWEST_READS = 64


class Body(NamedTuple):
    """A laid-out computation of n instructions.

    Attributes:
        facts: [n, 10], see `facts`.
        operands_offsets: [n + 1], where the operands of each instruction begin.
        operands: positions.
        root: position of the root.
        takes: see `PortTable`.
        clones: see `PortTable`.
    """

    facts: I64
    operands_offsets: I64
    operands: I64
    root: int
    takes: Bool
    clones: Bool


class Graph(NamedTuple):
    """The reads of a computation of n instructions, r of them.

    Attributes:
        duplicated: [n], whether an instruction is computed again wherever it is read.
        rootless: [n], whether it is computed from constants alone.
        is_node: [n], whether it runs in one kernel only.
        is_result: [n], whether it is a node whose value the computation returns.
        reads: [n + 1], where the reads of each node begin in `source`, `port`, `repeated`.
        source: [r], position of the value.
        port: [r], port of the reader (operand).
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
def read_graph(b: Body, remade: Bool) -> Graph:
    """Returns the reads of a computation.

    Args:
        b: the computation.
        remade: [n], instructions that are duplicated although no rule asks for it.
    """
    duplicated, rootless = _duplicated(b, remade)
    stored = _stored(b, duplicated)
    is_node = stored | ~duplicated
    reads, found = _reads(b, duplicated, stored, is_node)
    source, port, repeated = found[:, 0].copy(), found[:, 1].copy(), found[:, 2] > 0
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
    return Graph(
        duplicated, rootless, is_node, is_result, reads, source, port, repeated, readers, by_source, user
    )


@compiled
def _duplicated(b: Body, remade: Bool) -> tuple[Bool, Bool]:
    """Returns which instructions are duplicated, and which are computed from constants alone."""
    count = len(b.facts)
    duplicated, rootless = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    for position in range(count):
        flags = b.facts[position, FLAGS]
        asked = flags & DUPLICATED != 0
        if flags & GENERATED:
            duplicated[position] = rootless[position] = asked
            continue
        first, stop = b.operands_offsets[position], b.operands_offsets[position + 1]
        alone = stop > first and b.facts[position, KIND] == ELEMENTWISE and flags & CHEAP != 0
        for i in range(first, stop):
            alone = alone and rootless[b.operands[i]]
        again = asked or alone or remade[position]
        if flags & CONVERTS and b.facts[b.operands[first], KIND] == CONTROL:
            again = True
        duplicated[position] = again
        passed_on = again and stop == first + 1 and rootless[b.operands[first]]
        rootless[position] = alone or passed_on
    return duplicated, rootless


@compiled
def _stored(b: Body, duplicated: Bool) -> Bool:
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
def _store(b: Body, duplicated: Bool, stored: Bool, position: int) -> None:
    while duplicated[position] and b.facts[position, FLAGS] & FREE:
        position = b.operands[b.operands_offsets[position]]
    if duplicated[position] and not b.facts[position, FLAGS] & CONSTANT:
        stored[position] = True


@compiled
def _results(b: Body, is_node: Bool) -> Bool:
    """Returns the nodes that the root is, or is computed from through duplicated instructions."""
    found, visited = np.zeros(len(is_node), dtype=np.bool_), np.zeros(len(is_node), dtype=np.bool_)
    stack = [b.root]
    while len(stack):
        position = stack.pop()
        if is_node[position]:
            found[position] = True
        elif not visited[position]:
            visited[position] = True
            for i in range(b.operands_offsets[position], b.operands_offsets[position + 1]):
                stack.append(b.operands[i])
    return found


class _Visits(NamedTuple):
    """Marks of the searches through duplicated instructions.

    Attributes:
        visited: [n, 2], last search that came by an instruction, without and with a broadcast before it.
        found: [n, 2], last search that found a read of it.
        search: [1], number of the search.
    """

    visited: I64
    found: I64
    search: I64


@compiled
def _reads(b: Body, duplicated: Bool, stored: Bool, is_node: Bool) -> tuple[I64, I64]:
    """Returns where the reads of each node begin, [n + 1]; source, port and repetition of each, [r, 3]."""
    count = len(duplicated)
    offsets = np.zeros(count + 1, dtype=np.int64)
    found = np.empty((_FEWEST_READS + 2 * len(b.operands), 3), dtype=np.int64)
    visits = _Visits(
        np.zeros((count, 2), dtype=np.int64),
        np.zeros((count, 2), dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )
    number = 0
    for user in range(count):
        first, stop = b.operands_offsets[user], b.operands_offsets[user + 1]
        for i in range(first, stop if is_node[user] else first):
            port = b.facts[user, PORT] + i - first
            through, source = b.clones[port], b.operands[i]
            if number == len(found):
                found = np.concatenate((found, np.empty_like(found)))
            if not duplicated[source]:
                found[number, 0], found[number, 1], found[number, 2] = source, port, 0
                number += 1
                continue
            visits.search[0] += 1
            # Entries are positions, doubled, plus one where a broadcast lies between.
            stack = [2 * source]
            while len(stack):
                entry = stack.pop()
                source, repeated = entry // 2, entry % 2 == 1
                kept = stored[source] and not through and not b.facts[source, FLAGS] & FREE
                if kept or not duplicated[source]:
                    if _is_new(visits.found, source, repeated, visits.search[0]):
                        if number == len(found):
                            found = np.concatenate((found, np.empty_like(found)))
                        found[number, 0], found[number, 1], found[number, 2] = source, port, repeated
                        number += 1
                elif _is_new(visits.visited, source, repeated, visits.search[0]):
                    below = 1 if repeated or b.facts[source, FLAGS] & BROADCAST else 0
                    for j in range(b.operands_offsets[source], b.operands_offsets[source + 1]):
                        stack.append(2 * b.operands[j] + below)
        offsets[user + 1] = number
    return offsets, found[:number]


@compiled
def _is_new(marks: I64, position: int, repeated: bool, search: int) -> bool:
    """Returns whether a search comes by for the first time, and marks that it did."""
    place = 1 if repeated else 0
    if marks[position, place] == search:
        return False
    marks[position, place] = search
    return True
