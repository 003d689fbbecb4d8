"""Arrays that describe who reads whose value in a computation, built once for the compiled code that merges
groups of instructions into kernels (`KernelGroups`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, Bool
from costbench.compiler.fusion.reads import Extent, Read, ReadGraph, extent_of
from costbench.compiler.fusion.rules import ANCHORS, Kind, may_fuse

NOWHERE = -1
PLACES = 1 << 32


class GroupReads(NamedTuple):
    """Reads in order of their source, r of them, and facts about the n positions.

    Attributes:
        offsets: [n + 1], where the reads of each position's value begin.
        user: [r], position of the reader.
        repeated: [r], whether a broadcast lies between.
        takes: [r], whether the reader's kernel may compute the value itself.
        takes_repeated: [r], the same if the reader's own value is repeated by a broadcast in its kernel.
        side: [r], number of the contraction's operand that is read, or -1.
        is_result: [n], whether the computation returns the value.
        extent: [n], number of the extent (see `Extent`) of the loops that compute a value.
        anchor: [n], the position itself for contractions, gathers and the like, else -1.
    """

    offsets: I64
    user: I64
    repeated: Bool
    takes: Bool
    takes_repeated: Bool
    side: I64
    is_result: Bool
    extent: I64
    anchor: I64


def group_reads(graph: ReadGraph) -> tuple[GroupReads, tuple[Extent, ...]]:
    """Returns the arrays of a computation, and its extents by number."""
    extents, taken = graph.facts.extents, graph.facts.taken
    numbers: dict[Extent, int] = {}
    extent = np.array([numbers.setdefault(e, len(numbers)) for e in extents], dtype=np.int64)
    reads = [read for readers in graph.readers for read in readers]
    for read in reads:
        if read not in taken:
            taken[read] = _takes(graph, read)
    takes = np.array([taken[read] for read in reads], dtype=bool).reshape(-1, 2)
    offsets = np.zeros(len(extents) + 1, dtype=np.int64)
    np.cumsum([len(readers) for readers in graph.readers], out=offsets[1:])
    is_result = np.zeros(len(extents), dtype=bool)
    is_result[list(graph.results)] = True
    anchored = np.array([kind in ANCHORS for kind in graph.kinds], dtype=bool)
    arrays = GroupReads(
        offsets=offsets,
        user=np.array([read.user for read in reads], dtype=np.int64),
        repeated=np.array([read.repeated for read in reads], dtype=bool),
        takes=np.ascontiguousarray(takes[:, 0]),
        takes_repeated=np.ascontiguousarray(takes[:, 1]),
        side=np.array([_side(graph, read) for read in reads], dtype=np.int64),
        is_result=is_result,
        extent=extent,
        anchor=np.where(anchored, np.arange(len(extents)), NOWHERE),
    )
    return arrays, tuple(numbers)


def _side(graph: ReadGraph, read: Read) -> int:
    return read.user * PLACES + read.place if graph.kinds[read.user] in ANCHORS else NOWHERE


def _takes(graph: ReadGraph, read: Read) -> tuple[bool, bool]:
    """Returns `GroupReads.takes` and `GroupReads.takes_repeated` of one read."""
    source, user = graph.instruction(read.source), graph.instruction(read.user)
    kind = graph.kinds[read.source]
    if kind not in (Kind.CONTRACTION, Kind.GATHER):
        plain = may_fuse(source, user, read.place, repeated=read.repeated)
        return plain, plain and may_fuse(source, user, read.place, repeated=True)
    if read.source in graph.carried or source.shape.is_tuple or read.repeated:
        return False, False
    wanted = (Kind.ELEMENTWISE, Kind.REDUCE) if kind is Kind.CONTRACTION else (Kind.ELEMENTWISE,)
    taken = graph.kinds[read.user] in wanted and graph.facts.extents[read.user] == extent_of(source.shape)
    return taken, taken
