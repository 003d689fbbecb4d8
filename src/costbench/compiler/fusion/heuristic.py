"""The default fusion heuristic, modelled on XLA for TPU.

In order: contractions and gathers are fused with the instructions that follow their result (`kOutput`
fusions, with reductions of the result as further outputs); every instruction whose readers all run in one
kernel moves into it, from the last to the first, so chains end in a root, a reduction or an operand of a
contraction; kernels of equal extent that read one value are merged (multi-output fusion), and so are
reductions of one value (statistics of a batch normalisation). Which values are duplicated is decided before
(`rules.is_duplicated`).

A value that is cheap to compute from one other that is in memory anyway is recomputed by its readers instead
of stored (the centred activations of a normalisation, say). Once these values are known the heuristic runs
again.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import I64, Bool
from costbench.compiler.fusion.facts import (
    BYTES,
    CHEAP,
    CONTROL,
    ELEMENTWISE,
    EXTENT,
    FLAGS,
    KIND,
    KINDS,
    SCALAR,
    TUPLE,
    BodyFacts,
)
from costbench.compiler.fusion.group_graph import Groups
from costbench.compiler.fusion.groups import (
    GROWS,
    NOWHERE,
    GroupReads,
    KernelGroups,
    Shaping,
    fuse,
    join,
    leaving,
    separate_groups,
)
from costbench.compiler.fusion.reads import ReadGraph, read_graph
from costbench.compiler.fusion.rules import Kind
from costbench.execution.compiled import compiled

_LOOK_AHEAD = 8
_ROUNDS = 2
_RECOMPUTING_ROUNDS = 3
_PICKING, _REDUCE = KINDS[Kind.PICKING], KINDS[Kind.REDUCE]
_FOLLOWS = np.array([kind in (Kind.ELEMENTWISE, Kind.REDUCE) for kind in Kind], dtype=np.bool_)
_ENDS = np.array([kind in (Kind.CONTRACTION, Kind.REDUCE, Kind.CONTROL) for kind in Kind], dtype=np.bool_)


@compiled
def default_groups(b: BodyFacts) -> KernelGroups:
    """Returns the groups of instructions that the heuristic ends with."""
    recomputed = np.zeros(len(b.facts), dtype=np.bool_)
    k = _group(b, recomputed)
    for _ in range(_RECOMPUTING_ROUNDS):
        more = _cheap_to_recompute(k)
        if not more.any():
            break
        recomputed = recomputed | more
        k = _group(b, recomputed)
    return k


@compiled
def _group(b: BodyFacts, recomputed: Bool) -> KernelGroups:
    k = separate_groups(b, read_graph(b, recomputed))
    _grow(k)
    kinds = b.facts[:, KIND]
    loops = ((kinds == ELEMENTWISE) | (kinds == _PICKING)) & k.graph.is_node
    for _ in range(_ROUNDS):
        _fuse_into_only_reader(k.groups, k.reads, k.shaping, loops)
        _fuse_with_several_readers(k.groups, k.reads, k.shaping, loops)
    _join_siblings(k.groups, k.reads, k.shaping, kinds == _REDUCE)
    return k


# ---- contractions and what follows them ------------------------------------------------------------------


@compiled
def _grow(k: KernelGroups) -> None:
    """Fuses elementwise users and reductions of the result into the kernels of contractions and gathers."""
    graph, facts = k.graph, k.body.facts
    for anchor in range(len(graph.is_node)):
        if not GROWS[facts[anchor, KIND]]:
            continue
        frontier, number = [anchor], 0
        while number < len(frontier):
            value = frontier[number]
            number += 1
            users = _users(graph, value)
            follows = np.empty(len(users), dtype=np.bool_)
            for i in range(len(users)):
                follows[i] = _may_follow(k, value, users[i])
            all_follow = follows.all() and not graph.is_result[value]
            for user in users[follows]:
                reduces = facts[user, KIND] == _REDUCE
                if not (all_follow or reduces or _worth_making_early(k, value, user)):
                    continue
                first, second = k.groups.group[value], k.groups.group[user]
                if fuse(k.groups, k.reads, k.shaping, first, second) and not reduces:
                    frontier.append(user)


@compiled
def _users(graph: ReadGraph, value: int) -> I64:
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
def _may_follow(k: KernelGroups, value: int, user: int) -> bool:
    """Returns whether `user` is alone in its group, with loops over the value."""
    if not _FOLLOWS[k.body.facts[user, KIND]] or not k.graph.is_node[user]:
        return False
    group = k.groups.group[user]
    return bool(k.groups.size[group] == 1 and k.shaping.extent[group] == k.body.facts[value, EXTENT])


@compiled
def _worth_making_early(k: KernelGroups, value: int, user: int) -> bool:
    """Returns whether `user` is better computed in the kernel of `value`, which has to be stored anyway.

    It is if it would be stored itself: because it is expensive to compute, smaller than what it is made from,
    or read by several or by a contraction. A cheap step with one later reader is left to that reader.
    """
    graph, facts = k.graph, k.body.facts
    size = facts[value, BYTES]
    for _ in range(_LOOK_AHEAD):
        readers = _users(graph, user)
        is_cheap = facts[user, FLAGS] & CHEAP != 0
        if not is_cheap or facts[user, BYTES] < size or len(readers) != 1 or graph.is_result[user]:
            return True
        reader = readers[0]
        if _ENDS[facts[reader, KIND]]:
            return True
        if not _may_follow(k, user, reader) or _waits(k, reader, user):
            return False
        user = reader
    return False


@compiled
def _waits(k: KernelGroups, user: int, value: int) -> bool:
    """Returns whether an instruction reads anything but `value` and what is in memory from the start."""
    for source in k.graph.source[k.graph.reads[user] : k.graph.reads[user + 1]]:
        if source != value and k.body.facts[source, KIND] != CONTROL:
            return True
    return False


# ---- loops -----------------------------------------------------------------------------------------------


@compiled
def _fuse_into_only_reader(g: Groups, reads: GroupReads, shaping: Shaping, loops: Bool) -> None:
    """Fuses every value that all its readers read in one other kernel into that kernel, from the last on."""
    for position in range(len(loops) - 1, -1, -1):
        group = g.group[position]
        if not loops[position] or shaping.anchor[group] >= 0 or reads.is_result[position]:
            continue
        reader, readers = NOWHERE, 0
        for i in range(reads.offsets[position], reads.offsets[position + 1]):
            other = g.group[reads.user[i]]
            if other not in (group, reader):
                reader = other
                readers += 1
        if readers == 1 and _leaves_alone(g, reads, group, position):
            fuse(g, reads, shaping, group, reader)


@compiled
def _leaves_alone(g: Groups, reads: GroupReads, group: int, position: int) -> bool:
    """Returns whether no value but that of `position` leaves a group."""
    is_alone = True
    for output in leaving(g, reads, group, group):
        is_alone &= output == position
    return is_alone


@compiled
def _fuse_with_several_readers(g: Groups, reads: GroupReads, shaping: Shaping, loops: Bool) -> None:
    """Fuses a stored value with those of its readers whose loops run over the same extent (multi-output)."""
    for position in range(len(loops)):
        if not loops[position]:
            continue
        for i in range(reads.offsets[position], reads.offsets[position + 1]):
            group, reader = g.group[position], g.group[reads.user[i]]
            if group == reader or shaping.anchor[group] >= 0 or shaping.anchor[reader] >= 0:
                continue
            if shaping.extent[group] == shaping.extent[reader] == reads.extent[position]:
                fuse(g, reads, shaping, group, reader)


@compiled
def _join_siblings(g: Groups, reads: GroupReads, shaping: Shaping, reduces: Bool) -> None:
    """Merges kernels that end in reductions of one value."""
    count = len(reduces)
    last_value = np.full(count, NOWHERE, dtype=np.int64)
    # Whether only reductions leave a group: 0 if not, 1 if so, NOWHERE before that is asked for.
    ends = np.full(count, NOWHERE, dtype=np.int64)
    siblings = np.empty(count, dtype=np.int64)
    for position in range(count):
        readers, number = 0, 0
        for i in range(reads.offsets[position], reads.offsets[position + 1]):
            group = g.group[reads.user[i]]
            if last_value[group] != position:
                last_value[group] = position
                siblings[readers] = group
                readers += 1
        for i in range(readers if readers > 1 else 0):
            group = siblings[i]
            if ends[group] == NOWHERE:
                ends[group] = 1 if _reduces_only(g, reads, group, reduces) else 0
            if ends[group]:
                siblings[number] = group
                number += 1
        for i in range(number - 1):
            # Looked up again, since an earlier join may have renamed the groups.
            if join(g, reads, shaping, g.group[siblings[i]], g.group[siblings[i + 1]]):
                ends[g.group[siblings[i]]] = NOWHERE


@compiled
def _reduces_only(g: Groups, reads: GroupReads, group: int, reduces: Bool) -> bool:
    """Returns whether only reductions leave a group."""
    only_reductions = True
    for output in leaving(g, reads, group, group):
        only_reductions &= reduces[output]
    return only_reductions


# ---- what is recomputed ----------------------------------------------------------------------------------


@compiled
def _cheap_to_recompute(k: KernelGroups) -> Bool:
    """Returns stored values that are cheap to recompute from one value that is stored anyway, no larger."""
    graph = k.graph
    recomputed = np.zeros(len(graph.is_node), dtype=np.bool_)
    visited = np.full(len(graph.is_node), -1, dtype=np.int64)
    for position in range(len(recomputed)):
        if (
            k.body.facts[position, KIND] == ELEMENTWISE
            and graph.is_node[position]
            and not graph.duplicated[position]
            and k.body.facts[position, FLAGS] & CHEAP
            and _only_clones_read(k, position)
        ):
            origin = _only_origin(k, position, visited)
            recomputed[position] = origin >= 0 and _is_stored(k, position, origin)
    return recomputed


@compiled
def _only_clones_read(k: KernelGroups, position: int) -> bool:
    """Returns whether the value is stored, but only for readers that could compute it themselves."""
    graph, group = k.graph, k.groups.group
    first, stop = graph.readers[position], graph.readers[position + 1]
    if graph.is_result[position] or first == stop:
        return False
    several = False
    for i in range(first, stop):
        read = graph.by_source[i]
        several |= group[graph.user[read]] != group[graph.user[graph.by_source[first]]]
        if not k.body.clones[graph.port[read]]:
            return False
    return several


@compiled
def _only_origin(k: KernelGroups, position: int, visited: I64) -> int:
    """Returns the node that an instruction's large operands come from, or -1 if there is none or several."""
    graph, origin = k.graph, -1
    stack = [position]
    while len(stack):
        user = stack.pop()
        for i in range(k.body.operands_offsets[user], k.body.operands_offsets[user + 1]):
            operand = k.body.operands[i]
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
def _is_stored(k: KernelGroups, position: int, origin: int) -> bool:
    """Returns whether another kernel reads the origin, too, and it is no larger than the value."""
    graph, group = k.graph, k.groups.group
    if k.body.facts[origin, FLAGS] & TUPLE or k.body.facts[position, FLAGS] & SCALAR:
        return False
    if k.body.facts[origin, BYTES] > k.body.facts[position, BYTES]:
        return False
    if k.body.facts[origin, KIND] == CONTROL:
        return True
    for i in range(graph.readers[origin], graph.readers[origin + 1]):
        user = graph.user[graph.by_source[i]]
        if user != position and group[user] != group[origin]:
            return True
    return False
