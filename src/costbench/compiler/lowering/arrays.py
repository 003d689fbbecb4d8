"""`ValueTables` as arrays, for compiled code that lowers one kernel after the other.

What only Python knows is looked up by a number, a *key*. Compiled code that meets a key for the first time
stops and says so; `LoweringTables.fill` then finds out, and compiled code goes on. There are few such keys: a
program's kernels share instructions, and maps travel through an instruction in few ways.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiler.kernel_arrays import lists_to_arrays
from costbench.compiler.lowering.access import Access, access_loops
from costbench.compiler.lowering.anchors import Walk, native_units, walk_over
from costbench.compiler.lowering.packed import copy_figures
from costbench.compiler.lowering.transfers import Transfer
from costbench.compiler.lowering.value_tables import Value, ValueTables
from costbench.compiler.tiling.space import MAX_SIZE, MAX_UNITS, balanced_splits
from costbench.execution.compiled import compiled
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# Columns of `LoweringArrays.facts`, one row per instruction.
(
    TRAITS,
    FLOW,
    WHOLE_ACCESS,
    SOURCE,
    WALKED,
    CARRIER,
    SHAPE,
    ORDER,
    NUM_ELEMENTS,
    RANK,
    WRITES_ITSELF,
) = range(11)
_NUM_FACTS = 11
UNREADY = -1
"""In `TRAITS`, of an instruction that no kernel held so far."""
PLAIN, BROADCASTS, REDUCES, SCATTERS = range(4)
"""`FLOW`: how maps travel through an instruction."""
# Columns of `LoweringArrays.accesses`, of `.shapes`, of `.written` and of `.walks`.
FIRST_MAP, ACCESS_RANK, ACCESS_LOOPS = range(3)
FIRST_AXIS, SHAPE_RANK, SHAPE_ELEMENTS = range(3)
WRITTEN_ACCESS, WRITTEN_SHAPE = range(2)
WALK_ACCESS, FIRST_LOOP, NUM_LOOPS, NUM_OUTPUT_LOOPS, CONTRACTION_WALK = range(5)

NONE, MISSING = -1, -2
"""Values of a key: known to be nothing, and not known."""
RESULT, WANTED, INDICES, WIDER, WRITES, WALK = range(1, 7)
"""What a key asks, about two numbers: (slot, access) twice, (scatter, access of its updates),
(access, access), (position, access), (position, whether it is a contraction)."""
_KIND_BITS, _SECOND_BITS, COUNT_BITS = 56, 24, 16
_FEWEST_SLOTS = 1024
_FLOWS = {Opcode.BROADCAST: BROADCASTS, Opcode.REDUCE: REDUCES, Opcode.SCATTER: SCATTERS}
_WALKED_OPERAND = {Opcode.REDUCE: 0, Opcode.DYNAMIC_UPDATE_SLICE: 1, Opcode.SCATTER: -1}


class LoweringArrays(NamedTuple):
    """What is known of a computation of n instructions so far; arrays may be longer than what they hold.

    Attributes:
        facts: int64 [n, 11].
        figures: float64 [n, 4], of a value that is copied as it is: bytes of a native tile, of an element,
            0, elements.
        operands_offsets: [n + 1], where the operands of each instruction begin in the following.
        operands: positions; an entry is a *slot*.
        same: whether a value and this operand of it are cut alike.
        keys: int64, open table; 0 where it is empty.
        values: of the keys.
        identity: of an access by its number, its row in `accesses`: rows are as different as objects.
        accesses: int64 [*, 3]: where its maps begin, axes, bit set of loops.
        maps: float64 [*, 8], fields of `AxisMap`.
        shapes: int64 [*, 3]: where its axes begin, axes, elements.
        axes: float64 [*, 3], from major to minor: logical axis, size, elements of a native tile.
        written: int64 [*, 2], copies that are not simply a value: row of the access, shape.
        written_figures: float64 [*, 4].
        walks: int64 [*, 5], see the columns above.
        loops: float64 [*, 3], loops of walks: native tiles, elements of one, elements.
        loop_order: of the loops of contractions, outermost first.
    """

    facts: IntArray
    figures: FloatArray
    operands_offsets: IntArray
    operands: IntArray
    same: BoolArray
    keys: IntArray
    values: IntArray
    identity: IntArray
    accesses: IntArray
    maps: FloatArray
    shapes: IntArray
    axes: FloatArray
    written: IntArray
    written_figures: FloatArray
    walks: IntArray
    loops: FloatArray
    loop_order: IntArray


@compiled
def key_of(kind: int, first: int, second: int) -> int:
    """The key of a question about two numbers; never 0."""
    return kind << _KIND_BITS | first << _SECOND_BITS | second


@compiled
def slot_of(keys: IntArray, key: int) -> int:
    """Where a key is in an open table, or would be."""
    mask = len(keys) - 1
    mixed = key * 0x9E3779B97F4A7C1
    slot = (mixed ^ (mixed >> 29)) & mask
    while keys[slot] not in (0, key):
        slot = (slot + 1) & mask
    return slot


@compiled
def _enter(keys: IntArray, values: IntArray, key: int, value: int) -> None:
    slot = slot_of(keys, key)
    keys[slot], values[slot] = key, value


@compiled
def _moved(keys: IntArray, values: IntArray, new_keys: IntArray, new_values: IntArray) -> None:
    for i in range(len(keys)):
        if keys[i] != 0:
            slot = slot_of(new_keys, keys[i])
            new_keys[slot], new_values[slot] = keys[i], values[i]


class _Rows:
    """Rows of numbers that may become more."""

    def __init__(self, dtype: type, width: int = 0) -> None:
        self.data: npt.NDArray[Any] = np.zeros((64, width) if width else 64, dtype=dtype)
        self.count = 0

    def add(self, rows: object, number: int) -> int:
        """Appends so many rows; says which one is the first."""
        first, self.count = self.count, self.count + number
        if self.count > len(self.data):
            grown = np.zeros((2 * self.count, *self.data.shape[1:]), dtype=self.data.dtype)
            grown[:first] = self.data[:first]
            self.data = grown
        if number:
            self.data[first : self.count] = rows
        return first


class LoweringTables:
    """The arrays of one computation, which fill themselves.

    Args:
        body: the computation, layouts assigned.
    """

    def __init__(self, body: HloComputation) -> None:
        self._values = ValueTables(body)
        self._body = body
        count = len(body.instructions)
        operands = [inst.operands for inst in body.instructions]
        self._offsets, self._operands = lists_to_arrays(operands)
        self._owner = np.repeat(np.arange(count), np.diff(self._offsets))
        self._facts = np.full((count, _NUM_FACTS), UNREADY, dtype=np.int64)
        self._figures = np.zeros((count, 4))
        self._same = np.zeros(len(self._operands), dtype=bool)
        self._keys, self._known = np.zeros((2, _FEWEST_SLOTS), dtype=np.int64)
        self._num_keys = 0
        self._identity, self._accesses, self._maps = _Rows(np.int64), _Rows(np.int64, 3), _Rows(float, 8)
        self._shapes, self._axes = _Rows(np.int64, 3), _Rows(float, 3)
        self._written, self._written_figures = _Rows(np.int64, 2), _Rows(float, 4)
        self._walks, self._loops, self._loop_order = _Rows(np.int64, 5), _Rows(float, 3), _Rows(np.int64)
        self._candidates: list[IntArray] = []
        self._shape_numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        self._order_numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        self._access_rows: dict[int, int] = {}
        self._held: list[Access] = []
        # The first walk is that of a kernel without loops.
        self._walks.add(0, 1)

    @property
    def is_full(self) -> bool:
        """Whether the tables have outgrown the computation, and should be started anew."""
        return self._values.is_full

    @property
    def arrays(self) -> LoweringArrays:
        """What is known so far."""
        return LoweringArrays(
            self._facts, self._figures, self._offsets, self._operands, self._same, self._keys, self._known,
            self._identity.data, self._accesses.data, self._maps.data, self._shapes.data, self._axes.data,
            self._written.data, self._written_figures.data, self._walks.data, self._loops.data,
            self._loop_order.data,
        )  # fmt: skip

    @property
    def num_walks(self) -> int:
        """Walks known so far; they are numbered from 0."""
        return self._walks.count

    @property
    def loop_candidates(self) -> list[IntArray]:
        """Extents that each loop of each walk may take, ascending, walks end to end."""
        return self._candidates

    def make_ready(self, positions: IntArray) -> None:
        """Finds out the facts of instructions, where they are not known yet."""
        for position in positions[self._facts[positions, TRAITS] == UNREADY].tolist():
            self._add_value(self._values[position])
        self._number_accesses()

    def fill(self, key: int) -> None:
        """Finds out the value of a key."""
        kind, rest = key >> _KIND_BITS, key & (1 << _KIND_BITS) - 1
        first, second = rest >> _SECOND_BITS, rest & (1 << _SECOND_BITS) - 1
        value = self._value_of(kind, first, second)
        self._number_accesses()
        self._num_keys += 1
        if 2 * self._num_keys > len(self._keys):
            keys, known = np.zeros((2, 2 * len(self._keys)), dtype=np.int64)
            _moved(self._keys, self._known, keys, known)
            self._keys, self._known = keys, known
        _enter(self._keys, self._known, key, value)

    def _value_of(self, kind: int, first: int, second: int) -> int:
        values = self._values
        if kind == WIDER:
            return values.wider[first, second]
        if kind == INDICES:
            return values.scatter_indices(values[first], second)
        if kind == WRITES:
            return self._add_written(values.writes[first, second])
        if kind == WALK:
            return self._add_walk(walk_over(values, (first, bool(second))))
        # Slots.
        position = int(self._owner[first])
        place = first - int(self._offsets[position])
        if kind == WANTED:
            return values[position].wanted[place][1][second]
        result = values[position].results[place][1][second]
        return NONE if result is None else result

    def _add_value(self, value: Value) -> None:
        position, inst, shape = value.position, value.inst, value.shape
        for place, (_, results) in enumerate(value.results):
            self._same[self._offsets[position] + place] = self._values.keeps(results)
        walked = _WALKED_OPERAND.get(inst.opcode)
        is_carried = inst.opcode is Opcode.GET_TUPLE_ELEMENT
        order = self._order_numbers.setdefault((shape.dimensions, shape.layout), len(self._order_numbers))
        self._facts[position] = (
            value.traits,
            _FLOWS.get(inst.opcode, PLAIN),
            value.whole,
            value.source,
            position if walked is None else inst.operands[walked],
            inst.operands[0] if is_carried else NONE,
            self._shape(shape),
            order,
            shape.num_elements,
            shape.rank,
            value.source == position and not inst.shape.is_tuple,
        )
        self._figures[position] = copy_figures(Transfer(position, shape, (), is_output=False))

    def _shape(self, shape: Shape) -> int:
        """The number of a shape: of its sizes and memory order, whatever its elements are."""
        key = (shape.dimensions, shape.minor_to_major)
        if key not in self._shape_numbers:
            order = shape.layout[::-1]
            rows = [
                (axis, shape.dimensions[axis], unit)
                for axis, unit in zip(order, native_units(shape), strict=True)
            ]
            first = self._axes.add(rows, len(rows))
            self._shape_numbers[key] = self._shapes.add((first, shape.rank, shape.num_elements), 1)
        return self._shape_numbers[key]

    def _access(self, access: Access) -> int:
        """The row of an access; another one for each object, as boxes are told apart."""
        row = self._access_rows.get(id(access))
        if row is None:
            self._held.append(access)  # while it lives, no other object has its id
            mask = sum(1 << loop for loop in access_loops(access))
            first = self._maps.add(access, len(access))
            row = self._access_rows[id(access)] = self._accesses.add((first, len(access), mask), 1)
        return row

    def _number_accesses(self) -> None:
        for access in self._values.accesses[self._identity.count :]:
            self._identity.add(self._access(access), 1)

    def _add_written(self, transfers: tuple[Transfer, ...]) -> int:
        rows = [(self._access(t.access), self._shape(t.shape)) for t in transfers]
        first = self._written.add(rows, len(rows))
        self._written_figures.add([copy_figures(t) for t in transfers], len(rows))
        return first << COUNT_BITS | len(rows)

    def _add_walk(self, walk: Walk) -> int:
        """The number of a walk; NONE if it has more tile sizes than can be numbered."""
        number = len(walk.loops)
        if any(loop.units > MAX_UNITS for loop in walk.loops):
            return NONE
        candidates = [balanced_splits(loop.units) for loop in walk.loops]
        if math.prod(map(len, candidates)) >= MAX_SIZE:
            return NONE
        rows = [(loop.units, loop.unit, loop.extent) for loop in walk.loops]
        first = self._loops.add(rows, number)
        order = walk.order if walk.order else range(number)
        self._loop_order.add(list(order), number)
        self._candidates += candidates
        return self._walks.add((walk.access, first, number, walk.num_output_loops, bool(walk.order)), 1)
