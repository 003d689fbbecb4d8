"""Tables of facts about a computation that compiled lowering code reads; they are filled on demand.

Kernels of one program share instructions, and few distinct accesses reach an instruction. So accesses are
numbered, and each rule of `lowering.access` (plain Python) is applied once to each access that reaches an
instruction. The result is stored in a hash table under a *key*: the rule, and the two numbers that it is
applied to. Compiled code that needs a key for the first time stops; `LoweringTables.fill` applies the rule
and stores the result; compiled code starts the kernel again.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from costbench.arrays import I64, AnyArray
from costbench.compiler.lowering.access import (
    Access,
    access_loops,
    array_shape,
    result_access,
    scatter_index_access,
    wider,
)
from costbench.compiler.lowering.arrays import (
    ACCESS,
    COUNT_BITS,
    FIXED_SHIFT,
    INDICES,
    KIND_BITS,
    LOOPS,
    MAP,
    NONE,
    OVER_CONTRACTION,
    SECOND_BITS,
    SHAPE,
    SHAPE_AXIS,
    SPACE,
    TILED,
    VALUE,
    WANTED,
    WIDER,
    WRITES,
    WRITTEN,
    LoweringArrays,
    slot_of,
)
from costbench.compiler.lowering.iteration_space import (
    IterationSpace,
    iteration_space,
    wanted_access,
)
from costbench.compiler.lowering.packed import LOOP
from costbench.compiler.lowering.values import Facts, facts_of, written
from costbench.compiler.tiled_memory import native_bytes, native_units
from costbench.execution.compiled import compiled
from costbench.hlo.module import HloComputation
from costbench.hlo.shape import Shape

_FEWEST_SLOTS = 1024
_ENTRIES_PER_INSTRUCTION = 64


class _Rows:
    """A growable array of rows."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.data: AnyArray = np.zeros(64, dtype=dtype)
        self.count = 0

    def add(self, *rows: object) -> int:
        """Appends rows and returns the index of the first."""
        first, self.count = self.count, self.count + len(rows)
        if self.count > len(self.data):
            grown = np.zeros(2 * self.count, dtype=self.data.dtype)
            grown[:first] = self.data[:first]
            self.data = grown
        for place, row in enumerate(rows, first):
            self.data[place] = row
        return first


