"""The default fusion heuristic, modelled on XLA for TPU.

In order: contractions and gathers are fused with the instructions that follow their result (`kOutput`
fusions, with reductions of the result as further outputs); every instruction whose readers all run in one
kernel moves into it, from the last to the first, so chains end in a root, a reduction or an operand of a
contraction; kernels of equal extent that read one value are merged (multi-output fusion), and so are
reductions of one value (statistics of a batch normalisation). Which values are duplicated is decided before
(`rules.is_duplicated`).

A value that is cheap to compute from one other that is in memory anyway is recomputed by its readers instead
of stored (the centred activations of a normalisation, say). Once these values are known the heuristic runs
again.

An edge is a pair (producer or sibling, reader) of instructions that are not duplicated. `fused_edges` returns
those that the heuristic fuses; a fusion config (`fusion.space`) is any set of edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from costbench.arrays import Bool
from costbench.compiler.fusion.group_graph import Groups
from costbench.compiler.fusion.group_reads import NOWHERE, GroupReads
from costbench.compiler.fusion.groups import KernelGroups, Shaping, fuse, join, leaving
from costbench.compiler.fusion.reads import ReadGraph, extent_of
from costbench.compiler.fusion.rules import Kind, is_cheap, takes_clones
from costbench.execution.compiled import compiled
from costbench.hlo.module import HloComputation

Edge = tuple[int, int]
_LOOP = (Kind.ELEMENTWISE, Kind.PICKING)
LOOK_AHEAD = 8
ROUNDS = 2
REMAKING_ROUNDS = 3


def default_groups(body: HloComputation) -> KernelGroups:
    """Returns the groups of instructions that the heuristic ends with."""
    groups = _grouped(ReadGraph(body))
    for _ in range(REMAKING_ROUNDS):
        remade = _better_remade(groups)
        if not remade:
            break
        groups = _grouped(groups.graph.with_remade(remade))
    return groups


def _grouped(graph: ReadGraph) -> KernelGroups:
    groups = KernelGroups(graph, KernelGroups(graph))
    for position, kind in enumerate(graph.kinds):
        if kind in (Kind.CONTRACTION, Kind.GATHER):
            _grow_from(groups, position)
    state = groups.groups, groups.reads, groups.shaping
    loops = np.array([kind in _LOOP and graph.is_node(p) for p, kind in enumerate(graph.kinds)], dtype=bool)
    for _ in range(ROUNDS):
        fuse_into_only_reader(*state, loops)
        fuse_with_several_readers(*state, loops)
    join_siblings(*state, np.array([kind is Kind.REDUCE for kind in graph.kinds], dtype=bool))
    return groups


def _better_remade(groups: KernelGroups) -> frozenset[int]:
    """Returns stored values that are cheap to recompute from one value that is stored anyway, no larger."""
    graph = groups.graph
    return frozenset(
        position
        for position, kind in enumerate(graph.kinds)
        if kind is Kind.ELEMENTWISE
        and graph.is_node(position)
        and not graph.duplicated[position]
        and is_cheap(graph.instruction(position))
        and _only_clones_read(groups, position)
        and _has_stored_origin(groups, position)
    )


def _only_clones_read(groups: KernelGroups, position: int) -> bool:
    """Returns whether the value is stored, but only for readers that could compute it themselves."""
    graph = groups.graph
    readers = graph.readers[position]
    if position in graph.results or len({groups.find(read.user) for read in readers}) < 2:
        return False
    return all(takes_clones(graph.instruction(read.user), read.place) for read in readers)


def _has_stored_origin(groups: KernelGroups, position: int) -> bool:
    graph = groups.graph
    origins = graph.origins(position)
    if len(origins) != 1:
        return False
    (origin,) = origins
    shape, source = graph.instruction(position).shape, graph.instruction(origin).shape
    if source.is_tuple or shape.rank == 0 or source.num_bytes > shape.num_bytes:
        return False
    home = groups.find(origin)
    return graph.kinds[origin] is Kind.CONTROL or any(
        groups.find(read.user) != home for read in graph.readers[origin] if read.user != position
    )


def fused_edges(groups: KernelGroups) -> frozenset[Edge]:
    """Returns the edges inside groups: all reads, and a chain through reductions that share a group although
    none reads another.
    """
    edges: set[Edge] = set()
    find = groups.find
    for reads in groups.graph.readers:
        edges.update((r.source, r.user) for r in reads if find(r.source) == find(r.user))
    edges.update(_sibling_edges(groups))
    return frozenset(edges)


def _sibling_edges(groups: KernelGroups) -> Iterable[Edge]:
    roots: dict[int, list[int]] = {}
    for position, kind in enumerate(groups.graph.kinds):
        if kind is Kind.REDUCE:
            roots.setdefault(groups.find(position), []).append(position)
    for reductions in roots.values():
        yield from pairwise(reductions)


# ---- contractions and what follows them ------------------------------------------------------------------


def _grow_from(groups: KernelGroups, anchor: int) -> None:
    """Fuses elementwise users and reductions of the result into the kernel of a contraction or gather."""
    frontier = [anchor]
    for value in frontier:
        readers = sorted({read.user for read in groups.graph.readers[value]})
        follow = [user for user in readers if _may_follow(groups, value, user)]
        everything = len(follow) == len(readers) and value not in groups.graph.results
        for user in follow:
            reduces = groups.graph.kinds[user] is Kind.REDUCE
            if not (everything or reduces or _worth_making_early(groups, value, user)):
                continue
            if groups.fuse(groups.find(value), groups.find(user)) and not reduces:
                frontier.append(user)


def _may_follow(groups: KernelGroups, value: int, user: int) -> bool:
    graph = groups.graph
    if graph.kinds[user] not in (Kind.ELEMENTWISE, Kind.REDUCE) or not graph.is_node(user):
        return False
    if groups.size(groups.find(user)) > 1:
        return False
    return groups.extent(groups.find(user)) == extent_of(graph.instruction(value).shape)


def _worth_making_early(groups: KernelGroups, value: int, user: int) -> bool:
    """Returns whether `user` is better computed in the kernel of `value`, which has to be stored anyway.

    It is if it would be stored itself: because it is expensive to compute, smaller than what it is made from,
    or read by several or by a contraction. A cheap step with one later reader is left to that reader.
    """
    graph = groups.graph
    size = graph.instruction(value).shape.num_bytes
    for _ in range(LOOK_AHEAD):
        inst = graph.instruction(user)
        readers = {read.user for read in graph.readers[user]}
        if not is_cheap(inst) or inst.shape.num_bytes < size or len(readers) != 1 or user in graph.results:
            return True
        (reader,) = readers
        if graph.kinds[reader] in (Kind.CONTRACTION, Kind.REDUCE, Kind.CONTROL):
            return True
        if not _may_follow(groups, user, reader) or _waits(graph, reader, user):
            return False
        user = reader
    return False


def _waits(graph: ReadGraph, user: int, value: int) -> bool:
    """Returns whether an instruction reads anything but `value` and what is in memory from the start."""
    sources = {read.source for read in graph.reads[user]} - {value}
    return any(graph.kinds[source] is not Kind.CONTROL for source in sources)


# ---- loops -----------------------------------------------------------------------------------------------


@compiled
def fuse_into_only_reader(g: Groups, reads: GroupReads, shaping: Shaping, loops: Bool) -> None:
    """Fuses every value that all its readers read in one other kernel into that kernel, from the last on."""
    for position in range(len(loops) - 1, -1, -1):
        group = g.group[position]
        if not loops[position] or shaping.anchor[group] >= 0 or reads.is_result[position]:
            continue
        reader, readers = NOWHERE, 0
        for i in range(reads.offsets[position], reads.offsets[position + 1]):
            other = g.group[reads.user[i]]
            if other not in (group, reader):
                reader = other
                readers += 1
        if readers == 1 and _leaves_alone(g, reads, group, position):
            fuse(g, reads, shaping, group, reader)


@compiled
def _leaves_alone(g: Groups, reads: GroupReads, group: int, position: int) -> bool:
    """Returns whether no value but that of `position` leaves a group."""
    alone = True
    for output in leaving(g, reads, group, group):
        alone &= output == position
    return alone


@compiled
def fuse_with_several_readers(g: Groups, reads: GroupReads, shaping: Shaping, loops: Bool) -> None:
    """Fuses a stored value with those of its readers whose loops run over the same extent (multi-output)."""
    for position in range(len(loops)):
        if not loops[position]:
            continue
        for i in range(reads.offsets[position], reads.offsets[position + 1]):
            group, reader = g.group[position], g.group[reads.user[i]]
            if group == reader or shaping.anchor[group] >= 0 or shaping.anchor[reader] >= 0:
                continue
            if shaping.extent[group] == shaping.extent[reader] == reads.extent[position]:
                fuse(g, reads, shaping, group, reader)


@compiled
def join_siblings(g: Groups, reads: GroupReads, shaping: Shaping, reduces: Bool) -> None:
    """Merges kernels that end in reductions of one value."""
    count = len(reduces)
    met = np.full(count, NOWHERE, dtype=np.int64)
    # Of each group whether only reductions leave it: 0 if not, 1 if so, and not known before it is asked for.
    known = np.full(count, NOWHERE, dtype=np.int64)
    ending = np.empty(count, dtype=np.int64)
    for position in range(count):
        readers, number = 0, 0
        for i in range(reads.offsets[position], reads.offsets[position + 1]):
            group = g.group[reads.user[i]]
            if met[group] != position:
                met[group] = position
                ending[readers] = group
                readers += 1
        for i in range(readers if readers > 1 else 0):
            group = ending[i]
            if known[group] == NOWHERE:
                known[group] = 1 if _reduces_only(g, reads, group, reduces) else 0
            if known[group]:
                ending[number] = group
                number += 1
        for i in range(number - 1):
            # Looked up again, since an earlier join may have renamed the groups.
            if join(g, reads, shaping, g.group[ending[i]], g.group[ending[i + 1]]):
                known[g.group[ending[i]]] = NOWHERE


@compiled
def _reduces_only(g: Groups, reads: GroupReads, group: int, reduces: Bool) -> bool:
    only = True
    for output in leaving(g, reads, group, group):
        only &= reduces[output]
    return only
