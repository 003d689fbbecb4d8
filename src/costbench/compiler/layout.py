"""Memory orders for a whole program, as a TPU compiler assigns them.

Arguments of the program come in their compact order, convolutions and dots have wishes, and orders spread
from there through every instruction that keeps them, forwards and backwards. Values that one buffer holds
(loop state, tuple members) have one order. Where at the end an instruction needs another order than its
operand has, a `copy` is put between them, as XLA does; transposes never move data themselves: they become
free, and a copy moves what has to move. The program's results stay in the order they are made in.

The search spreads breadth-first from one seed after another: arguments, then convolutions, then dots and the
operands of batched ones, then what reads by index, then reshapes that have to move data (in row-major order,
as the recorded ones do), then whatever is left, in program order. Nothing else decides, so equal programs get
equal orders.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from costbench.compiler.layout_rules import (
    backward,
    forward,
    preferred_dot_operand,
    preferred_layout,
    required_layouts,
)
from costbench.compiler.tiled_memory import (
    MinorToMajor,
    compact_layout,
    is_bitcast,
    native_tile,
    packed_row_major,
    padded_bytes,
    padded_elements,
)
from costbench.compiler.value_classes import ALIASES, ValueClasses
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

__all__ = ["assign_layouts", "is_bitcast", "native_tile", "padded_bytes", "padded_elements"]

_SEEDS = (
    (Opcode.CONVOLUTION,),
    (Opcode.DOT,),
    (Opcode.GATHER, Opcode.SCATTER, Opcode.CUSTOM_CALL, Opcode.RNG_BIT_GENERATOR, Opcode.SORT),
    (Opcode.RESHAPE,),
)
_REMADE = frozenset({Opcode.CONSTANT, Opcode.IOTA, Opcode.BROADCAST})


def assign_layouts(module: HloModule) -> HloModule:
    """The program with an order on every array and copies where orders meet; other layouts are discarded.

    Computations keep their positions; instructions move by the copies before them.
    """
    classes = ValueClasses(module)
    orders = _Orders(classes)
    orders.seed_together(
        {leaf: compact_layout(classes.shapes[leaf].dimensions) for leaf in _entry_arguments(module, classes)}
    )
    for opcodes in _SEEDS:
        for leaf, inst in _leaves_of(module, classes, opcodes):
            orders.seed_wishes(classes.owner[leaf][0], inst, leaf)
        if Opcode.DOT in opcodes:
            for leaf, inst in _leaves_of(module, classes, opcodes):
                orders.seed_operands(classes.owner[leaf][0], inst)
    for leaf, shape in enumerate(classes.shapes):
        if shape.rank > 1:
            orders.seed(leaf, compact_layout(shape.dimensions))
    computations = tuple(_Emitter(module, c, classes, orders).emit() for c in range(len(module.computations)))
    return replace(module, computations=computations).verify()


def _entry_arguments(module: HloModule, classes: ValueClasses) -> Iterable[int]:
    for position in module.entry_computation.parameters:
        for leaf in classes.leaves(module.entry, position):
            if classes.shapes[leaf].rank > 1:
                yield leaf


def _leaves_of(
    module: HloModule, classes: ValueClasses, opcodes: tuple[Opcode, ...]
) -> Iterable[tuple[int, Instruction]]:
    for c, computation in enumerate(module.computations):
        for p, inst in enumerate(computation.instructions):
            if inst.opcode in opcodes:
                for leaf in classes.leaves(c, p):
                    if classes.shapes[leaf].rank > 1:
                        yield leaf, inst


class _Orders:
    """The memory order of every class, filled by spreading from seeds."""

    def __init__(self, classes: ValueClasses) -> None:
        self._classes = classes
        self._module = classes.module
        self._members = classes.members()
        self._order: dict[int, MinorToMajor] = {}

    def of(self, leaf: int) -> Shape:
        """The leaf's shape in its order (scalars and vectors have only one)."""
        shape = self._classes.shapes[leaf]
        if shape.rank < 2:
            return shape.with_layout((0,) if shape.rank else ())
        return shape.with_layout(self._order[self._classes.find(leaf)])

    def seed(self, leaf: int, order: MinorToMajor) -> None:
        """Gives a leaf's class an order, unless it has one, and all that follows from it."""
        self.seed_together({leaf: order})

    def seed_together(self, wishes: Mapping[int, MinorToMajor]) -> None:
        """Seeds of which none may follow from another."""
        queue: deque[int] = deque()
        for leaf, order in wishes.items():
            self._set(leaf, order, queue)
        while queue:
            for member in self._members[queue.popleft()]:
                self._spread(member, queue)

    def seed_wishes(self, computation: int, inst: Instruction, leaf: int) -> None:
        """Gives the result of an instruction, and of a reshape its operand, the order it would choose."""
        shapes = self._classes.shapes
        operands = [self._classes.leaf(computation, operand) for operand in inst.operands]
        wish = preferred_layout(inst, [shapes[o] for o in operands], shapes[leaf])
        if wish is None:
            return
        self.seed(leaf, wish)
        if inst.opcode is Opcode.RESHAPE and shapes[operands[0]].rank > 1:
            self.seed(operands[0], packed_row_major(shapes[operands[0]].dimensions))

    def seed_operands(self, computation: int, inst: Instruction) -> None:
        """Gives operands of a batched dot the order that it wants, so that loop state is kept in it."""
        if inst.dot is None or not inst.dot.lhs_batch:
            return
        for place, operand in enumerate(inst.operands):
            leaf = self._classes.leaf(computation, operand)
            if self._unset(leaf):
                self.seed(leaf, preferred_dot_operand(inst, place, self._classes.shapes[leaf]))

    def _set(self, leaf: int, order: MinorToMajor | None, queue: deque[int]) -> None:
        root = self._classes.find(leaf)
        if order is not None and root not in self._order:
            self._order[root] = order
            queue.append(root)

    def _unset(self, leaf: int) -> bool:
        return self._classes.shapes[leaf].rank > 1 and self._classes.find(leaf) not in self._order

    def _spread(self, leaf: int, queue: deque[int]) -> None:
        classes = self._classes
        c, p = classes.owner[leaf]
        computation = self._module.computations[c]
        inst = computation.instructions[p]
        own = self.of(leaf)
        if inst.opcode not in ALIASES:
            for place, operand in enumerate(inst.operands):
                target = classes.leaf(c, operand)
                if self._unset(target):
                    self._set(target, backward(inst, place, classes.shapes[target], own), queue)
        if inst.shape.is_tuple:
            return
        for user in computation.users[p]:
            follower = computation.instructions[user]
            if follower.opcode in ALIASES:
                continue
            target = classes.leaf(c, user)
            if self._unset(target):
                place = follower.operands.index(p)
                self._set(target, forward(follower, place, own, classes.shapes[target]), queue)


