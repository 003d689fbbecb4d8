"""The space of fusion configs of a program: one bool per fusible edge, and the kernels that a config gives.

An edge joins a producer and its reader, wherever the reader's kernel may compute the value, or two
consecutive readers of one value whose loops run over the same extent and so can share a pass over it
(multi-output fusion of siblings). All that the default heuristic fuses is among these edges.

A config says which edges the compiler should fuse; `cut` fuses those that it legally can (one contraction per
kernel, no kernels that wait for each other, no fusion across loops and calls, which are computations of their
own), so every config can be compiled. Whether every kernel has a tile that fits the scratchpad is known only
when the kernel is priced.

Drawing configs at random follows the papers' search (lpm2021, section 4), which does not say how an edge is
drawn. Half of the configs here fuse every edge with a probability drawn for the config, so that kernels of
all sizes occur; the other half flip a log-uniformly drawn share of the edges of the default, because a search
spends its time near the default.

A step of a search changes a few groups. The groups of a config have to be computed as a whole, since whether
two may be merged can depend on any other; but a kernel is determined by its group of instructions, so
`FusionCuts` recognises a group that it has seen by its hash, and does not turn it into a kernel again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from costbench.arrays import I16, I64, U64, Bool
from costbench.compiler.fingerprints import ModuleFingerprints
from costbench.compiler.fusion.cutting import BodyNodes, body_nodes, cut_groups, groups_that_run
from costbench.compiler.fusion.facts import FLAGS, KIND, KINDS, MEMBER
from costbench.compiler.fusion.groups import KernelGroups, copy_kernel_groups, merge_along, separate_groups
from costbench.compiler.fusion.rules import Kind
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import KernelArrays, kernel_positions
from costbench.compiler.kernel_hashes import (
    UNKNOWN,
    HashNumbers,
    Labels,
    SeenHashes,
    group_hashes,
    kernel_hashes,
    labels_of,
)
from costbench.compiler.program import CompiledProgram, PreparedProgram, assemble
from costbench.compiler.trip_counts import DEFAULT_UNKNOWN_TRIP_COUNT
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloModule

_MIN_CHANGES, _MAX_CHANGES = 0.05, 0.5
"""Share of the default's edges that a config near it flips."""
_SIBLINGS = frozenset(KINDS[kind] for kind in (Kind.ELEMENTWISE, Kind.PICKING, Kind.REDUCE))
_MAX_REMEMBERED = 256
NO_KERNEL = 0
"""Number of groups for which no kernel is made: arguments, scalars and the like."""
Edge = tuple[int, int]
"""Positions of a producer or sibling, and of a reader."""
AdmitsFusion = Callable[[Instruction, Instruction], bool]
"""Says whether a producer or sibling and a reader may share a kernel."""


# ---- fusible edges ---------------------------------------------------------------------------------------


def fusible_edges(default: KernelGroups) -> tuple[Edge, ...]:
    """Returns the edges of a computation, from last producer to first: the order in which `cut` tries them.

    Args:
        default: groups that the heuristic makes of the computation.
    """
    sources, users = _reads(default)
    takes = default.reads.takes
    edges = set(zip(sources[takes].tolist(), users[takes].tolist(), strict=True)) | _sibling_edges(default)
    body = default.body
    for source, user in fused_edges(default):
        # Results of one instruction are always made together.
        is_member = body.facts[user, FLAGS] & MEMBER
        if not (is_member and body.operands[body.operands_offsets[user]] == source):
            edges.add((source, user))
    return tuple(sorted(edges, key=lambda edge: (-edge[0], edge[1])))


def fused_edges(k: KernelGroups) -> frozenset[Edge]:
    """Returns the edges inside groups.

    They are all reads, and a chain through reductions that share a group although none reads another.
    """
    group = k.groups.group
    sources, users = _reads(k)
    inside = group[sources] == group[users]
    reductions: dict[int, list[int]] = {}
    for position in np.flatnonzero(k.body.facts[:, KIND] == KINDS[Kind.REDUCE]).tolist():
        reductions.setdefault(int(group[position]), []).append(position)
    chains = (edge for positions in reductions.values() for edge in pairwise(positions))
    return frozenset([*zip(sources[inside].tolist(), users[inside].tolist(), strict=True), *chains])


