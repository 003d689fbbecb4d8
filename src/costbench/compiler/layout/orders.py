"""Memory orders of all values of a program, by default and under layout configs, modelled on a TPU compiler.

Arguments of the program come in their compact order, convolutions and dots prefer certain orders, and orders
propagate from there through every instruction that keeps them, forwards and backwards. Values that one buffer
holds (loop state, tuple members) have one order. The program's results stay in the order they are computed
in.

Orders propagate breadth-first from one seed after another: arguments, then convolutions, then dots and the
operands of batched ones, then instructions that read by index, then reshapes that have to move data (in
row-major order, as the recorded ones do), then all remaining values, in program order. Nothing else has an
influence, so equal programs get equal orders.

Under a layout config a class of values that a configurable node computes is pinned: it gets the chosen order
when the propagation reaches it, and that propagates from there. If all pins are the default's own orders, the
result is the same as without. Where several nodes compute one class (loop state), the first one that is
changed decides. The program's arguments keep their orders.

The rules that say how an order propagates through an instruction are in `layout.rules`. Each is applied once
to each order that reaches the instruction; a config that gives values other orders then costs table look-ups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from costbench.arrays import I16, I64
from costbench.compiler.layout.rules import (
    ConfigurableNode,
    Node,
    backward,
    fills_lanes,
    forward,
    preferred_dot_operand,
    preferred_layout,
)
from costbench.compiler.layout.value_classes import ALIASES, ValueClasses
from costbench.compiler.tiled_memory import MinorToMajor, compact_layout, packed_row_major
from costbench.execution.compiled import compiled, compiled_step
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode

SEEDS = (
    (Opcode.CONVOLUTION,),
    (Opcode.DOT,),
    (Opcode.GATHER, Opcode.SCATTER, Opcode.CUSTOM_CALL, Opcode.RNG_BIT_GENERATOR, Opcode.SORT),
    (Opcode.RESHAPE,),
)

NONE = -1
"""In place of the order of a class that has none yet, of a configurable node, of the order a rule gives."""
_UNKNOWN = -2
_FINISHED = -1
_NEXT_ACTION, _HEAD, _TAIL, _NEXT_STEP = range(4)
"""Entries of `_State.cursor`."""
_ALWAYS, _UNCHANGED, _CHANGED = range(3)
"""When a seed acts: always, or as long as its node keeps the default, or only if it does not."""
_NODE, _WHEN, _CLASS, _ORDER, _TENSOR = range(5)
"""Columns of `OrderArrays.actions`: the fields of `_Action`."""
_TENSORS = 4
_MIN_ORDERS = 16


class _Action(NamedTuple):
    """A class that gets an order, unless it has one.

    Attributes:
        node: configurable node that decides, or NONE.
        when: when it acts.
        class_number: the class.
        order: number of the order, or NONE to take the one that the config chooses.
        tensor: tensor of the node whose chosen order is taken: 0 for the result, then operands.
    """

    node: int
    when: int
    class_number: int
    order: int
    tensor: int = 0


class OrderArrays(NamedTuple):
    """Propagation through a program with k classes of values and m configurable nodes.

    Attributes:
        steps: [k + 1], where the steps from each class begin.
        targets: [s], the class that each step leads to.
        follows: [s, orders], the order that a step gives for the order at its start; NONE or not yet known.
        actions: [a, 5], what gets orders in turn, see `_Action`.
        node_class: [m], class of each node's result, or NONE where no choice can change it.
        first_option: [m], row of each node's first option in `options`.
        options: [o, 4], orders of an option: output, operands; NONE where it has no effect.
        defaults: [k], the compiler's default orders.
        arguments: [g, 2], classes of the program's arguments, and their orders.
    """

    steps: I64
    targets: I64
    follows: I16
    actions: I64
    node_class: I64
    first_option: I64
    options: I64
    defaults: I64
    arguments: I64


class _State(NamedTuple):
    """A propagation that may be interrupted.

    Attributes:
        order: [k], orders found so far.
        pins: [k], orders that the config requires.
        queue: [k], classes in the order in which they got theirs.
        cursor: [4], the next action, head and tail of the queue, and the next step of the class at its head.
    """

    order: I64
    pins: I64
    queue: I64
    cursor: I64


class OrderNames:
    """Memory orders by number."""

    def __init__(self) -> None:
        self.names: list[MinorToMajor] = []
        self._numbers: dict[MinorToMajor, int] = {}

    def number(self, order: MinorToMajor) -> int:
        """Returns the number of an order."""
        number = self._numbers.setdefault(order, len(self.names))
        if number == len(self.names):
            self.names.append(order)
        return number


class _Step:
    """Propagation from one leaf to another through an instruction."""

    __slots__ = ("_forwards", "_inst", "_operand", "_source", "_target", "target_class")

    def __init__(
        self,
        classes: ValueClasses,
        source: int,
        target: int,
        inst: Instruction,
        operand: int,
        *,
        forwards: bool,
    ) -> None:
        self.target_class = classes.find(target)
        self._inst, self._operand, self._forwards = inst, operand, forwards
        self._source, self._target = classes.shapes[source], classes.shapes[target]

    def order(self, source_order: MinorToMajor) -> MinorToMajor | None:
        """Returns the target's order if it follows from the source's, else None."""
        source = self._source.with_layout(source_order)
        if self._forwards:
            return forward(self._inst, self._operand, source, self._target)
        return backward(self._inst, self._operand, self._target, source)


def propagation_steps(classes: ValueClasses, leaf: int) -> Iterator[_Step]:
    """Yields the steps by which an order propagates from a leaf: first to operands, then to users."""
    c, p = classes.owner[leaf]
    computation = classes.module.computations[c]
    inst = computation.instructions[p]
    if inst.opcode not in ALIASES:
        for number, operand in enumerate(inst.operands):
            target = classes.leaf(c, operand)
            if classes.leaves(c, operand) and classes.shapes[target].rank > 1:
                yield _Step(classes, leaf, target, inst, number, forwards=False)
    if inst.shape.is_tuple:
        return
    for user in computation.users[p]:
        follower = computation.instructions[user]
        # A custom call that returns () has no leaf that an order could go on to.
        if follower.opcode in ALIASES or not classes.leaves(c, user):
            continue
        target = classes.leaf(c, user)
        if classes.shapes[target].rank > 1:
            yield _Step(classes, leaf, target, follower, follower.operands.index(p), forwards=True)


class OrderTables:
    """Memory orders of one program's values under many configs.

    Args:
        classes: classes of the program's values.
        nodes: configurable nodes of the program; without any there is one config, the default.

    Attributes:
        classes: classes of the program's values.
        nodes: configurable nodes of the program.
        names: orders by number.
        roots: class numbers of `ValueClasses`, by the numbers used here.
        default: the compiler's default order of every class, [k].
    """

    def __init__(self, classes: ValueClasses, nodes: Sequence[ConfigurableNode] = ()) -> None:
        self.classes, self.nodes = classes, nodes
        self.names = OrderNames()
        members = classes.members()
        self.roots = tuple(sorted(members))
        self._number_of = {root: number for number, root in enumerate(self.roots)}
        self.node_numbers: dict[Node, int] = {(n.computation, n.position): i for i, n in enumerate(nodes)}
        steps = [
            [step for leaf in members[root] for step in propagation_steps(classes, leaf)]
            for root in self.roots
        ]
        self._steps = [step for steps_of_class in steps for step in steps_of_class]
        self._offsets = np.cumsum([0, *map(len, steps)], dtype=np.int64)
        count = len(self.roots)
        order, pins, queue = np.zeros((3, count), dtype=np.int64)
        self._state = _State(order, pins, queue, np.zeros(4, dtype=np.int64))
        first_option, options = self._options()
        arguments = [
            (self.class_of(leaf), self.names.number(compact_layout(classes.shapes[leaf])))
            for leaf in self._argument_leaves()
        ]
        self._arrays = OrderArrays(
            steps=self._offsets,
            targets=np.array([self._number_of[step.target_class] for step in self._steps], dtype=np.int64),
            follows=np.full((len(self._steps), _MIN_ORDERS), _UNKNOWN, dtype=np.int16),
            actions=np.array(list(_actions(self)), dtype=np.int64).reshape(-1, 5),
            node_class=np.full(len(nodes), NONE, dtype=np.int64),
            first_option=first_option,
            options=options,
            defaults=np.full(count, NONE, dtype=np.int64),
            arguments=np.array(arguments, dtype=np.int64).reshape(-1, 2),
        )
        # Without node classes nothing is pinned, as in the compiler's own assignment.
        self.default = self.assign(np.zeros(len(nodes), dtype=np.int64))
        self._arrays = self._arrays._replace(defaults=self.default, node_class=self._node_classes())

    def class_of(self, leaf: int) -> int:
        """Returns the class of a leaf, or NONE for scalars and vectors, which have only one order."""
        return self._number_of.get(self.classes.find(leaf), NONE)

    def by_class(self, order: I64) -> dict[int, MinorToMajor]:
        """Returns the orders [k] of all classes, by their number in `ValueClasses`."""
        return {
            root: self.names.names[number] for root, number in zip(self.roots, order.tolist(), strict=True)
        }

    def assign(self, options: I64) -> I64:
        """Returns the order of every class under a config, int64 [k].

        Args:
            options: an option for every configurable node, int64 [m].
        """
        _start(self._arrays, self._state, options)
        while (stopped := _propagate(self._arrays, self._state, options)) != _FINISHED:
            self._apply_rules(stopped)
        return self._state.order.copy()

    def _apply_rules(self, class_number: int) -> None:
        """Applies the rules to all steps from a class in the order that it has."""
        number = int(self._state.order[class_number])
        order = self.names.names[number]
        start, stop = self._offsets[class_number : class_number + 2].tolist()
        orders = [step.order(order) for step in self._steps[start:stop]]
        numbers = [NONE if following is None else self.names.number(following) for following in orders]
        follows = self._arrays.follows
        if len(self.names.names) > follows.shape[1]:
            wider = np.full((len(follows), 2 * len(self.names.names)), _UNKNOWN, dtype=np.int16)
            wider[:, : follows.shape[1]] = follows
            self._arrays = self._arrays._replace(follows=wider)
        self._arrays.follows[start:stop, number] = numbers

    def _options(self) -> tuple[I64, I64]:
        """Returns `OrderArrays.first_option` and `options`."""
        rows = []
        for node in self.nodes:
            inst = self.classes.module.computations[node.computation].instructions[node.position]
            shapes = [self.classes.shapes[self.classes.leaf(node.computation, o)] for o in inst.operands]
            for option in node.options:
                row = [NONE] * _TENSORS
                row[0] = self.names.number(option.output)
                for tensor, (shape, order) in enumerate(zip(shapes, option.operands, strict=True), 1):
                    if shape.rank > 1 and fills_lanes(shape, order):
                        row[tensor] = self.names.number(order)
                rows.append(row)
        first = np.cumsum([0, *(len(node.options) for node in self.nodes)], dtype=np.int64)[:-1]
        return first, np.array(rows, dtype=np.int64).reshape(-1, _TENSORS)

    def _argument_leaves(self) -> list[int]:
        """Returns the leaves of the program's arguments that have several orders."""
        entry = self.classes.module.entry
        leaves = [
            leaf
            for position in self.classes.module.entry_computation.parameters
            for leaf in self.classes.leaves(entry, position)
        ]
        return [leaf for leaf in leaves if self.classes.shapes[leaf].rank > 1]

    def _node_classes(self) -> I64:
        """Returns the class of each node's result; arguments keep their orders."""
        fixed = {self.classes.find(leaf) for leaf in self._argument_leaves()}
        leaves = [self.classes.leaf(node.computation, node.position) for node in self.nodes]
        classes = [NONE if self.classes.find(leaf) in fixed else self.class_of(leaf) for leaf in leaves]
        return np.array(classes, dtype=np.int64)


