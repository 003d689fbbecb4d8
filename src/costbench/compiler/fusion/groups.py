"""Legality of fusion: merges groups of instructions into kernels if the result can run as one kernel.

A heuristic or a search proposes merges. `fuse` merges the producer of a value with its reader, `join` two
groups that read the same value. Both refuse what cannot be one kernel: two contractions, a producer that its
reader's kernel may not compute, a cycle of kernels that wait for each other, outputs that the kernel's loops
do not make, too many instructions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, Bool
from costbench.compiler.fusion.facts import (
    ELEMENTWISE,
    EXTENT,
    FLAGS,
    KIND,
    KINDS,
    MEMBER,
    OPCODE,
    PORT,
    TUPLE,
    BodyFacts,
)
from costbench.compiler.fusion.group_graph import Groups, copy_groups, list_members, merge, new_groups
from costbench.compiler.fusion.reads import ReadGraph
from costbench.compiler.fusion.rules import ANCHORS, Kind
from costbench.execution.compiled import compiled, compiled_step

MAX_INSTRUCTIONS = 500
"""Instructions of a kernel without what it duplicates; with it, the papers' reach about 1,000 (lpm2021)."""
MAX_OUTPUTS = 16
NOWHERE = -1
GROWS = np.array([kind in (Kind.CONTRACTION, Kind.GATHER) for kind in Kind], dtype=np.bool_)
"""Whether instructions of a kind are fused with what follows their result."""
_MAX_OPERANDS = 1 << 32
_IS_ANCHOR = np.array([kind in ANCHORS for kind in Kind], dtype=np.bool_)
_CONTRACTION, _REDUCE = KINDS[Kind.CONTRACTION], KINDS[Kind.REDUCE]


class GroupReads(NamedTuple):
    """Reads in order of their source, r of them, and facts about the n positions.

    Attributes:
        offsets: [n + 1], where the reads of each position's value begin.
        user: [r], position of the reader.
        repeated: [r], whether a broadcast lies between.
        takes: [r], whether the reader's kernel may compute the value itself.
        takes_repeated: [r], the same if the reader's own value is repeated by a broadcast in its kernel.
        side: [r], operand of a contraction that is read, numbered over the computation, or -1.
        is_result: [n], whether the computation returns the value.
        extent: [n], number of the extent of the loops that compute a value.
        anchor: [n], the position itself for contractions, gathers and the like, else -1.
    """

    offsets: I64
    user: I64
    repeated: Bool
    takes: Bool
    takes_repeated: Bool
    side: I64
    is_result: Bool
    extent: I64
    anchor: I64


class Shaping(NamedTuple):
    """What merging updates of n positions and the groups that they name; every array is [n].

    Attributes:
        anchor: position of the contraction, gather and so on of a group, or -1.
        extent: number of the extent that the loops of a group run over.
        side: operand of a contraction that a position helps to compute, or -1.
        repeated: whether a broadcast in the same kernel repeats the value of a position.
    """

    anchor: I64
    extent: I64
    side: I64
    repeated: Bool


class KernelGroups(NamedTuple):
    """The kernels of one computation while instructions are being merged into them.

    Attributes:
        body: the computation.
        graph: reads of the computation.
        groups: which instructions share a kernel.
        reads: the reads as merging needs them.
        shaping: anchor and extent of the groups.
    """

    body: BodyFacts
    graph: ReadGraph
    groups: Groups
    reads: GroupReads
    shaping: Shaping


@compiled
def separate_groups(b: BodyFacts, graph: ReadGraph) -> KernelGroups:
    """Returns groups of one instruction each, but for the results of one instruction, which share a group."""
    count = len(graph.is_node)
    reads, groups = _group_reads(b, graph), new_groups(graph.reads, graph.source)
    shaping = Shaping(
        reads.anchor.copy(),
        reads.extent.copy(),
        np.full(count, NOWHERE, dtype=np.int64),
        np.zeros(count, dtype=np.bool_),
    )
    for element in range(count):
        if b.facts[element, FLAGS] & MEMBER:
            owner = groups.group[b.operands[b.operands_offsets[element]]]
            settle(shaping, merge(groups, owner, element), owner, owner)
    return KernelGroups(b, graph, groups, reads, shaping)


def copy_kernel_groups(k: KernelGroups) -> KernelGroups:
    """Returns a copy that can be merged further without changing the original."""
    shaping = Shaping._make(array.copy() for array in k.shaping)
    return k._replace(groups=copy_groups(k.groups), shaping=shaping)


