"""A second fusion heuristic, after the rules that XLA publishes, beside the default (`heuristic`).

It follows two passes of XLA's source and has no multi-output fusion:

- **Instruction fusion** (`service/instruction_fusion.cc`): from the last instruction to the first, a value is
  fused into the kernel that alone reads it; one with several readers is duplicated into all of them if it is
  cheap, reads at most one array of its own rank and all of them can compute it. A contraction takes the
  elementwise instructions after it as long as each is the only reader.
- **Fusion merger** (`service/gpu/fusion_merger.cc`): a kernel of cheap elementwise instructions is merged
  into all kernels that read it, none of which has a contraction or the like, if that transfers at most 10%
  more bytes: k * read <= 1.1 * (read + (k + 1) * written) for k readers.

What differs from XLA: duplicated instructions are found for the whole computation before kernels are made, so
a value is duplicated everywhere or nowhere; XLA's first pass duplicates values of several large operands as
well where all readers can compute them, here the bytes of the second decide; and legality is that of this
compiler (`groups`), whose contractions take elementwise operands.
"""

from __future__ import annotations

import numpy as np

from costbench.compiler.fusion.group_reads import NOWHERE
from costbench.compiler.fusion.groups import KernelGroups
from costbench.compiler.fusion.heuristic import fuse_into_only_reader
from costbench.compiler.fusion.reads import ReadGraph, extent_of
from costbench.compiler.fusion.rules import Kind, is_cheap, takes_clones
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode

MERGED_TO_CURRENT_BYTES = 1.10
"""Most bytes transferred after a merge, as a share of those before (`fusion_merger.cc`)."""
ROUNDS = 8
"""Of each pass, in case that a merge makes another possible; programs of the corpus need fewer."""
_LOOP = (Kind.ELEMENTWISE, Kind.PICKING)
_NOT_COUNTED = (Opcode.BROADCAST, Opcode.IOTA, Opcode.CONSTANT)


def published_groups(body: HloComputation) -> KernelGroups:
    """Returns the groups of instructions that the published rules end with.

    Args:
        body: a computation whose layouts are assigned.
    """
    graph = ReadGraph(body)
    for _ in range(ROUNDS):
        duplicated = frozenset(p for p in range(len(graph.kinds)) if _is_duplicated(graph, p))
        if not duplicated:
            break
        graph = graph.with_remade(duplicated)
    groups = _fused(graph)
    for _ in range(ROUNDS):
        merged = _merged_into_readers(groups)
        if not merged:
            break
        groups = _fused(groups.graph.with_remade(merged))
    return groups


def _is_duplicated(graph: ReadGraph, position: int) -> bool:
    """Returns whether instruction fusion computes a value again in every kernel that reads it."""
    inst, readers = graph.instruction(position), graph.readers[position]
    if graph.kinds[position] is not Kind.ELEMENTWISE or graph.duplicated[position] or not is_cheap(inst):
        return False
    if position in graph.results or len({read.user for read in readers}) < 2:
        return False
    operands = {operand for operand in inst.operands if graph.instruction(operand).opcode not in _NOT_COUNTED}
    of_its_rank = [o for o in operands if graph.instruction(o).shape.rank >= inst.shape.rank]
    return len(of_its_rank) <= 1 and all(
        takes_clones(graph.instruction(read.user), read.place) for read in readers
    )


def _fused(graph: ReadGraph) -> KernelGroups:
    groups = KernelGroups(graph, KernelGroups(graph))
    for position, kind in enumerate(graph.kinds):
        if kind is Kind.CONTRACTION:
            _follow(groups, position)
    loops = np.array([kind in _LOOP and graph.is_node(p) for p, kind in enumerate(graph.kinds)], dtype=bool)
    fuse_into_only_reader(groups.groups, groups.reads, groups.shaping, loops)
    return groups


def _follow(groups: KernelGroups, value: int) -> None:
    """Fuses the elementwise instructions that follow a contraction, as long as each alone reads the last."""
    graph = groups.graph
    while value not in graph.results:
        users = {read.user for read in graph.readers[value]}
        if len(users) != 1:
            return
        (user,) = users
        same = extent_of(graph.instruction(user).shape) == extent_of(graph.instruction(value).shape)
        if graph.kinds[user] is not Kind.ELEMENTWISE or not same:
            return
        if not groups.fuse(groups.find(value), groups.find(user)):
            return
        value = user


def _merged_into_readers(groups: KernelGroups) -> frozenset[int]:
    """Returns the instructions of kernels that the fusion merger merges into all their readers.

    Of two kernels that read each other only the first is returned; the next round looks at the other again.
    """
    graph = groups.graph
    chosen: set[int] = set()
    members: set[int] = set()
    nodes = [p for p, kind in enumerate(graph.kinds) if kind is not Kind.CONTROL and graph.is_node(p)]
    for group in sorted({groups.find(p) for p in nodes}, key=groups.rank):
        inside = groups.members(group)
        sources = {read.source for p in inside for read in graph.reads[p]} - set(inside)
        if {groups.find(source) for source in sources} & chosen:
            continue
        if _is_merged(groups, group, sources):
            chosen.add(group)
            members.update(inside)
    return frozenset(members)


def _is_merged(groups: KernelGroups, group: int, sources: set[int]) -> bool:
    graph, inside, outputs = groups.graph, groups.members(group), groups.outputs(group)
    if len(outputs) != 1 or outputs[0] in graph.results:
        return False
    for position in inside:
        cheap = graph.kinds[position] is Kind.ELEMENTWISE and is_cheap(graph.instruction(position))
        if not cheap or graph.duplicated[position]:
            return False
    reads = [read for read in graph.readers[outputs[0]] if groups.find(read.user) != group]
    readers = {groups.find(read.user) for read in reads}
    if len(readers) < 2 or any(groups.anchor(reader) != NOWHERE for reader in readers):
        return False
    if not all(takes_clones(graph.instruction(read.user), read.place) for read in reads):
        return False
    read_bytes = sum(_num_bytes(graph, source) for source in sources)
    written = _num_bytes(graph, outputs[0])
    current = read_bytes + (len(readers) + 1) * written
    return len(readers) * read_bytes <= MERGED_TO_CURRENT_BYTES * current


def _num_bytes(graph: ReadGraph, position: int) -> int:
    return sum(leaf.num_bytes for leaf in graph.instruction(position).shape.leaves())