class _Seed(NamedTuple):
    """An array from which orders propagate.

    Its leaf, the instruction that makes it, its operands' leaves, and the number of the configurable node
    that it is, or NONE.
    """

    leaf: int
    inst: Instruction
    operands: tuple[int, ...]
    node: int


def _actions(tables: OrderTables) -> Iterator[_Action]:
    """Yields what gets orders in turn, once the arguments have theirs."""
    shapes = tables.classes.shapes
    for opcodes in SEEDS:
        seeds = list(_seeds(tables, opcodes))
        for seed in seeds:
            yield from _preferences(tables, seed)
        # Operands that have no order yet get the one that the config chooses for them.
        for seed in seeds:
            for tensor, operand in enumerate(seed.operands, 1):
                if seed.node != NONE and shapes[operand].rank > 1:
                    yield _Action(seed.node, _CHANGED, tables.class_of(operand), NONE, tensor)
        # Operands of a batched dot get the order that it prefers, so that loop state is kept in it.
        for seed in seeds:
            if seed.inst.dot is not None and seed.inst.dot.lhs_batch:
                for number, operand in enumerate(seed.operands):
                    if shapes[operand].rank > 1:
                        order = preferred_dot_operand(seed.inst, number, shapes[operand])
                        yield _always(tables, operand, order)
    for leaf, shape in enumerate(shapes):
        if shape.rank > 1:
            yield _always(tables, leaf, compact_layout(shape))


