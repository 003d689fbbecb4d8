"""Groups of neighbouring nodes that no edge leaves, mostly a kernel, which compiled kernels go by."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from costbench.execution.compiled import compiled

IntArray = npt.NDArray[np.int64]


@compiled
def closed_groups(receiver: IntArray, sender: IntArray, num_nodes: int, least: int) -> IntArray:
    """Where groups begin, and N at last: int64 [G + 1]. Each has `least` nodes or more, but for the last.

    Args:
        receiver: int64 [M].
        sender: int64 [M], the other ends of the edges.
        num_nodes: N.
        least: nodes of a group, where there are so many.
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
