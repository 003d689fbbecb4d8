"""Writes a computation with its memory orders as arrays: the instructions of `layout.assign`, in its order.

An instruction meets few combinations of orders, so each is worked out once, by the rules that a full compile
uses, and stored as a row of numbers (`FactTable`). A laid-out computation then is a list of rows, each found
by a hash of the orders that it depends on. Two different sets of orders of n share a hash with probability
about n^2 / 2^65, as with kernels (`kernel_hashes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from costbench.arrays import I64, U64, Bool
from costbench.compiler.fingerprints import ModuleFingerprints, input_label, instruction_label
from costbench.compiler.fusion.facts import NUM_FACTS, InstructionFacts, is_kernel_result
from costbench.compiler.fusion.rules import Kind, kind_of
from costbench.compiler.kernel_arrays import lists_to_arrays
from costbench.compiler.kernel_hashes import UNKNOWN, HashNumbers
from costbench.compiler.layout.assign import REMADE, Requirements, with_leaves
from costbench.compiler.layout.orders import NONE, OrderTables
from costbench.compiler.layout.rules import NodeLayouts
from costbench.compiler.layout.value_classes import ALIASES
from costbench.execution.compiled import compiled, compiled_step
from costbench.hashing import GOLDEN_GAMMA, SECOND_MULTIPLIER, mix
from costbench.hlo.instruction import Instruction
from costbench.hlo.memo import Memo
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape

ArrayNumbers = dict[tuple[ElementType, tuple[int, ...]], int]
Number = TypeVar("Number", np.int64, np.uint64)

NATURAL, ASSIGNED, NEEDS = range(NUM_FACTS, NUM_FACTS + 3)
"""Columns of a row of `FactTable` after those of `fusion.facts`: order in which an instruction makes its
result and order that the result is to have, where the orders that it needs its operands in begin. Orders are
-1 where there is only one."""
_MIN_ROWS = 1024
_COPIED, _REMADE_KEY = SECOND_MULTIPLIER, GOLDEN_GAMMA


@dataclass(frozen=True, eq=False)
class LaidOutInstruction:
    """An instruction with memory orders.

    Attributes:
        inst: instruction with the order in which it makes its result; its operands are those of the program.
        operand: shape of its first operand as it reads it, if it has one.
        is_member: whether it takes one of several results of an instruction that becomes a kernel.
        needs: numbers of the orders that it needs its operands in.
        natural: number of the order in which it makes its result.
        assigned: number of the order that its result is to have.
    """

    inst: Instruction
    operand: Shape | None
    is_member: bool
    needs: Sequence[int]
    natural: int
    assigned: int


class FactTable:
    """Rows of facts about the instructions of one program, numbered as they are added.

    Args:
        module: the program.

    Attributes:
        instruction_facts: facts that fusion needs, and the ports that they name.
        rows: int64 [r, 10], facts by column.
        needs: orders of operands, rows end to end.
        labels: uint64 [r, 2], hashes of the label of an instruction and of its shape alone.
        instructions: the instruction of each row.
        label_bytes: the label of each row.
        input_digests: digest of the label that each row has as an input, 16 bytes.
    """

    def __init__(self, module: HloModule) -> None:
        fingerprints = ModuleFingerprints(module)
        self._called: Memo[int, bytes] = Memo(fingerprints.called)
        self.instruction_facts = InstructionFacts()
        self.rows: I64 = np.zeros((_MIN_ROWS, NEEDS + 1), dtype=np.int64)
        self.labels: U64 = np.zeros((_MIN_ROWS, 2), dtype=np.uint64)
        self.needs: I64 = np.full(_MIN_ROWS, -1, dtype=np.int64)
        self._num_needs = 0
        self.instructions: list[Instruction] = []
        self.label_bytes: list[bytes] = []
        self.input_digests: list[bytes] = []

    def add(self, laid_out: LaidOutInstruction) -> int:
        """Adds a row and returns its number."""
        inst = laid_out.inst
        number = len(self.instructions)
        label = self.label(inst)
        as_input = _digest(input_label(inst.shape))
        self.rows = _grown(self.rows, number + 1)
        self.labels = _grown(self.labels, number + 1)
        self.needs = _grown(self.needs, self._num_needs + len(laid_out.needs))
        facts = self.instruction_facts.row(inst, laid_out.operand, is_member=laid_out.is_member)
        self.rows[number] = [*facts, laid_out.natural, laid_out.assigned, self._num_needs]
        self.labels[number] = [int.from_bytes(d[:8], "little") for d in (_digest(label), as_input)]
        self.needs[self._num_needs : self._num_needs + len(laid_out.needs)] = laid_out.needs
        self._num_needs += len(laid_out.needs)
        self.instructions.append(inst)
        self.label_bytes.append(label)
        self.input_digests.append(as_input)
        return number

    def label(self, inst: Instruction) -> bytes:
        """Returns the label that an instruction has in kernels; callees count by their fingerprints."""
        return instruction_label(inst, [self._called[callee] for callee in inst.called], numbered=False)


def _digest(label: bytes) -> bytes:
    return blake2b(label, digest_size=16).digest()


def _grown(array: npt.NDArray[Number], length: int) -> npt.NDArray[Number]:
    """Returns the array, or a copy of at least twice its length if `length` does not fit."""
    if length <= len(array):
        return array
    result = np.zeros((max(length, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    result[: len(array)] = array
    return result


class BodyTables(NamedTuple):
    """One computation of n instructions, before orders are assigned.

    Attributes:
        operands_offsets: [n + 1], where the operands of each instruction begin.
        operands: positions.
        classes_offsets: [n + 1], where the classes begin whose orders an instruction depends on.
        classes: numbers of classes.
        node: [n], number of the configurable node, or NONE.
        keys: [n], hashes that tell instructions apart.
        array: [n], number of the element type and sizes of a value.
        remade: bool [n], whether an instruction is computed again in place of a copy.
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
        row: [m], row of each in the fact table; UNKNOWN for copies at first.
        origin: [m], position that an instruction had before, or that of the value that it copies.
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
        requirements: orders that instructions require of their operands.
        facts: rows of the program's instructions.
        computation: position of the computation.
        arrays: numbers of the element types and sizes met so far; shared by the program's computations.

    Attributes:
        computation: position of the computation.
        body: the computation before orders are assigned.
    """

    def __init__(
        self,
        tables: OrderTables,
        requirements: Requirements,
        facts: FactTable,
        computation: int,
        arrays: ArrayNumbers,
    ) -> None:
        self._tables, self._requirements, self._facts = tables, requirements, facts
        self._classes = tables.classes
        self.computation = computation
        self._body = tables.classes.module.computations[computation].instructions
        self._rows, self._copies = HashNumbers(), HashNumbers()
        self._alike = self._number_alike()
        self._row_of: dict[tuple[int, tuple[int, ...], NodeLayouts | None], int] = {}
        self.body = self._tabulate(arrays)

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
            keys: `row_keys` of the config.
        """
        rows = self._rows.find(keys)
        new = np.flatnonzero(rows == UNKNOWN)
        if len(new):
            rows[new] = [self._row(p, order, options) for p in new.tolist()]
            self._rows.add(keys[new], rows[new])
        emitted = _emit(self.body, rows, self._facts.rows, self._facts.needs)
        copies = np.flatnonzero(emitted.row == UNKNOWN)
        if len(copies):
            self._find_copies(emitted, copies)
        return emitted

    def _row(self, position: int, order: I64, options: I64) -> int:
        """Returns the row of an instruction with the orders of its values; equal instructions share rows."""
        first, stop = self.body.classes_offsets[position : position + 2].tolist()
        orders = tuple(order[self.body.classes[first:stop]].tolist())
        key = self._alike[position], orders, self._chosen(position, options)
        row = self._row_of.get(key)
        if row is None:
            row = self._row_of[key] = self._facts.add(self._lay_out(position, order, options))
        return row

    def _number_alike(self) -> list[int]:
        """Returns a number for each instruction, the same for instructions that rules cannot tell apart.

        Programs repeat their layers, so there are fewer numbers than instructions.
        """
        numbers: dict[tuple[bytes, tuple[Shape, ...], Kind | None], int] = {}
        alike = []
        for inst in self._body:
            operands = [self._body[operand] for operand in inst.operands]
            kind = kind_of(operands[0].opcode) if operands else None
            key = self._facts.label(inst), tuple(operand.shape for operand in operands), kind
            alike.append(numbers.setdefault(key, len(numbers)))
        return alike

    def _find_copies(self, emitted: Emitted, copies: I64) -> None:
        """Fills in the rows of copies."""
        rows = self._copies.find(emitted.keys[copies])
        new, first = np.unique(emitted.keys[copies[rows == UNKNOWN]], return_index=True)
        if len(new):
            new_copies = copies[rows == UNKNOWN][first]
            added = [self._facts.add(self._copy(emitted, position)) for position in new_copies.tolist()]
            self._copies.add(new, np.array(added, dtype=np.int64))
            rows = self._copies.find(emitted.keys[copies])
        emitted.row[copies] = rows

    def _tabulate(self, arrays: ArrayNumbers) -> BodyTables:
        count = len(self._body)
        base = self._classes.module.offsets[self.computation]
        classes = [self._depends_on(p) for p in range(count)]
        ranks = [[self._body[o].shape.rank for o in inst.operands] for inst in self._body]
        return BodyTables(
            *lists_to_arrays([inst.operands for inst in self._body]),
            *lists_to_arrays(classes),
            np.array(
                [self._tables.node_numbers.get((self.computation, p), NONE) for p in range(count)],
                dtype=np.int64,
            ),
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
            self._classes.module.computations[self.computation].root,
        )

    def _depends_on(self, position: int) -> list[int]:
        """Returns the classes of an instruction's result, then of its operands that are arrays."""
        leaves = list(self._classes.leaves(self.computation, position))
        for operand in self._body[position].operands:
            if not self._body[operand].shape.is_tuple:
                leaves.append(self._classes.leaf(self.computation, operand))
        return [number for number in map(self._tables.class_of, leaves) if number != NONE]

    def _lay_out(self, position: int, order: I64, options: I64) -> LaidOutInstruction:
        """Returns an instruction with the orders of its values, as `layout.assign` writes it."""
        inst, tables = self._body[position], self._tables
        names, requirements = tables.names, self._requirements
        first, stop = self.body.classes_offsets[position : position + 2].tolist()
        classes = self.body.classes[first:stop].tolist()
        orders = {tables.roots[k]: names.names[order[k]] for k in classes}
        leaves = self._classes.leaves(self.computation, position)
        shape = with_leaves(inst.shape, iter([requirements.shape(leaf, orders) for leaf in leaves]))
        assigned = NONE if shape.is_tuple or shape.rank < 2 else names.number(shape.layout)
        natural, needs = assigned, [NONE] * len(inst.operands)
        operands = [self._body[o].shape for o in inst.operands]
        if inst.opcode not in ALIASES and inst.operands:
            node = self.computation, position
            needed, natural_order = requirements.of(node, orders, self._chosen(position, options))
            for i, (operand, need) in enumerate(zip(operands, needed, strict=True)):
                if not operand.is_tuple:
                    operands[i] = operand.with_layout(need)
                    needs[i] = names.number(need) if operand.rank > 1 else NONE
            if not shape.is_tuple and shape.layout != natural_order:
                shape, natural = shape.with_layout(natural_order), names.number(natural_order)
        first_operand = self._body[inst.operands[0]] if inst.operands else None
        return LaidOutInstruction(
            inst=inst.rewire(shape, inst.operands, ()),
            operand=operands[0] if operands else None,
            is_member=is_kernel_result(inst, first_operand),
            needs=needs,
            natural=natural,
            assigned=assigned,
        )

    def _chosen(self, position: int, options: I64) -> NodeLayouts | None:
        number = self._tables.node_numbers.get((self.computation, position))
        return None if number is None else self._tables.nodes[number].options[options[number]]

    def _copy(self, emitted: Emitted, position: int) -> LaidOutInstruction:
        """Returns a copy, or what is computed again in its place."""
        names = self._tables.names.names
        origin, order = int(emitted.origin[position]), int(emitted.order[position])
        inst = self._body[origin]
        shape = inst.shape.with_layout(names[order])
        if self.body.remade[origin]:
            operand = self._body[inst.operands[0]].shape if inst.operands else None
            needs = [NONE] * len(inst.operands)
            return LaidOutInstruction(
                inst.rewire(shape, inst.operands, ()), operand, False, needs, order, order
            )
        source = inst.shape.with_layout(names[int(emitted.source_order[position])])
        copy = Instruction(name="copy", opcode=Opcode.COPY, shape=shape, operands=(0,))
        return LaidOutInstruction(copy, source, False, [order], order, order)


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
        emitted: instructions so far.
        copies: [m, 2], latest copy of a value, and for a copy the one of the same value before it; or -1.
        ends: [2], number of instructions and of operands.
        copied: [1], buffer for the operand of a copy.
    """

    emitted: Emitted
    copies: I64
    ends: I64
    copied: I64


@compiled_step
def _append(w: _Writing, operands: I64, first: int, stop: int) -> int:
    """Appends an instruction that reads `operands[first:stop]`; returns its position."""
    position, end = w.ends[0], w.ends[1]
    for i in range(first, stop):
        w.emitted.operands[end] = operands[i]
        end += 1
    w.emitted.operands_offsets[position + 1] = end
    w.ends[0], w.ends[1] = position + 1, end
    return int(position)


@compiled_step
def _in_order(b: BodyTables, w: _Writing, value: int, order: int) -> int:
    """Returns the value in a memory order: itself if it has it, else a repeated broadcast or a copy."""
    emitted = w.emitted
    if order == NONE or emitted.order[value] == order:
        return value
    copy = w.copies[value, 0]
    while copy >= 0:
        if emitted.order[copy] == order:
            return int(copy)
        copy = w.copies[copy, 1]
    origin = emitted.origin[value]
    if b.remade[origin]:
        first, stop = emitted.operands_offsets[value], emitted.operands_offsets[value + 1]
        copy = _append(w, emitted.operands, first, stop)
        key = b.keys[origin] ^ _REMADE_KEY
    else:
        w.copied[0] = value
        copy = _append(w, w.copied, 0, 1)
        key = mix(mix(np.uint64(b.array[origin]) ^ _COPIED) ^ np.uint64(emitted.order[value] + 1))
    emitted.origin[copy], emitted.order[copy] = origin, order
    emitted.source_order[copy] = emitted.order[value]
    emitted.keys[copy] = mix(key ^ np.uint64(order + 1))
    w.copies[copy, 1] = w.copies[value, 0]
    w.copies[value, 0] = copy
    return int(copy)


@compiled
def _emit(b: BodyTables, rows: I64, facts: I64, needs: I64) -> Emitted:
    count, reads = len(rows), len(b.operands)
    size = 2 * count + reads
    emitted = Emitted(
        np.full(size, -1, dtype=np.int64), np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64),
        np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.uint64),
        np.zeros(size + 1, dtype=np.int64), np.empty(size + reads, dtype=np.int64), 0,
    )  # fmt: skip
    ends, copied = np.zeros(2, dtype=np.int64), np.zeros(1, dtype=np.int64)
    w = _Writing(emitted, np.full((size, 2), -1, dtype=np.int64), ends, copied)
    moved = np.empty(count, dtype=np.int64)
    operands = np.empty(reads, dtype=np.int64)
    for p in range(count):
        first, stop, row = b.operands_offsets[p], b.operands_offsets[p + 1], rows[p]
        for i in range(first, stop):
            need = needs[facts[row, NEEDS] + i - first]
            operands[i] = _in_order(b, w, moved[b.operands[i]], need)
        position = _append(w, operands, first, stop)
        emitted.row[position], emitted.origin[position], emitted.order[position] = row, p, facts[row, NATURAL]
        moved[p] = _in_order(b, w, position, facts[row, ASSIGNED])
    m, stop = w.ends[0], w.ends[1]
    return Emitted(
        emitted.row[:m].copy(), emitted.origin[:m].copy(), emitted.order[:m].copy(),
        emitted.source_order[:m].copy(), emitted.keys[:m].copy(),
        emitted.operands_offsets[: m + 1].copy(), emitted.operands[:stop].copy(), moved[b.root],
    )  # fmt: skip
