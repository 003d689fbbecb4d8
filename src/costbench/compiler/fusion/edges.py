"""The fusible edges of a computation: pairs of instructions that a search may decide to fuse into one kernel.

An edge joins a producer and its reader, wherever the reader's kernel may compute the value, or two
consecutive readers of one value whose loops run over the same extent and so can share a pass over it
(multi-output fusion of siblings). All that the default heuristic fuses is among these edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from costbench.compiler.fusion.groups import KernelGroups
from costbench.compiler.fusion.heuristic import Edge, fused_edges
from costbench.compiler.fusion.rules import Kind

_SIBLINGS = (Kind.ELEMENTWISE, Kind.PICKING, Kind.REDUCE)


def fusible_edges(default: KernelGroups) -> tuple[Edge, ...]:
    """Returns the edges of a computation, from last producer to first: the order in which `cut` tries them.

    Args:
        default: the groups that the heuristic makes of the computation.
    """
    edges = set(_reads(default)) | set(_siblings(default))
    edges.update(edge for edge in fused_edges(default) if not _is_fixed(default, edge))
    return tuple(sorted(edges, key=lambda edge: (-edge[0], edge[1])))


def _is_fixed(groups: KernelGroups, edge: Edge) -> bool:
    """Returns whether there is nothing to decide: results of one instruction are always made together."""
    return groups.graph.carried.get(edge[1]) == edge[0]


def _reads(groups: KernelGroups) -> Iterator[Edge]:
    reads = groups.reads
    for source, user, taken in zip(
        (read.source for readers in groups.graph.readers for read in readers),
        reads.user.tolist(),
        reads.takes.tolist(),
        strict=True,
    ):
        if taken:
            yield source, user


def _siblings(groups: KernelGroups) -> Iterator[Edge]:
    graph, extent = groups.graph, groups.reads.extent
    for readers in graph.readers:
        by_extent: dict[int, set[int]] = {}
        for read in readers:
            if graph.kinds[read.user] in _SIBLINGS:
                by_extent.setdefault(int(extent[read.user]), set()).add(read.user)
        for users in by_extent.values():
            yield from pairwise(sorted(users))
