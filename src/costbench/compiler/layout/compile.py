"""Compiles one program under many layout configs: kernels by hash, and the main memory that they need.

The results equal those of a full compile (`benchmarks.layout_compiler`). What a config costs depends on what
it changes: rules are applied to instructions only in orders that they have not been in before, and a
computation that has been laid out in the same way before is not compiled again. The rest are passes over
arrays. New kernels wait in a `KernelPool` to be lowered side by side in one call.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from costbench.arrays import I16, I64, U64
from costbench.compiler.fingerprints import labelled_body, subgraph_digests
from costbench.compiler.fusion.cutting import body_nodes, cut_out
from costbench.compiler.fusion.facts import FLAGS, FREE, PADDED, PASSES_ON, STAYS, TAKES_OVER, BodyFacts
from costbench.compiler.fusion.heuristic import default_groups
from costbench.compiler.kernel_arrays import KernelArrays, KernelPositions, kernel_arrays, kernel_positions
from costbench.compiler.kernel_hashes import Labels, kernel_hashes
from costbench.compiler.layout.emission import ArrayNumbers, Emission, Emitted, FactTable
from costbench.compiler.layout.orders import OrderTables
from costbench.compiler.layout.space import LayoutSpace
from costbench.compiler.lowering.loop_nest import LoweredKernels, Lowering
from costbench.execution.compiled import compiled
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode

MAX_STORED_KERNELS = 1 << 22
"""Kernels of compiled computations that are stored, 32 MiB of hashes; the oldest computations are dropped."""


@dataclass(frozen=True, eq=False)
class CompiledPart:
    """One computation compiled under a config.

    Attributes:
        computation: position of the computation in the program.
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
    """A computation in a layout that has not been compiled before, or is no longer stored.

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
        space: layout space of the program.
        facts: facts about the program's instructions in the orders that they have been in so far.
    """

    def __init__(self, space: LayoutSpace) -> None:
        self.space = space
        self.facts = FactTable(space.module)
        self._orders = OrderTables(space.classes, space.nodes)
        arrays: ArrayNumbers = {}
        self._emissions = [
            Emission(self._orders, space.requirements, self.facts, c, arrays)
            for c, count in enumerate(space.counts)
            if count
        ]
        self._parts: OrderedDict[tuple[int, int], CompiledPart] = OrderedDict()
        self._num_stored = 0

    def compile(self, config: I16) -> list[CompiledPart]:
        """Returns every computation that runs, compiled under a config; a `NewPart` if it is not stored.

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
        stored = self._parts.get(key)
        if stored is not None:
            return stored
        part = self._cut(*key, emission.emit(order, options, rows))
        self._parts[key] = CompiledPart(*(getattr(part, field.name) for field in fields(CompiledPart)))
        self._num_stored += len(part.hashes)
        while self._num_stored > MAX_STORED_KERNELS and len(self._parts) > 1:
            _, oldest = self._parts.popitem(last=False)
            self._num_stored -= len(oldest.hashes)
        return part

    def _cut(self, computation: int, key: int, emitted: Emitted) -> NewPart:
        """Returns a computation in the kernels that the compiler makes of it."""
        facts, instruction_facts = self.facts, self.facts.instruction_facts
        body = BodyFacts(
            facts.rows[emitted.row],
            emitted.operands_offsets,
            emitted.operands,
            emitted.root,
            instruction_facts.takes,
            instruction_facts.clones,
        )
        kernels, hashes, peak_bytes = _cut_kernels(body, facts.labels[emitted.row])
        trip_count = self.space.counts[computation]
        return NewPart(computation, trip_count, hashes, peak_bytes, key, emitted, kernels)


class _CutKernels(NamedTuple):
    """The k kernels of a computation.

    Attributes:
        kernels: positions of their instructions, inputs and outputs, in an order in which they can run.
        hashes: [k], equal for kernels that cost the same.
        peak_bytes: most bytes in memory at one time while the computation runs, callees not counted.
    """

    kernels: KernelArrays
    hashes: U64
    peak_bytes: int


@compiled
def _cut_kernels(b: BodyFacts, labels: U64) -> _CutKernels:
    """Returns the kernels of a computation.

    It is one compiled call, since every call from Python checks and converts all arrays that it takes and
    returns.

    Args:
        b: the computation.
        labels: uint64 [n, 2], hashes of the label of each instruction and of its shape alone.
    """
    k = default_groups(b)
    nodes = body_nodes(b, k.graph)
    kernels = cut_out(k.groups, k.reads, nodes)
    hashes = kernel_hashes(kernels, nodes, Labels(labels[:, 0].copy(), labels[:, 1].copy()))
    return _CutKernels(kernels, hashes, _peak_bytes(b, kernels))


@compiled
def _peak_bytes(b: BodyFacts, kernels: KernelArrays) -> int:
    """Estimates the most bytes in main memory at one time while a computation runs.

    Padding is included, callees are not counted.

    The estimate approximates a buffer assignment: arguments and constants stay in memory all the time; an
    array that a kernel writes lives until the last kernel that reads it, or to the end if the computation
    returns it or passes it to a loop, a call or a tuple.
    """
    count, number = len(b.facts), len(kernels.outputs_offsets) - 1
    writer, last_use = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    for kernel in range(number):
        for i in range(kernels.outputs_offsets[kernel], kernels.outputs_offsets[kernel + 1]):
            writer[kernels.outputs[i]] = last_use[kernels.outputs[i]] = kernel
    for kernel in range(number):
        for i in range(kernels.inputs_offsets[kernel], kernels.inputs_offsets[kernel + 1]):
            _extend_life(b, writer, last_use, kernels.inputs[i], kernel)
    _extend_life(b, writer, last_use, b.root, number)
    staying = 0
    for position in range(count):
        if b.facts[position, FLAGS] & STAYS:
            staying += b.facts[position, PADDED]
        if b.facts[position, FLAGS] & TAKES_OVER:
            for i in range(b.operands_offsets[position], b.operands_offsets[position + 1]):
                _extend_life(b, writer, last_use, b.operands[i], number)
    change = np.zeros(number + 2, dtype=np.int64)
    for position in range(count):
        if writer[position] >= 0:
            change[writer[position]] += b.facts[position, PADDED]
            change[last_use[position] + 1] -= b.facts[position, PADDED]
    return int(staying + change.cumsum().max())


@compiled
def _extend_life(b: BodyFacts, writer: I64, last_use: I64, position: int, until: int) -> None:
    """Keeps the buffer that holds a value, if a kernel writes it, until a kernel has run."""
    source = _source(b, position, writer)
    if writer[source] >= 0:
        last_use[source] = max(last_use[source], until)


@compiled
def _source(b: BodyFacts, position: int, writer: I64) -> int:
    """Returns the value whose buffer an instruction's result aliases."""
    while writer[position] < 0:
        first = b.operands_offsets[position]
        shares = b.facts[position, FLAGS] & (PASSES_ON | FREE)
        if first == b.operands_offsets[position + 1] or not shares:
            break
        position = b.operands[first]
    return position


