"""Compiled loops over runs of different lengths, which gather a batch from the columns of shards."""

from __future__ import annotations

import numpy as np

from costbench.arrays import F32, I64, AnyArray
from costbench.execution.compiled import compiled


@compiled
def runs(starts: I64, counts: I64) -> I64:
    """Returns all runs of integers starts[i] to starts[i] + counts[i] (exclusive), concatenated; int64."""
    found = np.empty(counts.sum(), np.int64)
    end = 0
    for run in range(len(counts)):
        for place in range(counts[run]):
            found[end + place] = starts[run] + place
        end += counts[run]
    return found


@compiled
def shifted_pairs(pairs: AnyArray, counts: I64, shifts: I64) -> I64:
    """Returns pairs [m, 2] as int64 [2, m]; run i, of counts[i] pairs, is increased by shifts[i]."""
    found = np.empty((2, len(pairs)), np.int64)
    end = 0
    for run in range(len(counts)):
        for place in range(end, end + counts[run]):
            found[0, place] = pairs[place, 0] + shifts[run]
            found[1, place] = pairs[place, 1] + shifts[run]
        end += counts[run]
    return found


@compiled
def place_in_kernels(own: F32, is_output: AnyArray, num_inputs: I64, counts: I64) -> None:
    """Write what `graph_tensors.place_in_kernel` writes, for several kernels.

    Args:
        own: float32 [n, 2], parameter number and whether it is a root, of counts[0] nodes of one kernel, then
            of another; changed.
        is_output: of every node, [n].
        num_inputs: of every kernel, its first nodes.
        counts: nodes of every kernel.
    """
    end = 0
    for kernel in range(len(counts)):
        for place in range(counts[kernel]):
            if place < num_inputs[kernel]:
                own[end + place, 0] = place
            else:
                own[end + place, 1] = is_output[end + place]
        end += counts[kernel]


@compiled
def write_bounds(table: F32, bounds: AnyArray, ranks: I64, blocks: I64, kept: int) -> None:
    """Write lists of bounds into a table, each into the columns of its block.

    A list takes `kept` columns for its first bounds, one for their sum and one for their product, which is 0
    for an empty list.

    Args:
        table: float32 [n, k], zeros in those columns; changed.
        bounds: the lists of the first row, those of the second, and so on.
        ranks: int64 [n, b], lengths of the lists of a row.
        blocks: int64 [b], first columns.
        kept: columns for single bounds.
    """
    end = 0
    for row in range(len(ranks)):
        for block in range(ranks.shape[1]):
            rank, start = ranks[row, block], blocks[block]
            total, product = np.int64(0), np.int64(1)
            for place in range(rank):
                bound = np.int64(bounds[end + place])
                if place < kept:
                    table[row, start + place] = bound
                total += bound
                product *= bound
            end += rank
            table[row, start + kept] = total
            table[row, start + kept + 1] = product if rank else 0
