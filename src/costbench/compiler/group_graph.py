"""Groups of instructions that never depend on each other in a circle, merged one pair at a time.

A kernel can only start when all that it reads is finished, so two groups may be merged only if no path leads
from one to the other through a third. The groups are kept in a topological order that is repaired after each
merge (Pearce and Kelly's algorithm for incremental topological sorting), so a search looks no further than
the stretch between the two groups.

A search over fusion configs merges millions of pairs, so everything here is arrays and compiled functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiled import compiled, compiled_step

IntArray = npt.NDArray[np.int64]


class Groups(NamedTuple):
    """The state, every array [n] but where said.

    Attributes:
        group: the group of each position, named by one of its members.
        rank: of each group, its place in a topological order of all groups.
        following: the next member of the same group; the last one is followed by the first.
        size: members of each group.
        before_offsets: [n + 1], where the positions that each position reads begin in `before`.
        before: positions read.
        after_offsets: [n + 1], likewise for its readers in `after`.
        after: readers.
        mark: the last search that met each group.
        searches: [1], how many searches there were.
        stack: room for a search.
        met: room for two lists of groups, [2, n].
        inside: room for the members of a group.
    """

    group: IntArray
    rank: IntArray
    following: IntArray
    size: IntArray
    before_offsets: IntArray
    before: IntArray
    after_offsets: IntArray
    after: IntArray
    mark: IntArray
    searches: IntArray
    stack: IntArray
    met: IntArray
    inside: IntArray


def lists_to_arrays(lists: Sequence[Iterable[int]]) -> tuple[IntArray, IntArray]:
    """Offsets [n + 1] and entries of n lists laid end to end."""
    entries = [list(one) for one in lists]
    offsets = np.zeros(len(entries) + 1, dtype=np.int64)
    np.cumsum([len(one) for one in entries], out=offsets[1:])
    return offsets, np.array([value for one in entries for value in one], dtype=np.int64)


def new_groups(sources: Sequence[Iterable[int]]) -> Groups:
    """Positions 0 .. n - 1, each a group of its own.

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
        np.empty(count + 1, dtype=np.int64), np.empty((2, count + 1), dtype=np.int64),
        np.empty(count, dtype=np.int64),
    )  # fmt: skip


def copy_groups(g: Groups) -> Groups:
    """The same groups, to be merged further without changing these."""
    return g._replace(
        group=g.group.copy(), rank=g.rank.copy(), following=g.following.copy(), size=g.size.copy()
    )


@compiled
def merge(g: Groups, first: int, second: int) -> int:
    """Merges two groups unless a path through a third joins them: the merged group's name, or -1."""
    if first == second:
        return first
    if g.rank[first] > g.rank[second]:
        first, second = second, first
    place = g.rank[first]
    # Where nothing lies between them, the later one can just as well run where the first one does.
    if _reads_later_than(g, second, place):
        num_behind = _reachable(g, first, second)
        if num_behind < 0:
            return -1
        if num_behind == 0:
            place = g.rank[second]
        else:
            num_ahead = _needed(g, first, second)
            if num_ahead:
                place = _make_room(g, first, second, num_ahead, num_behind)
    merged = _unite(g, first, second)
    g.rank[merged] = place
    return merged


@compiled_step
def _reads_later_than(g: Groups, group: int, rank: int) -> bool:
    """Whether the group reads from one that runs after `rank`."""
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
def _reachable(g: Groups, first: int, second: int) -> int:
    """Lists in met[0] the groups between the two that `first` leads to; -1 if one leads to `second`."""
    g.searches[0] += 1
    search, limit, found = g.searches[0], g.rank[second], 0
    g.stack[0] = first
    waiting = 1
    while waiting:
        waiting -= 1
        group = g.stack[waiting]
        member = group
        while True:
            for i in range(g.after_offsets[member], g.after_offsets[member + 1]):
                other = g.group[g.after[i]]
                if other == second:
                    if group != first:
                        return -1
                elif other != first and g.rank[other] < limit and g.mark[other] != search:
                    g.mark[other] = search
                    g.met[0, found] = other
                    found += 1
                    g.stack[waiting] = other
                    waiting += 1
            member = g.following[member]
            if member == group:
                break
    return found


@compiled_step
def _needed(g: Groups, first: int, second: int) -> int:
    """Lists in met[1] the groups between the two that `second` needs."""
    g.searches[0] += 1
    search, limit, found = g.searches[0], g.rank[first], 0
    g.stack[0] = second
    waiting = 1
    while waiting:
        waiting -= 1
        group = g.stack[waiting]
        member = group
        while True:
            for i in range(g.before_offsets[member], g.before_offsets[member + 1]):
                other = g.group[g.before[i]]
                if other != second and g.rank[other] > limit and g.mark[other] != search:
                    g.mark[other] = search
                    g.met[1, found] = other
                    found += 1
                    g.stack[waiting] = other
                    waiting += 1
            member = g.following[member]
            if member == group:
                break
    return found


@compiled
def _make_room(g: Groups, first: int, second: int, num_ahead: int, num_behind: int) -> int:
    """New places: what `second` needs, then the merged group (its place is returned), then what follows."""
    ahead, behind = g.met[1, :num_ahead], g.met[0, :num_behind]
    places = np.empty(num_ahead + num_behind + 2, dtype=np.int64)
    for i in range(num_ahead):
        places[i] = g.rank[ahead[i]]
    for i in range(num_behind):
        places[num_ahead + i] = g.rank[behind[i]]
    places[-2], places[-1] = g.rank[first], g.rank[second]
    ahead = ahead[np.argsort(places[:num_ahead])]
    behind = behind[np.argsort(places[num_ahead : num_ahead + num_behind])]
    places.sort()
    for i in range(num_ahead):
        g.rank[ahead[i]] = places[i]
    for i in range(num_behind):
        g.rank[behind[i]] = places[num_ahead + 1 + i]
    return int(places[num_ahead])


@compiled_step
def _unite(g: Groups, first: int, second: int) -> int:
    """One group out of two, under the name of the larger."""
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
    """Writes the positions in a group into `inside`, in no particular order; says how many."""
    member = group
    for i in range(g.size[group]):
        g.inside[i] = member
        member = g.following[member]
    return int(g.size[group])


@compiled
def members_of(g: Groups, group: int) -> IntArray:
    """Positions in a group, ascending."""
    found = np.empty(g.size[group], dtype=np.int64)
    member = group
    for i in range(g.size[group]):
        found[i] = member
        member = g.following[member]
    found.sort()
    return found
