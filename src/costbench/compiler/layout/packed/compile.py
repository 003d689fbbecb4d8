"""Compiles one program under many layout configs: kernels by hash, and the main memory that they need.

The results equal those of a full compile (`benchmarks.layout_compiler`). What a config costs depends on what
it changes: rules are applied to instructions only in orders that they have not been in before, and a
computation that has been laid out in the same way before is not compiled again. The rest are passes over
arrays.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields

import numpy as np

from costbench.arrays import I16, I64, U64
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.compiler.layout.packed.emission import ArrayNumbers, Emission, Emitted
from costbench.compiler.layout.packed.facts import FactTable
from costbench.compiler.layout.packed.kernels import cut_kernels
from costbench.compiler.layout.packed.orders import OrderTables
from costbench.compiler.layout.packed.reads import Body
from costbench.compiler.layout.space import LayoutSpace

KEPT_KERNELS = 1 << 22
"""Kernels of compiled computations that are kept, 32 MiB of hashes; the oldest computations are dropped."""


@dataclass(frozen=True, eq=False)
class CompiledPart:
    """One computation compiled under a config.

    Attributes:
        computation: its position in the program.
        trip_count: how often it runs in one run of the program.
        hashes: equal for kernels that cost the same, [k], in an order in which they can run.
        peak_bytes: most bytes in memory at one time while it runs, callees not counted.
        key: equal for equal layouts of the computation.
    """

    computation: int
    trip_count: int
    hashes: U64
    peak_bytes: int
    key: int


@dataclass(frozen=True, eq=False)
class NewPart(CompiledPart):
    """A computation in a layout that has not been compiled before, or is no longer kept.

    Attributes:
        body: the computation with layouts and copies.
        kernels: positions of its kernels' instructions, inputs and outputs.
    """

    body: Emitted
    kernels: KernelArrays


class PackedCompiler:
    """Compiles one program under many configs.

    Args:
        space: layout space of the program.

    Attributes:
        space: the same.
        facts: facts about the program's instructions in the orders met so far.
    """

    def __init__(self, space: LayoutSpace) -> None:
        self.space = space
        self.facts = FactTable(space.module)
        self._orders = OrderTables(space)
        arrays: ArrayNumbers = {}
        self._emissions = [
            Emission(self._orders, self.facts, c, arrays) for c, count in enumerate(space.counts) if count
        ]
        self._known: OrderedDict[tuple[int, int], CompiledPart] = OrderedDict()
        self._num_kept = 0

    def compile(self, config: I16) -> list[CompiledPart]:
        """Returns every computation that runs, compiled under a config; a `NewPart` if it is not kept.

        Args:
            config: an option for every configurable node, [m].

        Raises:
            ValueError: if `config` is no config of this program.
        """
        options = self.space.checked(config).astype(np.int64)
        order = self._orders.assign(options)
        return [self._part(emission, order, options) for emission in self._emissions]

    def _part(self, emission: Emission, order: I64, options: I64) -> CompiledPart:
        rows = emission.row_keys(order, options)
        key = emission.computation, emission.key(rows)
        known = self._known.get(key)
        if known is None:
            part = self._cut(*key, emission.emit(order, options, rows))
            self._keep(key, CompiledPart(*(getattr(part, field.name) for field in fields(CompiledPart))))
            return part
        return known

    def _keep(self, key: tuple[int, int], part: CompiledPart) -> None:
        self._known[key] = part
        self._num_kept += len(part.hashes)
        while self._num_kept > KEPT_KERNELS and len(self._known) > 1:
            _, dropped = self._known.popitem(last=False)
            self._num_kept -= len(dropped.hashes)

    def _cut(self, computation: int, key: int, found: Emitted) -> NewPart:
        """Returns a computation in the kernels that the compiler makes of it."""
        facts, ports = self.facts, self.facts.ports
        body = Body(
            facts.rows[found.row],
            found.operands_offsets,
            found.operands,
            found.root,
            ports.takes,
            ports.clones,
        )
        kernels, hashes, peak_bytes = cut_kernels(body, facts.labels[found.row])
        trip_count = self.space.counts[computation]
        return NewPart(computation, trip_count, hashes, peak_bytes, key, found, kernels)
