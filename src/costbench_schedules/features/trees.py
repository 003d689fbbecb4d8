"""Schedules as trees of loops, for recursive networks (autotvm2018, Figure 3c and 3d), and as graphs.

A node is a loop of more than one iteration, or a statement, which is a leaf. The children of a loop are the
loops and statements right inside it; those outside of all loops are children of the root, which is no node.
Nodes are in program order: a loop comes before what is inside it, and that in the order in which it runs.

A graph, as the networks of the other tasks read programs, has the nodes of the loop tree. Edges lead from a
loop to what is right inside it, and along the flow of data: from a statement to one that reads what it has
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F32, I16, I64, AnyArray
from costbench.errors import DataError
from costbench_schedules.features.context import FEATURE_NAMES, ContextBatch
from costbench_schedules.spaces.nest import STATEMENTS
from costbench_schedules.spaces.space import SPATIAL_LEVELS

_MAX_AXES = 12
FIRST_STATEMENT = _MAX_AXES * (SPATIAL_LEVELS + 1)
"""Identifier of the first of `STATEMENTS`; those of loops are below."""
NUM_IDENTIFIERS = FIRST_STATEMENT + len(STATEMENTS)
"""Loop variables (axis and level, or dimension of a copy), then statements."""


@dataclass(frozen=True, eq=False)
class LoopTrees:
    """Trees of n schedules, with places for N nodes; only real nodes count.

    Attributes:
        values: context features of loops; of a statement only which it is. Float32 [n, N, F].
        parents: place of each node's parent, int64 [n, N]; -1 for the root.
        depths: int64 [n, N]; 1 for children of the root, 0 where there is no node.
        identifiers: number of the variable or statement that a node is, int64 [n, N], below
            `NUM_IDENTIFIERS`.
    """

    values: F32
    parents: I64
    depths: I64
    identifiers: I64

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, indices: I64, /) -> LoopTrees:
        return LoopTrees(
            self.values[indices], self.parents[indices], self.depths[indices], self.identifiers[indices]
        )


def stack_trees(parts: Sequence[LoopTrees]) -> LoopTrees:
    """Returns the trees of several operators, in order, with places for the nodes of the largest."""
    num_nodes = max(trees.depths.shape[1] for trees in parts)

    def pad(name: str, value: int) -> AnyArray:
        arrays = [getattr(trees, name) for trees in parts]
        widths = [[(0, 0), (0, num_nodes - a.shape[1]), *[(0, 0)] * (a.ndim - 2)] for a in arrays]
        padded = [np.pad(a, w, constant_values=value) for a, w in zip(arrays, widths, strict=True)]
        return np.concatenate(padded)

    return LoopTrees(pad("values", 0), pad("parents", -1), pad("depths", 0), pad("identifiers", 0))


def loop_trees(contexts: ContextBatch) -> LoopTrees:
    """Returns the trees of schedules of one operator.

    Raises:
        DataError: for an operator of more than 12 axes.
    """
    axes, levels = contexts.names[:, :, 0], contexts.names[:, :, 1]
    if max(axes.max(initial=0), -1 - axes.min(initial=0)) >= _MAX_AXES:
        raise DataError("too many axes", where="loop trees", expected=f"at most {_MAX_AXES}")
    count, num_leaves = contexts.present.shape
    variables = np.where(axes >= 0, axes * SPATIAL_LEVELS + levels, _MAX_AXES * SPATIAL_LEVELS - 1 - axes)
    codes = np.array(contexts.statements, dtype=np.int64)
    leaf_values = np.zeros((count, num_leaves, len(FEATURE_NAMES)), dtype=np.float32)
    columns = [FEATURE_NAMES.index(STATEMENTS[code]) for code in codes]
    leaf_values[:, np.arange(num_leaves), columns] = contexts.present
    depth = contexts.values[:, :, FEATURE_NAMES.index("depth")].astype(np.int64) + 1
    depth = np.where(contexts.real, depth, 0)
    around = np.take_along_axis(depth, np.maximum(contexts.leaves, 0), axis=1)
    leaf_depth = np.where(contexts.present, np.where(contexts.leaves >= 0, around, 0) + 1, 0)
    trees = LoopTrees(
        np.concatenate([contexts.values, leaf_values], axis=1),
        np.concatenate([contexts.parents, contexts.leaves], axis=1),
        np.concatenate([depth, leaf_depth], axis=1),
        np.concatenate(
            [variables, np.broadcast_to(FIRST_STATEMENT + codes, leaf_depth.shape)],
            axis=1,
        ),
    )
    return _move_to_front(trees, _program_order(contexts))


def _program_order(contexts: ContextBatch) -> I16:
    """Returns keys of all loops and statements, int16 [n, K + S], whose stable order is that of the program.

    All of a padding copy or an initialisation comes before those loops of the computation that are not around
    it, a write-back after the computation.
    """
    trunk, step = STATEMENTS.index("compute"), 2 * len(STATEMENTS)
    block = contexts.block("compute")
    ends = (*contexts.starts[1:], contexts.real.shape[1])
    loops, leaves = [], []
    for number, code in enumerate(contexts.statements):
        size = ends[number] - contexts.starts[number]
        if code == trunk:
            # Statements that run before the computation have the smaller keys of a step.
            keys = step * np.arange(size + 1) + len(STATEMENTS)
        elif code < trunk:
            keys = step * contexts.shared[:, number, None] + code
        else:
            keys = np.array([step * (block.stop - block.start + 1) + code])
        statement_keys = np.broadcast_to(keys, (len(contexts), size + 1))
        loops.append(statement_keys[:, :size])
        leaves.append(statement_keys[:, size:])
    # Numbers of 16 bits are sorted by their digits, which is the fastest way.
    return np.concatenate([*loops, *leaves], axis=1).astype(np.int16)


def _move_to_front(trees: LoopTrees, keys: I16) -> LoopTrees:
    """Returns the trees with their nodes moved to the first places, in the order of their keys."""
    absent = trees.depths == 0
    num_nodes = int((~absent).sum(axis=1).max(initial=0))
    order = np.argsort(np.where(absent, np.iinfo(np.int16).max, keys), axis=1, kind="stable")
    moved = np.argsort(order, axis=1)
    order = order[:, :num_nodes]
    parents = np.take_along_axis(trees.parents, order, axis=1)
    parents = np.where(parents >= 0, np.take_along_axis(moved, np.maximum(parents, 0), axis=1), -1)
    return LoopTrees(
        np.take_along_axis(trees.values, order[:, :, None], axis=1),
        parents,
        np.take_along_axis(trees.depths, order, axis=1),
        np.take_along_axis(trees.identifiers, order, axis=1),
    )


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
    tree, node = np.nonzero(real)
    counts = real.sum(axis=1)
    first = np.cumsum(counts) - counts
    # Nodes fill the first places of a tree.
    number = first[tree] + node
    parents = trees.parents[real]
    inner = np.flatnonzero(parents >= 0)
    edges = [np.stack([first[tree[inner]] + parents[inner], number[inner]])]
    kinds = np.maximum(trees.identifiers[real] - FIRST_STATEMENT + 1, LOOP)
    leaf_of = np.full((len(trees), len(STATEMENTS)), -1)
    leaves = np.flatnonzero(kinds > LOOP)
    leaf_of[tree[leaves], kinds[leaves] - 1] = number[leaves]
    for writer, reader in DATA_FLOW:
        pairs = leaf_of[:, [STATEMENTS.index(writer), STATEMENTS.index(reader)]]
        edges.append(pairs[(pairs >= 0).all(axis=1)].T)
    return LoopGraphs(trees.values[real], kinds, counts, np.concatenate(edges, axis=1))
