"""Layout assignment for a whole program, modelled on a TPU compiler: a memory order for every array.

Arguments of the program come in their compact order, convolutions and dots prefer certain orders, and orders
propagate from there through every instruction that keeps them, forwards and backwards. Values that one buffer
holds (loop state, tuple members) have one order. Where in the end an instruction needs another order than its
operand has, a `copy` is put between them (`_Emitter`), as XLA does. Transposes never move data
themselves: they become free, and a copy moves data where that is necessary. The program's results stay in the
order they are computed in.

Orders propagate breadth-first from one seed after another: arguments, then convolutions, then dots and the
operands of batched ones, then instructions that read by index, then reshapes that have to move data (in
row-major order, as the recorded ones do), then all remaining values, in program order. Nothing else has an
influence, so equal programs get equal orders.

A layout config takes part through `Choices`: a class of values that is pinned gets the pinned order when the
propagation reaches it, and the pinned order propagates from there. If the pins are the default's own orders,
the result is the same as without pins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from costbench.compiler.layout.rules import (
    NO_CHOICES,
    Choices,
    Node,
    NodeLayouts,
    backward,
    fills_lanes,
    forward,
    preferred_dot_operand,
    preferred_layout,
    required_layouts,
)
from costbench.compiler.layout.value_classes import ALIASES, ValueClasses
from costbench.compiler.tiled_memory import (
    MinorToMajor,
    compact_layout,
    packed_row_major,
)
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

SEEDS = (
    (Opcode.CONVOLUTION,),
    (Opcode.DOT,),
    (Opcode.GATHER, Opcode.SCATTER, Opcode.CUSTOM_CALL, Opcode.RNG_BIT_GENERATOR, Opcode.SORT),
    (Opcode.RESHAPE,),
)


def assign_layouts(module: HloModule) -> HloModule:
    """Returns the program with an order on every array and copies where orders differ; layouts that it had
    before are discarded.

    Computations keep their positions; instructions are shifted by the copies inserted before them.
    """
    assigner = LayoutAssigner(module)
    return assigner.place(assigner.orders()).verify()


@dataclass(frozen=True, slots=True)
class _Seed:
    """A leaf (array) from which an order propagates, and the instruction that computes it."""

    computation: int
    position: int
    inst: Instruction
    leaf: int


class LayoutAssigner:
    """Assigns orders to one program under many configs; what does not depend on the config is computed once.

    Attributes:
        module: the program.
        classes: classes of values that share a buffer.
        requirements: orders that instructions require of their operands.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.classes = ValueClasses(module)
        self.requirements = Requirements(self.classes)
        self.members = self.classes.members()
        self.arguments = {
            leaf: compact_layout(self.classes.shapes[leaf])
            for position in module.entry_computation.parameters
            for leaf in self.classes.leaves(module.entry, position)
            if self.classes.shapes[leaf].rank > 1
        }
        self._stages = [(opcodes, list(self._seeds(opcodes))) for opcodes in SEEDS]
        self._left = [
            (leaf, compact_layout(shape)) for leaf, shape in enumerate(self.classes.shapes) if shape.rank > 1
        ]
        self._following: dict[int, tuple[_Step, ...]] = {}

    def orders(self, choices: Choices = NO_CHOICES) -> dict[int, MinorToMajor]:
        """Returns the order of every class of arrays of rank two or more."""
        found = _Orders(self, choices)
        found.seed_together(self.arguments)
        for opcodes, seeds in self._stages:
            for seed in seeds:
                found.seed_wishes(seed)
            if choices.changed:
                for seed in seeds:
                    found.seed_chosen_operands(seed)
            if Opcode.DOT in opcodes:
                for seed in seeds:
                    found.seed_operands(seed)
        for leaf, order in self._left:
            found.seed(leaf, order)
        return found.order

    def place(self, orders: Mapping[int, MinorToMajor], choices: Choices = NO_CHOICES) -> HloModule:
        """Returns the program in these orders, with copies where an operand's order does not fit."""
        computations = tuple(
            self.place_computation(c, orders, choices).computation
            for c in range(len(self.module.computations))
        )
        return replace(self.module, computations=computations)

    def place_computation(
        self, computation: int, orders: Mapping[int, MinorToMajor], choices: Choices = NO_CHOICES
    ) -> PlacedComputation:
        """Does the same for one computation."""
        return _Emitter(self.requirements, computation, orders, choices).emit()

    def following(self, leaf: int) -> tuple[_Step, ...]:
        """Returns the steps by which an order propagates from a leaf: first to operands, then to users."""
        steps = self._following.get(leaf)
        if steps is None:
            steps = self._following[leaf] = tuple(self._steps(leaf))
        return steps

    def _seeds(self, opcodes: tuple[Opcode, ...]) -> Iterator[_Seed]:
        for c, computation in enumerate(self.module.computations):
            for p, inst in enumerate(computation.instructions):
                if inst.opcode in opcodes:
                    for leaf in self.classes.leaves(c, p):
                        if self.classes.shapes[leaf].rank > 1:
                            yield _Seed(c, p, inst, leaf)

    def _steps(self, leaf: int) -> Iterator[_Step]:
        classes = self.classes
        c, p = classes.owner[leaf]
        computation = self.module.computations[c]
        inst = computation.instructions[p]
        if inst.opcode not in ALIASES:
            for place, operand in enumerate(inst.operands):
                target = classes.leaf(c, operand)
                if classes.leaves(c, operand) and classes.shapes[target].rank > 1:
                    yield _Step(classes, leaf, target, inst, place, goes_back=True)
        if inst.shape.is_tuple:
            return
        for user in computation.users[p]:
            follower = computation.instructions[user]
            # A custom call that returns () has no leaf that an order could go on to.
            if follower.opcode in ALIASES or not classes.leaves(c, user):
                continue
            target = classes.leaf(c, user)
            if classes.shapes[target].rank > 1:
                place = follower.operands.index(p)
                yield _Step(classes, leaf, target, follower, place, goes_back=False)


