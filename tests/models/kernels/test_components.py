from __future__ import annotations

import numpy as np
import pytest

from costbench.models.kernels.components import closed_groups


@pytest.mark.parametrize(
    ("edges", "num_nodes", "least", "starts"),
    [
        ([], 0, 1, [0]),
        ([], 3, 1, [0, 1, 2, 3]),
        ([], 5, 2, [0, 2, 4, 5]),
        ([(0, 1), (2, 0), (4, 3)], 5, 1, [0, 3, 5]),
        ([(0, 1), (2, 0), (4, 3)], 5, 4, [0, 5]),
        # An edge over nodes that have none.
        ([(1, 3)], 6, 1, [0, 1, 4, 5, 6]),
        ([(3, 1), (2, 4)], 6, 1, [0, 1, 5, 6]),
    ],
)
def test_groups_by_hand(edges: list[tuple[int, int]], num_nodes: int, least: int, starts: list[int]) -> None:
    receiver, sender = np.array(edges, np.int64).reshape(-1, 2).T.copy()
    assert closed_groups(receiver, sender, num_nodes, least).tolist() == starts