@compiled
def _group_reads(b: BodyFacts, graph: ReadGraph) -> GroupReads:
    count, number = len(graph.is_node), len(graph.source)
    user, side = np.empty(number, dtype=np.int64), np.full(number, NOWHERE, dtype=np.int64)
    repeated = np.empty(number, dtype=np.bool_)
    takes, takes_repeated = np.empty(number, dtype=np.bool_), np.empty(number, dtype=np.bool_)
    for i in range(number):
        read = graph.by_source[i]
        reader, source, port = graph.user[read], graph.source[read], graph.port[read]
        kind, is_repeated = b.facts[source, KIND], graph.repeated[read]
        user[i], repeated[i] = reader, is_repeated
        if _IS_ANCHOR[b.facts[reader, KIND]]:
            side[i] = reader * _MAX_OPERANDS + port - b.facts[reader, PORT]
        if not GROWS[kind]:
            opcode = b.facts[source, OPCODE]
            takes[i] = b.takes[port, opcode, 1 if is_repeated else 0]
            takes_repeated[i] = takes[i] and b.takes[port, opcode, 1]
            continue
        # What follows a contraction or gather runs over its result, element by element.
        follows = b.facts[reader, KIND] == ELEMENTWISE
        follows = follows or (kind == _CONTRACTION and b.facts[reader, KIND] == _REDUCE)
        follows = follows and b.facts[reader, EXTENT] == b.facts[source, EXTENT]
        takes[i] = takes_repeated[i] = follows and not is_repeated and not b.facts[source, FLAGS] & TUPLE
    anchor = np.full(count, NOWHERE, dtype=np.int64)
    for position in range(count):
        if _IS_ANCHOR[b.facts[position, KIND]]:
            anchor[position] = position
    extent = b.facts[:, EXTENT].copy()
    offsets = graph.readers
    return GroupReads(offsets, user, repeated, takes, takes_repeated, side, graph.is_result, extent, anchor)


@compiled_step
def settle(shaping: Shaping, merged: int, source: int, user: int) -> None:
    """Gives the merged group the loops of its contraction, or else of the reader."""
    anchored = source if shaping.anchor[source] != NOWHERE else user
    shaping.extent[merged], shaping.anchor[merged] = shaping.extent[anchored], shaping.anchor[anchored]


@compiled_step
def _is_needed_outside(g: Groups, reads: GroupReads, member: int, also: int) -> bool:
    """Returns whether the computation returns a value, or a group other than its own and `also` reads it."""
    needed = reads.is_result[member]
    for i in range(reads.offsets[member], reads.offsets[member + 1]):
        reader = g.group[reads.user[i]]
        needed |= reader != g.group[member] and reader != also
    return bool(needed)


@compiled
def leaving(g: Groups, reads: GroupReads, group: int, also: int) -> I64:
    """Returns the members of `group` whose values are needed outside of it and of `also`, ascending."""
    outputs = np.empty(g.size[group], dtype=np.int64)
    count = 0
    member = group
    for _ in range(g.size[group]):
        if _is_needed_outside(g, reads, member, also):
            outputs[count] = member
            count += 1
        member = g.following[member]
    outputs = outputs[:count].copy()
    outputs.sort()
    return outputs


@compiled_step
def _num_leaving(g: Groups, reads: GroupReads, group: int, also: int, extent: int) -> int:
    """Returns how many values `leaving` finds, or -1 if one is not made by loops over `extent`.

    With NOWHERE any extent will do.
    """
    count, member = 0, group
    for _ in range(g.size[group]):
        if _is_needed_outside(g, reads, member, also):
            if extent != NOWHERE and reads.extent[member] != extent:
                return -1
            count += 1
        member = g.following[member]
    return count


@compiled_step
def _reads_any(g: Groups, reads: GroupReads, source: int, user: int) -> bool:
    """Returns whether group `user` reads a value of group `source`."""
    member = source
    while True:
        for i in range(reads.offsets[member], reads.offsets[member + 1]):
            if g.group[reads.user[i]] == user:
                return True
        member = g.following[member]
        if member == source:
            return False


@compiled_step
def _reads(reads: GroupReads, source: int, user: int) -> bool:
    """Returns whether instruction `user` reads the value of instruction `source`."""
    is_read = False
    for i in range(reads.offsets[source], reads.offsets[source + 1]):
        is_read |= reads.user[i] == user
    return is_read


@compiled_step
def _fits(g: Groups, shaping: Shaping, first: int, second: int) -> bool:
    if shaping.anchor[first] != NOWHERE and shaping.anchor[second] != NOWHERE:
        return False
    return bool(g.size[first] + g.size[second] <= MAX_INSTRUCTIONS)


