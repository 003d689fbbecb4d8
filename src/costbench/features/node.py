"""Computes the features of a program's instructions, and its edges, by the rules of TpuGraphs.

Lists of integers, such as sizes, strides and paddings, take fixed columns: the first values, then the sum and
the product of all of them. The lists of many rows are concatenated and reduced at once, in 64-bit integers
that wrap around as in that data set.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from costbench.arrays import F32, I64
from costbench.features.schema import NODE_FEATURES, absent_row, column
from costbench.hlo.instruction import ConvolutionDimensions, Instruction, WindowDimension
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape


class ListColumns:
    """Collects the non-empty lists of one attribute, row by row, and writes them into a table at once.

    Args:
        start: first column.
        num_values: number of leading values that have columns; others only count in the totals.
        totals: whether two more columns hold the sum and the product over the whole list.
    """

    def __init__(self, start: int, num_values: int, totals: bool = True) -> None:
        self._start = start
        self._num_values = num_values
        self._totals = totals
        self._rows: list[int] = []
        self._lists: list[Sequence[int]] = []

    def add(self, row: int, values: Sequence[int]) -> None:
        """Adds the list of one row; for an empty one the row keeps its absent values."""
        if values:
            self._rows.append(row)
            self._lists.append(values)

    def write(self, table: F32) -> None:
        """Writes the added lists to `table` [n, columns]."""
        if not self._rows:
            return
        rows = np.array(self._rows, dtype=np.int64)
        lengths = np.array([len(values) for values in self._lists], dtype=np.int64)
        flat = np.fromiter(chain.from_iterable(self._lists), dtype=np.int64, count=int(lengths.sum()))
        starts = np.cumsum(lengths) - lengths
        for position in range(self._num_values):
            present = lengths > position
            table[rows[present], self._start + position] = flat[starts[present] + position]
        if self._totals:
            table[rows, self._start + self._num_values] = np.add.reduceat(flat, starts)
            table[rows, self._start + self._num_values + 1] = np.multiply.reduceat(flat, starts)


_NUM_AXES = 6
_NUM_SPATIAL = 4
_NUM_SHORT = 2


def _at(name: str) -> int:
    return column(NODE_FEATURES, name)


_CONVOLUTION_AXES = {
    "input_batch": _at("convolution_dim_numbers_input_batch_dim"),
    "input_feature": _at("convolution_dim_numbers_input_feature_dim"),
    "kernel_input_feature": _at("convolution_dim_numbers_kernel_input_feature_dim"),
    "kernel_output_feature": _at("convolution_dim_numbers_kernel_output_feature_dim"),
    "output_batch": _at("convolution_dim_numbers_output_batch_dim"),
    "output_feature": _at("convolution_dim_numbers_output_feature_dim"),
}


def _element_type_columns() -> dict[ElementType, int]:
    """Returns the column of each element type in the one-hot group; those not in TpuGraphs have none."""
    prefix = "shape_element_type_is_"
    irregular = {"invalid_type": "INVALID", "opaque_type": "OPAQUE"}
    features = [f for f in NODE_FEATURES if f.name.startswith(prefix)]
    suffixes = {f.name.removeprefix(prefix): f.index for f in features}
    return {ElementType[irregular.get(suffix, suffix.upper())]: index for suffix, index in suffixes.items()}


_ELEMENT_TYPE = _element_type_columns()
IS_ROOT_COLUMN = _at("is_root")
_TUPLE_SIZE = _at("shape_tuple_shapes_size")
PARAMETER_NUMBER_COLUMN = _at("parameter_number")
_FEATURE_GROUPS = _at("feature_group_count")
_BATCH_GROUPS = _at("batch_group_count")
_IS_STABLE = _at("is_stable")
_REVERSAL = _at("window_window_reversal_0")
_REVERSED = _at("window_window_reversal_true_count")
_NOT_REVERSED = _at("window_window_reversal_false_count")

SHAPE_COLUMNS = tuple(
    feature.index
    for feature in NODE_FEATURES
    if feature.name.startswith(("shape_", "layout_minor_to_major_"))
)
"""Columns that describe a node's value (element type, sizes, members, layout), whatever made it."""