class _Step:
    """Propagation from one leaf to another through an instruction; results are cached by order."""

    __slots__ = ("_known", "_own", "_place", "_result", "_rule", "inst", "target_class")

    def __init__(
        self,
        classes: ValueClasses,
        leaf: int,
        target: int,
        inst: Instruction,
        place: int,
        *,
        goes_back: bool,
    ) -> None:
        self.inst = inst
        self.target_class = classes.find(target)
        self._own, self._result = classes.shapes[leaf], classes.shapes[target]
        self._place = place
        self._rule = self._backward if goes_back else self._forward
        self._known: dict[MinorToMajor, MinorToMajor | None] = {}

    def order(self, own: MinorToMajor) -> MinorToMajor | None:
        """Returns the target's order if it follows from the leaf's, else None."""
        if own not in self._known:
            self._known[own] = self._rule(self._own.with_layout(own))
        return self._known[own]

    def _backward(self, own: Shape) -> MinorToMajor | None:
        return backward(self.inst, self._place, self._result, own)

    def _forward(self, own: Shape) -> MinorToMajor | None:
        return forward(self.inst, self._place, own, self._result)


class _Orders:
    """The memory order of every class, filled by propagation from seeds."""

    def __init__(self, assigner: LayoutAssigner, choices: Choices) -> None:
        self._assigner = assigner
        self._classes = assigner.classes
        self._choices = choices
        self.order: dict[int, MinorToMajor] = {}

    def seed(self, leaf: int, order: MinorToMajor) -> None:
        """Gives a leaf's class an order, unless it has one, and propagates it."""
        if self._unset(leaf):
            self.seed_together({leaf: order})

    def seed_together(self, wishes: Mapping[int, MinorToMajor]) -> None:
        """Sets the orders of several leaves before any of them propagates."""
        queue: deque[int] = deque()
        for leaf, order in wishes.items():
            self._set(self._classes.find(leaf), order, queue)
        order_of, following = self.order, self._assigner.following
        while queue:
            root = queue.popleft()
            own = order_of[root]
            for member in self._assigner.members[root]:
                for step in following(member):
                    if step.target_class not in order_of:
                        follows = step.order(own)
                        if follows is not None:
                            self._set(step.target_class, follows, queue)

    def seed_wishes(self, seed: _Seed) -> None:
        """Gives the result of an instruction, and for a reshape its operand, the preferred order."""
        shapes = self._classes.shapes
        operands = [self._classes.leaf(seed.computation, operand) for operand in seed.inst.operands]
        wish = preferred_layout(seed.inst, [shapes[o] for o in operands], shapes[seed.leaf])
        chosen = self._changed(seed)
        if chosen is not None:
            wish = chosen.output
        if wish is None:
            return
        self.seed(seed.leaf, wish)
        if seed.inst.opcode is Opcode.RESHAPE and shapes[operands[0]].rank > 1 and chosen is None:
            self.seed(operands[0], packed_row_major(shapes[operands[0]].dimensions))

    def seed_chosen_operands(self, seed: _Seed) -> None:
        """Gives operands that have no order yet the one that the config chooses for them."""
        chosen = self._changed(seed)
        if chosen is None:
            return
        for operand, order in zip(seed.inst.operands, chosen.operands, strict=True):
            leaf = self._classes.leaf(seed.computation, operand)
            shape = self._classes.shapes[leaf]
            if shape.rank > 1 and fills_lanes(shape, order):
                self.seed(leaf, order)

    def seed_operands(self, seed: _Seed) -> None:
        """Gives operands of a batched dot the order that it prefers, so that loop state is kept in it."""
        if seed.inst.dot is None or not seed.inst.dot.lhs_batch:
            return
        for place, operand in enumerate(seed.inst.operands):
            leaf = self._classes.leaf(seed.computation, operand)
            if self._unset(leaf):
                self.seed(leaf, preferred_dot_operand(seed.inst, place, self._classes.shapes[leaf]))

    def _changed(self, seed: _Seed) -> NodeLayouts | None:
        node = seed.computation, seed.position
        return self._choices.layouts[node] if node in self._choices.changed else None

    def _set(self, root: int, order: MinorToMajor, queue: deque[int]) -> None:
        if root not in self.order:
            self.order[root] = self._choices.pins.get(root, order)
            queue.append(root)

    def _unset(self, leaf: int) -> bool:
        return self._classes.shapes[leaf].rank > 1 and self._classes.find(leaf) not in self.order