def _preferences(tables: OrderTables, seed: _Seed) -> Iterator[_Action]:
    """Yields the preferred order of a result, and of a reshape's operand; or the chosen one."""
    shapes = tables.classes.shapes
    result_class = tables.class_of(seed.leaf)
    when = _ALWAYS if seed.node == NONE else _UNCHANGED
    preferred = preferred_layout(seed.inst, [shapes[o] for o in seed.operands], shapes[seed.leaf])
    if preferred is not None:
        yield _Action(seed.node, when, result_class, tables.names.number(preferred))
        if seed.inst.opcode is Opcode.RESHAPE and shapes[seed.operands[0]].rank > 1:
            order = packed_row_major(shapes[seed.operands[0]].dimensions)
            yield _Action(seed.node, when, tables.class_of(seed.operands[0]), tables.names.number(order))
    if seed.node != NONE:
        yield _Action(seed.node, _CHANGED, result_class, NONE)


def _always(tables: OrderTables, leaf: int, order: MinorToMajor) -> _Action:
    return _Action(NONE, _ALWAYS, tables.class_of(leaf), tables.names.number(order))


def _seeds(tables: OrderTables, opcodes: tuple[Opcode, ...]) -> Iterator[_Seed]:
    classes = tables.classes
    for c, computation in enumerate(classes.module.computations):
        for p, inst in enumerate(computation.instructions):
            if inst.opcode in opcodes:
                operands = tuple(classes.leaf(c, operand) for operand in inst.operands)
                for leaf in classes.leaves(c, p):
                    if classes.shapes[leaf].rank > 1:
                        yield _Seed(leaf, inst, operands, tables.node_numbers.get((c, p), NONE))