def _reads(k: KernelGroups) -> tuple[I64, I64]:
    """Returns the source and the user of every read, [r]."""
    return np.repeat(np.arange(len(k.reads.extent)), np.diff(k.reads.offsets)), k.reads.user


def _sibling_edges(k: KernelGroups) -> set[Edge]:
    """Returns consecutive readers of one value whose loops run over the same extent."""
    kinds, extent = k.body.facts[:, KIND].tolist(), k.reads.extent.tolist()
    siblings: dict[Edge, set[int]] = {}
    for source, user in zip(*(positions.tolist() for positions in _reads(k)), strict=True):
        if kinds[user] in _SIBLINGS:
            siblings.setdefault((source, extent[user]), set()).add(user)
    return {edge for users in siblings.values() for edge in pairwise(sorted(users))}


# ---- configs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CutKernels:
    """The kernels of one computation under one config.

    Attributes:
        computation: position of the computation in the program.
        trip_count: how often each kernel runs in one run of the program.
        arrays: positions of the kernels' instructions, inputs and outputs.
        hashes: equal for kernels that cost the same, [k].
    """

    computation: int
    trip_count: int
    arrays: KernelArrays
    hashes: U64


@dataclass(frozen=True, eq=False)
class ComputationEdges:
    """One computation of a program and its fusible edges.

    Attributes:
        computation: position of the computation in the program.
        trip_count: how often it runs in one run of the program.
        start: groups in which every node is on its own.
        nodes: what kernels are cut from.
        labels: hashes of its instructions.
        sources: source of each edge, [e], last producer first.
        users: reader of each edge, [e].
    """

    computation: int
    trip_count: int
    start: KernelGroups
    nodes: BodyNodes
    labels: Labels
    sources: I64
    users: I64

    def cut(self, fused: Bool) -> KernelGroups:
        """Returns the groups after fusing the edges that `fused` [e] selects."""
        k = copy_kernel_groups(self.start)
        merge_along(k.groups, k.reads, k.shaping, self.sources[fused], self.users[fused])
        return k

    def kernels(self, k: KernelGroups, chosen: I64) -> CutKernels:
        """Returns the kernels of chosen groups."""
        arrays = cut_groups(k.groups, k.reads, self.nodes, chosen)
        hashes = kernel_hashes(arrays, self.nodes, self.labels)
        return CutKernels(self.computation, self.trip_count, arrays, hashes)


