"""Assigns memory orders under many configs, on arrays: the orders of `LayoutAssigner.orders`, by number.

The rules that say how an order propagates through an instruction stay in `layout.rules`. Each is applied once
to each order that reaches the instruction; a config that gives values other orders then costs table look-ups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from costbench.arrays import I16, I64
from costbench.compiler.layout.assign import SEEDS, LayoutAssigner
from costbench.compiler.layout.rules import fills_lanes, preferred_dot_operand, preferred_layout
from costbench.compiler.layout.space import LayoutSpace
from costbench.compiler.tiled_memory import MinorToMajor, compact_layout, packed_row_major
from costbench.execution.compiled import compiled, compiled_step
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode

NONE = -1
"""Of a class that has no order yet, of a node that is not configurable, of a rule that gives no order."""
_UNKNOWN = -2
_FINISHED = -1
_ALWAYS, _UNCHANGED, _CHANGED = range(3)
"""When a seed acts: always, or as long as its node keeps the default, or only if it does not."""
_NODE, _WHEN, _CLASS, _ORDER, _TENSOR = range(5)
_TENSORS = 4
_FEWEST_ORDERS = 16
_Action = tuple[int, int, int, int, int]


class OrderArrays(NamedTuple):
    """Propagation through a program with k classes of values and m configurable nodes.

    Attributes:
        steps: [k + 1], where the steps from each class begin.
        targets: [s], the class that each step leads to.
        follows: [s, orders], the order that a step gives for the order at its start; NONE or not yet known.
        actions: [a, 5], seeds in turn: node, when it acts, class, order (or NONE to take the chosen one),
            tensor of the node whose chosen order is taken.
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
        at: [4], the next action, the ends of the queue, and the next step of the class at its head.
    """

    order: I64
    pins: I64
    queue: I64
    at: I64


class OrderNames:
    """Memory orders by number."""

    def __init__(self) -> None:
        self.names: list[MinorToMajor] = []
        self._numbers: dict[MinorToMajor, int] = {}

    def number(self, order: MinorToMajor) -> int:
        """Returns the number of an order."""
        found = self._numbers.setdefault(order, len(self.names))
        if found == len(self.names):
            self.names.append(order)
        return found


class OrderTables:
    """Memory orders of one program's values under many configs.

    Args:
        space: layout space of the program.

    Attributes:
        names: orders by number.
        roots: class numbers of `ValueClasses`, by the numbers used here.
        number_of: the reverse.
    """

    def __init__(self, space: LayoutSpace) -> None:
        self._space = space
        assigner = space.assigner
        self.names = OrderNames()
        self.roots = tuple(sorted(assigner.members))
        self.number_of = {root: number for number, root in enumerate(self.roots)}
        steps = [[s for leaf in assigner.members[r] for s in assigner.following(leaf)] for r in self.roots]
        self._steps = [step for own in steps for step in own]
        self._offsets = np.cumsum([0, *map(len, steps)], dtype=np.int64)
        count = len(self.roots)
        no_defaults = np.full(count, NONE, dtype=np.int64)
        order, pins, queue = np.zeros((3, count), dtype=np.int64)
        self._state = _State(order, pins, queue, np.zeros(4, dtype=np.int64))
        first_option, options = self._options()
        self.arrays = OrderArrays(
            self._offsets,
            np.array([self.number_of[step.target_class] for step in self._steps], dtype=np.int64),
            np.full((len(self._steps), _FEWEST_ORDERS), _UNKNOWN, dtype=np.int16),
            np.array(list(_actions(self)), dtype=np.int64).reshape(-1, 5),
            np.full(len(space.nodes), NONE, dtype=np.int64),
            first_option,
            options,
            no_defaults,
            np.array(self._arguments(), dtype=np.int64).reshape(-1, 2),
        )
        default = np.zeros(len(space.nodes), dtype=np.int64)
        # Without node classes nothing is pinned, as in the compiler's own assignment.
        self.arrays = self.arrays._replace(defaults=self.assign(default))
        self.arrays = self.arrays._replace(node_class=self._node_classes())

    @property
    def space(self) -> LayoutSpace:
        """Layout space of the program."""
        return self._space

    def class_of(self, leaf: int) -> int:
        """Returns the class of a leaf, or NONE for scalars and vectors, which have only one order."""
        return self.number_of.get(self._space.assigner.classes.find(leaf), NONE)

    def assign(self, options: I64) -> I64:
        """Returns the order of every class under a config, int64 [k].

        Args:
            options: an option for every configurable node, int64 [m].
        """
        _start(self.arrays, self._state, options)
        while (stopped := _propagate(self.arrays, self._state, options)) != _FINISHED:
            self._learn(stopped)
        return self._state.order.copy()

    def _learn(self, class_number: int) -> None:
        """Applies the rules to all steps from a class in the order that it has."""
        number = int(self._state.order[class_number])
        order = self.names.names[number]
        start, stop = self._offsets[class_number : class_number + 2].tolist()
        found = [step.order(order) for step in self._steps[start:stop]]
        numbers = [NONE if one is None else self.names.number(one) for one in found]
        follows = self.arrays.follows
        if len(self.names.names) > follows.shape[1]:
            wider = np.full((len(follows), 2 * len(self.names.names)), _UNKNOWN, dtype=np.int16)
            wider[:, : follows.shape[1]] = follows
            self.arrays = self.arrays._replace(follows=wider)
        self.arrays.follows[start:stop, number] = numbers

    def _options(self) -> tuple[I64, I64]:
        rows = []
        module = self._space.module
        for node in self._space.nodes:
            inst = module.computations[node.computation].instructions[node.position]
            leaves = [self._space.assigner.classes.leaf(node.computation, o) for o in inst.operands]
            shapes = [self._space.assigner.classes.shapes[leaf] for leaf in leaves]
            for option in node.options:
                row = [NONE] * _TENSORS
                row[0] = self.names.number(option.output)
                for place, (shape, order) in enumerate(zip(shapes, option.operands, strict=True), 1):
                    if shape.rank > 1 and fills_lanes(shape, order):
                        row[place] = self.names.number(order)
                rows.append(row)
        first = np.cumsum([0, *(len(node.options) for node in self._space.nodes)], dtype=np.int64)[:-1]
        return first, np.array(rows, dtype=np.int64).reshape(-1, _TENSORS)

    def _arguments(self) -> list[tuple[int, int]]:
        arguments = self._space.assigner.arguments
        return [(self.class_of(leaf), self.names.number(order)) for leaf, order in arguments.items()]

    def _node_classes(self) -> I64:
        """Returns the class of each node's result; arguments keep their orders."""
        assigner = self._space.assigner
        fixed = {assigner.classes.find(leaf) for leaf in assigner.arguments}
        leaves = [assigner.classes.leaf(node.computation, node.position) for node in self._space.nodes]
        free = [NONE if assigner.classes.find(leaf) in fixed else self.class_of(leaf) for leaf in leaves]
        return np.array(free, dtype=np.int64)


