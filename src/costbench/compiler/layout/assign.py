"""Layout assignment for a whole program: a memory order for every array, and copies where orders differ.

`layout.orders` finds the orders. Where an instruction needs another order than its operand has, a `copy` is
put between them, as XLA does; constants and broadcasts are computed again instead. Transposes never move data
themselves: they become free, and a copy moves data where that is necessary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from costbench.compiler.layout.orders import OrderTables
from costbench.compiler.layout.rules import Node, NodeLayouts, required_layouts
from costbench.compiler.layout.value_classes import ALIASES, ValueClasses
from costbench.compiler.tiled_memory import MinorToMajor
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

REMADE = frozenset({Opcode.CONSTANT, Opcode.IOTA, Opcode.BROADCAST})
Needs = tuple[tuple[MinorToMajor, ...], MinorToMajor]
"""The order each operand must have, and the order in which the result then comes."""


def assign_layouts(module: HloModule) -> HloModule:
    """Returns the program with an order on every array and copies where orders differ.

    Layouts that it had before are discarded.

    Computations keep their positions; instructions are shifted by the copies inserted before them.
    """
    classes = ValueClasses(module)
    tables = OrderTables(classes)
    return lay_out(Requirements(classes), tables.by_class(tables.default)).verify()


def lay_out(
    requirements: Requirements,
    orders: Mapping[int, MinorToMajor],
    layouts: Mapping[Node, NodeLayouts] | None = None,
) -> HloModule:
    """Returns the program with its values in given orders, and copies where an operand's order does not fit.

    Args:
        requirements: orders that the program's instructions require of their operands.
        orders: order of every class of values.
        layouts: orders that a config chooses for configurable nodes.
    """
    module = requirements.classes.module
    computations = tuple(
        lay_out_computation(requirements, c, orders, layouts or {}).computation
        for c in range(len(module.computations))
    )
    return replace(module, computations=computations)


def lay_out_computation(
    requirements: Requirements,
    computation: int,
    orders: Mapping[int, MinorToMajor],
    layouts: Mapping[Node, NodeLayouts],
) -> LaidOutComputation:
    """Returns what `lay_out` does, for one computation."""
    return _Emitter(requirements, computation, orders, layouts).emit()


@dataclass(frozen=True)
class LaidOutComputation:
    """A computation rewritten with its memory orders.

    Attributes:
        computation: computation with layouts and copies.
        origins: position that each instruction had before; for a copy, the position of the value it copies
            minus the number of instructions, which is negative.
    """

    computation: HloComputation
    origins: tuple[int, ...]


class Requirements:
    """Orders that instructions need their operands in, cached by the orders that the operands have.

    Attributes:
        classes: classes of the program's values.
    """

    def __init__(self, classes: ValueClasses) -> None:
        self.classes = classes
        self._needs: dict[tuple[Node, tuple[MinorToMajor, ...], NodeLayouts | None], Needs] = {}
        self._shapes: dict[tuple[int, MinorToMajor], Shape] = {}

    def shape(self, leaf: int, orders: Mapping[int, MinorToMajor]) -> Shape:
        """Returns a leaf's shape in its order (scalars and vectors have only one)."""
        shape = self.classes.shapes[leaf]
        order = orders[self.classes.find(leaf)] if shape.rank > 1 else (0,) * shape.rank
        with_order = self._shapes.get((leaf, order))
        if with_order is None:
            with_order = self._shapes[leaf, order] = shape.with_layout(order)
        return with_order

    def of(self, node: Node, orders: Mapping[int, MinorToMajor], chosen: NodeLayouts | None) -> Needs:
        """Returns what a node needs once all values have orders; only for nodes that alias no operand."""
        c, p = node
        body = self.classes.module.computations[c].instructions
        inst = body[p]
        shapes = [
            body[o].shape if body[o].shape.is_tuple else self.shape(self.classes.leaf(c, o), orders)
            for o in inst.operands
        ]
        # What returns an empty tuple has no leaf.
        result = self.shape(self.classes.leaf(c, p), orders) if self.classes.leaves(c, p) else inst.shape
        key = (node, (result.layout, *(shape.layout for shape in shapes)), chosen)
        needs = self._needs.get(key)
        if needs is None:
            operands, natural = required_layouts(inst, shapes, result, chosen)
            needs = self._needs[key] = (tuple(operands), natural)
        return needs


