from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from costbench.compiler.fusion.group_graph import merge, new_groups
from costbench.compiler.kernel_arrays import lists_to_arrays
from costbench.compiler.kernel_hashes import SeenHashes, group_hashes

# Small numbers and those that a table of 2^k slots puts into the same slot, 0 among them.
HASHES = st.integers(0, 40) | st.integers(0, 5).map(lambda n: n << 40)


@given(st.lists(st.lists(HASHES, max_size=40), max_size=8))
def test_each_hash_is_new_once(batches: list[list[int]]) -> None:
    met, known = SeenHashes(), set[int]()
    for batch in batches:
        expected = []
        for index, value in enumerate(batch):
            # 0 marks an empty slot, so 0 and 1 count as one.
            if max(value, 1) not in known:
                known.add(max(value, 1))
                expected.append(index)
        assert met.add(np.array(batch, dtype=np.uint64)).tolist() == expected


def test_a_table_grows_and_a_limited_one_forgets() -> None:
    hashes = np.random.default_rng(0).integers(2, 2**64, size=5000, dtype=np.uint64)
    met, limited = SeenHashes(), SeenHashes(max_hashes=4000)
    for table in (met, limited):
        assert len(table.add(hashes)) == 5000
    assert met.add(hashes[::-1].copy()).tolist() == []
    assert limited.add(hashes[:10]).tolist() == list(range(10))


def test_groups_hash_by_their_members_and_computation() -> None:
    first, second, third = (new_groups(*lists_to_arrays([[], [], [0], [1], [2, 3]])) for _ in range(3))
    for groups, pairs in ((first, ((0, 2), (2, 4))), (second, ((2, 4), (0, 4))), (third, ((0, 2),))):
        for source, user in pairs:
            assert merge(groups, int(groups.group[source]), int(groups.group[user])) >= 0
    # The name of a group depends on who was merged first; its hash does not.
    hashes = [
        int(group_hashes(groups, groups.group[[0]], computation)[0])
        for groups, computation in ((first, 0), (second, 0), (third, 0), (first, 1))
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