class NodeTable:
    """The feature array of `n` nodes while it is being filled."""

    def __init__(self, num_nodes: int) -> None:
        self._table = np.tile(absent_row(NODE_FEATURES), (num_nodes, 1))
        self._scalars: dict[int, tuple[list[int], list[int]]] = {}
        self._sizes = ListColumns(_at("shape_dimensions_0"), _NUM_AXES)
        self._layout = ListColumns(_at("layout_minor_to_major_0"), _NUM_AXES, totals=False)
        self._dimensions = ListColumns(_at("dimensions_0"), _NUM_AXES, totals=False)
        self._window = {
            field: ListColumns(_at(f"window_{field}_0"), _NUM_AXES)
            for field in ("size", "stride", "padding_low", "padding_high", "window_dilation", "base_dilation")
        }
        self._reversal = ListColumns(_REVERSAL, _NUM_AXES, totals=False)
        self._spatial = {
            group: ListColumns(
                _at(f"convolution_dim_numbers_{group}_spatial_dims_0"), _NUM_SPATIAL, totals=False
            )
            for group in ("input", "kernel")
        }
        self._slices = {
            field: ListColumns(_at(f"slice_dims_{field}_0"), _NUM_SHORT)
            for field in ("start", "stride", "limit")
        }
        self._dynamic_slice = ListColumns(_at("dynamic_slice_sizes_0"), _NUM_SHORT)
        self._padding = {
            side: ListColumns(_at(f"padding_config_edge_padding_{side}_0"), _NUM_SHORT)
            for side in ("low", "high")
        }

    def _scalar(self, row: int, index: int, value: int) -> None:
        if value:
            rows, values = self._scalars.setdefault(index, ([], []))
            rows.append(row)
            values.append(value)

    def add(self, row: int, inst: Instruction, is_root: bool) -> None:
        """Adds one instruction. Attributes that most instructions lack are looked at only where present."""
        self._scalar(row, IS_ROOT_COLUMN, is_root)
        self._scalar(row, PARAMETER_NUMBER_COLUMN, inst.parameter_number)
        self._scalar(row, _FEATURE_GROUPS, inst.feature_group_count)
        self._scalar(row, _BATCH_GROUPS, inst.batch_group_count)
        self._scalar(row, _IS_STABLE, inst.is_stable)
        self._add_shape(row, inst.shape)
        self._dimensions.add(row, inst.dimensions)
        self._dynamic_slice.add(row, inst.dynamic_slice_sizes)
        if inst.window:
            self._add_window(row, inst.window)
        if inst.convolution is not None:
            self._add_convolution(row, inst.convolution)
        if inst.slices:
            for field, columns in self._slices.items():
                columns.add(row, [getattr(dimension, field) for dimension in inst.slices])
        if inst.padding:
            for side, columns in self._padding.items():
                columns.add(row, [getattr(dimension, side) for dimension in inst.padding])

    def _add_shape(self, row: int, shape: Shape) -> None:
        index = _ELEMENT_TYPE.get(shape.element_type)
        if index is not None:
            self._scalar(row, index, 1)
        self._scalar(row, _TUPLE_SIZE, len(shape.tuple_shapes))
        self._sizes.add(row, shape.dimensions)
        self._layout.add(row, shape.minor_to_major)

    def _add_window(self, row: int, window: tuple[WindowDimension, ...]) -> None:
        for field, columns in self._window.items():
            columns.add(row, [getattr(dimension, field) for dimension in window])
        reversals = [int(dimension.reversal) for dimension in window]
        self._reversal.add(row, reversals)
        self._scalar(row, _REVERSED, sum(reversals))
        self._scalar(row, _NOT_REVERSED, len(reversals) - sum(reversals))

    def _add_convolution(self, row: int, axes: ConvolutionDimensions) -> None:
        for field, index in _CONVOLUTION_AXES.items():
            self._scalar(row, index, getattr(axes, field))
        self._spatial["input"].add(row, axes.input_spatial)
        self._spatial["kernel"].add(row, axes.kernel_spatial)

    def finish(self) -> F32:
        """Returns the features of all instructions added, float32 [n, 140]."""
        for index, (rows, values) in self._scalars.items():
            self._table[rows, index] = np.array(values, dtype=np.int64)
        for columns in (
            self._sizes,
            self._layout,
            self._dimensions,
            self._reversal,
            self._dynamic_slice,
            *self._window.values(),
            *self._spatial.values(),
            *self._slices.values(),
            *self._padding.values(),
        ):
            columns.write(self._table)
        return self._table


def module_node_features(module: HloModule) -> F32:
    """Returns the features of a program's instructions: float32 [n, 140], columns of `schema.NODE_FEATURES`.

    Row `module.offsets[c] + position` belongs to that position of computation `c`. Sums and products are
    taken in 64-bit integers over whole lists (a product may wrap around) and then stored as float32.
    """
    table = NodeTable(module.num_instructions)
    for offset, computation in zip(module.offsets, module.computations, strict=False):
        for position, inst in enumerate(computation.instructions):
            table.add(offset + position, inst, position == computation.root)
    return table.finish()


def module_opcodes(module: HloModule) -> I64:
    """Returns the opcode codes of all instructions: int64 [n]."""
    return np.array([code for computation in module.computations for code in computation.opcodes], np.int64)


def tpugraphs_opcodes(module: HloModule) -> I64:
    """Returns the opcode codes of TpuGraphs, 0 for an opcode that it lacks: int64 [n]."""
    codes = np.zeros(max(Opcode) + 1, np.int64)
    for opcode in Opcode:
        codes[opcode] = opcode.tpugraphs_code
    return codes[module_opcodes(module)]


def module_edges(module: HloModule) -> I64:
    """Returns edges by TpuGraphs' rule: int64 [m, 2], rows (consumer, producer), sorted, each once.

    There is one per distinct operand, and one from every caller to the root of each computation it calls.
    Control dependencies are not edges.
    """
    roots = [o + c.root for o, c in zip(module.offsets, module.computations, strict=False)]
    edges: list[tuple[int, int]] = []
    for offset, computation in zip(module.offsets, module.computations, strict=False):
        for position, inst in enumerate(computation.instructions):
            producers = {offset + operand for operand in inst.operands}
            producers.update(roots[callee] for callee in inst.called)
            edges.extend((offset + position, producer) for producer in sorted(producers))
    return np.array(edges, dtype=np.int64).reshape(len(edges), 2)
