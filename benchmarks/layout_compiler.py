"""Compiling a program under layout configs as a whole: layouts, copies, default fusion, kernels, main memory.

The reference that the incremental compile (`costbench.compiler.layout.compile`) is checked and timed against.
`compile_with_layouts` compiles one config as `compile_program` would. A `LayoutCompiler` is for many configs
of one program: it returns kernels as hashes with numbers of runs, caches compiled computations by the orders
that they depend on, and labels instructions once, so that a config only costs what differs from earlier ones.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from costbench.arrays import I16, U64
from costbench.compiler.fingerprints import ModuleFingerprints
from costbench.compiler.fusion.cutting import body_nodes, cut_out
from costbench.compiler.fusion.facts import PASSING_ON, STAYING, TAKING_OVER, body_facts
from costbench.compiler.fusion.heuristic import default_groups
from costbench.compiler.fusion.rules import is_free
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.compiler.kernel_hashes import Labels, kernel_hashes
from costbench.compiler.layout.assign import LaidOutComputation, lay_out, lay_out_computation
from costbench.compiler.layout.orders import SEEDS, propagation_steps
from costbench.compiler.layout.rules import (
    Node,
    NodeLayouts,
    fills_lanes,
    preferred_dot_operand,
    preferred_layout,
)
from costbench.compiler.layout.space import LayoutSpace
from costbench.compiler.program import CompiledProgram, assemble, default_fusions
from costbench.compiler.tiled_memory import MinorToMajor, compact_layout, packed_row_major, padded_bytes
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

_KEPT = 4
"""Configs whose computations are kept."""
_Key = tuple[object, ...]
Layouts = Mapping[Node, NodeLayouts]
"""Orders that a config chooses, by configurable node."""


def compile_with_layouts(space: LayoutSpace, config: I16, name: str) -> CompiledProgram:
    """Compiles a program under a layout config; the default config gives the result of `compile_program`.

    Args:
        space: layout space of the program.
        config: an option for every configurable node, [m].
        name: name of the program.

    Raises:
        ValueError: if `config` is no config of this program.
    """
    layouts = layouts_of(space, config)
    module = lay_out(space.requirements, ReferenceOrders(space).assign(layouts), layouts).verify()
    return assemble(module, name, default_fusions(module, space.counts), space.counts)


def layouts_of(space: LayoutSpace, config: I16) -> Layouts:
    """Returns the orders that a config chooses for every configurable node."""
    nodes = ((node.computation, node.position) for node in space.nodes)
    return dict(zip(nodes, space.decode(config), strict=True))


class ReferenceOrders:
    """Assigns memory orders on objects, rule by rule: what `layout.orders` does on arrays.

    Args:
        space: layout space of the program.
    """

    def __init__(self, space: LayoutSpace) -> None:
        self._space, self._classes = space, space.classes
        self._members = space.classes.members()
        self._default = layouts_of(space, space.default)
        module, entry = space.module, space.module.entry
        self._arguments = {
            leaf: compact_layout(self._classes.shapes[leaf])
            for position in module.entry_computation.parameters
            for leaf in self._classes.leaves(entry, position)
            if self._classes.shapes[leaf].rank > 1
        }
        self._default_orders: dict[int, MinorToMajor] = {}
        self._default_orders = self.assign(self._default)

    def assign(self, layouts: Layouts) -> dict[int, MinorToMajor]:
        """Returns the order of every class of values, given the chosen orders of every configurable node."""
        self._layouts = {node: chosen for node, chosen in layouts.items() if chosen != self._default[node]}
        self._pins = self._pinned(layouts)
        self._order: dict[int, MinorToMajor] = {}
        self._seed(self._arguments)
        shapes = self._classes.shapes
        for opcodes in SEEDS:
            seeds = [
                (c, p, inst, leaf)
                for c, computation in enumerate(self._space.module.computations)
                for p, inst in enumerate(computation.instructions)
                if inst.opcode in opcodes
                for leaf in self._classes.leaves(c, p)
                if shapes[leaf].rank > 1
            ]
            for c, p, inst, leaf in seeds:
                self._seed_preferred(c, p, inst, leaf)
            for c, p, inst, _ in seeds:
                chosen = self._layouts.get((c, p))
                for operand, order in zip(inst.operands, chosen.operands if chosen else (), strict=False):
                    operand_leaf = self._classes.leaf(c, operand)
                    if shapes[operand_leaf].rank > 1 and fills_lanes(shapes[operand_leaf], order):
                        self._seed({operand_leaf: order})
            for c, _, inst, _ in seeds:
                for number, operand in enumerate(inst.operands if inst.dot and inst.dot.lhs_batch else ()):
                    operand_leaf = self._classes.leaf(c, operand)
                    if shapes[operand_leaf].rank > 1:
                        self._seed({operand_leaf: preferred_dot_operand(inst, number, shapes[operand_leaf])})
        for leaf, shape in enumerate(shapes):
            if shape.rank > 1:
                self._seed({leaf: compact_layout(shape)})
        return self._order

    def _pinned(self, layouts: Layouts) -> dict[int, MinorToMajor]:
        """Returns the orders that classes are pinned to: the first changed node of a class decides."""
        fixed = {self._classes.find(leaf) for leaf in self._arguments}
        pins: dict[int, MinorToMajor] = {}
        for node, chosen in layouts.items():
            root = self._classes.find(self._classes.leaf(*node))
            if root in fixed or root not in self._default_orders:
                continue
            default = self._default_orders[root]
            if node not in self._layouts:
                pins.setdefault(root, default)
            elif pins.get(root, default) == default:
                pins[root] = chosen.output
        return pins

    def _seed_preferred(self, c: int, p: int, inst: Instruction, leaf: int) -> None:
        shapes, chosen = self._classes.shapes, self._layouts.get((c, p))
        operands = [self._classes.leaf(c, operand) for operand in inst.operands]
        preferred = preferred_layout(inst, [shapes[o] for o in operands], shapes[leaf])
        if chosen is not None:
            self._seed({leaf: chosen.output})
        elif preferred is not None:
            self._seed({leaf: preferred})
            if inst.opcode is Opcode.RESHAPE and shapes[operands[0]].rank > 1:
                self._seed({operands[0]: packed_row_major(shapes[operands[0]].dimensions)})

    def _seed(self, orders: Mapping[int, MinorToMajor]) -> None:
        """Gives the classes of leaves these orders unless they have one, and propagates them."""
        queue: deque[int] = deque()

        def give(root: int, order: MinorToMajor) -> None:
            if root not in self._order:
                self._order[root] = self._pins.get(root, order)
                queue.append(root)

        for leaf, order in orders.items():
            give(self._classes.find(leaf), order)
        while queue:
            root = queue.popleft()
            for leaf in self._members[root]:
                for step in propagation_steps(self._classes, leaf):
                    if step.target_class not in self._order:
                        order_of_target = step.order(self._order[root])
                        if order_of_target is not None:
                            give(step.target_class, order_of_target)


@dataclass(frozen=True, eq=False)
class CompiledComputation:
    """One computation compiled under a config.

    Attributes:
        computation: its position in the program.
        trip_count: how often it runs in one run of the program.
        body: the computation with layouts and copies.
        arrays: positions of its kernels' instructions, inputs and outputs.
        hashes: equal for kernels that cost the same, [k].
    """

    computation: int
    trip_count: int
    body: HloComputation
    arrays: KernelArrays
    hashes: U64

    def program(self, module: HloModule) -> HloModule:
        """Returns the program with this computation in place of the original one."""
        computations = list(module.computations)
        computations[self.computation] = self.body
        return replace(module, computations=tuple(computations))

    def kernel(self, number: int, program: HloModule) -> Kernel:
        """Returns one of its kernels as a view of `program(...)`."""
        instructions, inputs, outputs = (
            tuple(positions[offsets[number] : offsets[number + 1]].tolist())
            for offsets, positions in zip(self.arrays[::2], self.arrays[1::2], strict=True)
        )
        return Kernel(program, self.computation, instructions, inputs, outputs, self.trip_count)


class LayoutCompiler:
    """Compiles one program under many configs.

    Args:
        space: layout space of the program.
    """

    def __init__(self, space: LayoutSpace) -> None:
        self.space = space
        self._orders = ReferenceOrders(space)
        self._stored: OrderedDict[tuple[int, _Key], CompiledComputation] = OrderedDict()
        self._labels: dict[tuple[int, int, Shape], tuple[int, int]] = {}
        self._roots = [
            tuple(
                sorted(
                    {
                        space.classes.find(leaf)
                        for p in range(len(body.instructions))
                        for leaf in space.classes.leaves(c, p)
                        if space.classes.shapes[leaf].rank > 1
                    }
                )
            )
            for c, body in enumerate(space.module.computations)
        ]
        self._nodes: list[list[Node]] = [[] for _ in space.module.computations]
        for node in space.nodes:
            self._nodes[node.computation].append((node.computation, node.position))

    def compile(self, config: I16) -> tuple[CompiledComputation, ...]:
        """Returns every computation that runs, compiled under a config."""
        return self.compile_key(*self.assign(config))

    def assign(self, config: I16) -> tuple[dict[int, MinorToMajor], Layouts]:
        """Returns the orders of all values under a config, and the orders that it chooses for nodes."""
        layouts = layouts_of(self.space, config)
        return self._orders.assign(layouts), layouts

    def key(self, orders: Mapping[int, MinorToMajor], layouts: Layouts) -> _Key:
        """Returns a key that is equal for configs that give the same program."""
        return tuple(self._key(c, orders, layouts) for c, count in enumerate(self.space.counts) if count)

    def compile_key(
        self, orders: Mapping[int, MinorToMajor], layouts: Layouts
    ) -> tuple[CompiledComputation, ...]:
        """Does the same as `compile` when orders have been assigned."""
        return tuple(
            self._computation(c, orders, layouts) for c, count in enumerate(self.space.counts) if count
        )

    def _key(self, c: int, orders: Mapping[int, MinorToMajor], layouts: Layouts) -> _Key:
        """Returns the cache key of a computation: the orders of its values, the requirements of its nodes."""
        of = self.space.requirements.of
        needs = tuple(of(node, orders, layouts[node]) for node in self._nodes[c])
        return (tuple(orders[root] for root in self._roots[c]), needs)

    def _computation(
        self, c: int, orders: Mapping[int, MinorToMajor], layouts: Layouts
    ) -> CompiledComputation:
        key = (c, self._key(c, orders, layouts))
        known = self._stored.get(key)
        if known is None:
            known = self._stored[key] = self._lay_out(c, orders, layouts)
            if len(self._stored) > _KEPT * sum(count > 0 for count in self.space.counts):
                self._stored.popitem(last=False)
        self._stored.move_to_end(key)
        return known

    def _lay_out(self, c: int, orders: Mapping[int, MinorToMajor], layouts: Layouts) -> CompiledComputation:
        laid_out = lay_out_computation(self.space.requirements, c, orders, layouts)
        groups = default_groups(body_facts(laid_out.computation))
        nodes = body_nodes(groups.body, groups.graph)
        arrays = cut_out(groups.groups, groups.reads, nodes)
        hashes = kernel_hashes(arrays, nodes, self._labels_of(c, laid_out))
        return CompiledComputation(c, self.space.counts[c], laid_out.computation, arrays, hashes)

    def _labels_of(self, c: int, laid_out: LaidOutComputation) -> Labels:
        """Returns the labels of all instructions; only those that have not occurred before are digested."""
        instructions = laid_out.computation.instructions
        keys = [(c, o, i.shape) for o, i in zip(laid_out.origins, instructions, strict=True)]
        new: dict[tuple[int, int, Shape], Instruction] = {
            key: inst for key, inst in zip(keys, instructions, strict=True) if key not in self._labels
        }
        if new:
            computations = list(self.space.module.computations)
            computations[c] = HloComputation("", tuple(new.values()), 0)
            digests = ModuleFingerprints(replace(self.space.module, computations=tuple(computations)))
            for key, label, shape in zip(new, *digests.label_digests(c), strict=True):
                self._labels[key] = int.from_bytes(label[:8], "little"), int.from_bytes(shape[:8], "little")
        table = np.array([self._labels[key] for key in keys], dtype=np.uint64).reshape(-1, 2)
        return Labels(np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1]))


def peak_bytes(part: CompiledComputation) -> int:
    """Returns the most bytes in memory at one time while the computation runs, callees not counted."""
    body = part.body
    outputs, inputs = part.arrays.outputs, part.arrays.inputs
    made = np.repeat(np.arange(len(part.hashes)), np.diff(part.arrays.outputs_offsets))
    read = np.repeat(np.arange(len(part.hashes)), np.diff(part.arrays.inputs_offsets))
    first = dict(zip(outputs.tolist(), made.tolist(), strict=True))
    last = dict(first)
    for position, kernel in zip(inputs.tolist(), read.tolist(), strict=True):
        source = _source(body, position, first)
        if source in last:
            last[source] = max(last[source], kernel)
    for position in _handed_over(body):
        source = _source(body, position, first)
        if source in last:
            last[source] = len(part.hashes)
    change = np.zeros(len(part.hashes) + 2, dtype=np.int64)
    for position, begin in first.items():
        size = padded_bytes(body.instructions[position].shape)
        change[begin] += size
        change[last[position] + 1] -= size
    staying = sum(padded_bytes(inst.shape) for inst in body.instructions if inst.opcode in STAYING)
    return staying + int(change.cumsum().max())


def _source(body: HloComputation, position: int, made: dict[int, int]) -> int:
    """Returns the value whose buffer an instruction's result aliases."""
    while position not in made:
        inst = body.instructions[position]
        if not inst.operands or not (
            inst.opcode in PASSING_ON or is_free(inst, body.instructions[inst.operands[0]].shape)
        ):
            break
        position = inst.operands[0]
    return position


def _handed_over(body: HloComputation) -> Iterator[int]:
    yield body.root
    for inst in body.instructions:
        if inst.opcode in TAKING_OVER:
            yield from inst.operands
