"""Merges groups of instructions pair by pair while keeping the graph of dependencies between groups acyclic.

A group will be compiled into one kernel. A kernel can only start when all that it reads is finished, so two
groups may be merged only if no path leads from one to the other through a third. The groups are kept in a
topological order that is repaired after each merge (Pearce and Kelly's algorithm for incremental topological
sorting), so the search for such a path visits only groups ranked between the two.

A search over fusion configs merges millions of pairs, so everything here is arrays and compiled functions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64
from costbench.execution.compiled import compiled, compiled_step

_VACANT = np.iinfo(np.int64).min


class Groups(NamedTuple):
    """The groups of n instructions; arrays are [n] where nothing else is said.

    Attributes:
        group: the group of each position, named by one of its members.
        rank: rank of each group in a topological order of all groups.
        following: next member of the same group, after the last one the first: a circular linked list.
        size: number of members of each group.
        before_offsets: [n + 1], where the positions that each position reads begin in `before`.
        before: positions read.
        after_offsets: [n + 1], likewise for its readers in `after`.
        after: readers.
        mark: number of the last search that visited each group, so that marks need not be cleared.
        searches: [1], number of searches so far.
        met: buffer for the groups that the two searches of a merge visited, [2, n].
        inside: buffer for the members of a group.
        ranks: buffer for the ranks that are reassigned, [2, n]; its first row is 0 between merges.
    """

    group: I64
    rank: I64
    following: I64
    size: I64
    before_offsets: I64
    before: I64
    after_offsets: I64
    after: I64
    mark: I64
    searches: I64
    met: I64
    inside: I64
    ranks: I64


@compiled_step
def _insert(values: I64, first: int, stop: int, value: int) -> int:
    """Inserts a value into `values[first:stop]`, ascending, unless it is there; returns where they end."""
    index = stop
    while index > first and values[index - 1] > value:
        index -= 1
    if index > first and values[index - 1] == value:
        return stop
    for i in range(stop, index, -1):
        values[i] = values[i - 1]
    values[index] = value
    return stop + 1


@compiled
def new_groups(offsets: I64, sources: I64) -> Groups:
    """Returns groups in which each of n positions is a group of its own.

    Args:
        offsets: [n + 1], where the positions that each position reads begin in `sources`.
        sources: positions read, all smaller than the reader, in any order; they may be repeated.
    """
    count = len(offsets) - 1
    before_offsets, before = np.zeros(count + 1, dtype=np.int64), np.empty(len(sources), dtype=np.int64)
    after_offsets = np.zeros(count + 1, dtype=np.int64)
    number = 0
    for position in range(count):
        first = number
        for i in range(offsets[position], offsets[position + 1]):
            number = _insert(before, first, number, sources[i])
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
    positions = np.arange(count)
    return Groups(
        positions.copy(), positions.copy(), positions.copy(), np.ones(count, dtype=np.int64),
        before_offsets, before[:number].copy(), after_offsets, after,
        np.zeros(count, dtype=np.int64), np.zeros(1, dtype=np.int64),
        np.empty((2, count + 1), dtype=np.int64),
        np.empty(count, dtype=np.int64), np.zeros((2, count), dtype=np.int64),
    )  # fmt: skip


def copy_groups(g: Groups) -> Groups:
    """Returns a copy that can be merged further without changing the original."""
    return g._replace(
        group=g.group.copy(), rank=g.rank.copy(), following=g.following.copy(), size=g.size.copy()
    )


@compiled_step
def merge(g: Groups, first: int, second: int) -> int:
    """Merges two groups unless a path through a third connects them; returns the merged group, or -1."""
    if first == second:
        return first
    if g.rank[first] > g.rank[second]:
        first, second = second, first
    rank = g.rank[first]
    # If the later group reads nothing ranked between the two, it can run at the rank of the first one.
    if _reads_later_than(g, second, rank):
        num_behind, num_ahead = _between(g, first, second)
        if num_behind < 0:
            return -1
        rank = _reorder(g, first, second, num_ahead, num_behind) if num_behind else g.rank[second]
    merged = _unite(g, first, second)
    g.rank[merged] = rank
    return merged


@compiled_step
def _reads_later_than(g: Groups, group: int, rank: int) -> bool:
    """Returns whether the group reads from one that runs after `rank`."""
    member = group
    while True:
        for i in range(g.before_offsets[member], g.before_offsets[member + 1]):
            other = g.group[g.before[i]]
            if other != group and g.rank[other] > rank:
                return True
        member = g.following[member]
        if member == group:
            return False


@compiled_step
def _between(g: Groups, first: int, second: int) -> tuple[int, int]:
    """Lists the groups ranked between the two.

    In met[0] are those reachable from `first`, in met[1] those that `second` depends on. Returns how many of
    each, or (-1, -1) if a group is both, so that merging would close a cycle.

    Both breadth-first searches advance in turn, as a path is mostly short where there is one. If `first`
    reaches no group, the other list is left unfinished.
    """
    g.searches[0] += 2
    behind, ahead, next_behind, next_ahead = 0, 0, -1, -1
    while next_behind < behind or next_ahead < ahead:
        if next_behind < behind:
            behind = _spread(g, first, second, next_behind, behind, True)
            next_behind += 1
        if behind == 0:
            return 0, 0
        if next_ahead < ahead:
            ahead = _spread(g, second, first, next_ahead, ahead, False)
            next_ahead += 1
        if behind < 0 or ahead < 0:
            return -1, -1
    return behind, ahead


@compiled_step
def _spread(g: Groups, start: int, end: int, number: int, length: int, forward: bool) -> int:
    """Expands one group of a search from `start`.

    It is the one with this number in the search's list, or with -1 the start itself.

    Forward, the group's readers that run before `end` are added to met[0]; backward, the groups that it reads
    and that run after `end` are added to met[1]. Returns the new length of the list, or -1 if a path leads
    to `end`.
    """
    offsets = g.after_offsets if forward else g.before_offsets
    positions = g.after if forward else g.before
    row = 0 if forward else 1
    search, opposite = g.searches[0] + row, g.searches[0] + 1 - row
    limit = g.rank[end]
    group = start if number < 0 else g.met[row, number]
    member = group
    while True:
        for i in range(offsets[member], offsets[member + 1]):
            other = g.group[positions[i]]
            if other == end:
                if group != start:
                    return -1
            elif other != start and (g.rank[other] < limit) == forward and g.mark[other] != search:
                if g.mark[other] == opposite:
                    return -1
                g.mark[other] = search
                g.met[row, length] = other
                length += 1
        member = g.following[member]
        if member == group:
            return length


@compiled_step
def _reorder(g: Groups, first: int, second: int, num_ahead: int, num_behind: int) -> int:
    """Reassigns ranks; returns the rank of the merged group.

    What `second` depends on comes first, then the merged group, then what follows `first`.
    """
    low, high = g.rank[first], g.rank[second]
    holders, ranks = g.ranks[0], g.ranks[1]
    # holders[rank] is the group whose rank is reassigned: 1 + group in met[0], or -1 - group in met[1].
    holders[low] = holders[high] = _VACANT
    for i in range(num_ahead):
        holders[g.rank[g.met[1, i]]] = -1 - g.met[1, i]
    for i in range(num_behind):
        holders[g.rank[g.met[0, i]]] = 1 + g.met[0, i]
    count, ahead, behind = 0, 0, 0
    for rank in range(low, high + 1):
        holder = holders[rank]
        if holder == 0:
            continue
        holders[rank] = 0
        ranks[count] = rank
        count += 1
        if holder == _VACANT:
            continue
        if holder < 0:
            g.met[1, ahead] = -1 - holder
            ahead += 1
        else:
            g.met[0, behind] = holder - 1
            behind += 1
    for i in range(num_ahead):
        g.rank[g.met[1, i]] = ranks[i]
    for i in range(num_behind):
        g.rank[g.met[0, i]] = ranks[num_ahead + 1 + i]
    return int(ranks[num_ahead])


@compiled_step
def _unite(g: Groups, first: int, second: int) -> int:
    """Joins the member lists of two groups; the result keeps the name of the larger one."""
    larger, smaller = (first, second) if g.size[first] >= g.size[second] else (second, first)
    member = smaller
    while True:
        g.group[member] = larger
        member = g.following[member]
        if member == smaller:
            break
    g.following[larger], g.following[smaller] = g.following[smaller], g.following[larger]
    g.size[larger] += g.size[smaller]
    return larger


@compiled_step
def list_members(g: Groups, group: int) -> int:
    """Writes the positions in a group into `inside`, in no particular order; returns how many."""
    member = group
    for i in range(g.size[group]):
        g.inside[i] = member
        member = g.following[member]
    return int(g.size[group])