class _Emitter:
    """Rewrites one computation: orders set on shapes, copies between what does not fit."""

    def __init__(self, module: HloModule, c: int, classes: ValueClasses, orders: _Orders) -> None:
        self._computation = module.computations[c]
        self._c = c
        self._classes = classes
        self._orders = orders
        self._flat: list[Instruction] = []
        self._place: list[int] = []
        self._copies: dict[tuple[int, MinorToMajor], int] = {}

    def emit(self) -> HloComputation:
        """The computation with layouts and copies."""
        for position, inst in enumerate(self._computation.instructions):
            self._place.append(self._emit_instruction(position, inst))
        return HloComputation(self._computation.name, tuple(self._flat), self._place[self._computation.root])

    def _shape(self, position: int, shape: Shape) -> Shape:
        leaves = iter(self._classes.leaves(self._c, position))
        return self._ordered(shape, leaves)

    def _ordered(self, shape: Shape, leaves: Iterable[int]) -> Shape:
        iterator = iter(leaves)
        if not shape.is_tuple:
            return self._orders.of(next(iterator))
        return replace(shape, tuple_shapes=tuple(self._ordered(m, iterator) for m in shape.tuple_shapes))

    def _emit_instruction(self, position: int, inst: Instruction) -> int:
        shape = self._shape(position, inst.shape)
        operands = [self._place[operand] for operand in inst.operands]
        natural = shape
        if inst.opcode not in ALIASES and operands:
            result = shape.leaves()[0] if shape.is_tuple else shape
            given = [self._flat[operand].shape for operand in operands]
            needs, order = required_layouts(inst, given, result)
            operands = [self._in_order(o, need) for o, need in zip(operands, needs, strict=True)]
            natural = shape if shape.is_tuple else shape.with_layout(order)
        controls = tuple(self._place[c] for c in inst.control_predecessors)
        self._flat.append(
            replace(inst, shape=natural, operands=tuple(operands), control_predecessors=controls)
        )
        return self._in_order(len(self._flat) - 1, shape.minor_to_major)

    def _in_order(self, value: int, order: MinorToMajor) -> int:
        """The value in another memory order: itself, the same broadcast made anew, or a copy."""
        shape = self._flat[value].shape
        if shape.is_tuple or shape.rank < 2 or shape.layout == order:
            return value
        copy = self._copies.get((value, order))
        if copy is None:
            self._flat.append(self._turned(value, shape.with_layout(order)))
            copy = self._copies[value, order] = len(self._flat) - 1
        return copy

    def _turned(self, value: int, shape: Shape) -> Instruction:
        inst = self._flat[value]
        name = f"{inst.name}.copy{len(self._flat)}"
        remade = inst.opcode in _REMADE and all(self._flat[o].shape.rank < 2 for o in inst.operands)
        if remade:
            return replace(inst, name=name, shape=shape)
        return Instruction(name=name, opcode=Opcode.COPY, shape=shape, operands=(value,))
