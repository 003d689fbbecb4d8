"""Groups of instructions that never depend on each other in a circle, merged one pair at a time.

A kernel can only start when all that it reads is finished, so two groups may be merged only if no path leads
from one to the other through a third. The groups are kept in a topological order that is repaired after each
merge (Pearce and Kelly's algorithm for incremental topological sorting), so a search looks no further than
the stretch between the two groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class GroupGraph:
    """Positions 0 .. n-1, at first each a group of its own.

    Args:
        sources: for every position the positions it reads, all smaller than itself.
    """

    def __init__(self, sources: Sequence[Iterable[int]]) -> None:
        count = len(sources)
        self._parent = list(range(count))
        self._rank = list(range(count))
        self._before: list[set[int]] = [set(s) for s in sources]
        self._after: list[set[int]] = [set() for _ in range(count)]
        self._members: list[list[int]] = [[p] for p in range(count)]
        for position, before in enumerate(self._before):
            for source in before:
                self._after[source].add(position)

    def find(self, position: int) -> int:
        """The group of a position."""
        parent = self._parent
        while parent[position] != position:
            parent[position] = parent[parent[position]]
            position = parent[position]
        return position

    def members(self, group: int) -> list[int]:
        """Positions in a group, in no particular order."""
        return self._members[group]

    def after(self, group: int) -> set[int]:
        """Groups that read from this one."""
        return self._after[group]

    def rank(self, group: int) -> int:
        """Place of a group in a topological order of all groups."""
        return self._rank[group]

    def merge(self, first: int, second: int) -> bool:
        """Merges two groups unless a path through a third joins them; says whether they are one now."""
        if first == second:
            return True
        if self._rank[first] > self._rank[second]:
            first, second = second, first
        if all(self._rank[g] <= self._rank[first] for g in self._before[second]):
            # Nothing lies between them, so the later one can just as well run where the first one does.
            slots = [(first, self._rank[first])]
        else:
            behind = self._reachable(first, second)
            if behind is None:
                return False
            slots = self._repaired_order(first, second, behind)
        merged = self._join(first, second)
        for group, rank in slots:
            self._rank[merged if group in (first, second) else group] = rank
        return True

    def _reachable(self, first: int, second: int) -> list[int] | None:
        """Groups between the two in order that `first` leads to; None if one of them leads to `second`."""
        limit = self._rank[second]
        seen: set[int] = set()
        stack = [g for g in self._after[first] if g != second and self._rank[g] < limit]
        while stack:
            group = stack.pop()
            if group in seen:
                continue
            seen.add(group)
            for follower in self._after[group]:
                if follower == second:
                    return None
                if self._rank[follower] < limit and follower not in seen:
                    stack.append(follower)
        return list(seen)

    def _repaired_order(self, first: int, second: int, behind: list[int]) -> list[tuple[int, int]]:
        """New places: what `second` needs, then the merged group, then what `first` leads to."""
        rank = self._rank
        if not behind:
            return [(second, rank[second])]
        ahead: set[int] = set()
        stack = [g for g in self._before[second] if rank[g] > rank[first]]
        while stack:
            group = stack.pop()
            if group not in ahead:
                ahead.add(group)
                stack.extend(g for g in self._before[group] if rank[g] > rank[first] and g not in ahead)
        if not ahead:
            return [(first, rank[first])]
        ordered = [*sorted(ahead, key=rank.__getitem__), first, *sorted(behind, key=rank.__getitem__)]
        slots = sorted([rank[g] for g in ordered] + [rank[second]])
        return list(zip(ordered, slots, strict=False))

    def _join(self, first: int, second: int) -> int:
        """One group out of two; the one with more neighbours keeps its name."""
        weight = [len(self._before[g]) + len(self._after[g]) for g in (first, second)]
        kept, gone = (first, second) if weight[0] >= weight[1] else (second, first)
        self._parent[gone] = kept
        self._members[kept].extend(self._members[gone])
        for group in self._before[gone]:
            self._after[group].discard(gone)
            self._after[group].add(kept)
        for group in self._after[gone]:
            self._before[group].discard(gone)
            self._before[group].add(kept)
        self._before[kept] |= self._before[gone]
        self._after[kept] |= self._after[gone]
        self._before[kept] -= {kept, gone}
        self._after[kept] -= {kept, gone}
        self._before[gone] = self._after[gone] = set()
        self._members[gone] = []
        return kept