def with_leaves(shape: Shape, leaves: Iterator[Shape]) -> Shape:
    """Returns a (nested) tuple with these leaves, or the only leaf of an array."""
    if not shape.is_tuple:
        return next(leaves)
    return replace(shape, tuple_shapes=tuple(with_leaves(member, leaves) for member in shape.tuple_shapes))


class _Emitter:
    """Rewrites one computation.

    Shapes get layouts, and copies are inserted where an operand comes in another order than its user needs.
    Constants and broadcasts are computed again instead of being copied.
    """

    def __init__(
        self,
        requirements: Requirements,
        c: int,
        orders: Mapping[int, MinorToMajor],
        layouts: Mapping[Node, NodeLayouts],
    ) -> None:
        self._requirements = requirements
        self._classes = requirements.classes
        self._computation = self._classes.module.computations[c]
        self._c = c
        self._orders = orders
        self._layouts = layouts
        self._flat: list[Instruction] = []
        self._origins: list[int] = []
        self._moved: list[int] = []
        self._copies: dict[tuple[int, MinorToMajor], int] = {}

    def emit(self) -> LaidOutComputation:
        """Returns the computation with layouts and copies."""
        for position, inst in enumerate(self._computation.instructions):
            self._moved.append(self._emit_instruction(position, inst))
        computation = HloComputation(
            self._computation.name, tuple(self._flat), self._moved[self._computation.root]
        )
        return LaidOutComputation(computation, tuple(self._origins))

    def _emit_instruction(self, position: int, inst: Instruction) -> int:
        leaves = self._classes.leaves(self._c, position)
        shape = with_leaves(inst.shape, (self._requirements.shape(leaf, self._orders) for leaf in leaves))
        operands = [self._moved[operand] for operand in inst.operands]
        natural = shape
        if inst.opcode not in ALIASES and operands:
            node = (self._c, position)
            needs, order = self._requirements.of(node, self._orders, self._layouts.get(node))
            operands = [self._in_order(o, need) for o, need in zip(operands, needs, strict=True)]
            if not shape.is_tuple and shape.layout != order:
                natural = shape.with_layout(order)
        controls = tuple(self._moved[c] for c in inst.control_predecessors)
        self._append(_rewired(inst, natural, tuple(operands), controls), position)
        return self._in_order(len(self._flat) - 1, shape.minor_to_major)

    def _append(self, inst: Instruction, origin: int) -> None:
        self._flat.append(inst)
        self._origins.append(origin)

    def _in_order(self, value: int, order: MinorToMajor) -> int:
        """Returns the value in a memory order: itself if it has it, else a repeated broadcast or a copy."""
        shape = self._flat[value].shape
        if shape.is_tuple or shape.rank < 2 or shape.layout == order:
            return value
        copy = self._copies.get((value, order))
        if copy is None:
            self._add_copy(value, shape.with_layout(order))
            copy = self._copies[value, order] = len(self._flat) - 1
        return copy

    def _add_copy(self, value: int, shape: Shape) -> None:
        inst = self._flat[value]
        name = f"{inst.name}.copy{len(self._flat)}"
        origin = self._origins[value]
        is_remade = inst.opcode in REMADE and all(self._flat[o].shape.rank < 2 for o in inst.operands)
        if is_remade:
            self._append(replace(inst, name=name, shape=shape), origin)
        else:
            copy = Instruction(name=name, opcode=Opcode.COPY, shape=shape, operands=(value,))
            self._append(copy, origin - len(self._computation.instructions))


def _rewired(
    inst: Instruction, shape: Shape, operands: tuple[int, ...], controls: tuple[int, ...]
) -> Instruction:
    if (inst.operands, inst.control_predecessors, inst.shape) == (operands, controls, shape):
        return inst
    return inst.rewire(shape, operands, controls)
