"""Schedules as graphs, as the networks of the other tasks read programs.

A graph has the nodes of the loop tree (`trees`). Edges lead from a loop to what is right inside it, and along
the flow of data: from a statement to one that reads what it has written.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.arrays import F32, I64
from costbench_schedules.features.trees import FIRST_STATEMENT, LoopTrees
from costbench_schedules.spaces.nest import STATEMENTS

DATA_FLOW = (("padding", "compute"), ("init", "compute"), ("compute", "write"))
"""Statements that write a buffer, and those that read it: the padded input, the zeros, the sums."""
LOOP = 0
"""Kind of a loop."""


@dataclass(frozen=True, eq=False)
class LoopGraphs:
    """n schedules with N nodes and E edges in total, concatenated.

    Attributes:
        values: features of each node as in `LoopTrees`, float32 [N, F].
        kinds: int64 [N], `LOOP`, or 1 + the position of a statement in `STATEMENTS`.
        counts: nodes of each schedule, int64 [n]; at least its computation.
        edges: int64 [2, E], sources above targets, places among all N nodes, which are in program order: a
            source comes before its target.
    """

    values: F32
    kinds: I64
    counts: I64
    edges: I64


def loop_graphs(trees: LoopTrees) -> LoopGraphs:
    """Returns the graphs of schedules."""
    real = trees.depths > 0
    tree, place = np.nonzero(real)
    counts = real.sum(axis=1)
    first = np.cumsum(counts) - counts
    # Nodes fill the first places of a tree.
    number = first[tree] + place
    parents = trees.parents[real]
    inner = np.flatnonzero(parents >= 0)
    edges = [np.stack([first[tree[inner]] + parents[inner], number[inner]])]
    kinds = np.maximum(trees.identifiers[real] - FIRST_STATEMENT + 1, LOOP)
    place_of = np.full((len(trees), len(STATEMENTS)), -1)
    leaves = np.flatnonzero(kinds > LOOP)
    place_of[tree[leaves], kinds[leaves] - 1] = number[leaves]
    for writer, reader in DATA_FLOW:
        pairs = place_of[:, [STATEMENTS.index(writer), STATEMENTS.index(reader)]]
        edges.append(pairs[(pairs >= 0).all(axis=1)].T)
    return LoopGraphs(trees.values[real], kinds, counts, np.concatenate(edges, axis=1))