@compiled_step
def _check_reads(
    g: Groups, reads: GroupReads, shaping: Shaping, source: int, user: int
) -> tuple[bool, int, bool]:
    """Checks all reads of group `source` by group `user`.

    Returns whether `user` may compute all of them, as one operand of its contraction at most; that operand's
    number or -1; and whether a broadcast repeats any of the values.
    """
    any_read, side, repeats = False, NOWHERE, False
    member = source
    while True:
        for i in range(reads.offsets[member], reads.offsets[member + 1]):
            reader = reads.user[i]
            if g.group[reader] != user:
                continue
            is_repeated = shaping.repeated[reader]
            if not (reads.takes_repeated[i] if is_repeated else reads.takes[i]):
                return False, NOWHERE, False
            read_side = reads.side[i] if reads.side[i] != NOWHERE else shaping.side[reader]
            if any_read and read_side != side:
                return False, NOWHERE, False
            any_read, side = True, read_side
            repeats |= is_repeated or reads.repeated[i]
        member = g.following[member]
        if member == source:
            return any_read, side, repeats


@compiled_step
def _aligned(g: Groups, reads: GroupReads, shaping: Shaping, source: int, user: int) -> bool:
    """Returns whether all values that leave the merged group are made by its loops."""
    extent = shaping.extent[user]
    if shaping.anchor[source] != NOWHERE and shaping.extent[source] != extent:
        return False
    count = _num_leaving(g, reads, source, user, extent)
    return count == 0 or (count > 0 and count + _num_leaving(g, reads, user, user, NOWHERE) <= MAX_OUTPUTS)


@compiled_step
def fuse(g: Groups, reads: GroupReads, shaping: Shaping, source: int, user: int) -> bool:
    """Merges a producer's group with a reader's group if that is legal; returns whether it did."""
    if source == user or not _fits(g, shaping, source, user):
        return False
    may_take, side, repeats = _check_reads(g, reads, shaping, source, user)
    if not may_take:
        return False
    if side != NOWHERE:
        if shaping.anchor[source] != NOWHERE or _num_leaving(g, reads, source, user, NOWHERE):
            return False
    elif not _aligned(g, reads, shaping, source, user):
        return False
    number = list_members(g, source) if side != NOWHERE or repeats else 0
    merged = merge(g, source, user)
    if merged < 0:
        return False
    settle(shaping, merged, source, user)
    for i in range(number):
        if side != NOWHERE:
            shaping.side[g.inside[i]] = side
        shaping.repeated[g.inside[i]] |= repeats
    return True


@compiled_step
def join(g: Groups, reads: GroupReads, shaping: Shaping, first: int, second: int) -> bool:
    """Merges two groups of equal extent that do not read each other; returns whether it did."""
    if first == second or shaping.extent[first] != shaping.extent[second]:
        return False
    if shaping.anchor[first] != NOWHERE or shaping.anchor[second] != NOWHERE:
        return False
    if not _fits(g, shaping, first, second):
        return False
    outputs = _num_leaving(g, reads, first, first, NOWHERE)
    if outputs + _num_leaving(g, reads, second, second, NOWHERE) > MAX_OUTPUTS:
        return False
    if _reads_any(g, reads, first, second) or _reads_any(g, reads, second, first):
        return False
    merged = merge(g, first, second)
    if merged < 0:
        return False
    settle(shaping, merged, first, second)
    return True


@compiled
def merge_along(g: Groups, reads: GroupReads, shaping: Shaping, sources: I64, users: I64) -> None:
    """Merges the two ends of every edge where that is legal, in rounds until a round merges nothing."""
    waiting = np.arange(len(sources))
    # A refused pair is tried again only if one of its two groups has grown since: no other change can make
    # the merge legal.
    version = np.zeros(len(g.group), dtype=np.int64)
    tried = np.full(len(sources), -1, dtype=np.int64)
    merges = 0
    while True:
        count = 0
        for edge in waiting:
            first, second = g.group[sources[edge]], g.group[users[edge]]
            if first == second:
                continue
            is_merged = False
            if tried[edge] < max(version[first], version[second]) and _fits(g, shaping, first, second):
                if _reads(reads, sources[edge], users[edge]) or _reads_any(g, reads, first, second):
                    is_merged = fuse(g, reads, shaping, first, second)
                elif _reads_any(g, reads, second, first):
                    is_merged = fuse(g, reads, shaping, second, first)
                else:
                    is_merged = join(g, reads, shaping, first, second)
                tried[edge] = merges
            if is_merged:
                merges += 1
                version[g.group[sources[edge]]] = merges
            else:
                waiting[count] = edge
                count += 1
        if count == len(waiting):
            return
        waiting = waiting[:count]
