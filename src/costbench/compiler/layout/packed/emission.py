"""Writes a computation with its memory orders as arrays: the instructions of `layout.copies`, in its order.

Each instruction is a row of `FactTable`, found by a hash of the orders that it depends on. Two different sets
of orders of n share a hash with probability about n^2 / 2^65, as with kernels (`identity.hashes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, U64, Bool
from costbench.compiler.fusion.cuts import UNKNOWN, HashNumbers
from costbench.compiler.fusion.rules import Kind, kind_of
from costbench.compiler.kernel_arrays import lists_to_arrays
from costbench.compiler.layout.choices import Node, NodeLayouts
from costbench.compiler.layout.copies import REMADE
from costbench.compiler.layout.packed.facts import ASSIGNED, NATURAL, NEEDS, FactTable, Placed
from costbench.compiler.layout.packed.orders import NONE, OrderTables
from costbench.compiler.layout.value_classes import ALIASES
from costbench.execution.compiled import compiled, compiled_step
from costbench.hashing import GOLDEN_GAMMA, SECOND_MULTIPLIER, mix
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape

ArrayNumbers = dict[tuple[ElementType, tuple[int, ...]], int]
_COPIED, _REMADE_KEY = SECOND_MULTIPLIER, GOLDEN_GAMMA


class BodyTables(NamedTuple):
    """One computation of n instructions, before orders are assigned.

    Attributes:
        operands_offsets: [n + 1], where the operands of each instruction begin.
        operands: positions.
        classes_offsets: [n + 1], where the classes begin whose orders an instruction depends on.
        classes: numbers of classes.
        node: [n], number of the configurable node, or NONE.
        keys: [n], hashes that tell instructions apart.
        array: [n], number of an array's element type and sizes.
        remade: bool [n], whether it is computed again in place of a copy.
        root: position of the root.
    """

    operands_offsets: I64
    operands: I64
    classes_offsets: I64
    classes: I64
    node: I64
    keys: U64
    array: I64
    remade: Bool
    root: int


class Emitted(NamedTuple):
    """A computation of n instructions with its copies, m together.

    Attributes:
        row: [m], row of each in the fact table; unknown for copies.
        origin: [m], position that an instruction had before, or that of the value of which it is a copy.
        order: [m], order of the result, or NONE.
        source_order: [m], order that was copied; NONE for what is no copy.
        keys: [m], hashes of the copies.
        operands_offsets: [m + 1], where the operands of each begin.
        operands: positions.
        root: position of the root.
    """

    row: I64
    origin: I64
    order: I64
    source_order: I64
    keys: U64
    operands_offsets: I64
    operands: I64
    root: int


class Emission:
    """Lays out one computation of a program under many configs.

    Args:
        tables: orders of the program.
        facts: rows of the program's instructions.
        computation: position of the computation.
        arrays: numbers of the element types and sizes met so far; shared by the program's computations.

    Attributes:
        computation: position of the computation.
        body: its tables.
    """

    def __init__(
        self,
        tables: OrderTables,
        facts: FactTable,
        computation: int,
        arrays: ArrayNumbers,
    ) -> None:
        self._tables, self._facts = tables, facts
        self.computation = computation
        self._body = tables.space.module.computations[computation].instructions
        self._numbers: dict[Node, int] = {
            (node.computation, node.position): number for number, node in enumerate(tables.space.nodes)
        }
        self._rows, self._copies = HashNumbers(), HashNumbers()
        self._alike = self._numbered_alike()
        self._row_of: dict[tuple[int, tuple[int, ...], NodeLayouts | None], int] = {}
        self.body = self._tabulated(arrays)

    def row_keys(self, order: I64, options: I64) -> U64:
        """Returns for each instruction a hash of the orders and the option that it depends on, [n].

        Args:
            order: order of every class of the program, [k].
            options: the config, [m].
        """
        return _row_keys(self.body, order, options)

    def key(self, keys: U64) -> int:
        """Returns a hash of all orders that the computation depends on, given its `row_keys`."""
        return int(_sum(keys))

    def emit(self, order: I64, options: I64, keys: U64) -> Emitted:
        """Returns the computation with layouts and copies.

        Args:
            order: order of every class of the program, [k].
            options: the config, [m].
            keys: its `row_keys`.
        """
        rows = self._rows.find(keys)
        new = np.flatnonzero(rows == UNKNOWN)
        if len(new):
            rows[new] = [self._row(p, order, options) for p in new.tolist()]
            self._rows.add(keys[new], rows[new])
        found = _emit(self.body, rows, self._facts.rows, self._facts.needs)
        copies = np.flatnonzero(found.row == UNKNOWN)
        if len(copies):
            self._find_copies(found, copies)
        return found

    def _row(self, position: int, order: I64, options: I64) -> int:
        """Returns the row of an instruction with the orders of its values; equal instructions share rows."""
        first, stop = self.body.classes_offsets[position : position + 2].tolist()
        orders = tuple(order[self.body.classes[first:stop]].tolist())
        key = self._alike[position], orders, self._chosen(position, options)
        row = self._row_of.get(key)
        if row is None:
            row = self._row_of[key] = self._facts.add(self._placed(position, order, options))
        return row

    def _numbered_alike(self) -> list[int]:
        """Returns a number for each instruction, the same for instructions that rules cannot tell apart.

        Programs repeat their layers, so there are fewer numbers than instructions.
        """
        numbers: dict[tuple[bytes, tuple[Shape, ...], Kind | None], int] = {}
        found = []
        for inst in self._body:
            read = [self._body[operand] for operand in inst.operands]
            kind = kind_of(read[0]) if read else None
            key = self._facts.label(inst), tuple(operand.shape for operand in read), kind
            found.append(numbers.setdefault(key, len(numbers)))
        return found

    def _find_copies(self, found: Emitted, copies: I64) -> None:
        """Fills in the rows of copies."""
        rows = self._copies.find(found.keys[copies])
        new, first = np.unique(found.keys[copies[rows == UNKNOWN]], return_index=True)
        if len(new):
            places = copies[rows == UNKNOWN][first]
            added = [self._facts.add(self._copy(found, place)) for place in places.tolist()]
            self._copies.add(new, np.array(added, dtype=np.int64))
            rows = self._copies.find(found.keys[copies])
        found.row[copies] = rows

    def _tabulated(self, arrays: ArrayNumbers) -> BodyTables:
        count = len(self._body)
        base = self._tables.space.module.offsets[self.computation]
        classes = [self._depends_on(p) for p in range(count)]
        ranks = [[self._body[o].shape.rank for o in inst.operands] for inst in self._body]
        return BodyTables(
            *lists_to_arrays([inst.operands for inst in self._body]),
            *lists_to_arrays(classes),
            np.array([self._numbers.get((self.computation, p), NONE) for p in range(count)], dtype=np.int64),
            mix(np.arange(base, base + count).astype(np.uint64)),
            np.array(
                [
                    arrays.setdefault((i.shape.element_type, i.shape.dimensions), len(arrays))
                    for i in self._body
                ],
                dtype=np.int64,
            ),
            np.array(
                [
                    i.opcode in REMADE and max(r, default=0) < 2
                    for i, r in zip(self._body, ranks, strict=True)
                ],
                dtype=bool,
            ),
            self._tables.space.module.computations[self.computation].root,
        )

    def _depends_on(self, position: int) -> list[int]:
        """Returns the classes of an instruction's result, then of its operands that are arrays."""
        leaves = list(self._tables.space.assigner.classes.leaves(self.computation, position))
        for operand in self._body[position].operands:
            if not self._body[operand].shape.is_tuple:
                leaves.append(self._tables.space.assigner.classes.leaf(self.computation, operand))
        found = map(self._tables.class_of, leaves)
        return [number for number in found if number != NONE]

    def _placed(self, position: int, order: I64, options: I64) -> Placed:
        """Returns an instruction with the orders of its values, as `layout.copies` places it."""
        inst, tables = self._body[position], self._tables
        names, requirements = tables.names, tables.space.assigner.requirements
        first, stop = self.body.classes_offsets[position : position + 2].tolist()
        classes = self.body.classes[first:stop].tolist()
        orders = {tables.roots[k]: names.names[order[k]] for k in classes}
        leaves = tables.space.assigner.classes.leaves(self.computation, position)
        shape = _ordered(inst.shape, iter([requirements.shape(leaf, orders) for leaf in leaves]))
        assigned = NONE if shape.is_tuple or shape.rank < 2 else names.number(shape.layout)
        natural, needs = assigned, [NONE] * len(inst.operands)
        operands = [self._body[o].shape for o in inst.operands]
        if inst.opcode not in ALIASES and inst.operands:
            wanted, own = requirements.of(
                (self.computation, position), orders, self._chosen(position, options)
            )
            for place, (operand, wish) in enumerate(zip(operands, wanted, strict=True)):
                if not operand.is_tuple and operand.rank > 1:
                    needs[place] = names.number(wish)
                if not operand.is_tuple:
                    operands[place] = operand.with_layout(wish)
            if not shape.is_tuple and shape.layout != own:
                shape, natural = shape.with_layout(own), names.number(own)
        carried = inst.opcode is Opcode.GET_TUPLE_ELEMENT
        carried = carried and kind_of(self._body[inst.operands[0]]) is not Kind.CONTROL
        read = operands[0] if operands else None
        return Placed(inst.rewire(shape, inst.operands, ()), read, carried, needs, natural, assigned)

    def _chosen(self, position: int, options: I64) -> NodeLayouts | None:
        number = self._numbers.get((self.computation, position))
        return None if number is None else self._tables.space.nodes[number].options[options[number]]

    def _copy(self, found: Emitted, place: int) -> Placed:
        """Returns a copy, or what is computed again in its place."""
        names = self._tables.names.names
        origin, order = int(found.origin[place]), int(found.order[place])
        inst = self._body[origin]
        shape = inst.shape.with_layout(names[order])
        if self.body.remade[origin]:
            first = self._body[inst.operands[0]].shape if inst.operands else None
            needs = [NONE] * len(inst.operands)
            return Placed(inst.rewire(shape, inst.operands, ()), first, False, needs, order, order)
        source = inst.shape.with_layout(names[int(found.source_order[place])])
        copy = Instruction(name="copy", opcode=Opcode.COPY, shape=shape, operands=(0,))
        return Placed(copy, source, False, [order], order, order)


