from __future__ import annotations

import numpy as np
import pytest

from costbench.compiler.fusion.group_graph import Groups, merge, new_groups
from costbench.compiler.kernel_arrays import lists_to_arrays


def groups_of(sources: list[list[int]]) -> Groups:
    """One group for every position, given the positions that it reads."""
    return new_groups(*lists_to_arrays(sources))


def find(groups: Groups, position: int) -> int:
    return int(groups.group[position])


def rank_of(groups: Groups, group: int) -> int:
    return int(groups.rank[group])


def merged_into(groups: Groups, first: int, second: int) -> bool:
    return merge(groups, first, second) >= 0


def test_a_pair_and_what_lies_between_cannot_be_split() -> None:
    # 0 -> 1 -> 2 and 0 -> 2: merging 0 with 2 would make 1 wait for the group and the group for 1.
    groups = groups_of([[], [0], [0, 1]])
    assert not merged_into(groups, 0, 2)
    assert merged_into(groups, find(groups, 0), find(groups, 1))
    assert merged_into(groups, find(groups, 1), find(groups, 2))
    assert len({find(groups, position) for position in range(3)}) == 1


def test_a_path_through_a_group_counts_although_no_value_takes_it() -> None:
    # 0 -> 1, 2 -> 3. With 1 and 2 in one kernel that kernel runs between 0 and 3.
    groups = groups_of([[], [0], [], [2]])
    assert merged_into(groups, 1, 2)
    assert not merged_into(groups, find(groups, 0), find(groups, 3))


def test_what_is_unrelated_may_share_a_kernel_in_either_order() -> None:
    groups = groups_of([[], [0], [], [2]])
    assert merged_into(groups, find(groups, 3), find(groups, 0))
    assert not merged_into(groups, find(groups, 1), find(groups, 2))


def cyclic(edges: dict[int, set[int]]) -> bool:
    """Kahn's algorithm: whether some node never becomes free."""
    left = {node: set(before) for node, before in edges.items()}
    while free := [node for node, before in left.items() if not before]:
        for node in free:
            del left[node]
        for before in left.values():
            before.difference_update(free)
    return bool(left)


def partition_edges(sources: list[list[int]], groups: Groups) -> dict[int, set[int]]:
    edges: dict[int, set[int]] = {find(groups, p): set() for p in range(len(sources))}
    for position, before in enumerate(sources):
        edges[find(groups, position)] |= {find(groups, s) for s in before} - {find(groups, position)}
    return edges


@pytest.mark.parametrize("seed", range(12))
def test_merges_are_refused_exactly_when_they_close_a_circle(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = 24
    sources = [
        sorted({int(s) for s in random.integers(0, p, size=random.integers(0, 3))}) if p else []
        for p in range(count)
    ]
    groups = groups_of(sources)
    for _ in range(120):
        a, b = (find(groups, int(p)) for p in random.integers(0, count, size=2))
        edges = partition_edges(sources, groups)
        merged = {(a if n == b else n): set() for n in edges}
        for node, before in edges.items():
            target = a if node == b else node
            merged[target] |= {a if s == b else s for s in before} - {target}
        assert merged_into(groups, a, b) is (a == b or not cyclic(merged))
        edges = partition_edges(sources, groups)
        assert all(rank_of(groups, s) < rank_of(groups, n) for n, before in edges.items() for s in before)