class FusionSpace:
    """The fusion configs of one program; a `VectorSpace`.

    Args:
        program: program whose default fusions are computed.
        admits: function that says whether a machine can fuse two instructions; without it the rules of
            `compiler.fusion` decide alone.

    Attributes:
        module: the program, layouts assigned.
        name: name of the program.
        fingerprints: fingerprints of the program's kernels, computed when asked for.
    """

    def __init__(self, program: PreparedProgram, admits: AdmitsFusion | None = None) -> None:
        self.module = program.module
        self.name = program.name
        self._counts, defaults = program.counts, program.fusions
        self.fingerprints = program.fingerprints
        self._parts = [
            _computation_edges(
                index,
                self._counts[index],
                groups,
                self.fingerprints,
                _admitted(self.module, index, groups, admits),
            )
            for index, groups in sorted(defaults.items())
        ]
        sizes = [len(part.sources) for part in self._parts]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        self._default = np.concatenate(
            [np.zeros(0, np.int16), *(_fused_in(defaults[p.computation], p) for p in self._parts)]
        )

    @property
    def num_choices(self) -> I64:
        """Returns the number of choices, two for every edge, int64 [m]."""
        return np.full(self._starts[-1], 2, dtype=np.int64)

    @property
    def default(self) -> I16:
        """Returns the config of the default heuristic, int16 [m]."""
        return self._default.copy()

    def legal(self, configs: I16) -> Bool:
        """Returns whether each of [n, m] is a config of this program, bool [n]; all can be compiled."""
        configs = np.asarray(configs)
        if configs.ndim != 2 or configs.shape[1] != len(self._default):
            return np.zeros(len(configs), dtype=bool)
        result: Bool = ((configs == 0) | (configs == 1)).all(axis=1)
        return result

    def sample(self, rng: np.random.Generator, count: int) -> I16:
        """Returns configs drawn at random, int16 [count, m]."""
        configs = [self._sample_config(rng) for _ in range(count)]
        return np.array(configs, dtype=np.int16).reshape(count, len(self._default))

    def neighbours(self, config: I16, rng: np.random.Generator, count: int) -> I16:
        """Returns up to `count` distinct configs that differ from [m] in one edge, int16 [count, m]."""
        edges = rng.permutation(len(config))[:count]
        result = np.repeat(config[None].astype(np.int16), len(edges), axis=0)
        result[np.arange(len(edges)), edges] ^= 1
        return result

    def crossover(self, first: I16, second: I16, rng: np.random.Generator) -> I16:
        """Returns a child, int16 [m]: a contiguous run of edges from one parent, the rest from the other."""
        start, end = np.sort(rng.integers(0, len(first) + 1, size=2))
        child = first.astype(np.int16)
        child[start:end] = second[start:end]
        return child

    def cut(self, config: I16, seen: SeenHashes | None = None) -> list[CutKernels]:
        """Returns the kernels that a config gives, by computation.

        Args:
            config: fused edges, [m].
            seen: hashes of groups cut before; their kernels are left out, and the hashes of new groups added.
        """
        cuts = []
        for part, fused in self.by_computation(config):
            k = part.cut(fused)
            chosen = groups_that_run(k.groups, part.nodes)
            if seen is not None:
                chosen = chosen[seen.add(group_hashes(k.groups, chosen, part.computation))]
            cuts.append(part.kernels(k, chosen))
        return cuts

    def by_computation(self, config: I16) -> Iterator[tuple[ComputationEdges, Bool]]:
        """Yields the edges of every computation that runs, with which of them a config [m] fuses."""
        if np.shape(config) != self._default.shape:
            raise ValueError(f"config of shape {np.shape(config)}, {self.name} has {self._default.shape}")
        for part, start, end in zip(self._parts, self._starts[:-1], self._starts[1:], strict=True):
            yield part, np.asarray(config[start:end], dtype=bool)

    def kernel(self, cut: CutKernels, number: int) -> Kernel:
        """Returns one of the kernels of a cut."""
        positions = kernel_positions(cut.arrays, number)
        return Kernel(self.module, cut.computation, *positions, trip_count=cut.trip_count)

    def compile(self, config: I16) -> CompiledProgram:
        """Returns the program compiled under a config.

        Raises:
            HloError: if kernels would wait for each other, which no config can cause.
        """
        fusions = {part.computation: part.cut(fused) for part, fused in self.by_computation(config)}
        return assemble(self.module, self.name, fusions, self._counts)

    def _sample_config(self, rng: np.random.Generator) -> I16:
        num_edges = len(self._default)
        if rng.random() < 0.5:
            return (rng.random(num_edges) < rng.random()).astype(np.int16)
        share = np.exp(rng.uniform(np.log(_MIN_CHANGES), np.log(_MAX_CHANGES)))
        return np.where(rng.random(num_edges) < share, 1 - self._default, self._default).astype(np.int16)


def fusion_space(
    module: HloModule, name: str, *, unknown_trip_count: int = DEFAULT_UNKNOWN_TRIP_COUNT
) -> FusionSpace:
    """Returns the space of fusion configs of a canonical program (no fusions, layouts ignored).

    Args:
        module: the program.
        name: name of the program.
        unknown_trip_count: iterations assumed for a loop whose trip count cannot be found.
    """
    return FusionSpace(PreparedProgram(module, name, unknown_trip_count=unknown_trip_count))


def _admitted(
    module: HloModule, computation: int, default: KernelGroups, admits: AdmitsFusion | None
) -> Sequence[Edge]:
    """Returns the fusible edges of a computation that a machine admits."""
    edges = fusible_edges(default)
    if admits is None:
        return edges
    body = module.computations[computation].instructions
    return [(source, user) for source, user in edges if admits(body[source], body[user])]