def _ordered(shape: Shape, leaves: Iterator[Shape]) -> Shape:
    """Returns a (nested) tuple with these leaves, or the only leaf of an array."""
    if not shape.is_tuple:
        return next(leaves)
    return replace(shape, tuple_shapes=tuple(_ordered(member, leaves) for member in shape.tuple_shapes))


@compiled
def _row_keys(b: BodyTables, order: I64, options: I64) -> U64:
    """Returns for each instruction a hash of the orders and the option that it depends on, [n]."""
    result = np.empty(len(b.keys), dtype=np.uint64)
    for p in range(len(b.keys)):
        value = b.keys[p]
        for i in range(b.classes_offsets[p], b.classes_offsets[p + 1]):
            value = mix(value ^ np.uint64(order[b.classes[i]] + 1))
        if b.node[p] != NONE:
            value = mix(value ^ np.uint64(options[b.node[p]] + 1))
        result[p] = value
    return result


@compiled
def _sum(keys: U64) -> np.uint64:
    total = np.uint64(0)
    for key in keys:
        total += mix(key)
    return total


class _Writing(NamedTuple):
    """Instructions written so far.

    Attributes:
        made: what is written.
        copies: [m, 2], of each value the latest copy, of each copy the one of the same value before it; -1.
        ends: [2], number of instructions and of operands.
        one: [1], buffer for the operand of a copy.
    """

    made: Emitted
    copies: I64
    ends: I64
    one: I64