@compiled_step
def _set_order(s: _State, root: int, order: int) -> None:
    """Gives a class an order, or the pinned one, and puts it into the queue, unless it has one."""
    if s.order[root] == NONE:
        s.order[root] = order if s.pins[root] == NONE else s.pins[root]
        s.queue[s.cursor[_TAIL]] = root
        s.cursor[_TAIL] += 1


@compiled
def _start(t: OrderArrays, s: _State, options: I64) -> None:
    """Begins a propagation: pins what the config chooses; the first changed node of a class decides."""
    s.order[:] = NONE
    s.pins[:] = NONE
    s.cursor[:] = 0
    for node in range(len(options)):
        root = t.node_class[node]
        if root == NONE:
            continue
        default = t.defaults[root]
        if options[node] == 0:
            if s.pins[root] == NONE:
                s.pins[root] = default
        elif s.pins[root] == NONE or s.pins[root] == default:
            s.pins[root] = t.options[t.first_option[node] + options[node], 0]
    # All arguments get their orders before any of them propagates.
    for i in range(len(t.arguments)):
        _set_order(s, t.arguments[i, 0], t.arguments[i, 1])


@compiled
def _propagate(t: OrderArrays, s: _State, options: I64) -> int:
    """Propagates until all classes have orders.

    Returns a class from which it is not known how its order propagates, or -1 at the end. Call again to
    continue.
    """
    while True:
        while s.cursor[_HEAD] < s.cursor[_TAIL]:
            root = s.queue[s.cursor[_HEAD]]
            order = s.order[root]
            for step in range(max(s.cursor[_NEXT_STEP], t.steps[root]), t.steps[root + 1]):
                target = t.targets[step]
                if s.order[target] != NONE:
                    continue
                following = t.follows[step, order] if order < t.follows.shape[1] else _UNKNOWN
                if following == _UNKNOWN:
                    s.cursor[_NEXT_STEP] = step
                    return int(root)
                if following != NONE:
                    _set_order(s, target, following)
            s.cursor[_HEAD] += 1
            s.cursor[_NEXT_STEP] = 0
        if s.cursor[_NEXT_ACTION] == len(t.actions):
            return _FINISHED
        action = t.actions[s.cursor[_NEXT_ACTION]]
        s.cursor[_NEXT_ACTION] += 1
        node, seed_order = action[_NODE], action[_ORDER]
        if action[_WHEN] != _ALWAYS and (action[_WHEN] == _CHANGED) != (options[node] != 0):
            continue
        if action[_WHEN] == _CHANGED:
            seed_order = t.options[t.first_option[node] + options[node], action[_TENSOR]]
        if seed_order != NONE:
            _set_order(s, action[_CLASS], seed_order)