# ---- copies ----------------------------------------------------------------------------------------------

REMADE = frozenset({Opcode.CONSTANT, Opcode.IOTA, Opcode.BROADCAST})
Needs = tuple[tuple[MinorToMajor, ...], MinorToMajor]
"""The order each operand must have, and the order in which the result then comes."""


@dataclass(frozen=True)
class PlacedComputation:
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
        known = self._shapes.get((leaf, order))
        if known is None:
            known = self._shapes[leaf, order] = shape.with_layout(order)
        return known

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
    """Rewrites one computation: shapes get layouts, and copies are inserted where an operand comes in another
    order than its user needs. Constants and broadcasts are computed again instead of being copied.
    """

    def __init__(
        self, requirements: Requirements, c: int, orders: Mapping[int, MinorToMajor], choices: Choices
    ) -> None:
        self._requirements = requirements
        self._classes = requirements.classes
        self._computation = self._classes.module.computations[c]
        self._c = c
        self._orders = orders
        self._layouts = choices.layouts
        self._flat: list[Instruction] = []
        self._origins: list[int] = []
        self._moved: list[int] = []
        self._copies: dict[tuple[int, MinorToMajor], int] = {}

    def emit(self) -> PlacedComputation:
        """Returns the computation with layouts and copies."""
        for position, inst in enumerate(self._computation.instructions):
            self._moved.append(self._emit_instruction(position, inst))
        computation = HloComputation(
            self._computation.name, tuple(self._flat), self._moved[self._computation.root]
        )
        return PlacedComputation(computation, tuple(self._origins))

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
        remade = inst.opcode in REMADE and all(self._flat[o].shape.rank < 2 for o in inst.operands)
        if remade:
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