class LoweringTables:
    """The tables of one computation, filled as kernels need them.

    Args:
        body: the computation, layouts assigned.

    Attributes:
        spaces: iteration spaces by number.
    """

    def __init__(self, body: HloComputation) -> None:
        self.body = body
        count = len(body.instructions)
        operands = [inst.operands for inst in body.instructions]
        self._offsets = np.cumsum([0, *map(len, operands)], dtype=np.int64)
        self._operands = np.array([value for values in operands for value in values], dtype=np.int64)
        self._owner = np.repeat(np.arange(count), np.diff(self._offsets))
        self._values = np.zeros(count, dtype=VALUE)
        self._same = np.zeros(len(self._operands), dtype=bool)
        self._keys, self._results = np.zeros((2, _FEWEST_SLOTS), dtype=np.int64)
        self._num_keys = 0
        self._access_rows, self._accesses, self._maps = _Rows(np.int64), _Rows(ACCESS), _Rows(MAP)
        self._shapes, self._axes, self._written = _Rows(SHAPE), _Rows(SHAPE_AXIS), _Rows(WRITTEN)
        self._spaces, self._loops, self._loop_order = _Rows(SPACE), _Rows(LOOP), _Rows(np.int64)
        self.spaces: list[IterationSpace] = []
        self._named: list[Access] = []
        self._numbers: dict[Access, int] = {}
        self._shape_numbers: dict[tuple[tuple[int, ...], ...], int] = {}
        self._order_numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}

    @property
    def is_full(self) -> bool:
        """Returns whether the tables have outgrown the computation, so that new ones should replace them."""
        return self._num_keys + len(self._named) > _ENTRIES_PER_INSTRUCTION * len(self.body.instructions)

    @property
    def arrays(self) -> LoweringArrays:
        """Returns the tables as compiled code reads them."""
        return LoweringArrays(
            self._values, self._offsets, self._operands, self._same, self._keys, self._results,
            self._access_rows.data, self._accesses.data, self._maps.data, self._shapes.data, self._axes.data,
            self._written.data, self._spaces.data, self._loops.data, self._loop_order.data,
        )  # fmt: skip

    def make_ready(self, positions: I64) -> None:
        """Fills in the rows of instructions that no earlier kernel held.

        Raises:
            UnsupportedKernelError: for an operation that fixes an axis beyond the twenty-second.
        """
        new = positions[self._values["traits"][positions] == 0].tolist()
        for position, facts in {position: facts_of(self.body, position) for position in new}.items():
            self._add_value(position, facts)

    def fill(self, key: int) -> None:
        """Applies the rule that a key stands for and stores the result.

        Raises:
            UnsupportedKernelError: for more loops than a kernel may have.
        """
        kind, rest = key >> KIND_BITS, key & (1 << KIND_BITS) - 1
        result = self._result_of(kind, rest >> SECOND_BITS, rest & (1 << SECOND_BITS) - 1)
        self._num_keys += 1
        if 2 * self._num_keys > len(self._keys):
            keys, results = np.zeros((2, 2 * len(self._keys)), dtype=np.int64)
            _copy_keys(self._keys, self._results, keys, results)
            self._keys, self._results = keys, results
        _enter(self._keys, self._results, key, result)

    def access(self, number: int) -> Access:
        """Returns the access with this number."""
        return self._named[number]

    def number(self, access: Access) -> int:
        """Returns the number of an access; equal accesses have equal numbers."""
        number = self._numbers.setdefault(access, len(self._named))
        if number == len(self._named):
            self._named.append(access)
            self._access_rows.add(self._add_access(access))
        return number

    def _result_of(self, kind: int, first: int, second: int) -> int:
        if kind == LOOPS:
            return self._add_space(first, second)
        if kind == WIDER:
            return self.number(wider(self._named[first], self._named[second]))
        if kind == WRITES:
            return self._add_written(first, second)
        if kind == INDICES:
            inst = self.body.instructions[first]
            shape = array_shape(self.body.instructions[inst.operands[1]].shape)
            return self.number(scatter_index_access(inst, self._named[second], shape))
        # The other two are about an operand of an instruction.
        position = int(self._owner[first])
        place = first - int(self._offsets[position])
        if kind == WANTED:
            return self.number(wanted_access(self.body, position, place, self._named[second]))
        found = result_access(self.body, self.body.instructions[position], place, self._named[second])
        return NONE if found is None else self.number(found)

    def _add_value(self, position: int, facts: Facts) -> None:
        shape = facts.shape
        self._same[self._offsets[position] : self._offsets[position + 1]] = facts.same
        order = self._order_numbers.setdefault((shape.dimensions, shape.layout), len(self._order_numbers))
        is_array = not self.body.instructions[position].shape.is_tuple
        self._values[position] = (
            facts.traits,
            facts.flow,
            self.number(facts.whole),
            facts.source,
            facts.anchor,
            facts.carrier,
            self._shape(shape, facts.native_units),
            order,
            shape.num_elements,
            shape.rank,
            is_array and facts.source == position,
            facts.fixed_axes,
            *facts.partial,
            facts.native_bytes,
            facts.element_bytes,
        )

    def _shape(self, shape: Shape, units: tuple[int, ...]) -> int:
        """Returns the number of a shape's sizes, memory order and native tile; the element type as such is
        ignored.
        """
        key = (shape.dimensions, shape.minor_to_major, units)
        if key not in self._shape_numbers:
            axes = zip(shape.layout[::-1], units, strict=True)
            first = self._axes.add(*((axis, shape.dimensions[axis], unit) for axis, unit in axes))
            self._shape_numbers[key] = self._shapes.add(
                (first, shape.rank, shape.num_elements, math.prod(units))
            )
        return self._shape_numbers[key]

    def _add_access(self, access: Access) -> int:
        """Adds a new access and returns its row."""
        mask = sum(1 << loop for loop in access_loops(access))
        return self._accesses.add((self._maps.add(*access), len(access), mask))

    def _add_written(self, position: int, number: int) -> int:
        """Adds the copies of an output; returns index of the first and their number, packed in one int."""
        access, rows = self._named[number], []
        for shape, of_shape, row_elements in written(self.body, position, self._named[number]):
            if of_shape is access or not of_shape:
                row = int(self._access_rows.data[self.number(of_shape)])
            else:
                # Members of a tuple that nothing cuts are boxes of their own: sums over boxes, and so the
                # last bits of a price, depend on how many boxes there are.
                row = self._add_access(of_shape)
            element_bytes = shape.element_type.bits / 8
            figures = (native_bytes(shape), element_bytes, row_elements, shape.num_elements)
            rows.append((row, self._shape(shape, native_units(shape)), *figures))
        return self._written.add(*rows) << COUNT_BITS | len(rows)

    def _add_space(self, anchor: int, bits: int) -> int:
        fixed = {axis for axis in range(SECOND_BITS) if bits >> FIXED_SHIFT >> axis & 1}
        contracts, tiled = bool(bits & OVER_CONTRACTION), bool(bits & TILED)
        space = iteration_space(self.body, anchor, contracts=contracts, tiled=tiled, fixed=fixed)
        number = len(space.loops)
        rows = zip(
            space.units,
            (loop.unit for loop in space.loops),
            (loop.extent for loop in space.loops),
            strict=True,
        )
        first = self._loops.add(*rows)
        self._loop_order.add(*(space.contraction_order or range(number)))
        self.spaces.append(space)
        row = (self.number(space.access), first, number, space.num_output_loops, contracts)
        return self._spaces.add(row)


@compiled
def _enter(keys: I64, results: I64, key: int, result: int) -> None:
    """Stores the result of a key in a table that has a free slot."""
    slot = slot_of(keys, key)
    keys[slot], results[slot] = key, result


@compiled
def _copy_keys(keys: I64, results: I64, new_keys: I64, new_results: I64) -> None:
    """Inserts all keys of a table into another one."""
    for i in range(len(keys)):
        if keys[i] != 0:
            slot = slot_of(new_keys, keys[i])
            new_keys[slot], new_results[slot] = keys[i], results[i]