# ---- new kernels, to be lowered --------------------------------------------------------------------------


class KernelPool:
    """Kernels that wait to be lowered; their inputs are parameters.

    Args:
        module: program whose computations the instructions call.
        facts: facts about the program's instructions.
    """

    def __init__(self, module: HloModule, facts: FactTable) -> None:
        self._module = module
        self._facts = facts
        self._instructions: list[Instruction] = []
        self._rows: list[int] = []
        self._kernels: list[KernelPositions] = []

    def __len__(self) -> int:
        """Returns the number of kernels."""
        return len(self._kernels)

    def add(self, part: NewPart, number: int) -> None:
        """Adds one of the kernels of a computation."""
        body, facts = part.body, self._facts
        kernel = kernel_positions(part.kernels, number)
        read, moved = frozenset(kernel.inputs), dict[int, int]()
        for position in sorted(kernel.instructions + kernel.inputs):
            moved[position] = len(self._instructions)
            row = int(body.row[position])
            inst = facts.instructions[row]
            if position in read:
                inst = Instruction("", Opcode.PARAMETER, inst.shape)
            else:
                start, stop = body.operands_offsets[position : position + 2].tolist()
                operands = tuple([moved[operand] for operand in body.operands[start:stop].tolist()])
                inst = inst.rewire(inst.shape, operands, ())
            self._instructions.append(inst)
            self._rows.append(row)
        self._kernels.append(kernel.renumber(moved))

    def take(self) -> list[KernelPool]:
        """Empties the pool; returns a pool for each of its kernels."""
        pools = []
        for kernel in self._kernels:
            start, stop = min(kernel.instructions + kernel.inputs), max(kernel.instructions) + 1
            pool = KernelPool(self._module, self._facts)
            pool._instructions = [
                inst.rewire(inst.shape, tuple(operand - start for operand in inst.operands), ())
                for inst in self._instructions[start:stop]
            ]
            pool._rows = self._rows[start:stop]
            pool._kernels = [kernel.renumber({position: position - start for position in range(start, stop)})]
            pools.append(pool)
        self._clear()
        return pools

    def lower(self) -> tuple[LoweredKernels, list[str]]:
        """Lowers the kernels and empties the pool; returns them with their fingerprints.

        Raises:
            UnsupportedKernelError: if a kernel cannot be lowered; the pool keeps its kernels.
        """
        body = HloComputation("kernels", tuple(self._instructions), len(self._instructions) - 1)
        module = replace(self._module, computations=(*self._module.computations, body))
        arrays = kernel_arrays(self._kernels)
        labelled = labelled_body(
            [inst.operands for inst in self._instructions],
            [self._facts.label_bytes[row] for row in self._rows],
            [self._facts.input_digests[row] for row in self._rows],
        )
        digests = subgraph_digests(arrays, labelled).astype("<u8")
        names = [row.tobytes().hex() for row in np.ascontiguousarray(digests)]
        lowered = Lowering(module).lower(len(module.computations) - 1, arrays)
        self._clear()
        return lowered, names

    def _clear(self) -> None:
        self._instructions, self._rows, self._kernels = [], [], []
