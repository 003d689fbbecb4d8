"""The space of fusion configs of a program: one bool per fusible edge, and the kernels that a config gives.

A config says which edges the compiler should fuse; `cut` fuses those that it legally can (one contraction per
kernel, no kernels that wait for each other, no fusion across loops and calls, which are computations of their
own), so every config can be compiled. Whether every kernel has a tile that fits the scratchpad is known only
when the kernel is priced.

Drawing configs at random follows the papers' search (lpm2021, section 4), which does not say how an edge is
drawn. Half of the configs here fuse every edge with a probability drawn for the config, so that kernels of
all sizes occur; the other half flip a log-uniformly drawn share of the edges of the default, because a search
spends its time near the default.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from costbench.arrays import I16, I64, U64, Bool
from costbench.compiler.fingerprints import ModuleFingerprints
from costbench.compiler.fusion.edges import fusible_edges
from costbench.compiler.fusion.groups import KernelGroups
from costbench.compiler.fusion.views import BodyArrays, body_arrays, cut_groups, groups_that_run
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.compiler.kernel_hashes import (
    Labels,
    MetHashes,
    group_hashes,
    kernel_hashes,
    labels_of,
)
from costbench.compiler.program import CompiledProgram, PreparedProgram, assemble
from costbench.compiler.trip_counts import DEFAULT_UNKNOWN_TRIP_COUNT
from costbench.hlo.module import HloModule

_FEWEST_CHANGES = 0.05
_MOST_CHANGES = 0.5


@dataclass(frozen=True, eq=False)
class ComputationEdges:
    """One computation of a program and its fusible edges.

    Attributes:
        computation: its position.
        trip_count: how often it runs in one run of the program.
        start: groups in which every node is on its own.
        body: its instructions as arrays.
        labels: hashes of its instructions.
        sources: source of each edge, [e], last producer first.
        users: reader of each edge, [e].
    """

    computation: int
    trip_count: int
    start: KernelGroups
    body: BodyArrays
    labels: Labels
    sources: I64
    users: I64

    def cut(self, fused: Bool) -> KernelGroups:
        """Returns the groups after fusing the edges that `fused` [e] selects."""
        groups = KernelGroups(self.start.graph, self.start)
        groups.merge_along(self.sources[fused], self.users[fused])
        return groups


@dataclass(frozen=True, eq=False)
class CutKernels:
    """The kernels of one computation under one config.

    Attributes:
        computation: its position.
        trip_count: how often each of them runs in one run of the program.
        arrays: positions of the kernels' instructions, inputs and outputs.
        hashes: equal for kernels that cost the same, [k].
    """

    computation: int
    trip_count: int
    arrays: KernelArrays
    hashes: U64


class FusionSpace:
    """The fusion configs of one program; a `VectorSpace`.

    Args:
        program: compiled as far as its default fusions.

    Attributes:
        module: the program.
        name: name of the program.
        fingerprints: computes fingerprints of the program's kernels.
    """

    def __init__(self, program: PreparedProgram) -> None:
        self.module = program.module
        self.name = program.name
        self._counts, defaults = program.counts, program.fusions
        self.fingerprints = program.fingerprints
        self._parts = [
            _computation_edges(index, self._counts[index], groups, self.fingerprints)
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
        drawn = [self._draw(rng) for _ in range(count)]
        return np.array(drawn, dtype=np.int16).reshape(count, len(self._default))

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

    def cut(self, config: I16, met: MetHashes | None = None) -> list[CutKernels]:
        """Returns the kernels that a config gives, by computation.

        Args:
            config: fused edges, [m].
            met: hashes of groups cut before; their kernels are left out, and the hashes of new groups added.
        """
        cuts = []
        for part, fused in self.by_computation(config):
            groups = part.cut(fused)
            chosen = groups_that_run(groups.groups, part.body)
            if met is not None:
                chosen = chosen[met.add(group_hashes(groups.groups, chosen, part.computation))]
            arrays = cut_groups(groups.groups, groups.reads, part.body, chosen)
            hashes = kernel_hashes(arrays, part.body, part.labels)
            cuts.append(CutKernels(part.computation, part.trip_count, arrays, hashes))
        return cuts

    def by_computation(self, config: I16) -> Iterator[tuple[ComputationEdges, Bool]]:
        """Yields the edges of every computation that runs, with which of them a config [m] fuses."""
        if np.shape(config) != self._default.shape:
            raise ValueError(f"config of shape {np.shape(config)}, {self.name} has {self._default.shape}")
        for part, start, end in zip(self._parts, self._starts[:-1], self._starts[1:], strict=True):
            yield part, np.asarray(config[start:end], dtype=bool)

    def kernel(self, cut: CutKernels, number: int) -> Kernel:
        """Returns one of the kernels of a cut."""
        instructions, inputs, outputs = (
            tuple(positions[offsets[number] : offsets[number + 1]].tolist())
            for offsets, positions in zip(cut.arrays[::2], cut.arrays[1::2], strict=True)
        )
        return Kernel(self.module, cut.computation, instructions, inputs, outputs, cut.trip_count)

    def compile(self, config: I16) -> CompiledProgram:
        """Returns the program compiled under a config.

        Raises:
            HloError: if kernels would wait for each other, which no config can cause.
        """
        fusions = {part.computation: part.cut(fused) for part, fused in self.by_computation(config)}
        return assemble(self.module, self.name, fusions, self._counts)

    def _draw(self, rng: np.random.Generator) -> I16:
        number = len(self._default)
        if rng.random() < 0.5:
            return (rng.random(number) < rng.random()).astype(np.int16)
        share = np.exp(rng.uniform(np.log(_FEWEST_CHANGES), np.log(_MOST_CHANGES)))
        return np.where(rng.random(number) < share, 1 - self._default, self._default).astype(np.int16)


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


def _computation_edges(
    index: int, trip_count: int, default: KernelGroups, fingerprints: ModuleFingerprints
) -> ComputationEdges:
    edges = np.array(fusible_edges(default), dtype=np.int64).reshape(-1, 2)
    return ComputationEdges(
        computation=index,
        trip_count=trip_count,
        start=default.start or KernelGroups(default.graph),
        body=body_arrays(default.graph),
        labels=labels_of(fingerprints, index),
        sources=np.ascontiguousarray(edges[:, 0]),
        users=np.ascontiguousarray(edges[:, 1]),
    )


def _fused_in(groups: KernelGroups, part: ComputationEdges) -> I16:
    """Returns which edges lie inside a group, int16 [e]."""
    group = groups.groups.group
    fused: I16 = (group[part.sources] == group[part.users]).astype(np.int16)
    return fused
