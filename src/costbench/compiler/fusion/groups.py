"""Legality of fusion: merges groups of instructions into kernels if the result can run as one kernel.

A heuristic or a search proposes merges. `KernelGroups.fuse` merges the producer of a value with its reader,
`KernelGroups.join` two groups that read the same value. Both refuse what cannot be one kernel: two
contractions, a producer that its reader's kernel may not compute, a cycle of kernels that wait for each
other, outputs that the kernel's loops do not make, too many instructions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, Bool
from costbench.compiler.fusion.group_graph import (
    Groups,
    copy_groups,
    list_members,
    members_of,
    merge,
    new_groups,
)
from costbench.compiler.fusion.group_reads import NOWHERE, GroupReads, group_reads
from costbench.compiler.fusion.reads import Extent, ReadGraph
from costbench.execution.compiled import compiled, compiled_step

MAX_INSTRUCTIONS = 500
"""Of a kernel, without what it duplicates; with that, the papers' reach about a thousand (lpm2021)."""
MAX_OUTPUTS = 16


class Shaping(NamedTuple):
    """Properties of groups and positions that merging updates, every array [n].

    Attributes:
        anchor: of each group, position of its contraction, gather and so on, or -1.
        extent: of each group, number of the extent that its loops run over.
        side: of each position, the operand of a contraction that it helps to compute, or -1.
        repeated: of each position, whether a broadcast in the same kernel repeats its value.
    """

    anchor: I64
    extent: I64
    side: I64
    repeated: Bool


class KernelGroups:
    """The kernels of one computation while instructions are being merged into them.

    Args:
        graph: reads of the computation.
        start: groups of the same graph to start from; by default every node is a group of its own.

    Attributes:
        graph: reads of the computation.
        reads: the same as arrays.
        extents: extents that loops may run over, by number.
        groups: which instructions share a group.
        shaping: anchor and extent of the groups.
        start: the groups that these started from, if any.
    """

    def __init__(self, graph: ReadGraph, start: KernelGroups | None = None) -> None:
        self.graph = graph
        self.reads: GroupReads
        self.extents: tuple[Extent, ...]
        self.groups: Groups
        self.shaping: Shaping
        self.start = start
        if start is not None:
            self.reads, self.extents = start.reads, start.extents
            self.groups = copy_groups(start.groups)
            self.shaping = Shaping._make(array.copy() for array in start.shaping)
            return
        self.reads, self.extents = group_reads(graph)
        self.groups = new_groups([{read.source for read in reads} for reads in graph.reads])
        count = len(graph.kinds)
        self.shaping = Shaping(
            self.reads.anchor.copy(),
            self.reads.extent.copy(),
            np.full(count, NOWHERE, dtype=np.int64),
            np.zeros(count, dtype=bool),
        )
        for element, source in graph.carried.items():
            owner = self.find(source)
            merged = merge(self.groups, owner, element)
            settle(self.shaping, merged, owner, owner)

    def find(self, position: int) -> int:
        """Returns the group of a position."""
        return int(self.groups.group[position])

    def members(self, group: int) -> list[int]:
        """Returns the positions in a group, ascending."""
        return list(members_of(self.groups, group).tolist())

    def size(self, group: int) -> int:
        """Returns the number of positions in a group."""
        return int(self.groups.size[group])

    def anchor(self, group: int) -> int:
        """Returns the position of a group's contraction, gather, update and so on, or -1."""
        return int(self.shaping.anchor[group])

    def extent(self, group: int) -> Extent:
        """Returns the extent that the group's loops run over."""
        return self.extents[int(self.shaping.extent[group])]

    def rank(self, group: int) -> int:
        """Returns the group's place in a topological order of all groups."""
        return int(self.groups.rank[group])

    def outputs(self, group: int) -> list[int]:
        """Returns the members of a group whose values are needed outside it, ascending."""
        return list(leaving(self.groups, self.reads, group, group).tolist())

    def fuse(self, source: int, user: int) -> bool:
        """Merges a producer's group with a reader's group if that is legal; returns whether it did."""
        return fuse(self.groups, self.reads, self.shaping, source, user)

    def join(self, first: int, second: int) -> bool:
        """Merges two groups of equal extent that do not read each other; returns whether it did."""
        return join(self.groups, self.reads, self.shaping, first, second)

    def merge_along(self, sources: I64, users: I64) -> None:
        """Merges the two ends of every edge where that is legal.

        Edges are tried in turn, repeatedly until a round merges nothing; the remaining edges are not fused.
        """
        merge_along(self.groups, self.reads, self.shaping, sources, users)


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
    found = np.empty(g.size[group], dtype=np.int64)
    count = 0
    member = group
    for _ in range(g.size[group]):
        if _is_needed_outside(g, reads, member, also):
            found[count] = member
            count += 1
        member = g.following[member]
    found = found[:count].copy()
    found.sort()
    return found


@compiled_step
def _num_leaving(g: Groups, reads: GroupReads, group: int, also: int, extent: int) -> int:
    """Returns how many values `leaving` finds, or -1 if one of them is not made by loops over `extent`;
    with NOWHERE any extent will do.
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
    found = False
    for i in range(reads.offsets[source], reads.offsets[source + 1]):
        found |= reads.user[i] == user
    return found


@compiled_step
def _fits(g: Groups, shaping: Shaping, first: int, second: int) -> bool:
    if shaping.anchor[first] != NOWHERE and shaping.anchor[second] != NOWHERE:
        return False
    return bool(g.size[first] + g.size[second] <= MAX_INSTRUCTIONS)


@compiled_step
def _way_in(g: Groups, reads: GroupReads, shaping: Shaping, source: int, user: int) -> tuple[bool, int, bool]:
    """Checks all reads of group `source` by group `user`.

    Returns whether `user` may compute all of them, as one operand of its contraction at most; that operand's
    number or -1; and whether a broadcast repeats any of the values.
    """
    some, side, repeats = False, NOWHERE, False
    member = source
    while True:
        for i in range(reads.offsets[member], reads.offsets[member + 1]):
            reader = reads.user[i]
            if g.group[reader] != user:
                continue
            again = shaping.repeated[reader]
            if not (reads.takes_repeated[i] if again else reads.takes[i]):
                return False, NOWHERE, False
            here = reads.side[i] if reads.side[i] != NOWHERE else shaping.side[reader]
            if some and here != side:
                return False, NOWHERE, False
            some, side = True, here
            repeats |= again or reads.repeated[i]
        member = g.following[member]
        if member == source:
            return some, side, repeats


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
    taken, side, repeats = _way_in(g, reads, shaping, source, user)
    if not taken:
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
            done = False
            if tried[edge] < max(version[first], version[second]) and _fits(g, shaping, first, second):
                if _reads(reads, sources[edge], users[edge]) or _reads_any(g, reads, first, second):
                    done = fuse(g, reads, shaping, first, second)
                elif _reads_any(g, reads, second, first):
                    done = fuse(g, reads, shaping, second, first)
                else:
                    done = join(g, reads, shaping, first, second)
                tried[edge] = merges
            if done:
                merges += 1
                version[g.group[sources[edge]]] = merges
            else:
                waiting[count] = edge
                count += 1
        if count == len(waiting):
            return
        waiting = waiting[:count]