class _Seed(NamedTuple):
    """An array from which orders propagate: its leaf, the instruction that makes it, its operands' leaves,
    and the number of the configurable node that it is, or NONE.
    """

    leaf: int
    inst: Instruction
    operands: tuple[int, ...]
    node: int


def _actions(tables: OrderTables) -> Iterator[_Action]:
    """Yields what `LayoutAssigner.orders` does in turn, once the arguments have their orders."""
    assigner = tables.space.assigner
    shapes = assigner.classes.shapes
    for opcodes in SEEDS:
        seeds = list(_seeds(tables, opcodes))
        for seed in seeds:
            yield from _wishes(tables, seed)
        for seed in seeds:
            for tensor, operand in enumerate(seed.operands, 1):
                if seed.node != NONE and shapes[operand].rank > 1:
                    yield seed.node, _CHANGED, tables.class_of(operand), NONE, tensor
        for seed in seeds:
            if seed.inst.dot is not None and seed.inst.dot.lhs_batch:
                for place, operand in enumerate(seed.operands):
                    if shapes[operand].rank > 1:
                        order = preferred_dot_operand(seed.inst, place, shapes[operand])
                        yield _always(tables, operand, order)
    for leaf, shape in enumerate(shapes):
        if shape.rank > 1:
            yield _always(tables, leaf, compact_layout(shape))


