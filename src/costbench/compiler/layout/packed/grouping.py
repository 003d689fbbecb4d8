"""The default fusion heuristic on arrays: the groups of `fusion.heuristic.default_groups`.

Merging itself, and the passes over loops, are those of `fusion.groups` and `fusion.heuristic`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, Bool
from costbench.compiler.fusion.group_graph import Groups, merge
from costbench.compiler.fusion.group_reads import NOWHERE, PLACES, GroupReads
from costbench.compiler.fusion.groups import Shaping, fuse, settle
from costbench.compiler.fusion.heuristic import (
    LOOK_AHEAD,
    REMAKING_ROUNDS,
    ROUNDS,
    fuse_into_only_reader,
    fuse_with_several_readers,
    join_siblings,
)
from costbench.compiler.fusion.rules import ANCHORS, Kind
from costbench.compiler.layout.packed.facts import (
    BYTES,
    CARRIED,
    CHEAP,
    EXTENT,
    FLAGS,
    KIND,
    KINDS,
    OPCODE,
    PORT,
    SCALAR,
    TUPLE,
)
from costbench.compiler.layout.packed.reads import CONTROL, ELEMENTWISE, Body, Graph, read_graph
from costbench.execution.compiled import compiled, compiled_step

_PICKING, _REDUCE = KINDS[Kind.PICKING], KINDS[Kind.REDUCE]
_CONTRACTION = KINDS[Kind.CONTRACTION]
_IS_ANCHOR = np.array([kind in ANCHORS for kind in Kind], dtype=np.bool_)
_GROWS = np.array([kind in (Kind.CONTRACTION, Kind.GATHER) for kind in Kind], dtype=np.bool_)
"""Whether instructions of a kind are fused with what follows their result."""
_FOLLOWS = np.array([kind in (Kind.ELEMENTWISE, Kind.REDUCE) for kind in Kind], dtype=np.bool_)
_ENDS = np.array([kind in (Kind.CONTRACTION, Kind.REDUCE, Kind.CONTROL) for kind in Kind], dtype=np.bool_)


class Grouped(NamedTuple):
    """The kernels of a computation.

    Attributes:
        graph: its reads.
        groups: which instructions share a kernel.
        reads: the reads as merging needs them.
        shaping: anchor and extent of the groups.
    """

    graph: Graph
    groups: Groups
    reads: GroupReads
    shaping: Shaping


@compiled
def default_groups(b: Body) -> Grouped:
    """Returns the groups that the heuristic ends with."""
    remade = np.zeros(len(b.facts), dtype=np.bool_)
    found = _grouped(b, remade)
    for _ in range(REMAKING_ROUNDS):
        more = _better_remade(b, found)
        if not more.any():
            break
        remade = remade | more
        found = _grouped(b, remade)
    return found


@compiled
def _grouped(b: Body, remade: Bool) -> Grouped:
    found = _started(b, read_graph(b, remade))
    groups, reads, shaping = found.groups, found.reads, found.shaping
    _grow(b, found)
    kinds = b.facts[:, KIND]
    loops = ((kinds == ELEMENTWISE) | (kinds == _PICKING)) & found.graph.is_node
    for _ in range(ROUNDS):
        fuse_into_only_reader(groups, reads, shaping, loops)
        fuse_with_several_readers(groups, reads, shaping, loops)
    join_siblings(groups, reads, shaping, kinds == _REDUCE)
    return found


@compiled
def _started(b: Body, graph: Graph) -> Grouped:
    """Returns groups of one instruction each, but for the results of one instruction, which share a group."""
    count = len(graph.is_node)
    reads = _group_reads(b, graph)
    groups = _groups(graph)
    extent, anchor = reads.extent.copy(), reads.anchor.copy()
    shaping = Shaping(
        anchor, extent, np.full(count, NOWHERE, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    )
    for element in range(count):
        if b.facts[element, FLAGS] & CARRIED:
            owner = groups.group[b.operands[b.operands_offsets[element]]]
            settle(shaping, merge(groups, owner, element), owner, owner)
    return Grouped(graph, groups, reads, shaping)


@compiled
def _group_reads(b: Body, graph: Graph) -> GroupReads:
    count, number = len(graph.is_node), len(graph.source)
    user, side = np.empty(number, dtype=np.int64), np.full(number, NOWHERE, dtype=np.int64)
    repeated = np.empty(number, dtype=np.bool_)
    takes, takes_repeated = np.empty(number, dtype=np.bool_), np.empty(number, dtype=np.bool_)
    for i in range(number):
        read = graph.by_source[i]
        reader, source, port = graph.user[read], graph.source[read], graph.port[read]
        kind, again = b.facts[source, KIND], graph.repeated[read]
        user[i], repeated[i] = reader, again
        if _IS_ANCHOR[b.facts[reader, KIND]]:
            side[i] = reader * PLACES + port - b.facts[reader, PORT]
        if not _GROWS[kind]:
            opcode = b.facts[source, OPCODE]
            takes[i] = b.takes[port, opcode, 1 if again else 0]
            takes_repeated[i] = takes[i] and b.takes[port, opcode, 1]
            continue
        wanted = b.facts[reader, KIND] == ELEMENTWISE
        wanted = wanted or (kind == _CONTRACTION and b.facts[reader, KIND] == _REDUCE)
        wanted = wanted and b.facts[reader, EXTENT] == b.facts[source, EXTENT]
        takes[i] = takes_repeated[i] = wanted and not again and not b.facts[source, FLAGS] & TUPLE
    anchor = np.full(count, NOWHERE, dtype=np.int64)
    for position in range(count):
        if _IS_ANCHOR[b.facts[position, KIND]]:
            anchor[position] = position
    extent = b.facts[:, EXTENT].copy()
    offsets = graph.readers
    return GroupReads(offsets, user, repeated, takes, takes_repeated, side, graph.is_result, extent, anchor)


@compiled_step
def _insert(values: I64, first: int, stop: int, value: int) -> int:
    """Inserts a value into `values[first:stop]`, ascending, unless it is there; returns where they end."""
    place = stop
    while place > first and values[place - 1] > value:
        place -= 1
    if place > first and values[place - 1] == value:
        return stop
    for i in range(stop, place, -1):
        values[i] = values[i - 1]
    values[place] = value
    return stop + 1


@compiled
def _groups(graph: Graph) -> Groups:
    """Returns groups in which each position is a group of its own, as `new_groups` does."""
    count = len(graph.is_node)
    before_offsets = np.zeros(count + 1, dtype=np.int64)
    before = np.empty(len(graph.source), dtype=np.int64)
    after_offsets = np.zeros(count + 1, dtype=np.int64)
    number = 0
    for position in range(count):
        first = number
        for i in range(graph.reads[position], graph.reads[position + 1]):
            number = _insert(before, first, number, graph.source[i])
        for i in range(first, number):
            after_offsets[before[i] + 1] += 1
        before_offsets[position + 1] = number
    for position in range(count):
        after_offsets[position + 1] += after_offsets[position]
    ends, after = after_offsets[:-1].copy(), np.empty(number, dtype=np.int64)
    for position in range(count):
        for i in range(before_offsets[position], before_offsets[position + 1]):
            after[ends[before[i]]] = position
            ends[before[i]] += 1
    own = np.arange(count)
    return Groups(
        own.copy(), own.copy(), own.copy(), np.ones(count, dtype=np.int64),
        before_offsets, before[:number].copy(), after_offsets, after,
        np.zeros(count, dtype=np.int64), np.zeros(1, dtype=np.int64),
        np.empty((2, count + 1), dtype=np.int64),
        np.empty(count, dtype=np.int64), np.zeros((2, count), dtype=np.int64),
    )  # fmt: skip


# ---- contractions and what follows them ------------------------------------------------------------------


@compiled
def _grow(b: Body, found: Grouped) -> None:
    """Fuses elementwise users and reductions of the result into the kernels of contractions and gathers."""
    graph, groups = found.graph, found.groups
    for anchor in range(len(graph.is_node)):
        if not _GROWS[b.facts[anchor, KIND]]:
            continue
        frontier, place = [anchor], 0
        while place < len(frontier):
            value = frontier[place]
            place += 1
            users = _users(graph, value)
            may = np.empty(len(users), dtype=np.bool_)
            for i in range(len(users)):
                may[i] = _may_follow(b, found, value, users[i])
            everything = may.all() and not graph.is_result[value]
            for i in range(len(users)):
                user = users[i]
                if not may[i]:
                    continue
                reduces = b.facts[user, KIND] == _REDUCE
                if not (everything or reduces or _worth_making_early(b, found, value, user)):
                    continue
                first, second = groups.group[value], groups.group[user]
                if fuse(groups, found.reads, found.shaping, first, second) and not reduces:
                    frontier.append(user)


@compiled
def _users(graph: Graph, value: int) -> I64:
    """Returns the readers of a value, ascending, each once."""
    first, stop = graph.readers[value], graph.readers[value + 1]
    users = np.empty(stop - first, dtype=np.int64)
    for i in range(first, stop):
        users[i - first] = graph.user[graph.by_source[i]]
    users.sort()
    number = 0
    for i in range(len(users)):
        if i == 0 or users[i] != users[i - 1]:
            users[number] = users[i]
            number += 1
    return users[:number]


@compiled
def _may_follow(b: Body, found: Grouped, value: int, user: int) -> bool:
    kind = b.facts[user, KIND]
    if not _FOLLOWS[kind] or not found.graph.is_node[user]:
        return False
    group = found.groups.group[user]
    if found.groups.size[group] > 1:
        return False
    return bool(found.shaping.extent[group] == b.facts[value, EXTENT])


@compiled
def _worth_making_early(b: Body, found: Grouped, value: int, user: int) -> bool:
    """Returns whether `user` is better computed in the kernel of `value`; see `fusion.heuristic`."""
    graph = found.graph
    size = b.facts[value, BYTES]
    for _ in range(LOOK_AHEAD):
        readers = _users(graph, user)
        cheap = b.facts[user, FLAGS] & CHEAP != 0
        if not cheap or b.facts[user, BYTES] < size or len(readers) != 1 or graph.is_result[user]:
            return True
        reader = readers[0]
        kind = b.facts[reader, KIND]
        if _ENDS[kind]:
            return True
        if not _may_follow(b, found, user, reader) or _waits(b, graph, reader, user):
            return False
        user = reader
    return False


@compiled
def _waits(b: Body, graph: Graph, user: int, value: int) -> bool:
    """Returns whether an instruction reads anything but `value` and what is in memory from the start."""
    for i in range(graph.reads[user], graph.reads[user + 1]):
        if graph.source[i] != value and b.facts[graph.source[i], KIND] != CONTROL:
            return True
    return False


# ---- what is recomputed ----------------------------------------------------------------------------------


@compiled
def _better_remade(b: Body, found: Grouped) -> Bool:
    """Returns stored values that are cheap to recompute from one value that is stored anyway, no larger."""
    graph = found.graph
    remade = np.zeros(len(graph.is_node), dtype=np.bool_)
    visited = np.full(len(graph.is_node), -1, dtype=np.int64)
    for position in range(len(remade)):
        if (
            b.facts[position, KIND] == ELEMENTWISE
            and graph.is_node[position]
            and not graph.duplicated[position]
            and b.facts[position, FLAGS] & CHEAP
            and _only_clones_read(b, found, position)
        ):
            origin = _only_origin(b, graph, position, visited)
            remade[position] = origin >= 0 and _is_stored(b, found, position, origin)
    return remade


@compiled
def _only_clones_read(b: Body, found: Grouped, position: int) -> bool:
    """Returns whether the value is stored, but only for readers that could compute it themselves."""
    graph, group = found.graph, found.groups.group
    first, stop = graph.readers[position], graph.readers[position + 1]
    if graph.is_result[position] or first == stop:
        return False
    several = False
    for i in range(first, stop):
        read = graph.by_source[i]
        several |= group[graph.user[read]] != group[graph.user[graph.by_source[first]]]
        if not b.clones[graph.port[read]]:
            return False
    return several


@compiled
def _only_origin(b: Body, graph: Graph, position: int, visited: I64) -> int:
    """Returns the node that an instruction's large operands come from, or -1 if there is none or several."""
    origin = -1
    stack = [position]
    while len(stack):
        user = stack.pop()
        for i in range(b.operands_offsets[user], b.operands_offsets[user + 1]):
            operand = b.operands[i]
            if graph.rootless[operand]:
                continue
            if not graph.duplicated[operand]:
                if origin >= 0 and origin != operand:
                    return -1
                origin = operand
            elif visited[operand] != position:
                visited[operand] = position
                stack.append(operand)
    return origin


@compiled
def _is_stored(b: Body, found: Grouped, position: int, origin: int) -> bool:
    """Returns whether another kernel reads the origin, too, and it is no larger than the value."""
    graph, group = found.graph, found.groups.group
    if b.facts[origin, FLAGS] & TUPLE or b.facts[position, FLAGS] & SCALAR:
        return False
    if b.facts[origin, BYTES] > b.facts[position, BYTES]:
        return False
    if b.facts[origin, KIND] == CONTROL:
        return True
    for i in range(graph.readers[origin], graph.readers[origin + 1]):
        user = graph.user[graph.by_source[i]]
        if user != position and group[user] != group[origin]:
            return True
    return False
