"""Divides the nodes of a batch into groups that no edge leaves, which compiled kernels process one at a time.

A group is a run of consecutive nodes, mostly one or a few tensor-program kernels.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import I64
from costbench.execution.compiled import compiled


@compiled
def closed_groups(receiver: I64, sender: I64, num_nodes: int, least: int) -> I64:
    """Returns the first node of each group, and N at the end: int64 [G + 1].

    Each group but the last has at least `least` nodes.

    Args:
        receiver: int64 [M], one end of each edge.
        sender: int64 [M], the other end.
        num_nodes: N.
        least: smallest number of nodes in a group.
    """
    farthest = np.arange(num_nodes)
    for edge in range(len(receiver)):
        first, last = min(receiver[edge], sender[edge]), max(receiver[edge], sender[edge])
        farthest[first] = max(farthest[first], last)
    starts = np.empty(num_nodes + 1, np.int64)
    starts[0], count, reach = 0, 1, 0
    for node in range(num_nodes):
        reach = max(reach, farthest[node])
        if reach == node and (node + 1 - starts[count - 1] >= least or node + 1 == num_nodes):
            starts[count] = node + 1
            count += 1
    return starts[:count].copy()