@compiled_step
def _append(w: _Writing, operands: I64, first: int, stop: int) -> int:
    """Appends an instruction that reads `operands[first:stop]`; returns its position."""
    own, end = w.ends[0], w.ends[1]
    for i in range(first, stop):
        w.made.operands[end] = operands[i]
        end += 1
    w.made.operands_offsets[own + 1] = end
    w.ends[0], w.ends[1] = own + 1, end
    return int(own)


@compiled_step
def _in_order(b: BodyTables, w: _Writing, value: int, order: int) -> int:
    """Returns the value in a memory order: itself if it has it, else a repeated broadcast or a copy."""
    made = w.made
    if order == NONE or made.order[value] == order:
        return value
    copy = w.copies[value, 0]
    while copy >= 0:
        if made.order[copy] == order:
            return int(copy)
        copy = w.copies[copy, 1]
    origin = made.origin[value]
    if b.remade[origin]:
        first, stop = made.operands_offsets[value], made.operands_offsets[value + 1]
        copy = _append(w, made.operands, first, stop)
        key = b.keys[origin] ^ _REMADE_KEY
    else:
        w.one[0] = value
        copy = _append(w, w.one, 0, 1)
        key = mix(mix(np.uint64(b.array[origin]) ^ _COPIED) ^ np.uint64(made.order[value] + 1))
    made.origin[copy], made.order[copy] = origin, order
    made.source_order[copy] = made.order[value]
    made.keys[copy] = mix(key ^ np.uint64(order + 1))
    w.copies[copy, 1] = w.copies[value, 0]
    w.copies[value, 0] = copy
    return int(copy)


@compiled
def _emit(b: BodyTables, rows: I64, facts: I64, needs: I64) -> Emitted:
    count, reads = len(rows), len(b.operands)
    size = 2 * count + reads
    made = Emitted(
        np.full(size, -1, dtype=np.int64), np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64),
        np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.uint64),
        np.zeros(size + 1, dtype=np.int64), np.empty(size + reads, dtype=np.int64), 0,
    )  # fmt: skip
    ends, one = np.zeros(2, dtype=np.int64), np.zeros(1, dtype=np.int64)
    w = _Writing(made, np.full((size, 2), -1, dtype=np.int64), ends, one)
    place = np.empty(count, dtype=np.int64)
    taken = np.empty(reads, dtype=np.int64)
    for p in range(count):
        first, stop, row = b.operands_offsets[p], b.operands_offsets[p + 1], rows[p]
        for i in range(first, stop):
            need = needs[facts[row, NEEDS] + i - first]
            taken[i] = _in_order(b, w, place[b.operands[i]], need)
        own = _append(w, taken, first, stop)
        made.row[own], made.origin[own], made.order[own] = row, p, facts[row, NATURAL]
        place[p] = _in_order(b, w, own, facts[row, ASSIGNED])
    m, stop = w.ends[0], w.ends[1]
    return Emitted(
        made.row[:m].copy(), made.origin[:m].copy(), made.order[:m].copy(), made.source_order[:m].copy(),
        made.keys[:m].copy(), made.operands_offsets[: m + 1].copy(), made.operands[:stop].copy(),
        place[b.root],
    )  # fmt: skip