def _wishes(tables: OrderTables, seed: _Seed) -> Iterator[_Action]:
    """Yields what `seed_wishes` does: the preferred order of a result, and of a reshape's operand."""
    shapes = tables.space.assigner.classes.shapes
    own = tables.class_of(seed.leaf)
    when = _ALWAYS if seed.node == NONE else _UNCHANGED
    wish = preferred_layout(seed.inst, [shapes[o] for o in seed.operands], shapes[seed.leaf])
    if wish is not None:
        yield seed.node, when, own, tables.names.number(wish), 0
        if seed.inst.opcode is Opcode.RESHAPE and shapes[seed.operands[0]].rank > 1:
            order = packed_row_major(shapes[seed.operands[0]].dimensions)
            yield seed.node, when, tables.class_of(seed.operands[0]), tables.names.number(order), 0
    if seed.node != NONE:
        yield seed.node, _CHANGED, own, NONE, 0


def _always(tables: OrderTables, leaf: int, order: MinorToMajor) -> _Action:
    return NONE, _ALWAYS, tables.class_of(leaf), tables.names.number(order), 0


def _seeds(tables: OrderTables, opcodes: tuple[Opcode, ...]) -> Iterator[_Seed]:
    assigner: LayoutAssigner = tables.space.assigner
    classes = assigner.classes
    numbers = {(node.computation, node.position): i for i, node in enumerate(tables.space.nodes)}
    for c, computation in enumerate(assigner.module.computations):
        for p, inst in enumerate(computation.instructions):
            if inst.opcode in opcodes:
                operands = tuple(classes.leaf(c, operand) for operand in inst.operands)
                for leaf in classes.leaves(c, p):
                    if classes.shapes[leaf].rank > 1:
                        yield _Seed(leaf, inst, operands, numbers.get((c, p), NONE))


@compiled_step
def _give(s: _State, root: int, order: int) -> None:
    if s.order[root] == NONE:
        s.order[root] = order if s.pins[root] == NONE else s.pins[root]
        s.queue[s.at[2]] = root
        s.at[2] += 1


@compiled
def _start(t: OrderArrays, s: _State, options: I64) -> None:
    """Begins a propagation: pins what the config chooses; the first changed node of a class decides."""
    s.order[:] = NONE
    s.pins[:] = NONE
    s.at[:] = 0
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
        _give(s, t.arguments[i, 0], t.arguments[i, 1])


@compiled
def _propagate(t: OrderArrays, s: _State, options: I64) -> int:
    """Propagates until all classes have orders; returns a class from which it is not known how its order
    propagates, or -1 at the end. Call again to continue.
    """
    while True:
        while s.at[1] < s.at[2]:
            root = s.queue[s.at[1]]
            own = s.order[root]
            for step in range(max(s.at[3], t.steps[root]), t.steps[root + 1]):
                target = t.targets[step]
                if s.order[target] != NONE:
                    continue
                order = t.follows[step, own] if own < t.follows.shape[1] else _UNKNOWN
                if order == _UNKNOWN:
                    s.at[3] = step
                    return int(root)
                if order != NONE:
                    _give(s, target, order)
            s.at[1] += 1
            s.at[3] = 0
        if s.at[0] == len(t.actions):
            return _FINISHED
        action = t.actions[s.at[0]]
        s.at[0] += 1
        node, order = action[_NODE], action[_ORDER]
        if action[_WHEN] != _ALWAYS and (action[_WHEN] == _CHANGED) != (options[node] != 0):
            continue
        if action[_WHEN] == _CHANGED:
            order = t.options[t.first_option[node] + options[node], action[_TENSOR]]
        if order != NONE:
            _give(s, action[_CLASS], order)