def _computation_edges(
    index: int,
    trip_count: int,
    default: KernelGroups,
    fingerprints: ModuleFingerprints,
    chosen: Sequence[Edge],
) -> ComputationEdges:
    edges = np.array(chosen, dtype=np.int64).reshape(-1, 2)
    return ComputationEdges(
        computation=index,
        trip_count=trip_count,
        start=separate_groups(default.body, default.graph),
        nodes=body_nodes(default.body, default.graph),
        labels=labels_of(fingerprints, index),
        sources=np.ascontiguousarray(edges[:, 0]),
        users=np.ascontiguousarray(edges[:, 1]),
    )


def _fused_in(k: KernelGroups, part: ComputationEdges) -> I16:
    """Returns which edges lie inside a group, int16 [e]."""
    group = k.groups.group
    return np.asarray(group[part.sources] == group[part.users], dtype=np.int16)


# ---- kernels of many configs -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CutConfig:
    """The kernels that a config gives, by number.

    Attributes:
        kernels: one array per computation that runs, a number for every group, int64 [g].
        trip_counts: how often each computation runs.
    """

    kernels: tuple[I64, ...]
    trip_counts: tuple[int, ...]

    @property
    def key(self) -> bytes:
        """Returns a key that is equal for configs that give the same kernels in the same computations."""
        return b"/".join(np.sort(numbers[numbers != NO_KERNEL]).tobytes() for numbers in self.kernels)


class FusionCuts:
    """Distinct kernels of a program's fusion configs, numbered from 1 in the order in which they first occur.

    Args:
        space: the fusion configs.
    """

    def __init__(self, space: FusionSpace) -> None:
        self.space = space
        self._group_numbers = HashNumbers()
        self._number_of_hash: dict[int, int] = {}
        self._hashes: list[int] = [0]
        self._waiting: dict[int, Kernel] = {}
        self._parts: OrderedDict[tuple[int, bytes], I64] = OrderedDict()

    def __len__(self) -> int:
        """Returns the number of distinct kernels so far, plus one for `NO_KERNEL`."""
        return len(self._hashes)

    @property
    def hashes(self) -> U64:
        """Returns the hashes of the kernels by number, [len(self)]; the same in every run."""
        return np.array(self._hashes, dtype=np.uint64)

    def take(self, number: int) -> Kernel:
        """Returns a kernel and drops it from memory, so each can be taken only once.

        Raises:
            KeyError: for a kernel that was taken before.
        """
        return self._waiting.pop(number)

    def cut(self, config: I16) -> CutConfig:
        """Cuts the program under a config [m] and returns the numbers of its kernels."""
        kernels, trip_counts = [], []
        for part, fused in self.space.by_computation(config):
            kernels.append(self._part(part, fused))
            trip_counts.append(part.trip_count)
        return CutConfig(tuple(kernels), tuple(trip_counts))

    def _part(self, part: ComputationEdges, fused: Bool) -> I64:
        key = part.computation, fused.tobytes()
        if key not in self._parts:
            self._parts[key] = self._cut(part, fused)
            if len(self._parts) > _MAX_REMEMBERED:
                self._parts.popitem(last=False)
        self._parts.move_to_end(key)
        return self._parts[key]

    def _cut(self, part: ComputationEdges, fused: Bool) -> I64:
        k = part.cut(fused)
        chosen = groups_that_run(k.groups, part.nodes)
        hashes = group_hashes(k.groups, chosen, part.computation)
        numbers = self._group_numbers.find(hashes)
        new = np.flatnonzero(numbers == UNKNOWN)
        if len(new):
            cut = part.kernels(k, chosen[new])
            # A kernel may duplicate instructions of other groups, but its outputs belong to its own group.
            owners = k.groups.group[cut.arrays.outputs[cut.arrays.outputs_offsets[:-1]]]
            number_of = {group: self._number(cut, kernel) for kernel, group in enumerate(owners.tolist())}
            numbers[new] = [number_of.get(group, NO_KERNEL) for group in chosen[new].tolist()]
            self._group_numbers.add(hashes[new], numbers[new])
        return numbers

    def _number(self, cut: CutKernels, kernel: int) -> int:
        """Returns the number of one of the kernels of a cut; a new one waits to be taken."""
        kernel_hash = int(cut.hashes[kernel])
        number = self._number_of_hash.get(kernel_hash)
        if number is None:
            number = self._number_of_hash[kernel_hash] = len(self._hashes)
            self._hashes.append(kernel_hash)
            self._waiting[number] = self.space.kernel(cut, kernel)
        return number
