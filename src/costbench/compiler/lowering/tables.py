"""Tables of facts about a computation that compiled lowering code reads; they are filled on demand.

Kernels of one program share instructions, and few distinct accesses reach an instruction. So accesses are
numbered, and each rule of `lowering.access` (plain Python) is applied once to each access that reaches an
instruction. The result is stored in a hash table under a *key*: the rule, and the two numbers that it is
applied to. Compiled code that needs a key for the first time stops; `LoweringTables.fill` applies the rule
and stores the result; compiled code starts the kernel again.

Of an instruction the tables also say what it reads and writes: a slice, a gather or a scatter need not copy
all of its first operand from main memory; an update in place writes the update only; a value that is a tuple
is written member by member.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.arrays import I64, AnyArray, Bool
from costbench.compiler.lowering.access import (
    Access,
    access_loops,
    array_shape,
    is_elementwise,
    result_access,
    scatter_index_access,
    whole,
    wider,
)
from costbench.compiler.lowering.iteration_space import (
    CONTRACTIONS,
    IterationSpace,
    iteration_space,
    wanted_access,
)
from costbench.compiler.lowering.packed import ACCESS_MAP, LOOP
from costbench.compiler.tiled_memory import native_bytes, native_units
from costbench.errors import UnsupportedKernelError
from costbench.execution.compiled import compiled
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode, opcodes
from costbench.hlo.shape import Shape

# Bits of `VALUE.traits`.
READY = 1
"""The row is filled in."""
CONTRACTS = 2
"""A convolution or dot."""
UNTILED = 4
"""One fixed routine, without tiles."""
WORKS = 8
"""Anything but a reshape."""
FIXES_AXES = 16
"""May not be cut along some axis."""

PLAIN, BROADCASTS, REDUCES, SCATTERS = range(4)
"""`VALUE.flow`: how accesses propagate through an instruction."""
NOT_PARTIAL, CUTS, ADDRESSES, UPDATES = range(4)
"""`VALUE.partial`: how an instruction reads its first operand: as it is, a rectangle of it, rows by address,
not at all."""

VALUE = np.dtype(
    [
        ("traits", "i8"),
        ("flow", "i8"),
        ("whole", "i8"),
        ("source", "i8"),
        ("anchor", "i8"),
        ("carrier", "i8"),
        ("shape", "i8"),
        ("order", "i8"),
        ("num_elements", "i8"),
        ("rank", "i8"),
        ("writes_itself", "i8"),
        ("fixed_axes", "i8"),
        ("partial", "i8"),
        ("partial_source", "i8"),
        ("row_elements", "i8"),
        ("native_bytes", "f8"),
        ("element_bytes", "f8"),
    ]
)
"""An instruction's value: bits and flow, see above; number of the access that takes it whole; position of the
value whose tiles are written where this one is an output, and of the value that loops run over for it; the
tuple that it is a member of, or NONE; numbers of its shape, and of its sizes and memory order; elements;
axes; whether it is written as it is; bits of the axes that it fixes; how it reads its first operand, the
value whose tiles are copied in place of that, and contiguous elements that an index selects, 0 unless rows
are read by address; bytes of a native tile and of an element. A tuple counts by its largest member."""
ACCESS = np.dtype([("first_map", "i8"), ("rank", "i8"), ("loops", "i8")])
"""Where the maps of an access begin, its axes, bit set of its loops."""
MAP = np.dtype(ACCESS_MAP)
SHAPE = np.dtype([("first_axis", "i8"), ("rank", "i8"), ("num_elements", "i8"), ("native_elements", "i8")])
"""Where its axes begin, how many, elements of the array and of one of its native tiles."""
SHAPE_AXIS = np.dtype([("axis", "i8"), ("size", "f8"), ("native", "f8")])
"""From major to minor: the logical axis, its elements, elements of a native tile."""
WRITTEN = np.dtype(
    [
        ("access", "i8"),
        ("shape", "i8"),
        ("native_bytes", "f8"),
        ("element_bytes", "f8"),
        ("row_elements", "f8"),
        ("num_elements", "f8"),
    ]
)
"""A copy to main memory that is not simply a value: row of its access, number of its shape, and the figures
of `packed.TRANSFER`."""
SPACE = np.dtype(
    [
        ("access", "i8"),
        ("first_loop", "i8"),
        ("num_loops", "i8"),
        ("num_output_loops", "i8"),
        ("contracts", "i8"),
    ]
)
"""An iteration space: number of the anchor's access, where its loops begin, how many it has in all and over
the output, whether a contraction decides their order."""

NONE, MISSING = -1, -2
"""Results of a key: the rule gives nothing, and the rule was not applied yet."""
RESULT, WANTED, INDICES, WIDER, WRITES, LOOPS = range(1, 7)
"""Rules, and the two numbers that they are applied to: the access of a value by its operand's (slot, access),
what is read of an operand by the value's access (slot, access), what a scatter reads of its indices
(position, access of the updates), what serves two uses (access, access), what is written of an output
(position, access), the loops over an anchor (position, bits)."""
OVER_CONTRACTION, TILED, FIXED_SHIFT = 1, 2, 2
"""The bits of LOOPS; from FIXED_SHIFT on the logical axes that may not be cut."""
KIND_BITS, SECOND_BITS, COUNT_BITS = 56, 24, 16
"""A key is kind << 56 | first << 24 | second; a result of WRITES is first row << 16 | number of rows."""

_MIN_SLOTS = 1024
_ENTRIES_PER_INSTRUCTION = 64
MAX_ELEMENTS = 1 << 62
"""Elements of a value, which are counted in 64-bit integers."""
_MAX_FIXED_AXIS = SECOND_BITS - FIXED_SHIFT - 1
_TRAITS: Mapping[Opcode, int] = {
    **dict.fromkeys(CONTRACTIONS, CONTRACTS | WORKS),
    **dict.fromkeys(
        opcodes("fft cholesky triangular-solve custom-call rng-get-and-update-state"),
        UNTILED | WORKS,
    ),
    **dict.fromkeys((Opcode.RESHAPE, Opcode.BITCAST), 0),
    **dict.fromkeys((Opcode.SORT, Opcode.TOPK), FIXES_AXES | WORKS),
}
_FLOWS = {Opcode.BROADCAST: BROADCASTS, Opcode.REDUCE: REDUCES, Opcode.SCATTER: SCATTERS}
_ANCHOR_OPERAND = {Opcode.REDUCE: 0, Opcode.DYNAMIC_UPDATE_SLICE: 1, Opcode.SCATTER: -1}


class LoweringArrays(NamedTuple):
    """The tables of a computation of n instructions so far; arrays may be longer than what they hold.

    Attributes:
        values: records VALUE, [n].
        operands_offsets: [n + 1], where the operands of each instruction begin in the following.
        operands: positions; the index of an entry is called a *slot*.
        same: whether the value and the operand of a slot always have the same access.
        keys: int64, a hash table with open addressing; 0 where it is empty.
        results: result of the rule that each key stands for.
        access_rows: rows of accesses in `accesses`, by number of the access.
        accesses: records ACCESS; different rows are different boxes, even where they are equal.
        maps: records MAP.
        shapes: records SHAPE.
        axes: records SHAPE_AXIS.
        written: records WRITTEN.
        spaces: records SPACE.
        loops: records LOOP of all spaces, end to end.
        loop_order: order of the loops of each space, outermost first.
    """

    values: AnyArray
    operands_offsets: I64
    operands: I64
    same: Bool
    keys: I64
    results: I64
    access_rows: I64
    accesses: AnyArray
    maps: AnyArray
    shapes: AnyArray
    axes: AnyArray
    written: AnyArray
    spaces: AnyArray
    loops: AnyArray
    loop_order: I64


@compiled
def key_of(kind: int, first: int, second: int) -> int:
    """Returns the key of a rule applied to two numbers; never 0."""
    return kind << KIND_BITS | first << SECOND_BITS | second


@compiled
def slot_of(keys: I64, key: int) -> int:
    """Returns the index of a key in a table of 2^b entries, or where it would be inserted."""
    mask = len(keys) - 1
    # Multiplying by 2^60 over the golden ratio spreads keys that follow one another over all high bits.
    mixed = key * 0x9E3779B97F4A7C1
    slot = (mixed ^ (mixed >> 29)) & mask
    while keys[slot] not in (0, key):
        slot = (slot + 1) & mask
    return slot


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
        for index, row in enumerate(rows, first):
            self.data[index] = row
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
        self._keys, self._results = np.zeros((2, _MIN_SLOTS), dtype=np.int64)
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
        for position in dict.fromkeys(new):
            self._add_value(position)

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
        operand = first - int(self._offsets[position])
        if kind == WANTED:
            return self.number(wanted_access(self.body, position, operand, self._named[second]))
        access = result_access(self.body, self.body.instructions[position], operand, self._named[second])
        return NONE if access is None else self.number(access)

    def _add_value(self, position: int) -> None:
        inst = self.body.instructions[position]
        shape = array_shape(inst.shape)
        if shape.num_elements > MAX_ELEMENTS:
            raise UnsupportedKernelError(
                f"a value of {shape.num_elements} elements",
                field=f"instruction {inst.name!r}",
                expected=f"at most {MAX_ELEMENTS} elements",
            )
        traits = READY | _TRAITS.get(inst.opcode, WORKS)
        fixed_axes = _fixed_axes(inst, shape) if traits & FIXES_AXES else 0
        self._same[self._offsets[position] : self._offsets[position + 1]] = [
            is_elementwise(inst, self.body.instructions[operand].shape) for operand in inst.operands
        ]
        order = self._order_numbers.setdefault((shape.dimensions, shape.layout), len(self._order_numbers))
        source = _written_value(inst, position)
        anchor_operand = _ANCHOR_OPERAND.get(inst.opcode)
        self._values[position] = (
            traits,
            _FLOWS.get(inst.opcode, PLAIN),
            self.number(whole(shape)),
            source,
            position if anchor_operand is None else inst.operands[anchor_operand],
            inst.operands[0] if inst.opcode is Opcode.GET_TUPLE_ELEMENT else NONE,
            self._shape(shape),
            order,
            shape.num_elements,
            shape.rank,
            not inst.shape.is_tuple and source == position,
            fixed_axes,
            *_partial_read(self.body, position),
            native_bytes(shape),
            shape.element_type.bits / 8,
        )

    def _shape(self, shape: Shape) -> int:
        """Returns the number of a shape's sizes, memory order and native tile.

        The element type as such is ignored.
        """
        units = native_units(shape)
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
        inst, access, rows = self.body.instructions[position], self._named[number], []
        source = _written_value(inst, position)
        if source != position:
            shape = array_shape(self.body.instructions[source].shape)
            row_elements = _scatter_row_elements(self.body, inst) if inst.opcode is Opcode.SCATTER else 0
            copies = [(shape, access, row_elements)]
        else:
            leaves = inst.shape.leaves()
            copies = [(leaf, access if leaf.rank == len(access) else whole(leaf), 0) for leaf in leaves]
        for shape, copied, row_elements in copies:
            if copied is access or not copied:
                row = int(self._access_rows.data[self.number(copied)])
            else:
                # Members of a tuple that nothing cuts are boxes of their own: sums over boxes, and so the
                # last bits of a price, depend on how many boxes there are.
                row = self._add_access(copied)
            figures = (native_bytes(shape), shape.element_type.bits / 8, row_elements, shape.num_elements)
            rows.append((row, self._shape(shape), *figures))
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


# ---- facts about one instruction -------------------------------------------------------------------------


def _fixed_axes(inst: Instruction, shape: Shape) -> int:
    axes = inst.dimensions or (shape.rank - 1,)
    if max(axes) > _MAX_FIXED_AXIS:
        raise UnsupportedKernelError(
            f"a {inst.opcode.xla_name} along axis {max(axes)}",
            field=f"instruction {inst.name!r}",
            expected=f"an axis up to {_MAX_FIXED_AXIS}",
        )
    return sum(1 << axis for axis in set(axes) if axis >= 0)


def _partial_read(body: HloComputation, position: int) -> tuple[int, int, int]:
    """Returns the fields `partial`, `partial_source` and `row_elements` of VALUE."""
    inst = body.instructions[position]
    if inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        return UPDATES, NONE, 0
    # What a strided slice steps over lies in the same native tiles and is copied with the rest.
    if inst.opcode in (Opcode.SLICE, Opcode.DYNAMIC_SLICE) and all(s.stride == 1 for s in inst.slices):
        return CUTS, position, 0
    if inst.opcode is Opcode.GATHER:
        assert inst.gather is not None
        return ADDRESSES, position, max(1, math.prod(inst.gather.slice_sizes))
    if inst.opcode is Opcode.SCATTER:
        return ADDRESSES, inst.operands[-1], _scatter_row_elements(body, inst)
    return NOT_PARTIAL, NONE, 0


def _scatter_row_elements(body: HloComputation, inst: Instruction) -> int:
    """Returns the contiguous elements that one index of a scatter updates."""
    assert inst.scatter is not None
    shape = array_shape(body.instructions[inst.operands[-1]].shape)
    return max(1, math.prod(shape.dimensions[axis] for axis in inst.scatter.update_window_dims))


def _written_value(inst: Instruction, position: int) -> int:
    """Returns the value whose tiles are written for output `position`: an in-place update, or itself."""
    if inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        return inst.operands[1]
    return inst.operands[-1] if inst.opcode is Opcode.SCATTER else position
