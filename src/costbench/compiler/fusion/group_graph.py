"""Merges groups of instructions pair by pair while keeping the graph of dependencies between groups acyclic.

A group will be compiled into one kernel. A kernel can only start when all that it reads is finished, so two
groups may be merged only if no path leads from one to the other through a third. The groups are kept in a
topological order that is repaired after each merge (Pearce and Kelly's algorithm for incremental topological
sorting), so the search for such a path visits only groups ranked between the two.

A search over fusion configs merges millions of pairs, so everything here is arrays and compiled functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from costbench.arrays import I64
from costbench.compiler.kernel_arrays import lists_to_arrays
from costbench.execution.compiled import compiled, compiled_step

_VACANT = np.iinfo(np.int64).min


class Groups(NamedTuple):
    """The groups of n instructions; arrays are [n] where nothing else is said.

    Attributes:
        group: the group of each position, named by one of its members.
        rank: of each group, its place in a topological order of all groups.
        following: a circular linked list: the next member of the same group, after the last one the first.
        size: number of members of each group.
        before_offsets: [n + 1], where the positions that each position reads begin in `before`.
        before: positions read.
        after_offsets: [n + 1], likewise for its readers in `after`.
        after: readers.
        mark: number of the last search that visited each group, so that marks need not be cleared.
        searches: [1], number of searches so far.
        met: buffer for the groups that the two searches of a merge visited, [2, n].
        inside: buffer for the members of a group.
        places: buffer for the ranks that are reassigned, [2, n]; its first row is 0 between merges.
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
    places: I64


def new_groups(sources: Sequence[Iterable[int]]) -> Groups:
    """Returns groups in which each of the positions 0 .. n - 1 is a group of its own.

    Args:
        sources: for every position the positions it reads, all smaller than itself.
    """
    count = len(sources)
    before = [sorted(set(s)) for s in sources]
    after: list[list[int]] = [[] for _ in range(count)]
    for position, read in enumerate(before):
        for source in read:
            after[source].append(position)
    own = np.arange(count, dtype=np.int64)
    return Groups(
        own.copy(), own.copy(), own.copy(), np.ones(count, dtype=np.int64),
        *lists_to_arrays(before), *lists_to_arrays(after),
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
    place = g.rank[first]
    # If the later group reads nothing ranked between the two, it can run at the rank of the first one.
    if _reads_later_than(g, second, place):
        num_behind, num_ahead = _between(g, first, second)
        if num_behind < 0:
            return -1
        place = _reorder(g, first, second, num_ahead, num_behind) if num_behind else g.rank[second]
    merged = _unite(g, first, second)
    g.rank[merged] = place
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
    """Lists the groups ranked between the two: in met[0] those reachable from `first`, in met[1] those that
    `second` depends on. Returns how many of each, or (-1, -1) if a group is both, so that merging would close
    a cycle.

    Both breadth-first searches advance in turn, as a path is mostly short where there is one. If `first`
    reaches no group, the other list is left unfinished.
    """
    g.searches[0] += 2
    behind, ahead, next_behind, next_ahead = 0, 0, -1, -1
    while next_behind < behind or next_ahead < ahead:
        if next_behind < behind:
            behind = _spread(g, (first, second), next_behind, behind, True)
            next_behind += 1
        if behind == 0:
            return 0, 0
        if next_ahead < ahead:
            ahead = _spread(g, (second, first), next_ahead, ahead, False)
            next_ahead += 1
        if behind < 0 or ahead < 0:
            return -1, -1
    return behind, ahead


@compiled_step
def _spread(g: Groups, ends: tuple[int, int], place: int, found: int, forward: bool) -> int:
    """Expands one group of a search: the one at `place` in its list, or with -1 the end it starts from.

    Forward, the group's readers that run before the second end are added to met[0]; backward, the groups that
    it reads and that run after the second end are added to met[1]. Returns the length of the list, or -1 if a
    path leads to the second end.
    """
    start, end = ends
    offsets = g.after_offsets if forward else g.before_offsets
    positions = g.after if forward else g.before
    row = 0 if forward else 1
    search, opposite = g.searches[0] + row, g.searches[0] + 1 - row
    limit = g.rank[end]
    group = start if place < 0 else g.met[row, place]
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
                g.met[row, found] = other
                found += 1
        member = g.following[member]
        if member == group:
            return found


@compiled_step
def _reorder(g: Groups, first: int, second: int, num_ahead: int, num_behind: int) -> int:
    """Reassigns ranks so that what `second` depends on comes first, then the merged group, then what follows
    `first`. Returns the rank of the merged group.
    """
    low, high = g.rank[first], g.rank[second]
    at, places = g.places[0], g.places[1]
    # at[rank] encodes the holder of a rank to be reassigned: 1 + group if in met[0], -1 - group if in met[1].
    at[low] = at[high] = _VACANT
    for i in range(num_ahead):
        at[g.rank[g.met[1, i]]] = -1 - g.met[1, i]
    for i in range(num_behind):
        at[g.rank[g.met[0, i]]] = 1 + g.met[0, i]
    count, ahead, behind = 0, 0, 0
    for place in range(low, high + 1):
        here = at[place]
        if here == 0:
            continue
        at[place] = 0
        places[count] = place
        count += 1
        if here == _VACANT:
            continue
        if here < 0:
            g.met[1, ahead] = -1 - here
            ahead += 1
        else:
            g.met[0, behind] = here - 1
            behind += 1
    for i in range(num_ahead):
        g.rank[g.met[1, i]] = places[i]
    for i in range(num_behind):
        g.rank[g.met[0, i]] = places[num_ahead + 1 + i]
    return int(places[num_ahead])


@compiled_step
def _unite(g: Groups, first: int, second: int) -> int:
    """Joins the member lists of two groups; the result keeps the name of the larger one."""
    kept, gone = (first, second) if g.size[first] >= g.size[second] else (second, first)
    member = gone
    while True:
        g.group[member] = kept
        member = g.following[member]
        if member == gone:
            break
    g.following[kept], g.following[gone] = g.following[gone], g.following[kept]
    g.size[kept] += g.size[gone]
    return kept


@compiled_step
def list_members(g: Groups, group: int) -> int:
    """Writes the positions in a group into `inside`, in no particular order; returns how many."""
    member = group
    for i in range(g.size[group]):
        g.inside[i] = member
        member = g.following[member]
    return int(g.size[group])


@compiled
def members_of(g: Groups, group: int) -> I64:
    """Returns the positions in a group, ascending."""
    found = np.empty(g.size[group], dtype=np.int64)
    member = group
    for i in range(g.size[group]):
        found[i] = member
        member = g.following[member]
    found.sort()
    return found
